"""Publishers of E1.1, with the ground truth: which messages are ahead of what their trained schedule allows.

A message is anomalous if its publisher left its habit and the message is ahead of the schedule it was trained on, by
more than one interval (`sim.workloads.Schedule`). A publisher that keeps its habit, however irregular, sends nothing
anomalous. There is a second, stricter label: what a policer at the trained rate would pass of a publisher that left
its habit is not held against it either. Both are reported, because the verdict depends on the choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from random import Random

from tidegate.sim.workloads import DISPERSION, FAMILIES, Schedule, scaled, then, uniform

TRAINING = 4  # messages at constant intervals; the paper's N
LOW, HIGH = 0.25, 1.25  # of the base interval, afterwards (spec 1 (c), E1.1)
ATTACK_SPEED = 10.0
WORKLOADS = {
    "spec": "all publishers: 4 messages at the base interval, then intervals U(0.25, 1.25) of it",
    "mixed": "half as in spec; a quarter Poisson and a quarter 20 % jitter, innocent at the base interval throughout",
    "attack": "innocents as in mixed; the other half ten times as fast after training (5 % jitter)",
}


@dataclass(slots=True)
class Label:
    """The truth about one message."""

    is_anomalous: bool = False
    is_rejected: bool = False  # by a policer at the trained rate


@dataclass(slots=True)
class Stream:
    """One publisher: its intervals, what a policy snapshot would say of it, and the judges of its messages."""

    family: str  # "" for one that leaves its habit
    intervals: Iterator[float]
    dispersion: float
    schedule: Schedule
    policer: Schedule

    def label(self, now: float) -> Label:
        """To be asked once for each message, in order."""
        if self.family:
            return Label()
        return Label(self.schedule.is_ahead(now), self.policer.is_ahead(now))


def stream(workload: str, number: int, base: float, random: Random, training: int = TRAINING) -> Stream:
    """Publisher `number` of a workload; every other one is innocent where there are innocents."""
    phase = random.random() * base
    judges = Schedule(base, base), Schedule(base, base, is_policer=True)
    if workload != "spec" and number % 2:
        family = "Poisson" if number % 4 == 1 else "jitter 20 %"
        habit = scaled(FAMILIES[family](random), base)
        return Stream(family, chain([phase], habit), DISPERSION[family], *judges)
    if workload == "attack":
        change = scaled(FAMILIES["jitter 5 %"](random), base / ATTACK_SPEED)
    else:
        change = scaled(uniform(LOW, HIGH)(random), base)
    # A clock has a dispersion of 0, which stands for unknown in a prior: the least that says "like a clock".
    return Stream("", chain([phase], then(repeat(base), training - 1, change)), 0.001, *judges)
