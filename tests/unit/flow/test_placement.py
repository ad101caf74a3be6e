"""Where new subscribers go: the paper's rules, and packing against the best there is."""

from random import Random

import pytest

from tests.unit.flow.balance.tables import BANDWIDTH, BURST, MBIT, TOPICS, bundle
from tidegate.flow import PLACEMENT, placement_policy
from tidegate.flow.balance import Bundle, Edge
from tidegate.flow.placement import OneNode, RateHistory, Spread, pack, pack_exactly, unrelated, worst_of

ANY = Random(1)


def _edges() -> list[Edge]:
    return [Edge(name=name, uplink=mbit * MBIT, downlink=mbit * MBIT) for name, mbit in BANDWIDTH.items()]


def test_subscribers_of_one_topic_stay_together() -> None:
    edges = _edges()
    edges[2] = edges[2].with_bundle(bundle(1).part(1))
    assert Spread().place(bundle(1).part(1), edges, unrelated, ANY) == "b2"


def test_unless_their_edge_would_leave_low() -> None:
    edges = _edges()
    edges[2] = edges[2].with_bundle(bundle(8)).with_bundle(bundle(9)).with_bundle(bundle(1).part(1))
    assert Spread().place(bundle(1), edges, unrelated, ANY) != "b2"


def test_otherwise_where_there_is_most_room_and_the_larger_uplink_wins_a_tie() -> None:
    edges = _edges()
    assert Spread().place(bundle(2), edges, unrelated, ANY) == "b1"
    edges[1] = edges[1].with_bundle(bundle(2))
    assert Spread().place(bundle(4), edges, unrelated, ANY) == "b3"


def test_topics_that_burst_together_are_kept_apart() -> None:
    edges = _edges()
    edges[3] = edges[3].with_bundle(bundle(2))
    for index in (0, 1, 2):
        edges[index] = edges[index].with_bundle(bundle(3))

    def together(one: str, other: str) -> float:
        return 0.9 if {one, other} == {"2", "4"} else 0.6

    assert Spread().place(bundle(4), edges, unrelated, ANY) == "b3"
    assert Spread().place(bundle(4), edges, together, ANY) == "b1"


def test_a_locked_edge_gets_nobody_while_there_is_another() -> None:
    edges = _edges()
    edges[1].is_locked = True
    assert Spread().place(bundle(2), edges, unrelated, ANY) == "b3"
    for edge in edges:
        edge.is_locked = True
    assert Spread().place(bundle(2), edges, unrelated, ANY) == "b1"


def test_the_baseline_puts_everything_on_one_edge() -> None:
    assert OneNode().place(bundle(2), _edges(), unrelated, ANY) == "b0"
    assert OneNode("b1").place(bundle(2), _edges(), unrelated, ANY) == "b1"


@pytest.mark.parametrize("name", sorted(PLACEMENT))
def test_every_policy_names_one_of_the_edges(name: str) -> None:
    policy = placement_policy(name)()
    assert policy.place(bundle(2), _edges(), unrelated, Random(2)) in BANDWIDTH


def test_packing_comes_near_the_best_layout_there_is() -> None:
    random = Random(7)
    gaps = []
    for _ in range(20):
        bundles = [
            Bundle(topic=str(n), subscribers=4, size_bytes=500, budget=1, arriving=random.uniform(10, 500))
            for n in range(8)
        ]
        edges = _edges()[:3]
        best = worst_of(pack_exactly(bundles, edges), bundles, edges)
        found = worst_of(pack(bundles, edges), bundles, edges)
        assert found >= best - 1e-12
        gaps.append(found / best - 1)
    assert max(gaps) < 0.15
    assert sum(gaps) / len(gaps) < 0.03


def test_packing_beats_one_by_one_placement_on_the_papers_topics() -> None:
    bundles = [bundle(number) for number in TOPICS]
    packed = worst_of(pack(bundles, _edges()), bundles, _edges())
    edges = {edge.name: edge for edge in _edges()}
    layout = {}
    for each in bundles:
        layout[each.topic] = Spread().place(each, list(edges.values()), unrelated, ANY)
        edges[layout[each.topic]] = edges[layout[each.topic]].with_bundle(each)
    assert packed <= worst_of(layout, bundles, _edges())
    assert packed < 0.67  # the mean is 64.6 %


def test_packing_knows_which_topics_burst_together() -> None:
    bundles = [bundle(number) for number in TOPICS]
    bursting = {str(number) for number in BURST}

    def together(one: str, other: str) -> float:
        return 0.95 if one in bursting and other in bursting else 0.0

    def after_burst(layout: dict[str, str]) -> float:
        return worst_of(layout, [bundle(number, is_burst=True) for number in TOPICS], _edges())

    assert after_burst(pack(bundles, _edges(), together)) < after_burst(pack(bundles, _edges()))


def test_correlation_is_measured_over_seconds() -> None:
    history = RateHistory(window=60, known={("a", "x"): 0.8})
    random = Random(3)
    for second in range(60):
        burst = 100.0 if second % 10 < 3 else 10.0
        history.tick({"a": burst + random.random(), "b": 2 * burst, "c": random.uniform(0, 50), "flat": 5.0})
    assert history.correlation("a", "b") > 0.99
    assert abs(history.correlation("a", "c")) < 0.5
    assert history.correlation("a", "flat") == 0.0
    assert history.correlation("x", "a") == 0.8
    assert history.correlation("a", "unknown") == 0.0


def test_a_topic_that_pauses_has_zeros_in_its_history() -> None:
    history = RateHistory(window=10)
    for second in range(10):
        history.tick({"a": 10.0} | ({"b": 10.0} if second % 2 else {}))
    history.tick({})
    assert history.correlation("a", "b") != 0.0


def test_what_is_learnt_counts_until_something_is_measured_and_until_something_newer_is_learnt() -> None:
    history = RateHistory(window=60, known={("a", "b"): 0.9})
    for _ in range(10):
        history.tick({"a": 5.0, "b": 5.0})
    assert history.correlation("a", "b") == 0.9  # rates that do not vary say nothing
    history.learn({("a", "b"): 0.75})
    assert history.correlation("b", "a") == 0.75
    for second in range(10):
        history.tick({"a": float(second), "b": -float(second)})
    assert history.correlation("a", "b") < 0.0
