"""Table IV: who is moved first; and what a move is predicted to do."""

import pytest

from tests.unit.flow.balance.tables import bundle, edge, overloaded_b1
from tidegate.flow.balance import Bundle, Edge, Head, Metric, PublisherBundle, Reach, Thresholds
from tidegate.flow.balance.analyser import accepts, candidates, edge_order, head_order, predicted
from tidegate.flow.balance.sharing import earliest_first, max_min

R, B, L, N = Reach.REMOTE, Reach.BOTH, Reach.LOCAL, Reach.NONE


def _head() -> Head:
    publishers = [
        PublisherBundle(topic=f"{reach.name}{budget}", publishers=1, size_bytes=100, rate=10, copies=1,
                        budget=budget, reach=reach)
        for reach in (N, L, B, R)
        for budget in (1, 2)
    ]  # fmt: skip
    return Head(name="h", uplink=1e6, downlink=1e6, bundles={each.topic: each for each in publishers})


def _edge() -> Edge:
    bundles = [
        Bundle(topic=f"{reach.name}{budget}", subscribers=1, size_bytes=100, budget=budget, reach=reach)
        for reach in (N, L, B, R)
        for budget in (1, 2)
    ]
    return Edge(name="e", uplink=1e6, downlink=1e6, bundles={each.topic: each for each in bundles})


def _groups(names: list[str]) -> list[str]:
    """Names without their budget, each once; inside a group the larger budget must come first."""
    assert [name[-1] for name in names] == ["2", "1"] * (len(names) // 2)
    return list(dict.fromkeys(name[:-1] for name in names))


@pytest.mark.parametrize(
    ("metric", "order"),
    [
        (Metric.DOWNLINK, ["NONE", "REMOTE", "BOTH", "LOCAL"]),
        (Metric.UPLINK, ["REMOTE", "BOTH", "LOCAL", "NONE"]),
    ],
)
def test_publishers_of_an_overloaded_head(metric: Metric, order: list[str]) -> None:
    assert _groups([each.topic for each in head_order(_head(), metric)]) == order


@pytest.mark.parametrize("metric", [Metric.DOWNLINK, Metric.UPLINK])
def test_subscribers_of_an_edge_whose_link_is_overloaded(metric: Metric) -> None:
    found = [each.topic for each in edge_order(_edge(), metric, Thresholds())]
    assert _groups(found) == ["REMOTE", "BOTH", "LOCAL", "NONE"]


def test_subscribers_of_an_edge_whose_matching_is_overloaded() -> None:
    found = [each.topic for each in edge_order(_edge(), Metric.MATCHING, Thresholds())]
    assert found[:2] == ["NONE2", "NONE1"]
    assert {name[-1] for name in found[2:5]} == {"2"}  # the other three groups are one


def test_subscribers_of_an_edge_whose_queue_is_too_deep() -> None:
    b1 = overloaded_b1(4)
    assert [each.topic for each in edge_order(b1, Metric.QUEUE, Thresholds())] == ["14", "1", "3", "8"]
    b1.bundles["14"].depth = 1  # waits, below its threshold: behind the empty ones
    assert [each.topic for each in edge_order(b1, Metric.QUEUE, Thresholds())] == ["1", "3", "14", "8"]


def test_topic_1_fits_on_b0_and_topic_14_does_not() -> None:
    b0 = edge("b0", is_burst=True)
    assert accepts(b0, bundle(1), Thresholds())
    assert b0.with_bundle(bundle(1)).utilisation(Metric.UPLINK) == pytest.approx(0.898, abs=1e-3)
    assert not accepts(b0, bundle(14, is_burst=True), Thresholds())
    assert b0.with_bundle(bundle(14, is_burst=True)).utilisation(Metric.UPLINK) == pytest.approx(
        1.02, abs=0.002
    )


def test_without_topic_1_topic_8_has_25_messages_a_second_to_spare() -> None:
    after = predicted(overloaded_b1(4).without("1", 8), 1.0)
    assert after.bundles["8"].leaving == pytest.approx(1425.0)
    assert after.bundles["1"].leaving == 0.0
    assert Thresholds().edge_overload(after) is None


def test_candidates_are_sorted_by_the_overloaded_metric() -> None:
    edges = [edge(name, is_burst=True) for name in ("b3", "b2", "b1", "b0")]
    assert [each.name for each in candidates(edges, Metric.QUEUE)] == ["b0", "b3", "b2", "b1"]


def test_max_min_gives_the_whole_shortage_to_topic_8() -> None:
    demands = {1: 0.64, 3: 2.00, 8: 4.48, 14: 1.44}
    shares = max_min(demands, 8.0)
    assert shares == pytest.approx({1: 0.64, 3: 2.00, 8: 3.92, 14: 1.44})
    assert max_min(demands, 9.0) == demands
    assert max_min({}, 1.0) == {}


def test_by_deadline_topic_14_takes_the_whole_shortage() -> None:
    demands = {1: 0.64, 3: 2.00, 8: 4.48, 14: 1.44}
    deadlines = {1: 1.5, 3: 1.3, 8: 0.8, 14: 49.7}
    assert earliest_first(demands, deadlines, 8.0) == pytest.approx(demands | {14: 0.88})


def test_a_part_has_its_share_of_everything_but_the_budget() -> None:
    whole = bundle(14, is_burst=True, depth=30)
    one = whole.part(1)
    assert (one.arriving, one.depth, one.budget) == (whole.arriving / 3, 10.0, whole.budget)
    assert one.incoming == whole.incoming == 200.0
    node = edge("b1").without("14", 1).with_bundle(bundle(14).part(1))
    assert node.utilisation(Metric.UPLINK) == pytest.approx(edge("b1").utilisation(Metric.UPLINK))
