"""What is measured of an application, and when that is worth a report."""

import pytest

from tidegate.client import Carrier, ClientError, ClientOptions, ReportOptions
from tidegate.client.load_meter import LoadMeter
from tidegate.flow.load_report import NEGOTIATION
from tidegate.mqtt import Property

OPTIONS = ReportOptions(interval=1.0, min_interval=0.1, queue_change=2, speed_change=0.25)


def meter(options: ReportOptions = OPTIONS) -> LoadMeter:
    new = LoadMeter(options)
    new.on_connected(0.0)
    return new


def process(meter: LoadMeter, seconds: float, number: int = 1) -> None:
    for _ in range(number):
        meter.on_done(seconds)


def test_a_report_has_the_mean_since_the_last_and_the_total_since_connecting() -> None:
    load = meter()
    process(load, 0.02)
    process(load, 0.04)
    report = load.take_report(3, 1.0)
    assert (report.queue_length, report.count, report.processed) == (3, 2, 2)
    assert report.processing_time == pytest.approx(0.03)
    process(load, 0.05)
    report = load.take_report(0, 2.0)
    assert (report.count, report.processed) == (1, 3)
    assert report.processing_time == pytest.approx(0.05)
    report = load.take_report(0, 3.0)
    assert (report.count, report.processed, report.processing_time) == (0, 3, 0.0)


def test_the_time_of_a_message_is_from_taking_it_to_asking_for_the_next() -> None:
    load = meter()
    load.on_taken("task", 1.0)
    load.on_taken("other", 1.1)
    load.on_ended("task", 1.3)
    load.on_ended("task", 5.0)  # It had nothing since.
    load.on_taken("other", 1.2)
    report = load.take_report(0, 2.0)
    assert (report.count, report.processed) == (2, 2)
    assert report.processing_time == pytest.approx(0.2)


def test_takers_that_left_are_done() -> None:
    load = meter()
    load.on_taken("left", 1.0)
    load.on_taken("stays", 1.0)
    load.forget(lambda taker: taker == "left", 1.5)
    assert load.takers == 1
    assert load.take_report(0, 2.0).processed == 1


def test_messages_of_an_earlier_connection_are_measured_but_not_counted_as_processed() -> None:
    load = meter()
    load.on_taken("a", 0.5)
    load.on_connected(1.0)
    load.on_ended("a", 1.5)
    load.on_taken("a", 1.5, is_of_this_connection=False)
    load.on_ended("a", 2.5)
    load.on_taken("a", 2.5)
    load.on_ended("a", 3.5)
    report = load.take_report(0, 4.0)
    assert (report.count, report.processed) == (3, 1)


def test_messages_nobody_will_see_count_as_processed_and_not_as_work() -> None:
    load = meter()
    load.on_skipped(4)
    report = load.take_report(0, 1.0)
    assert (report.count, report.processed) == (0, 4)


def test_the_first_report_comes_with_the_first_message_processed() -> None:
    load = meter()
    assert not load.is_due(0, 0.5)
    assert not load.is_due(10, 5.0)
    process(load, 0.02)
    assert load.is_due(10, 5.0)


def reported(queue_length: int = 4, mean: float = 0.02, options: ReportOptions = OPTIONS) -> LoadMeter:
    """Said at second 10 that so many wait and how long each takes."""
    load = meter(options)
    process(load, mean)
    load.take_report(queue_length, 10.0)
    return load


@pytest.mark.parametrize(
    "queue_length, mean, now, expected",
    [
        (4, 0.02, 10.5, False),
        (4, 0.02, 11.0, True),  # slowly, if nothing changes
        (7, 0.02, 10.5, True),
        (1, 0.02, 10.5, True),
        (6, 0.02, 10.5, False),  # not more than the threshold
        (4, 0.026, 10.5, True),
        (4, 0.014, 10.5, True),
        (4, 0.024, 10.5, False),
        (90, 0.5, 10.05, False),  # never more often than that
    ],
)
def test_a_change_is_reported_at_once_and_the_rest_slowly(
    queue_length: int, mean: float, now: float, expected: bool
) -> None:
    load = reported()
    process(load, mean)
    assert load.is_due(queue_length, now) is expected


def test_a_long_queue_must_change_by_half() -> None:
    load = reported(queue_length=100)
    assert not load.is_due(140, 10.5)
    assert load.is_due(151, 10.5)


def test_a_new_speed_is_told_after_three_messages_and_without_those_before() -> None:
    load = reported(mean=0.025)
    process(load, 0.025, 30)
    assert not load.is_due(4, 10.9)
    process(load, 0.05, 3)
    assert load.is_due(4, 10.9)
    report = load.take_report(4, 10.9)
    assert (report.count, report.processed) == (3, 34)
    assert report.processing_time == pytest.approx(0.05)


def test_a_message_worth_of_error_is_reported_even_if_the_speed_hardly_changed() -> None:
    load = reported(mean=0.02)
    process(load, 0.022, 9)
    assert not load.is_due(4, 10.5)
    process(load, 0.022)
    assert load.is_due(4, 10.5)
    load.take_report(4, 10.5)
    process(load, 0.022, 20)
    assert not load.is_due(4, 11.4)


def test_unevenness_of_fast_messages_is_not_worth_a_report() -> None:
    load = reported(mean=10e-6)
    for number in range(400):
        process(load, 30e-6 if number % 40 < 4 else 8e-6)
    assert not load.is_due(4, 10.5)
    assert load.is_due(4, 11.0)


def test_an_idle_application_says_so_once() -> None:
    load = reported(queue_length=4)
    assert load.is_due(0, 11.0)
    load.take_report(0, 11.0)
    assert not load.is_due(0, 100.0)


def test_as_in_the_thesis_only_the_interval_counts_and_an_empty_one_too() -> None:
    load = LoadMeter(ReportOptions(on_change=False, when_idle=True))
    load.on_connected(0.0)
    process(load, 0.02)
    assert not load.is_due(9, 0.9)
    assert load.is_due(9, 1.0)
    load.take_report(9, 1.0)
    assert not load.is_due(90, 1.9)
    assert load.is_due(0, 2.0)


@pytest.mark.parametrize(
    "reports, is_offered", [("auto", True), ("ping", True), ("puback", False), ("off", False)]
)
def test_the_extended_ping_is_offered_only_if_it_is_wanted(reports: str, is_offered: bool) -> None:
    options = ClientOptions(reports=reports, user_properties=(("a", "b"),))
    pairs = options.connect_packet("", clean_start=True).properties[Property.USER_PROPERTY]
    assert (NEGOTIATION in pairs) is is_offered
    assert ("a", "b") in pairs
    assert (
        not ClientOptions(reports=reports, protocol_version=4).connect_packet("", clean_start=True).properties
    )


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(ClientError):
        ReportOptions(interval=1.0, min_interval=2.0)
    with pytest.raises(ClientError):
        ReportOptions(carrier="pigeon")
    with pytest.raises(ClientError):
        ClientOptions(reports="loud")
    assert (
        ClientOptions(reports=ReportOptions(carrier=Carrier.PUBLISH)).report_options.carrier
        is Carrier.PUBLISH
    )
