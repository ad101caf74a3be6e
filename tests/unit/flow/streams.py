"""Publishers as streams of intervals, one message a second on average, and how well a policy tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from tidegate.flow.backoff import BackoffPolicy


def constant(random: Random) -> Iterator[float]:
    while True:
        yield 1.0


def jitter_5(random: Random) -> Iterator[float]:
    while True:
        yield max(0.01, random.gauss(1.0, 0.05))


def jitter_20(random: Random) -> Iterator[float]:
    while True:
        yield max(0.01, random.gauss(1.0, 0.20))


def poisson(random: Random) -> Iterator[float]:
    while True:
        yield random.expovariate(1.0)


def on_off(random: Random) -> Iterator[float]:
    """Ten messages within a second, every ten seconds."""
    while True:
        for _ in range(9):
            yield 0.1
        yield 9.1


FAMILIES: dict[str, Callable[[Random], Iterator[float]]] = {
    "constant": constant,
    "jitter 5 %": jitter_5,
    "jitter 20 %": jitter_20,
    "Poisson": poisson,
    "on/off": on_off,
}

# Messages after a doubling of the rate before it can be called detectable: twice what a sequential test needs that
# knows both rates, ln(1/0.01) over the Kullback-Leibler divergence, which is 24 for a Poisson stream and about 1 for
# the regular ones, whose buckets must first take the slack that a caught-up stall needs.
DETECTABLE = {"constant": 8, "jitter 5 %": 8, "jitter 20 %": 12, "Poisson": 48, "on/off": 48}


@dataclass(slots=True)
class Quality:
    """Counts over all runs, by message."""

    innocent: int = 0
    innocent_marked: int = 0
    guilty: int = 0
    guilty_marked: int = 0

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
        now = 1000.0 * random.random()
        while publisher.trained_rate == 0.0:
            now += next(intervals)
            publisher.observe(now)
        for _ in range(normal):
            now += next(intervals)
            publisher.observe(now)
            quality.innocent += 1
            quality.innocent_marked += publisher.is_suspicious
        for sent in range(fast):
            now += next(intervals) / speed
            publisher.observe(now)
            if sent >= DETECTABLE[family]:
                quality.guilty += 1
                quality.guilty_marked += publisher.is_suspicious
    return quality
