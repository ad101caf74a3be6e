"""The overlay manager: three steps, locks, timeout, help from other clusters, failover."""

import pytest

from tidegate.flow.balance import Edge, Head, Metric, Move
from tidegate.flow.balance.overlay import (
    Ask,
    Borrow,
    Command,
    Lend,
    Lock,
    Migrate,
    Offer,
    Overlay,
    Refuse,
    Return,
    Step,
    Unlock,
)  # fmt: skip

MOVE = Move(topic="1", clients=8, source="b1", target="b0")


def _edge(name: str) -> Edge:
    return Edge(name=name, uplink=1e6, downlink=1e6)


def _migrating(overlay: Overlay) -> list[Command]:
    overlay.request(0.0, "b1", Metric.QUEUE, ["b0"])
    overlay.on_view(0.1, overlay.number, _edge("b0"))
    return overlay.on_plan(0.2, overlay.number, [MOVE], True)


def test_a_phase_goes_through_its_three_steps() -> None:
    overlay = Overlay("h")
    assert overlay.request(0.0, "b1", Metric.QUEUE, ["b0", "b3"]) == [
        Ask(to="b0", phase=1),
        Ask(to="b3", phase=1),
    ]
    assert overlay.step is Step.LOCATE
    assert overlay.on_view(0.1, 1, _edge("b0")) == []
    [offer] = overlay.on_view(0.2, 1, _edge("b3"))
    assert isinstance(offer, Offer)
    assert (offer.to, offer.metric, [view.name for view in offer.views]) == ("b1", Metric.QUEUE, ["b0", "b3"])
    assert overlay.on_plan(0.3, 1, [MOVE], True) == [
        Lock(to="b0", phase=1), Lock(to="b1", phase=1), Migrate(to="b1", phase=1, move=MOVE),
    ]  # fmt: skip
    assert overlay.locks == {"b0", "b1"}
    assert overlay.on_confirmed(0.9, 1, MOVE) == [Unlock(to="b0", phase=1), Unlock(to="b1", phase=1)]
    assert (overlay.step, overlay.locks) == (Step.IDLE, set())
    [phase] = overlay.history
    assert (phase.confirmed, phase.ended, phase.is_timed_out) == (8, 0.9, False)


def test_balancing_is_serialised() -> None:
    overlay = Overlay("h")
    overlay.request(0.0, "b1", Metric.QUEUE, ["b0"])
    assert overlay.request(0.1, "b2", Metric.QUEUE, ["b0"]) == [Refuse(to="b2", phase=1)]


def test_answers_to_another_phase_are_ignored() -> None:
    overlay = Overlay("h")
    overlay.request(0.0, "b1", Metric.QUEUE, ["b0"])
    assert overlay.on_view(0.1, 0, _edge("b0")) == []
    assert overlay.on_view(0.1, 1, _edge("b9")) == []
    assert overlay.on_plan(0.1, 1, [MOVE], True) == []
    assert overlay.on_confirmed(0.1, 1, MOVE) == []
    assert overlay.step is Step.LOCATE


@pytest.mark.parametrize("step", [Step.LOCATE, Step.SELECT, Step.MIGRATE])
def test_a_timeout_ends_a_phase_in_any_step(step: Step) -> None:
    overlay = Overlay("h", timeout=10.0)
    overlay.request(0.0, "b1", Metric.QUEUE, ["b0"])
    if step is not Step.LOCATE:
        overlay.on_view(0.0, 1, _edge("b0"))
    if step is Step.MIGRATE:
        overlay.on_plan(0.0, 1, [MOVE], True)
    assert overlay.step is step
    assert overlay.tick(9.9) == []
    commands = overlay.tick(10.0)
    assert overlay.step is Step.IDLE
    assert {command.to for command in commands} == ({"b0", "b1"} if step is Step.MIGRATE else set())
    assert overlay.request(10.0, "b2", Metric.QUEUE, ["b0"]) == [Ask(to="b0", phase=2)]


def test_without_helpers_and_without_other_heads_nothing_happens() -> None:
    overlay = Overlay("h")
    assert overlay.request(0.0, "b1", Metric.QUEUE, []) == []
    assert (overlay.step, overlay.history) == (Step.IDLE, [])


def test_an_empty_plan_ends_the_phase() -> None:
    overlay = Overlay("h")
    overlay.request(0.0, "b1", Metric.QUEUE, ["b0"])
    overlay.on_view(0.0, 1, _edge("b0"))
    assert overlay.on_plan(0.0, 1, [], False) == []
    assert (overlay.step, overlay.history) == (Step.IDLE, [])


