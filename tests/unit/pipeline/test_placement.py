"""Plans against all plans there are, for sizes where that can be counted."""

from itertools import product
from random import Random

import pytest

from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.settings import Edge
from tidegate.pipeline.transforms.placement import Demand, Placed, plan


def fullest(rows: list[Placed]) -> float:
    return max(max(row.util_up, row.util_match) for row in rows)


def best_there_is(demands: list[Demand], edges: list[Edge]) -> float:
    best = float("inf")
    for places in product(range(len(edges)), repeat=len(demands)):
        bits = [0.0] * len(edges)
        rate = [0.0] * len(edges)
        for demand, at in zip(demands, places, strict=True):
            bits[at] += demand.uplink_bits
            rate[at] += demand.rate
        worst = max(
            max(b / e.uplink_bits, r / e.match_rate) for b, r, e in zip(bits, rate, edges, strict=True)
        )
        best = min(best, worst)
    return best


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_close_to_the_best_there_is(seed: int) -> None:
    rng = Random(seed)
    edges = [Edge(name=f"e{n}", uplink_bits=rng.uniform(4e6, 8e6), match_rate=8e3) for n in range(3)]
    demands = [
        Demand(topic=f"t{n}", rate=rng.uniform(50, 250), uplink_bits=rng.uniform(2e5, 2e6)) for n in range(8)
    ]
    rows = plan(demands, edges, {})
    assert fullest(rows) <= 1.1 * best_there_is(demands, edges)
    assert sorted(row.topic for row in rows) == sorted(demand.topic for demand in demands)


def test_utilisation_is_that_of_the_edge_with_all_its_topics() -> None:
    demands = [Demand(topic="a", rate=10.0, uplink_bits=1e6), Demand(topic="b", rate=30.0, uplink_bits=3e6)]
    rows = plan(demands, [Edge(name="only", uplink_bits=8e6, match_rate=100.0)], {})
    assert [(row.topic, row.edge, row.util_up, row.util_match) for row in rows] == [
        ("a", "only", 0.5, 0.4),
        ("b", "only", 0.5, 0.4),
    ]


def test_correlated_topics_go_to_different_edges() -> None:
    demands = [Demand(topic=name, rate=1.0, uplink_bits=1e5) for name in ("a", "b", "c", "d")]
    edges = [Edge(name="e0"), Edge(name="e1")]
    rows = {row.topic: row.edge for row in plan(demands, edges, {("a", "b"): 0.9, ("c", "d"): 0.9})}
    assert rows["a"] != rows["b"]
    assert rows["c"] != rows["d"]


def test_without_edges_there_is_no_plan() -> None:
    assert plan([Demand(topic="a", rate=1.0, uplink_bits=1.0)], [], {}) == []


@pytest.mark.parametrize("text", ["", "a", "a=", "a=x", "=5", "a=-1", "a=1,0", "a=1,x"])
def test_an_edge_that_makes_no_sense_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(PipelineError) as caught:
        Edge.parse(text)
    assert caught.value.hint


def test_an_edge_is_a_name_and_capacities() -> None:
    assert Edge.parse("e=100,20") == Edge(name="e", uplink_bits=1e8, match_rate=20.0)
