"""Paper 3 run small: the model is right where theory says how, and the directions are those of the full run."""

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tidegate.flow.timeout import (
    ActiveTimeout,
    AdaptiveTimeout,
    Event,
    FixedTimeout,
    NoTimeout,
    TimeoutPolicy,
)
from tidegate.lab.active import levels_page, parts
from tidegate.lab.active.alarms import overloaded, probe
from tidegate.lab.active.joint import one as joint_one
from tidegate.lab.active.levels import slides, world_of
from tidegate.lab.active.measures import jain, measure, rate_between
from tidegate.lab.active.model import MU, Q, World, simulate
from tidegate.lab.active.variants import ACTIVE, LEVEL_2, PAPER, PARTS, VARIANTS
from tidegate.lab.experiment import Context, Part
from tidegate.lab.registry import find
from tidegate.lab.run import run, write_pages


def results(policy: TimeoutPolicy, world: World, seeds: range = range(2)) -> list[dict[str, Any]]:
    return [measure(simulate(policy, world, seed)) for seed in seeds]


def test_a_run_is_a_function_of_its_seed() -> None:
    world = world_of("A", 20, 1, VARIANTS[ACTIVE], seconds=120.0)
    runs = [measure(simulate(ActiveTimeout(), world, seed)) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_calm_fixed_loop_is_what_arithmetic_says() -> None:
    """No updates: m/5 requests a second, each answered; M/M/1 has a mean response of 1/(μ - λ)."""
    world = World(m=100, updates=(), seconds=2000.0)
    outcome = simulate(FixedTimeout(), world, 3)
    found = measure(outcome)
    # A loop's period is the timeout and the response before it.
    assert found["rate"] == pytest.approx(100 / 5.06, rel=0.02)
    assert found["drops"] == 0
    assert found["utilisation"] == pytest.approx(found["rate"] / MU, rel=0.03)
    assert found["fairness"] == pytest.approx(1.0, abs=1e-3)


def test_everybody_at_once_overflows_the_queue_by_what_does_not_fit() -> None:
    world = World(m=200, updates=(30.0,), seconds=60.0, is_exponential=False)
    outcome = simulate(NoTimeout(), world, 1)
    # 5 % of notifications are lost; the queue takes 60 of the rest.
    assert outcome.dropped == outcome.sent - Q
    assert 175 <= outcome.sent <= 200
    assert measure(outcome)["missed"] == pytest.approx(1.0 - Q / 200)


def test_the_product_spreads_the_burst_that_level_two_suffers() -> None:
    world = World(m=200, updates=slides(150.0), seconds=150.0)
    ours, level_2 = results(ActiveTimeout(), world), results(AdaptiveTimeout(), world)
    assert sum(each["drops"] for each in ours) <= 0.1 * sum(each["drops"] for each in level_2)
    assert max(each["peak_to_mean"] for each in ours) <= 0.5 * min(each["peak_to_mean"] for each in level_2)
    assert max(each["staleness"] for each in ours) <= min(each["staleness"] for each in level_2)
    assert max(each["longest_queue"] for each in ours) < Q


def test_halved_capacity_does_not_make_the_product_ask_more() -> None:
    for seed in range(2):
        slowed = simulate(ActiveTimeout(), world_of("C", 200, seed, VARIANTS[ACTIVE]), seed)
        whole = simulate(ActiveTimeout(), world_of("B", 200, seed, VARIANTS[ACTIVE]), seed)
        assert rate_between(slowed, 300.0, 360.0) <= rate_between(whole, 300.0, 360.0)


def test_false_alarms_and_the_tail_formula() -> None:
    found = probe(0.5, True, 1, is_slowed=False)
    assert found["robust (product)"] is not None
    assert found["robust (product)"] <= 0.05
    assert found["light, θ = 1"] is not None
    assert found["light, θ = 1"] > 0.25
    shares = [overloaded(100, 5.0, 0.0, 30, seed, 600.0) for seed in range(10)]
    assert sum(shares) / 10 == pytest.approx(0.021818, rel=0.25)


def test_the_gate_leaves_active_clients_alone() -> None:
    found = joint_one("A", ACTIVE, True, True, 1)
    assert found["held"] <= 0.05
    assert found["rogue_held"] > 0.5


def test_variants_are_complete() -> None:
    assert len(PAPER) == 9
    assert len(VARIANTS) == 13
    assert all(variant.make().loop() for variant in parts.ALL.values())
    assert {name for _, name, _ in parts.PLAIN} | {*parts.FROZEN, *parts.SHARED} <= set(parts.ALL)
    assert jain([1.0, 1.0, 1.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0]) == pytest.approx(0.5)


def test_each_idea_beyond_the_paper_does_what_it_is_for() -> None:
    assert parts.first_burst(parts.NO_PRE_DELAY, 200, 1)["longest_queue"] > 150
    assert parts.first_burst(ACTIVE, 200, 1)["longest_queue"] < Q
    with_cache, without = (parts.cached(LEVEL_2, 200, is_cached, 1) for is_cached in (True, False))
    assert with_cache["utilisation"] < 0.5 * without["utilisation"]
    assert with_cache["drop_rate"] > 0.1  # the burst does not fit into the queue
    # Those that begin at once meet a queue that may be full of checks already: some of ten thousand requests.
    assert parts.cached(ACTIVE, 200, True, 1)["drop_rate"] < 0.001
    found = [parts.tuned(5.0, 0.02, seed) for seed in range(4)]
    assert sum(each["staleness"] for each in found) / 4 == pytest.approx(5.0, rel=0.08)
    assert parts.answer_bytes()["whole"] < 100


def test_events_have_the_fields_of_the_specification() -> None:
    events: list[Event] = []
    world = World(m=5, updates=(10.0, 20.0), seconds=60.0)
    simulate(ActiveTimeout(), world, 1, name=("active", "", ""), record=events.append)
    assert len(events) > 20
    assert {event.kp for event in events} == set(range(5))
    assert all(event.version_seen <= event.version_true <= 2 for event in events)
    assert all(event.t_resp >= event.t_send and event.t_ast < inf for event in events)


def test_pages_come_from_a_small_run(tmp_path: Path) -> None:
    [(paper, experiment)] = find("e3.3")
    path = run(paper, experiment, Context(is_quick=True, seeds=1, only=Part.SIM), tmp_path)
    report = json.loads(path.read_text())
    assert {row["variant"] for row in report["summary"]} == {*VARIANTS, *PARTS}
    text = next(path for path in write_pages(paper, tmp_path) if path.name == "README.md").read_text()
    assert LEVEL_2 in text
    assert "m = 200" in text
    # The others show the same measures, with other claims.
    claims = levels_page.present("A", report).claims
    assert any("at most a tenth of level 2's" in claim.text for claim in claims)
