"""What the round trips of a console's own messages say about its node."""

import pytest

from tidegate.console.latency import KEPT, LOST, Latency


def test_a_probe_that_came_back_is_the_latest() -> None:
    latency = Latency()
    assert latency.current(0.0) is None
    probe = latency.next_probe(1.0)
    assert probe is not None
    latency.on_probe(probe, 1.002)
    assert latency.current(5.0) == pytest.approx(2.0)
    assert latency.next_probe(6.0) not in (None, probe)


def test_a_slow_node_is_seen_while_it_is_slow() -> None:
    latency = Latency()
    for second in range(10):
        latency.on_probe(latency.next_probe(float(second)) or b"", second + 0.001)
    probe = latency.next_probe(10.0)
    assert latency.current(10.0005) == pytest.approx(1.0)  # sooner than the last one, so nothing is known yet
    assert latency.next_probe(11.0) is None
    assert latency.current(13.0) == pytest.approx(3_000.0)
    assert latency.summary(13.0) == {"latest": 3_000.0, "p50": 1.0, "p95": pytest.approx(1_500.5)}
    latency.on_probe(probe or b"", 14.0)
    assert latency.current(99.0) == pytest.approx(4_000.0)


def test_a_lost_probe_counts_and_its_late_answer_is_none_to_the_next() -> None:
    latency = Latency()
    first = latency.next_probe(0.0)
    second = latency.next_probe(LOST)
    assert second not in (None, first)
    assert latency.current(LOST) == LOST * 1e3
    latency.on_probe(first or b"", LOST + 0.001)
    assert latency.next_probe(LOST + 1.0) is None
    latency.on_probe(second or b"", LOST + 1.5)
    assert latency.current(LOST + 2.0) == pytest.approx(1_500.0)


def test_without_the_right_to_probe_there_is_nothing_to_show_and_the_past_is_bounded() -> None:
    latency = Latency()
    assert latency.summary(1.0) == {"latest": None, "p50": None, "p95": None}
    latency.on_probe(b"1", 2.0)  # somebody else's
    assert latency.current(2.0) is None
    for second in range(KEPT + 10):
        latency.on_probe(latency.next_probe(float(second)) or b"", second + (1e-3 if second >= 10 else 0.5))
    assert latency.summary(99.0)["p95"] == pytest.approx(1.0)
    latency.next_probe(100.0)
    latency.forget_probe()
    assert latency.current(500.0) == pytest.approx(1.0)
