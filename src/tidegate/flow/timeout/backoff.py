"""The random back-off: eq (4), (5) and Algorithm 3, and the three ways to choose the first one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.flow.timeout.base import Check, Random

ROUNDS: Final = 5  # t_max is five times the average and reached after five rounds; both hold with t_max/β⁵


class First(StrEnum):
    """Where the first back-off of a congestion comes from."""

    PAST_INTERVAL = "past_interval"  # what the interval before the last acceptable response had more than now
    PAST_SUCCESS = "past_success"  # the back-off that ended the last congestion
    ADVICE = "advice"  # the rate the broker wishes


class Draw(StrEnum):
    """How a back-off of a given mean is drawn."""

    NORMAL = "normal"  # eq (5): around the mean, by the spread
    UNIFORM = "uniform"  # from nothing to twice the mean: loops that met the same congestion drift further apart


@dataclass(slots=True, kw_only=True, frozen=True)
class BackoffSettings:
    """β, the relative spread s ("seed" in the paper), the first choice, and how to draw."""

    beta: float = 2.0
    spread: float = 0.25
    first: First | None = None
    draw: Draw = Draw.NORMAL

    def __post_init__(self) -> None:
        if self.beta < 2.0 or not 0.0 <= self.spread < 1.0:
            raise ValueError("beta must be at least 2 and spread a share below 1")


class RandomBackoff:
    """t_bck of one loop. `base` grows without the variation in it (ambiguity 10)."""

    __slots__ = ("_history", "_success", "base", "settings", "t_bck")

    def __init__(self, settings: BackoffSettings) -> None:
        self.settings = settings
        self.base = 0.0
        self.t_bck = 0.0
        self._history: deque[float] = deque(maxlen=8)  # intervals before acceptable responses
        self._success = 0.0

    def next(self, is_congested: bool, average: float, check: Check, t_ast: float, random: Random) -> float:
        """`average` is T̃ in seconds, of which t_max is five times; `t_ast` what the strategy says."""
        if not is_congested:
            self._history.append(check.interval)
            if self.t_bck > 0.0:
                self._success = self.t_bck
            self.base = self.t_bck = 0.0
            return 0.0
        settings = self.settings
        t_max = ROUNDS * average
        if self.base == 0.0:
            mean = self._first(check, t_ast)
            if mean > 0.0:
                self.base = mean
                self.t_bck = self._drawn(mean, 2.0 * mean, random)  # symmetric, so the mean stays
                return self.t_bck
            self.base = t_max / settings.beta**ROUNDS
        # A first back-off from elsewhere may be above t_max; growth never makes it smaller.
        self.base = max(self.base, min(self.base * settings.beta, t_max))
        self.t_bck = self._drawn(self.base, max(t_max, self.base), random)
        return self.t_bck

    def _drawn(self, mean: float, limit: float, random: Random) -> float:
        """A uniform one keeps its mean, so it may exceed the limit, up to twice."""
        if self.settings.draw is Draw.UNIFORM:
            return random.uniform(0.0, 2.0 * mean)
        return min(limit, max(0.0, random.gauss(mean, self.settings.spread * mean)))

    def _first(self, check: Check, t_ast: float) -> float:
        """The mean of the first back-off; 0 leaves it to t_min."""
        match self.settings.first:
            case First.PAST_INTERVAL:
                return self._history[-1] - check.interval if self._history else 0.0
            case First.PAST_SUCCESS:
                return self._success
            case First.ADVICE:
                rate = check.load.rate
                return max(0.0, 1.0 / rate - t_ast) if rate > 0.0 else 0.0
        return 0.0
