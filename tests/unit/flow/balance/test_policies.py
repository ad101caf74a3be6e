"""What the policies decide in the paper's own case, and the promises of the default one."""

from random import Random

import pytest

from tests.unit.flow.balance.tables import edge, overloaded_b1
from tidegate.flow import BALANCE, balance_policy
from tidegate.flow.balance import (
    Bundle,
    DeadlineBalance,
    Edge,
    Head,
    Metric,
    Move,
    NoBalance,
    PaperBalance,
    PeerBalance,
    PublisherBundle,
    Sharing,
    Unit,
)  # fmt: skip

ANY = Random(1)


def _others() -> list[Edge]:
    return [edge(name, is_burst=True) for name in ("b0", "b2", "b3")]


def _move(topic: str, clients: int, target: str = "b0") -> Move:
    return Move(topic=topic, clients=clients, source="b1", target=target)


def test_the_paper_moves_topic_1_to_b0_and_nothing_else() -> None:
    policy = PaperBalance()
    b1 = overloaded_b1(4)
    assert policy.trigger(overloaded_b1(3), 33.0) is None
    assert policy.trigger(b1, 34.0) is Metric.QUEUE
    helpers = [each for each in _others() if policy.may_help(each, 34.0)]
    assert [each.name for each in helpers] == ["b0"]
    selection = policy.select(b1, helpers, Metric.QUEUE, 34.0, ANY)
    assert selection.moves == [_move("1", 8)]
    assert selection.is_enough


def test_a_bundle_is_split_only_if_none_fits_as_a_whole() -> None:
    big = Bundle(
        topic="big", subscribers=4, size_bytes=125, budget=1.0, arriving=4400, leaving=4000, depth=4400
    )
    source = Edge(name="b1", uplink=4e6, downlink=1e9, bundles={"big": big})
    target = Edge(name="b0", uplink=1.5e6, downlink=1e9)
    selection = PaperBalance().select(source, [target], Metric.QUEUE, 0.0, ANY)
    assert selection.moves == [_move("big", 1)]


def test_peer_acts_at_once_and_on_edges_where_nobody_is_late() -> None:
    policy = PeerBalance(unit=Unit.SUBSCRIPTION)
    assert policy.trigger(overloaded_b1(1), 31.0) is Metric.UPLINK
    assert policy.trigger(edge("b2", is_burst=True), 31.0) is Metric.UPLINK  # 99 %, and nothing waits
    assert PaperBalance().trigger(edge("b2", is_burst=True), 31.0) is None
    selection = policy.select(
        edge("b2", is_burst=True), [edge("b0", is_burst=True)], Metric.UPLINK, 31.0, ANY
    )
    assert selection.moves == [
        Move(topic="12", clients=1, source="b2", target="b0")
    ]  # needless, as in Figure 5
    assert selection.is_enough
    assert not policy.is_serialised
    whole = PeerBalance().select(overloaded_b1(1), [edge("b0", is_burst=True)], Metric.UPLINK, 31.0, ANY)
    assert whole.moves == [_move("1", 8)]
    assert not whole.is_enough


def test_peer_evens_out_edges_that_differ_by_more_than_it_likes() -> None:
    edges = [edge("b0"), edge("b1")]  # 60 and 70 %
    assert PeerBalance(difference=0.05, unit=Unit.SUBSCRIPTION).even_out(edges, 31.0) == ("b1", "b0")
    assert PeerBalance().even_out(edges, 31.0) is None
    assert PaperBalance().even_out(edges, 31.0) is None


def test_the_default_acts_earlier_and_moves_enough_to_drain_within_seconds() -> None:
    policy = DeadlineBalance(sharing=Sharing.FAIR)
    b1 = overloaded_b1(1)
    assert policy.trigger(b1, 31.0) is Metric.QUEUE
    helpers = [each for each in _others() if policy.may_help(each, 31.0)]
    assert [each.name for each in helpers] == ["b0", "b3"]
    selection = policy.select(b1, helpers, Metric.QUEUE, 31.0, ANY)
    assert selection.is_enough
    assert selection.moves == [_move("1", 8), _move("14", 1)]
    spare = 8e6 - (8.56e6 - 0.64e6 - 0.48e6)
    assert b1.bundles["8"].depth_bits / spare <= policy.drain


def test_with_an_uplink_by_deadline_topic_14_bears_the_shortage_and_nobody_acts() -> None:
    b1 = edge("b1", is_burst=True)
    b1.bundles["14"].leaving = 366.7
    b1.bundles["14"].depth = 60 * 233.3  # after a minute of burst
    assert DeadlineBalance().trigger(b1, 90.0) is None
    b1.bundles["14"].depth = 75 * 233.3
    assert DeadlineBalance().trigger(b1, 105.0) is Metric.QUEUE


