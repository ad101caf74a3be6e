"""Queues as a fluid: what the paper's numbers follow from."""

import pytest

from tidegate.flow.balance import Sharing
from tidegate.sim import FluidNode, FluidQueue


def _node(sharing: Sharing = Sharing.FAIR) -> FluidNode:
    """b1 in the burst."""
    node = FluidNode("b1", 8e6, sharing)
    for topic, subscribers, size, budget, rate in (
        ("1", 8, 200, 1.5, 400.0),
        ("3", 1, 1000, 1.3, 250.0),
        ("8", 7, 400, 0.8, 1400.0),
        ("14", 3, 300, 49.7, 600.0),
    ):
        node.add(FluidQueue(topic, subscribers, size, budget, rate))
    return node


def _run(node: FluidNode, seconds: float, start: float = 0.0) -> None:
    for step in range(round(seconds * 10)):
        node.step(start + step / 10, 0.1)


def test_the_whole_shortage_waits_in_the_queue_of_topic_8() -> None:
    node = _node()
    for second, depth in enumerate((175, 350, 525, 700), 1):
        _run(node, 1.0, second - 1)
        found = {sample.topic: sample for sample in node.sample()}
        assert found["8"].depth == pytest.approx(depth)
        assert (found["8"].arrived, found["8"].departed) == pytest.approx((1400, 1225))
        assert found["14"].depth == pytest.approx(0.0, abs=1e-6)
    assert node.over == pytest.approx(4.0)


def test_what_moves_away_leaves_its_queue_behind_until_it_is_sent() -> None:
    node = _node()
    _run(node, 4.0)
    assert node.take("8", 7) == 1400.0
    _run(node, 0.1, 4.0)
    assert node.queues["8"].depth == pytest.approx(700 - (8e6 - 4.08e6) * 0.1 / 3200)
    _run(node, 1.0, 4.1)
    assert not node.queues["8"].parcels


def test_by_deadline_who_may_wait_waits_and_nobody_is_late() -> None:
    node = _node(Sharing.DEADLINE)
    _run(node, 30.0)
    node.finish(30.0)
    assert node.queues["8"].depth < 1400 * 0.2
    assert node.queues["14"].depth == pytest.approx(0.56e6 / 2400 * 30, rel=0.05)
    assert sum(queue.late + queue.given_up for queue in node.queues.values()) == 0.0


def test_by_deadline_only_what_is_too_late_is_given_up() -> None:
    node = FluidNode("e", 8e5, Sharing.DEADLINE)
    node.add(FluidQueue("t", 1, 100, 1.0, 1250.0))
    _run(node, 60.0)
    queue = node.queues["t"]
    assert queue.late == 0.0
    assert queue.given_up / queue.arrived == pytest.approx(0.2, abs=0.02)
    assert queue.departed / 60 == pytest.approx(1000, rel=0.01)


def test_late_messages_are_counted_whether_sent_or_not() -> None:
    node = FluidNode("e", 8e5)
    node.add(FluidQueue("t", 1, 100, 1.0, 2000.0))
    _run(node, 10.0)
    node.finish(10.0)
    queue = node.queues["t"]
    assert queue.arrived == pytest.approx(queue.departed + queue.depth)
    # A wait of one second is reached by what came at 1 s; all that came later and left, or is older than a second.
    assert queue.late == pytest.approx(2000 * (9.0 - 1.0), rel=0.02)


def test_a_node_that_keeps_up_has_exact_counters_too() -> None:
    node = FluidNode("e", 8e6)
    node.add(FluidQueue("t", 2, 100, 1.0, 100.0))
    _run(node, 5.0)
    node.set_rate("t", 200.0)
    _run(node, 5.0, 5.0)
    [sample] = node.sample()
    assert (sample.arrived, sample.departed, sample.depth) == pytest.approx((1500, 1500, 0))
    assert node.waits[0] == pytest.approx(1500)


def test_the_counterfactual_sees_the_miss_that_is_coming_and_changes_nothing() -> None:
    node = _node()
    _run(node, 1.0)
    assert not node.will_be_late(1.0, 5.0, 0.1)
    assert node.will_be_late(1.0, 7.0, 0.1)
    assert node.queues["8"].depth == pytest.approx(175)
