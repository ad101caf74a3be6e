"""When a client reports its load."""

from math import inf

import pytest

from tidegate.flow.shared import LoadReporter


def test_with_fixed_intervals_the_first_report_is_one_interval_away_and_may_be_empty() -> None:
    reporter = LoadReporter(10.0, interval=1.0, drift=inf, has_totals=False)
    reporter.on_processed(0.5)
    assert reporter.due() == 11.0
    first, second = reporter.report(11.0, 3), reporter.report(12.0, 0)
    assert (first.queue_length, first.processing_time, first.count, first.processed) == (3, 0.5, None, None)
    assert (second.queue_length, second.processing_time) == (0, 0.0)


def test_the_first_message_is_reported_at_once() -> None:
    reporter = LoadReporter(0.0, interval=1.0)
    assert reporter.due() == 1.0
    reporter.on_processed(0.025)
    assert reporter.due() <= 0.025
    report = reporter.report(0.025, 2)
    assert (report.queue_length, report.processing_time, report.count, report.processed) == (2, 0.025, 1, 1)


def test_a_steady_client_reports_no_more_than_one_with_fixed_intervals() -> None:
    reporter = LoadReporter(0.0, interval=1.0)
    now, reports = 0.0, 0
    for number in range(1000):
        now += 0.025
        reporter.on_processed(0.025 + (0.001 if number % 2 else -0.001))
        if reporter.due() <= now:
            reporter.report(now, 0)
            reports += 1
    assert reports <= 26


def test_a_change_of_speed_is_reported_at_once_with_the_new_speed_alone() -> None:
    reporter = LoadReporter(0.0, interval=100.0)
    reporter.on_processed(0.025)
    now = 0.025
    reporter.report(now, 0)
    for _ in range(20):
        reporter.on_processed(0.025)
    told = []
    for _ in range(4):
        now += 0.050
        reporter.on_processed(0.050)
        if reporter.due() <= now:
            told.append(reporter.report(now, 0).processing_time)
    assert told[-1] == pytest.approx(0.050)
    assert len(told) <= 2


def test_an_erratic_client_keeps_the_gap_between_reports() -> None:
    reporter = LoadReporter(0.0, interval=1.0, gap=0.1)
    now, reports = 0.0, 0
    for number in range(1000):
        now += 0.010
        reporter.on_processed(0.001 if number % 2 else 0.019)
        if reporter.due() <= now:
            reporter.report(now, 0)
            reports += 1
    assert reports <= 102
