"""N, T, τ and K: where the sawtooth of the adaptive strategy ends, its steps, its mean, and what losses look like.

The paper refers to formulas that cannot be had. These are ours, by the sawtooth argument as for TCP (spec 3 (b)):
losses come at random with rate ν, one ends each growth, and from T/α to T the timeout grows by δ a check.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import sqrt
from typing import Final

CHECKS: Final = 50  # that ν is estimated over
CYCLES: Final = 3  # losses it takes before an estimate is worth anything


@dataclass(slots=True, kw_only=True, frozen=True)
class Sawtooth:
    """`end` (T) and `mean` (τ) in seconds, `steps` (N) checks of growth."""

    end: float
    steps: float
    mean: float
    staleness: float


def sawtooth(alpha: float, delta: float, nu: float) -> Sawtooth:
    """What to expect of `alpha`, `delta` in seconds and `nu` losses per second.

    `staleness` is how long a lost update stays unseen on average: it falls into long intervals more often than into
    short ones, and then waits for the rest. Simulation finds it up to a third longer than this.
    """
    _check(alpha, delta, nu)
    end = sqrt(2.0 * delta * alpha * alpha / (nu * (alpha * alpha - 1.0)))
    return Sawtooth(
        end=end,
        steps=end * (alpha - 1.0) / (alpha * delta),
        mean=end * (alpha + 1.0) / (2.0 * alpha),
        staleness=end * (alpha * alpha + alpha + 1.0) / (3.0 * alpha * (alpha + 1.0)),
    )


def delta_for(staleness: float, nu: float, alpha: float = 2.0) -> float:
    """The δ that leaves a lost update unseen for `staleness` seconds on average (spec 3 (e) 7)."""
    _check(alpha, staleness, nu)
    end = staleness * 3.0 * alpha * (alpha + 1.0) / (alpha * alpha + alpha + 1.0)
    return end * end * nu * (alpha * alpha - 1.0) / (2.0 * alpha * alpha)


def _check(alpha: float, length: float, nu: float) -> None:
    if alpha <= 1.0 or length <= 0.0 or nu <= 0.0:
        raise ValueError("alpha must be above 1, times and rates positive")


class Losses:
    """The last checks of one loop: ν online as Σk/Σt, and K, the mean of k over checks that lost something."""

    __slots__ = ("_checks", "_lossy", "_lost", "_time", "cycles")

    def __init__(self) -> None:
        self._checks: deque[tuple[int, float]] = deque()
        self._lost = 0
        self._lossy = 0
        self._time = 0.0
        self.cycles = 0
        """Checks with a loss since the beginning: each ends a growth."""

    def add(self, losses: int, interval: float) -> None:
        self._checks.append((losses, interval))
        self._lost += losses
        self._lossy += losses > 0
        self._time += interval
        self.cycles += losses > 0
        if len(self._checks) > CHECKS:
            losses, interval = self._checks.popleft()
            self._lost -= losses
            self._lossy -= losses > 0
            self._time -= interval

    @property
    def nu(self) -> float:
        """Losses per second; 0 while none was seen."""
        return self._lost / self._time if self._time > 1e-9 else 0.0

    @property
    def kind(self) -> float:
        """K: 1 for isolated losses, large for outages; 0 while there are none."""
        return self._lost / self._lossy if self._lossy else 0.0

    def sawtooth(self, alpha: float, delta: float) -> Sawtooth | None:
        """The expected sawtooth; None before three losses, or when there was none of late."""
        if self.cycles < CYCLES or self.nu <= 0.0:
            return None
        return sawtooth(alpha, delta, self.nu)
