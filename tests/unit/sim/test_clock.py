"""The virtual clock: order, ties, cancelling, and seeds."""

from math import inf

import pytest

from tidegate.sim import Simulation


def test_what_is_planned_for_one_moment_happens_in_the_order_it_was_planned_in() -> None:
    sim = Simulation()
    seen: list[str] = []
    sim.at(2.0, lambda: seen.append("late"))
    for name in "abc":
        sim.at(1.0, lambda name=name: seen.append(name))
    sim.run()
    assert seen == ["a", "b", "c", "late"]
    assert sim.now == 2.0


def test_what_happens_may_plan_more_for_the_same_moment() -> None:
    sim = Simulation()
    seen: list[float] = []
    sim.at(1.0, lambda: sim.after(0.0, lambda: seen.append(sim.now)))
    sim.run()
    assert seen == [1.0]


def test_time_stands_where_the_run_ends_and_goes_on_from_there() -> None:
    sim = Simulation()
    seen: list[float] = []
    sim.at(5.0, lambda: seen.append(sim.now))
    sim.run(5.0)
    assert (sim.now, seen) == (5.0, [])
    sim.run(inf)
    assert seen == [5.0]


def test_what_is_cancelled_does_not_happen() -> None:
    sim = Simulation()
    seen: list[int] = []
    timer = sim.after(1.0, lambda: seen.append(1))
    assert timer.is_pending
    timer.cancel()
    sim.run()
    assert seen == []
    assert not timer.is_pending


def test_the_past_cannot_be_planned() -> None:
    sim = Simulation()
    sim.run(3.0)
    for time in (2.0, float("nan")):
        with pytest.raises(ValueError):
            sim.at(time, lambda: None)


def test_a_generator_depends_on_seed_and_name_alone() -> None:
    one, other = Simulation(7), Simulation(7)
    other.random("somebody else").random()
    assert one.random("p1").random() == other.random("p1").random()
    assert one.random("p1").random() != one.random("p2").random()
    assert one.random("p1").random() != Simulation(8).random("p1").random()
