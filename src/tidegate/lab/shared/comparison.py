"""E5.1 to E5.4 and E5.6: one scenario, every rule, many phases of the ping timers; simulated and over sockets.

The thesis's claims: with one slow member of three its score lowers the mean latency by 98 % against round robin
(1492.3 to 27.4 ms), splits messages 500 to 1000 into 199/199/102, and among equal members it is as good as round robin.
Ours: at most 8 ms (worst phase 15) there, at most 5 ms when a member slows down, better than the thesis in every
scenario, also with members that report nothing and acknowledge at QoS 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from tidegate.flow import shared_policy
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.shared import comparison_page, real
from tidegate.lab.shared.record import record_run
from tidegate.lab.shared.scenarios import SCENARIOS, SECONDS, Scenario
from tidegate.lab.shared.simulate import Outcome, simulate
from tidegate.lab.shared.variants import (
    COMPARED,
    HOPELESS,
    LEAST_INFLIGHT,
    OURS,
    OURS_PAHO,
    RANDOM,
    ROUND_ROBIN,
    THESIS,
    Slot,
    Variant,
)
from tidegate.lab.shared.waits import Handled, summarise_runs, trace, values
from tidegate.lab.statistics import columns

INTERVAL: Final = 1.0  # seconds between pings, Table 6
PHASED: Final = (THESIS, OURS, OURS_PAHO)
UNPHASED: Final = (RANDOM, ROUND_ROBIN, LEAST_INFLIGHT)
SIMULATED: Final = "simulated"
SOCKETS: Final = "sockets"


def handled(outcome: Outcome) -> list[Handled]:
    return [Handled(each.msg_id, each.member, each.t_created, each.t_dequeued) for each in outcome.deliveries]


def simulated(scenario: Scenario, variant: Variant, seed: int, interval: float = INTERVAL) -> Outcome:
    topic = f"lab/{seed}".encode()
    return simulate(
        shared_policy(variant.policy)(),
        scenario.workers,
        scenario.times,
        signal=variant.signal,
        interval=interval,
        seed=seed,
        topic=lambda _number: topic,
        publisher=f"{seed}-publisher",
    )


def add(
    data: dict[str, Any],
    row: dict[str, Any],
    seeds: list[int],
    runs: list[list[Handled]],
    scenario: Scenario,
    extra: dict[str, Any],
) -> None:
    """One row of the summary, and the values of every seed."""
    found = [values(run, len(scenario.workers)) for run in runs]
    data["summary"].append(
        {**row, **summarise_runs(found), **extra, "trace": trace(runs, len(scenario.times))}
    )
    data["seeds"].append({**row, "seeds": seeds, "values": columns(found)})


def run(names: tuple[str, ...], context: Context) -> dict[str, Any]:
    phases = context.number_of_seeds(20, 3)
    rounds, each = (1, 2) if context.is_quick else (3, 7)
    seconds = 6.0 if context.is_quick else SECONDS
    data: dict[str, Any] = {
        "parameters": {
            "scenarios": list(names),
            "seconds": SECONDS,
            "message": "100 bytes, one publisher and one topic a group",
            "pings": f"every {INTERVAL:g} s, phases drawn from the seed",
            "simulated phases": phases,
        },
        "summary": [],
        "rounds": [],
        "seeds": [],
    }
    if context.wants(Part.SIM):
        _simulate(names, phases, context, data)
    if context.wants(Part.REAL):
        data["parameters"]["sockets"] = {
            "groups": f"{rounds} rounds of {each} phases with {', '.join(v.name for v in PHASED)}; "
            f"two of {', '.join(v.name for v in UNPHASED)}",
            "seconds": seconds,
            "processes": "the broker, one with all publishers, one for each member number of either kind of client",
            "members": "tidegate.client at QoS 0; for QoS 1 paho-mqtt, acknowledging after processing, no reports",
            "broker": " ".join(real.SETTINGS) + ", [[shared]] by group",
            "repeated": f"a round of which over {real.STEAL:.0%} was stolen, or with wake-ups over {real.LATE_MS:g} ms "
            "late (p99 of any process), once",
        }
        _over_sockets(names, rounds, each, seconds, context, data)
    return data


def _simulate(names: tuple[str, ...], phases: int, context: Context, data: dict[str, Any]) -> None:
    cases = [(name, variant) for name in names for variant in COMPARED]
    for name, variant in context.follow(f"{names[0]} simulated", cases):
        scenario = SCENARIOS[name]
        seeds = list(range(1, phases + 1))
        outcomes = [simulated(scenario, variant, seed) for seed in seeds]
        if context.record is not None:
            for seed, outcome in zip(seeds, outcomes, strict=True):
                record_run(f"{name}/{variant.name}/{seed}", variant.policy, outcome, context.record)
        extra = {"control_bytes": sum(outcome.control_bytes for outcome in outcomes) / phases}
        row = {"where": SIMULATED, "scenario": name, "variant": variant.name}
        add(data, row, seeds, [handled(outcome) for outcome in outcomes], scenario, extra)


def _over_sockets(
    names: tuple[str, ...], rounds: int, each: int, seconds: float, context: Context, data: dict[str, Any]
) -> None:
    for name in names:
        scenario = SCENARIOS[name].until(seconds)
        found: dict[str, list[tuple[int, bool, real.Measured]]] = {}
        for number in context.follow(f"{name} over sockets", range(rounds)):
            slots = [
                Slot.of(scenario, variant, 0, number * each + seed, INTERVAL)
                for variants, count in ((PHASED, each), (UNPHASED, 2), (_hopeless(name), 1))
                for seed in range(1, count + 1)
                for variant in variants
            ]
            measured, machine = real.measure(
                name, slots, seconds, tries=1 if context.is_quick else real.TRIES
            )
            data["rounds"].append(
                {"scenario": name, "round": number, "is_calm": machine.is_calm, **asdict(machine)}
            )
            for group in measured:
                found.setdefault(group.slot.variant, []).append((group.slot.seed, machine.is_calm, group))
        for variant, groups in found.items():
            # Disturbed rounds count only if there are no others.
            kept = [entry for entry in groups if entry[1]] or groups
            extra = {
                "is_calm": all(is_calm for _, is_calm, _ in kept),
                "control_bytes": sum(group.control_bytes for _, _, group in kept) / len(kept),
                "lost": sum(group.lost for _, _, group in kept),
                "doubled": sum(group.doubled for _, _, group in kept),
                "waiting": sum(group.waiting for _, _, group in kept) / len(kept),
            }
            row = {"where": SOCKETS, "scenario": name, "variant": variant}
            runs = [group.handled for _, _, group in kept]
            add(data, row, [seed for seed, _, _ in kept], runs, scenario, extra)


def _hopeless(name: str) -> tuple[Variant, ...]:
    """Once is enough to see what is wrong with them."""
    return HOPELESS if name == "E5.2" else ()


def _experiment(
    name: str, title: str, question: str, scenarios: tuple[str, ...], claims: Callable[..., Any]
) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        question=question,
        run=partial(run, scenarios),
        present=partial(comparison_page.present, claims),
    )


EQUAL = _experiment(
    "e5.1-equal",
    "Three equal members",
    "Is a rule that knows the load as good as round robin where there is nothing to know?",
    ("E5.1",),
    comparison_page.equal_claims,
)
UNEQUAL = _experiment(
    "e5.2-unequal",
    "One member of three is slow",
    "How long do messages wait when one of three members takes twice as long?",
    ("E5.2", "E5.2 at 10 ms"),
    comparison_page.unequal_claims,
)
CHANGE = _experiment(
    "e5.3-change",
    "A member slows down",
    "How long do messages wait when a member becomes slow after 7 of 15 seconds?",
    ("E5.3",),
    comparison_page.change_claims,
)
BURSTS = _experiment(
    "e5.4-bursts",
    "Bursts",
    "How long do messages wait that come in bursts of 40, more than the members can do at once?",
    ("E5.4",),
    comparison_page.better_claims,
)
CHURN = _experiment(
    "e5.6-churn",
    "Members join and leave",
    "How long do messages wait when a member joins under load and a fast one leaves?",
    ("E5.6",),
    comparison_page.better_claims,
)
