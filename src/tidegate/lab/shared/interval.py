"""E5.5: how often to report. Waits against the bytes that reports cost, at the setting of E5.2.

The thesis leaves the best interval open. Ours: reports that are sent when the broker must be wrong, and else slowly,
are better than any fixed interval at the same number of bytes.
"""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean
from typing import Any, Final

from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.shared import interval_page, real
from tidegate.lab.shared.comparison import SIMULATED, SOCKETS, handled, simulated
from tidegate.lab.shared.scenarios import SCENARIOS, SECONDS
from tidegate.lab.shared.variants import OURS, OURS_FIXED, OURS_PAHO, THESIS, Slot

INTERVALS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
SCENARIO: Final = "E5.2"
REPORTING: Final = (THESIS, OURS_FIXED, OURS)
RARE: Final = (OURS, 15.0)  # longer than any fixed interval that is any use


def _row(where: str, variant: str, interval: float, runs: list[tuple[float, float]]) -> dict[str, Any]:
    """`runs` are pairs of mean wait and bytes."""
    means = [mean for mean, _ in runs]
    return {
        "where": where,
        "variant": variant,
        "interval": interval,
        "phases": len(runs),
        "mean": fmean(means),
        "worst": max(means),
        "control_bytes": fmean(size for _, size in runs),
        "means": means,
    }


def run(context: Context) -> dict[str, Any]:
    phases = context.number_of_seeds(20, 2)
    rounds = 1 if context.is_quick else 4
    seconds = 6.0 if context.is_quick else SECONDS
    data: dict[str, Any] = {
        "parameters": {
            "scenario": f"{SCENARIO}, {SECONDS:g} s",
            "intervals": [f"{interval:g} s" for interval in INTERVALS],
            "bytes": "extended PINGREQ and PINGRESP; QoS 1: PUBACK",
            "simulated phases": phases,
        },
        "summary": [],
        "rounds": [],
        "seeds": [],
    }
    if context.wants(Part.SIM):
        scenario = SCENARIOS[SCENARIO]
        cases = [(variant, interval) for variant in REPORTING for interval in INTERVALS]
        for variant, interval in context.follow("e5.5 simulated", [*cases, RARE, (OURS_PAHO, 1.0)]):
            found = []
            for seed in range(1, phases + 1):
                outcome = simulated(scenario, variant, seed, interval)
                found.append((fmean(each.wait for each in handled(outcome)), float(outcome.control_bytes)))
            data["summary"].append(_row(SIMULATED, variant.name, interval, found))
    if context.wants(Part.REAL):
        data["parameters"]["sockets"] = {"phases": rounds, "seconds": seconds}
        _over_sockets(rounds, seconds, context, data)
    return data


def _over_sockets(rounds: int, seconds: float, context: Context, data: dict[str, Any]) -> None:
    scenario = SCENARIOS[SCENARIO].until(seconds)
    intervals = INTERVALS[1:4] if context.is_quick else INTERVALS
    runs: dict[tuple[str, float], list[tuple[float, float]]] = {}
    disturbed: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for number in context.follow("e5.5 over sockets", range(rounds)):
        cases = [(variant, interval) for variant in REPORTING for interval in intervals]
        slots = [
            Slot.of(scenario, variant, 0, number + 1, interval)
            for variant, interval in [*cases, RARE, (OURS_PAHO, 1.0)]
        ]
        measured, machine = real.measure(
            SCENARIO, slots, seconds, tries=1 if context.is_quick else real.TRIES
        )
        data["rounds"].append(
            {"scenario": "E5.5", "round": number, "is_calm": machine.is_calm, **asdict(machine)}
        )
        for group in measured:
            key = (group.slot.variant, group.slot.interval)
            values = (fmean(each.wait for each in group.handled), float(group.control_bytes))
            (runs if machine.is_calm else disturbed).setdefault(key, []).append(values)
    for (variant, interval), found in (runs or disturbed).items():
        data["summary"].append(_row(SOCKETS, variant, interval, found))


EXPERIMENT = Experiment(
    name="e5.5-interval",
    title="How often to report",
    question="What does a wait cost in bytes of reports, at fixed intervals and when reports follow events?",
    run=run,
    present=interval_page.present,
)
