"""What is believed of a capacity that was measured."""

from math import inf

import pytest

from tidegate.cluster.agent import edge_of, plain
from tidegate.cluster.capacity import LOOKS, MEMORY, MatchingProbe, Sustained, used_share
from tidegate.flow.balance import Edge


def test_only_what_was_sustained_counts_and_of_that_the_largest() -> None:
    rates = Sustained()
    for rate in (10.0, 12.0, None, 11.0, 12.0):
        rates.add(rate)
    assert rates.capacity == 0.0
    rates.add(13.0)
    assert rates.capacity == 11.0
    for _ in range(LOOKS):
        rates.add(20.0)
    assert rates.capacity == 20.0
    rates.add(5.0)
    assert rates.capacity == 20.0
    for _ in range(MEMORY):
        rates.add(None)
    assert rates.capacity == 0.0


@pytest.mark.parametrize(
    ("ran", "waited", "share"),
    [(0.25, 0.0, 0.25), (0.5, 0.5, 1.0), (0.3, 0.4, 0.5), (1.1, 0.0, 1.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0)],
)
def test_the_processor_time_that_others_took_was_not_to_be_had(
    ran: float, waited: float, share: float
) -> None:
    assert used_share(ran, waited, 1.0) == pytest.approx(share)


def test_the_rate_of_matching_is_told_by_a_busy_loop_and_not_lowered_by_an_idle_one() -> None:
    probe = MatchingProbe()
    probe.share = 0.1
    assert probe.learn(50.0) == inf
    probe.share = 0.8
    assert probe.learn(8_000.0) == 10_000.0
    probe.share = 0.01
    assert probe.learn(1.0) == 10_000.0
    probe.share = 0.2
    assert probe.learn(4_000.0) == 20_000.0
    probe.share = 1.0
    assert probe.learn(5_000.0) == 5_000.0


def test_a_loop_that_works_is_seen_to() -> None:
    probe = MatchingProbe()
    probe.window = 0.02
    for _ in range(3):
        probe.look()
        assert probe.share == 0.0  # for less than the window
    for _ in range(3):
        sum(n * n for n in range(400_000))
        probe.look()
    assert 0.3 < probe.share <= 1.0
    probe.window = 60.0
    probe.look()
    assert probe.share == 0.0


@pytest.mark.parametrize("matching", [inf, 1_000.0])
def test_the_rate_of_matching_is_told_to_the_head(matching: float) -> None:
    view = edge_of("e", plain(Edge(name="e", uplink=1e6, downlink=2e6, matching=matching)))
    assert (view.uplink, view.downlink, view.matching) == (1e6, 2e6, matching)
