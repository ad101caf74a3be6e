"""N, T, τ and K: where the sawtooth of the adaptive strategy ends, its steps, its mean, and what losses look like.

The paper refers to formulas that cannot be had. These are ours, by the sawtooth argument as for TCP (spec 3 (b)):
losses come at random with rate ν, one ends each growth, and from T/α to T the timeout grows by δ a check.

How long a lost update stays unseen needs more than the sawtooth, since growths end by chance. For small steps the
timeout is the window of TCP: it grows by δ a check and is divided by α at rate ν·t. Then E[t²] = δ·α/(ν·(α - 1)), and
E[t] = sqrt(2·δ/(π·ν))·Π (1 - α^(-2n-2))/(1 - α^(-2n-1)), n from 0 (Ott, Kemperman and Mathis 1996; 1.31·sqrt(δ/ν) for
α = 2). A lost update falls into an interval in proportion to its length and waits for half of it: E[t²]/(2·E[t]).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import pi, sqrt
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

    `staleness` is how long a lost update stays unseen on average.
    """
    _check(alpha, delta, nu)
    end = sqrt(2.0 * delta * alpha * alpha / (nu * (alpha * alpha - 1.0)))
    return Sawtooth(
        end=end,
        steps=end * (alpha - 1.0) / (alpha * delta),
        mean=end * (alpha + 1.0) / (2.0 * alpha),
        staleness=sqrt(delta / nu) * _staleness(alpha),
    )


def delta_for(staleness: float, nu: float, alpha: float = 2.0) -> float:
    """The δ that leaves a lost update unseen for `staleness` seconds on average (spec 3 (e) 7)."""
    _check(alpha, staleness, nu)
    return nu * (staleness / _staleness(alpha)) ** 2


def _staleness(alpha: float) -> float:
    """E[t²]/(2·E[t]) for δ = ν = 1."""
    mean, power = sqrt(2.0 / pi), 1.0 / alpha
    while power > 1e-12:
        mean *= (1.0 - power / alpha) / (1.0 - power)
        power /= alpha * alpha
    return alpha / (2.0 * (alpha - 1.0) * mean)


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