def test_other_clusters_are_asked_when_the_own_has_no_room() -> None:
    ours, theirs = Overlay("h0", neighbours=["h1"]), Overlay("h1", neighbours=["h0"])
    assert ours.request(0.0, "b1", Metric.QUEUE, []) == [Borrow(to="h1", phase=1)]
    [lend] = theirs.lend(0.1, "h0", 1, [_edge("c0")])
    assert isinstance(lend, Lend)
    assert (theirs.step, theirs.locks) == (Step.LENDING, {"c0"})
    assert theirs.request(0.2, "c1", Metric.QUEUE, ["c0"]) == [Refuse(to="c1", phase=0)]
    [offer] = ours.on_lend(0.2, 1, "h1", lend.views)
    assert isinstance(offer, Offer)
    move = Move(topic="1", clients=8, source="b1", target="c0")
    ours.on_plan(0.3, 1, [move], True)
    commands = ours.on_confirmed(0.9, 1, move)
    assert commands == [Unlock(to="b1", phase=1), Unlock(to="c0", phase=1), Return(to="h1", phase=1)]
    theirs.on_return(1.0, "h0")
    assert (theirs.step, theirs.locks) == (Step.IDLE, set())


def test_other_clusters_are_asked_when_the_own_is_not_enough_and_only_once() -> None:
    overlay = Overlay("h0", neighbours=["h1"])
    overlay.request(0.0, "b1", Metric.QUEUE, ["b0"])
    overlay.on_view(0.0, 1, _edge("b0"))
    assert overlay.on_plan(0.0, 1, [MOVE], False) == [Borrow(to="h1", phase=1)]
    [offer] = overlay.on_lend(0.0, 1, "h1", [_edge("c0")])
    assert isinstance(offer, Offer)
    assert {view.name for view in offer.views} == {"b0", "c0"}
    commands = overlay.on_plan(0.0, 1, [MOVE], False)
    assert [command for command in commands if isinstance(command, Migrate)] == [
        Migrate(to="b1", phase=1, move=MOVE)
    ]


def test_a_head_with_a_phase_of_its_own_lends_nothing_and_a_late_loan_is_returned() -> None:
    busy = Overlay("h1")
    busy.request(0.0, "c1", Metric.QUEUE, ["c0"])
    assert busy.lend(0.1, "h0", 1, [_edge("c0")]) == [Lend(to="h0", phase=1)]
    late = Overlay("h0", neighbours=["h1"])
    assert late.on_lend(0.0, 7, "h1", [_edge("c0")]) == [Return(to="h1", phase=7)]


def test_what_was_lent_is_free_again_after_the_timeout() -> None:
    overlay = Overlay("h1", timeout=10.0)
    overlay.lend(0.0, "h0", 1, [_edge("c0")])
    overlay.tick(10.0)
    assert (overlay.step, overlay.locks) == (Step.IDLE, set())


def test_an_overloaded_head_finds_another_head() -> None:
    overlay = Overlay("h0", neighbours=["h1"])
    assert overlay.request(0.0, "h0", Metric.DOWNLINK, [], is_head=True) == [
        Borrow(to="h1", phase=1, is_head=True)
    ]
    [offer] = overlay.on_lend(0.1, 1, "h1", [Head(name="h1", uplink=1e6, downlink=1e6)])
    assert offer.to == "h0"


def test_a_node_that_is_gone_keeps_nobody_waiting() -> None:
    overlay = Overlay("h")
    overlay.request(0.0, "b1", Metric.QUEUE, ["b0", "b2"])
    overlay.on_view(0.0, 1, _edge("b0"))
    [offer] = overlay.on_lost(0.0, "b2")
    assert offer.to == "b1"
    overlay.on_plan(0.0, 1, [MOVE], True)
    assert overlay.on_lost(0.1, "b0") == [Unlock(to="b0", phase=1), Unlock(to="b1", phase=1)]
    assert overlay.step is Step.IDLE
    overlay.request(1.0, "b1", Metric.QUEUE, ["b0"])
    overlay.on_lost(1.1, "b1")
    assert overlay.step is Step.IDLE


@pytest.mark.parametrize("step", [Step.LOCATE, Step.SELECT, Step.MIGRATE, Step.LENDING, Step.IDLE])
def test_a_second_head_takes_over_in_any_step_and_leaves_no_phase_open(step: Step) -> None:
    first, second = Overlay("h0"), Overlay("h0-standby", timeout=10.0)
    if step is Step.LENDING:
        first.lend(0.0, "h1", 3, [_edge("b0")])
    elif step is not Step.IDLE:
        first.request(0.0, "b1", Metric.QUEUE, ["b0"])
    if step in (Step.SELECT, Step.MIGRATE):
        first.on_view(0.0, 1, _edge("b0"))
    if step is Step.MIGRATE:
        first.on_plan(0.0, 1, [MOVE], True)
    assert first.step is step
    commands = second.take_over(5.0, first.snapshot())
    if step is Step.MIGRATE:
        assert commands == [Migrate(to="b1", phase=second.number, move=MOVE)]
        second.on_confirmed(6.0, second.number, MOVE)
    elif step is Step.LENDING:
        assert commands == [Unlock(to="b0", phase=second.number)]
    else:
        assert commands == []
    assert (second.step, second.locks) == (Step.IDLE, set())
    assert second.number > first.number
    assert second.request(20.0, "b1", Metric.QUEUE, ["b0"])


def test_an_operator_can_stop_a_phase() -> None:
    overlay = Overlay("h")
    _migrating(overlay)
    assert {command.to for command in overlay.stop(1.0)} == {"b0", "b1"}
    assert overlay.step is Step.IDLE
    assert overlay.stop(2.0) == []
