"""The paper's four levels of control: none, basic, adaptive, and active with its random back-off (spec 3 (b))."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tidegate.flow.timeout.announcement import UNKNOWN, Announcement
from tidegate.flow.timeout.backoff import BackoffSettings, Draw, First, RandomBackoff
from tidegate.flow.timeout.base import Check, Random
from tidegate.flow.timeout.requirement import Light, Requirement, Smoothed
from tidegate.flow.timeout.strategy import Strategy, StrategySettings

_NO_CHECK = Check(interval=0.0, duration=0.0)  # nothing is announced before the answer


class _Plain:
    """What the paper's levels have in common: they react at once, and leave a dropped reaction to the next check."""

    counts_reactions: bool = False
    t_bck = 0.0
    is_congested = False
    threshold = inf

    def __init__(self) -> None:
        self._smoothed = Smoothed()

    @property
    def t_avg(self) -> float:
        return self._smoothed.mean

    def react(self, random: Random, load: Announcement = UNKNOWN) -> float:
        return 0.0

    def retry(self, check: Check, random: Random) -> float | None:
        return None


class NoTimeout:
    """Level 0: the broker notifies, and what is lost stays unseen."""

    def loop(self) -> NoLoop:
        return NoLoop()


class NoLoop(_Plain):
    t_ast = inf

    def start(self, random: Random) -> float:
        return inf

    def check(self, check: Check, random: Random) -> float:
        self._smoothed.add(check.duration)
        return inf


class FixedTimeout:
    """Level 1: the same timeout whatever happens; `spread` draws it from ± that share."""

    def __init__(self, seconds: float = 5.0, spread: float = 0.0) -> None:
        if seconds <= 0.0 or not 0.0 <= spread < 1.0:
            raise ValueError("seconds must be positive and spread a share below 1")
        self.seconds = seconds
        self.spread = spread

    def loop(self) -> FixedLoop:
        return FixedLoop(self)


class FixedLoop(_Plain):
    def __init__(self, policy: FixedTimeout) -> None:
        super().__init__()
        self._policy = policy
        self.t_ast = policy.seconds

    def start(self, random: Random) -> float:
        return random.random() * self.t_ast

    def check(self, check: Check, random: Random) -> float:
        self._smoothed.add(check.duration)
        spread = self._policy.spread
        return self.t_ast if spread == 0.0 else self.t_ast * random.uniform(1.0 - spread, 1.0 + spread)


class AdaptiveTimeout:
    """Level 2: the adaptive strategy alone. Keywords are those of `StrategySettings`."""

    def __init__(self, settings: StrategySettings | None = None) -> None:
        self.settings = settings or StrategySettings()

    def loop(self) -> AdaptiveLoop:
        return AdaptiveLoop(self.settings)


class AdaptiveLoop(_Plain):
    def __init__(self, settings: StrategySettings) -> None:
        super().__init__()
        self.strategy = Strategy(settings)

    @property
    def t_ast(self) -> float:
        return self.strategy.t_ast

    def start(self, random: Random) -> float:
        return random.random() * self.t_ast

    def check(self, check: Check, random: Random) -> float:
        self._smoothed.add(check.duration)
        return self.strategy.next(check.losses, check.interval)


class PaperTimeout:
    """Level 3 as the paper has it: strategy and random back-off, with a choice of requirement and of the first one.

    `requirement` makes the judge of one loop; without it, the light one with θ = 1 (Algorithm 3).
    """

    def __init__(
        self,
        *,
        requirement: Callable[[], Requirement] = Light,
        first: First | str | None = None,
        strategy: StrategySettings | None = None,
        beta: float = 2.0,
        spread: float = 0.25,
        draw: Draw | str = Draw.NORMAL,
    ) -> None:
        self.requirement = requirement
        self.strategy = strategy or StrategySettings()
        self.backoff = BackoffSettings(
            beta=beta, spread=spread, first=None if first is None else First(first), draw=Draw(draw)
        )

    def loop(self) -> PaperLoop:
        return PaperLoop(self)


class PaperLoop(_Plain):
    """Eq (2): t = t_ast + t_bck. The average takes part in everything, congested responses too (ambiguity 8)."""

    def __init__(self, policy: PaperTimeout) -> None:
        super().__init__()
        self.strategy = Strategy(policy.strategy)
        self._requirement = policy.requirement()
        self._backoff = RandomBackoff(policy.backoff)

    @property
    def t_ast(self) -> float:
        return self.strategy.t_ast

    @property
    def threshold(self) -> float:  # type: ignore[override]
        return self._requirement.threshold(_NO_CHECK, self._smoothed.mean)

    def start(self, random: Random) -> float:
        return random.random() * self.t_ast

    def check(self, check: Check, random: Random) -> float:
        threshold = self._requirement.threshold(check, self._smoothed.mean)
        self.is_congested = check.is_dropped or check.duration > threshold
        average = self._smoothed.add(check.duration)
        t_ast = self.strategy.next(check.losses, check.interval)
        self.t_bck = self._backoff.next(self.is_congested, average, check, t_ast, random)
        return t_ast + self.t_bck
