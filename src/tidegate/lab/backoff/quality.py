"""How well a back-off policy tells a publisher that sped up from one that is merely irregular, message by message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tidegate.flow.backoff import BackoffPolicy, Publisher
from tidegate.sim.workloads import FAMILIES, Intervals

# Messages after a doubling of the rate before it can be called detectable: twice what a sequential test needs that
# knows both rates, ln(1/0.01) over the Kullback-Leibler divergence, which is 24 for a Poisson stream and about 1 for
# the regular ones, whose buckets must first take the slack that a caught-up stall needs.
DETECTABLE = {"constant": 8, "jitter 5 %": 8, "jitter 20 %": 12, "Poisson": 48, "on/off": 48}


@dataclass(slots=True)
class Quality:
    """Counts over all runs, by message; holds are the seconds decided on, summed."""

    innocent: int = 0
    innocent_marked: int = 0
    guilty: int = 0
    guilty_marked: int = 0
    innocent_hold: float = 0.0
    guilty_hold: float = 0.0

    @property
    def is_any_marked(self) -> bool:
        return self.innocent_marked + self.guilty_marked > 0

    @property
    def false_positive_rate(self) -> float:
        return self.innocent_marked / self.innocent

    @property
    def recall(self) -> float:
        return self.guilty_marked / self.guilty

    @property
    def precision(self) -> float:
        marked = self.innocent_marked + self.guilty_marked
        return self.guilty_marked / marked if marked else 1.0

    def count(self, publisher: Publisher, hold: float, *, is_guilty: bool) -> None:
        """One message was observed with this answer. A stranger has no habit to leave, but may be held all the same."""
        is_marked = publisher.is_suspicious or hold != 0.0
        if is_guilty:
            self.guilty += 1
            self.guilty_marked += is_marked
            self.guilty_hold += max(0.0, hold)
        else:
            self.innocent += 1
            self.innocent_marked += is_marked
            self.innocent_hold += max(0.0, hold)


def train(publisher: Publisher, intervals: Intervals, now: float) -> float:
    """Let it send until its rate is known; returns the time."""
    while publisher.trained_rate == 0.0:
        now += next(intervals)
        publisher.observe(now)
    return now


def measure(
    make: Callable[[], BackoffPolicy],
    family: str,
    *,
    seeds: int,
    normal: int = 500,
    fast: int = 250,
    speed: float = 2.0,
    first_seed: int = 0,
) -> Quality:
    """`normal` messages after training, all innocent; then `fast` ones at `speed` times the rate, guilty as soon as
    that is detectable."""
    quality = Quality()
    for seed in range(first_seed, first_seed + seeds):
        random = Random(seed)
        intervals = FAMILIES[family](random)
        publisher = make().publisher("p")
        now = train(publisher, intervals, 1000.0 * random.random())
        for _ in range(normal):
            now += next(intervals)
            quality.count(publisher, publisher.observe(now), is_guilty=False)
        for sent in range(fast):
            now += next(intervals) / speed
            hold = publisher.observe(now)
            if sent >= DETECTABLE[family]:
                quality.count(publisher, hold, is_guilty=True)
    return quality