def test_what_was_moved_stays_and_does_not_return() -> None:
    policy = DeadlineBalance(sharing=Sharing.FAIR, cool_down=20.0, memory=120.0, settle=3.0)
    policy.on_moved([Move(topic="1", clients=8, source="b0", target="b1")], 10.0)
    helpers = [edge("b0", is_burst=True)]
    early = policy.select(overloaded_b1(2), helpers, Metric.QUEUE, 29.0, ANY)
    later = policy.select(overloaded_b1(2), helpers, Metric.QUEUE, 31.0, ANY)
    long_after = policy.select(overloaded_b1(2), helpers, Metric.QUEUE, 131.0, ANY)
    assert "1" not in [move.topic for move in early.moves + later.moves]
    assert "1" in [move.topic for move in long_after.moves]
    policy.on_moved([_move("1", 8)], 40.0)
    assert policy.trigger(overloaded_b1(4), 42.0) is None
    assert policy.trigger(overloaded_b1(4), 43.0) is Metric.QUEUE


def test_a_plan_that_helps_too_little_is_not_made() -> None:
    full = edge("b0", is_burst=True)
    full.uplink = 5.4e6
    selection = DeadlineBalance().select(overloaded_b1(2), [full], Metric.QUEUE, 32.0, ANY)
    assert not selection.moves
    assert not selection.is_enough


def test_a_plan_that_costs_more_messages_than_it_saves_is_not_made() -> None:
    rare = Bundle(
        topic="rare", subscribers=1, size_bytes=125_000, budget=1.0, arriving=2.0, leaving=1.0, depth=1
    )
    many = Bundle(topic="many", subscribers=5000, size_bytes=125, budget=9, arriving=5000, leaving=5000)
    source = Edge(name="b1", uplink=6e6, downlink=1e9, bundles={"rare": rare, "many": many})
    target = Edge(name="b0", uplink=5.2e6, downlink=1e9)
    policy = DeadlineBalance()
    assert policy.trigger(source, 0.0) is Metric.QUEUE
    moves = policy.select(source, [target], Metric.QUEUE, 0.0, ANY).moves
    assert [move.topic for move in moves] == ["rare"]
    rare.size_bytes = 650_000 / 2  # now it fits nowhere, and the many are not moved for its sake
    assert not policy.select(source, [target], Metric.QUEUE, 0.0, ANY).moves


@pytest.mark.parametrize("metric", [Metric.DOWNLINK, Metric.MATCHING])
def test_the_default_minds_static_overload_too(metric: Metric) -> None:
    bundles = {
        str(n): Bundle(topic=str(n), subscribers=1, size_bytes=125, budget=9, arriving=100, leaving=100)
        for n in range(10)
    }
    capacity = {Metric.DOWNLINK: 1e9, Metric.MATCHING: 1e9} | {
        metric: 1e6 if metric is Metric.DOWNLINK else 1000.0
    }
    source = Edge(
        name="b1",
        uplink=1e9,
        downlink=capacity[Metric.DOWNLINK],
        matching=capacity[Metric.MATCHING],
        bundles=bundles,
    )
    policy = DeadlineBalance()
    assert policy.trigger(source, 0.0) is metric
    selection = policy.select(source, [Edge(name="b0", uplink=1e9, downlink=1e9)], metric, 0.0, ANY)
    assert (len(selection.moves), selection.is_enough) == (1, True)


@pytest.mark.parametrize("name", sorted(BALANCE))
def test_every_policy_answers_for_any_cluster(name: str) -> None:
    random = Random(name)
    policy = balance_policy(name)()
    for now in range(200):
        edges = []
        for number in range(4):
            bundles = {
                str(t): Bundle(
                    topic=str(t), subscribers=random.randint(1, 8), size_bytes=random.randint(100, 1000),
                    budget=random.choice((0.1, 0.5, 30.0)), arriving=random.uniform(0, 3000),
                    leaving=random.uniform(0, 3000), depth=random.choice((0, 0, 500)),
                )
                for t in random.sample(range(20), 5)
            }  # fmt: skip
            edges.append(Edge(name=f"b{number}", uplink=2e7, downlink=2e7, matching=1e5, bundles=bundles))
        source = edges[0]
        metric = policy.trigger(source, now) or Metric.QUEUE
        helpers = [each for each in edges[1:] if policy.may_help(each, now)]
        moves = policy.select(source, helpers, metric, now, random).moves
        for move in moves:
            assert move.source == source.name
            assert move.target in [each.name for each in helpers]
            assert 1 <= move.clients <= source.bundles[move.topic].subscribers
        assert len({move.topic for move in moves}) == len(moves)
        policy.on_moved(moves, now)
        policy.even_out(edges, now)


def test_nothing_triggers_the_policy_that_is_off() -> None:
    assert NoBalance().trigger(overloaded_b1(9), 40.0) is None


def test_publishers_move_from_an_overloaded_head_to_one_that_is_low() -> None:
    def topic(name: str, rate: float, copies: int) -> PublisherBundle:
        return PublisherBundle(topic=name, publishers=2, size_bytes=125, rate=rate, copies=copies)

    h0 = Head(
        name="h0", uplink=2e6, downlink=2e6, bundles={"a": topic("a", 1000, 1), "b": topic("b", 950, 1)}
    )
    h1 = Head(name="h1", uplink=2e6, downlink=2e6)
    policy = PaperBalance()
    metric = policy.trigger_head(h0, 0.0)
    assert metric is Metric.DOWNLINK
    selection = policy.select_publishers(h0, [h1], metric)
    assert selection.moves == [Move(topic="a", clients=2, source="h0", target="h1")]
    assert selection.is_enough
