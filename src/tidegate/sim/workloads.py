"""Publishers as streams of intervals in seconds, one message a second on average unless said otherwise.

`FAMILIES` are habits. The functions below them bend a habit: scale it, let it drift, train before it changes.
`Schedule` is the ground truth that experiments label messages with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import TypeAlias

Intervals: TypeAlias = Iterator[float]
Family: TypeAlias = Callable[[Random], Intervals]


def constant(_random: Random) -> Intervals:
    while True:
        yield 1.0


def jitter(share: float) -> Family:
    """Gaussian around one second; `share` is the standard deviation."""

    def family(random: Random) -> Intervals:
        while True:
            yield max(0.01, random.gauss(1.0, share))

    return family


def poisson(random: Random) -> Intervals:
    while True:
        yield random.expovariate(1.0)


def on_off(_random: Random) -> Intervals:
    """Ten messages within a second, every ten seconds."""
    while True:
        for _ in range(9):
            yield 0.1
        yield 9.1


def uniform(low: float, high: float) -> Family:
    def family(random: Random) -> Intervals:
        while True:
            yield random.uniform(low, high)

    return family


FAMILIES: dict[str, Family] = {
    "constant": constant,
    "jitter 5 %": jitter(0.05),
    "jitter 20 %": jitter(0.20),
    "Poisson": poisson,
    "on/off": on_off,
}

# Variance over mean of the number of messages, what a policy snapshot would say of each after a long time.
DISPERSION = {"constant": 0.0, "jitter 5 %": 0.0025, "jitter 20 %": 0.04, "Poisson": 1.0, "on/off": 0.0}


def scaled(intervals: Intervals, factor: float) -> Intervals:
    """The same habit, `factor` times as slow."""
    return (interval * factor for interval in intervals)


def then(first: Intervals, messages: int, second: Intervals) -> Intervals:
    """`messages` intervals of the first, then the second."""
    yield from islice(first, messages)
    yield from second


def drift(intervals: Intervals, *, start: int, length: int, speed: float) -> Intervals:
    """From message `start` on, the rate grows to `speed` times itself within `length` messages, and stays there."""
    for number, interval in enumerate(intervals):
        done = min(1.0, max(0.0, (number - start) / length))
        yield interval / speed**done


class Schedule:
    """Which messages are ahead of what a trained rate allows: sent more than `tolerance` before they are due.

    Each message is due one `interval` after the one before it was due or sent, whichever is later: being late saves
    nothing up. If every message counts, all but the first few of a stream at k times the rate are ahead. A policer
    (`is_policer`, the GCRA) does not count what it would reject: one in k of them conforms, which one is arbitrary.
    """

    __slots__ = ("_due", "interval", "is_policer", "tolerance")

    def __init__(self, interval: float, tolerance: float, *, is_policer: bool = False) -> None:
        self.interval = interval
        self.tolerance = tolerance
        self.is_policer = is_policer
        self._due = 0.0

    def is_ahead(self, now: float) -> bool:
        # A regular publisher is never ahead, whatever the rounding of its sums.
        is_ahead = now < self._due - self.tolerance - 1e-9 * self.interval
        if not (is_ahead and self.is_policer):
            self._due = max(now, self._due) + self.interval
        return is_ahead
