"""What the broker knows of a member from what it sent, reports and acknowledgements."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared import ClientLoad, Member, ServiceTime
from tidegate.flow.shared.timetable import Timetable


def report(queue_length: int, ms: float, count: int | None = None, processed: int | None = None) -> LoadReport:
    return LoadReport(queue_length=queue_length, processing_time=ms / 1000, count=count, processed=processed)


def test_the_mean_of_the_thesis_is_over_the_last_five_reports() -> None:
    load = ClientLoad(0.0)
    for second, ms in enumerate((25, 25, 30, 20, 25, 40), 1):
        load.on_report(float(second), report(0, ms))
    assert load.mean_time == pytest.approx(0.028)


def test_the_mean_of_the_thesis_counts_empty_reports_and_the_estimate_does_not() -> None:
    load = ClientLoad(0.0)
    load.on_report(1.0, report(0, 0, count=0))
    assert not load.has_sample
    load.on_report(2.0, report(0, 30, count=5))
    assert load.mean_time == pytest.approx(0.015)
    assert load.service == pytest.approx(0.030)


def test_sends_since_the_report_begin_anew_with_each() -> None:
    load = ClientLoad(0.0)
    load.on_sent(0.1)
    load.on_sent(0.2)
    assert load.sent_since_report == 2
    load.on_report(1.0, report(1, 25))
    assert (load.sent_since_report, load.queue_length, load.reported_at) == (0, 1, 1.0)


def test_a_client_that_tells_nothing_has_nothing_outstanding_and_is_not_known() -> None:
    load = ClientLoad(0.0)
    for _ in range(10):
        load.on_sent(1.0)
    assert (load.outstanding, load.is_known, load.backlog(1.0)) == (0, False, 0.0)


def test_who_acknowledges_late_has_outstanding_what_it_owes_whatever_it_reported_before() -> None:
    load = ClientLoad(0.0)
    load.on_sent(0.0, 1)
    load.on_done(0.01)
    load.on_report(0.1, report(0, 10, count=1, processed=1))
    for number in range(1, 6):
        load.on_sent(float(number), 1)
        assert load.outstanding == 1
        load.on_done(number + 0.01)
        assert load.outstanding == 0


def test_time_without_work_is_no_credit() -> None:
    load = ClientLoad(0.0)
    load.on_report(1.0, report(0, 25, count=4))
    load.on_sent(1.9)
    load.on_sent(1.9)
    assert load.backlog(1.9) == pytest.approx(0.050)
    assert load.backlog(1.92) == pytest.approx(0.030)


def test_a_total_counts_messages_on_the_wire_that_the_queue_does_not() -> None:
    load = ClientLoad(0.0)
    load.is_known = True
    for _ in range(10):
        load.on_sent(1.0)
    load.on_report(1.01, report(2, 25, count=3, processed=3))
    assert load.outstanding == 7
    assert load.backlog(1.01) == pytest.approx(0.150)  # six wait, one is nearly done for all we know


def test_a_total_that_includes_other_messages_never_makes_less_than_the_queue() -> None:
    load = ClientLoad(0.0)
    load.on_sent(1.0)
    load.on_report(1.5, report(4, 25, count=3, processed=500))
    assert load.outstanding == 4
    load.on_sent(1.6)
    load.on_report(1.7, report(0, 25, count=5, processed=505))
    assert load.outstanding == 0


def test_lost_messages_are_written_off_when_the_queue_is_empty() -> None:
    load = ClientLoad(0.0)
    load.is_known = True
    for _ in range(100):
        load.on_sent(1.0)
    load.on_report(2.0, report(0, 1, count=40, processed=40))  # 60 went missing, or are on the wire
    assert load.outstanding == 60
    load.on_report(3.0, report(0, 1, count=0, processed=40))
    assert load.outstanding <= 1


def test_acknowledgements_tell_the_speed_and_what_is_left() -> None:
    load = ClientLoad(0.0)
    for number in range(3):
        load.on_sent(1.0 + number / 1000, 1)
    load.on_done(1.025)
    assert (load.awaiting, load.has_sample) == (2, True)
    assert load.service == pytest.approx(0.025)
    assert load.backlog(1.025) == pytest.approx(0.050)
    load.on_done(1.075, 2)
    assert (load.awaiting, load.backlog(1.075)) == (0, 0.0)
    assert load.service == pytest.approx(0.025)


def test_the_round_trip_is_not_taken_for_work() -> None:
    load = ClientLoad(0.0)
    load.on_rtt(0.040)
    for second in range(1, 30):
        load.on_sent(float(second), 1)
        load.on_done(second + 0.050)
    assert load.service == pytest.approx(0.010)
    assert load.delay + load.discount == pytest.approx(0.020)


def test_round_trips_that_hardly_differ_are_all_the_same() -> None:
    near, nearer = ClientLoad(), ClientLoad()
    near.on_rtt(0.004)
    nearer.on_rtt(0.001)
    assert near.delay == nearer.delay == 0.0


def test_a_client_that_acknowledges_what_it_only_took_is_found_out_by_its_reports() -> None:
    load = ClientLoad(0.0)
    for _ in range(10):
        load.on_sent(1.0, 1)
    load.on_done(1.001, 10)
    assert load.backlog(1.001) == 0.0
    load.on_report(1.002, report(9, 25, count=1))
    assert load.backlog(1.002) >= 9 * 0.024
    before = load.free_at
    load.on_done(1.003, 1)
    assert load.free_at == before


def test_the_caller_may_know_better_how_many_are_left() -> None:
    load = ClientLoad(0.0)
    load.on_sent(1.0, 1)
    load.on_done(1.1, 1, left=5)
    assert load.awaiting == 5


def test_a_forgotten_client_is_as_new() -> None:
    load = ClientLoad(0.0)
    load.on_sent(1.0, 1)
    load.on_report(1.0, report(5, 25, 3, 9))
    load.forget(2.0)
    fresh = ClientLoad(2.0)
    for name in ("awaiting", "free_at", "is_known", "mean_time", "outstanding", "sent", "service"):
        assert getattr(load, name) == getattr(fresh, name), name


def test_the_estimate_believes_a_change_after_three_messages_and_not_after_one() -> None:
    estimate = ServiceTime()
    for _ in range(50):
        estimate.add(0.025)
    estimate.add(0.250)
    assert estimate.mean < 0.027
    for _ in range(30):
        estimate.add(0.025)
    assert [round(estimate.add(0.050)) for _ in range(3)] == [0, 0, 3]
    assert estimate.mean == pytest.approx(0.050)


def test_a_report_over_many_messages_is_believed_at_once() -> None:
    estimate = ServiceTime()
    estimate.add(0.025, 20)
    estimate.add(0.050, 20)
    assert estimate.mean == pytest.approx(0.050)


def test_a_timetable_that_is_gone_is_not_told_any_more() -> None:
    members = tuple(Member(str(number), ClientLoad()) for number in range(6))
    table = Timetable(members)
    load = members[0].load
    load.on_report(1.0, report(5, 25))
    assert table.changed == {0}
    del table
    gc.collect()
    load.on_report(2.0, report(50, 25))
    another = Timetable(members)
    assert [watcher() for watcher, _ in load.watchers] == [another]


actions = st.one_of(
    st.tuples(st.just("sent"), st.integers(0, 1)),
    st.tuples(st.just("done"), st.integers(0, 5)),
    st.tuples(
        st.just("report"),
        st.builds(
            report,
            st.integers(0, 10**9),
            st.floats(0, 1e9),
            st.none() | st.integers(0, 10**9),
            st.none() | st.integers(0, 10**9),
        ),
    ),
)


@given(steps=st.lists(st.tuples(st.floats(0, 10), actions), max_size=40))
def test_whatever_a_client_tells_its_state_stays_sane(steps: list) -> None:
    load = ClientLoad(0.0)
    now = 0.0
    for passed, (kind, what) in steps:
        now += passed
        if kind == "sent":
            load.on_sent(now, what)
        elif kind == "done":
            load.on_done(now, what)
        else:
            load.on_report(now, what)
        assert load.awaiting >= 0
        assert load.outstanding >= 0
        assert load.service >= 0.0
        assert 0.0 <= load.backlog(now) < float("inf")
