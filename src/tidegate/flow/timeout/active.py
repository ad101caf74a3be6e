"""The product's timeout: the paper's idea with what it lacks (spec 3 (e) 1 to 5).

Theory of operation; docs/design/space.md has the reasons and the numbers.
- A loss that comes with congestion does not make the loop ask sooner: the strategy may only slow down then.
- Congestion is judged by `RobustTest`, which a busy but healthy broker does not alarm.
- The back-off is decorrelated jitter: loops that met the same congestion drift apart. So does every timeout, by a
  quarter of its length.
- A broker that announces the pace it wishes gets it: no loop asks more often on average. No announcement makes a loop
  wait longer than the longest timeout.
- A notification reaches all watchers at once. Each draws a turn within what the broker needs to serve all of them; the
  broker announces how many there are and how fast it is. Whose turn comes while the broker would work off a part of
  its queue does not wait for it: the queue is there for that, and the broker is busy from the first moment.
- A reaction that was dropped is tried again in the same manner; one that was answered is as good as a check.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.flow.timeout.announcement import UNKNOWN, Announcement
from tidegate.flow.timeout.base import Check, Random
from tidegate.flow.timeout.robust import RobustTest
from tidegate.flow.timeout.strategy import Strategy, StrategySettings


@dataclass(slots=True, kw_only=True, frozen=True)
class ActiveSettings:
    """Times in seconds, shares of 1."""

    strategy: StrategySettings = field(default_factory=StrategySettings)
    jitter: float = 0.25  # of every timeout
    pace_jitter: float = 0.5  # of an announced pace
    use: float = 0.8  # of the broker's capacity that reactions to one notification may take
    head_start: float = 0.5  # of the queueing that the broker calls stable, which the first to react may cause
    patience: float = 30.0  # longest wait before a reaction, however many watch
    t_min: float = 0.1  # shortest and longest back-off
    t_max: float = 30.0
    deviations: float = 5.0  # see robust.py; four alarm in 5.4 % of checks at utilisation 0.5
    window: int = 24
    freezes: bool = True  # the decrease while congested; off only to show what it is good for

    def __post_init__(self) -> None:
        if not (0.0 <= self.jitter < 1.0 and 0.0 <= self.pace_jitter < 1.0 and 0.0 < self.use <= 1.0):
            raise ValueError("jitter, pace_jitter and use are shares")
        if not 0.0 <= self.head_start <= 1.0:
            raise ValueError("head_start is a share")
        if not 0.0 < self.t_min <= self.t_max or self.patience < 0.0:
            raise ValueError("t_min and t_max must be positive and in this order, patience not negative")


class ActiveTimeout:
    """Level 3 and beyond; the default."""

    def __init__(self, settings: ActiveSettings | None = None) -> None:
        self.settings = settings or ActiveSettings()

    def loop(self) -> ActiveLoop:
        return ActiveLoop(self.settings)


class ActiveLoop:
    """State of one loop."""

    __slots__ = ("_load", "_settings", "_test", "_waited", "is_congested", "strategy", "t_bck")
    counts_reactions: bool = True

    def __init__(self, settings: ActiveSettings) -> None:
        self._settings = settings
        self._test = RobustTest(settings.deviations, settings.window)
        self._load = UNKNOWN  # the last one announced
        self._waited = settings.t_min  # the last back-off: the next is drawn up to three times as long
        self.strategy = Strategy(settings.strategy)
        self.is_congested = False
        self.t_bck = 0.0

    @property
    def t_ast(self) -> float:
        return self.strategy.t_ast

    @property
    def t_avg(self) -> float:
        return self._test.mean

    @property
    def threshold(self) -> float:
        return self._test.threshold()

    def start(self, random: Random) -> float:
        return random.random() * self.t_ast

    def check(self, check: Check, random: Random) -> float:
        settings = self._settings
        longest = settings.strategy.high
        self._judge(check, random)
        is_frozen = self.is_congested and settings.freezes
        t_ast = self.strategy.next(check.losses, check.interval, is_frozen=is_frozen)
        wait = (t_ast + self.t_bck) * random.uniform(1.0 - settings.jitter, 1.0 + settings.jitter)
        if self._load.rate > 0.0:
            spread = settings.pace_jitter
            wait = max(wait, min(longest, random.uniform(1.0 - spread, 1.0 + spread) / self._load.rate))
        return max(wait, min(longest, check.load.retry_after))

    def react(self, random: Random, load: Announcement = UNKNOWN) -> float:
        settings = self._settings
        known = load if load.spread > 0.0 else self._load
        ahead = settings.head_start * (known.limit - known.queueing)  # negative: there is something to wait for
        return min(settings.patience, max(0.0, self._turn(random, known) - ahead))

    def _turn(self, random: Random, load: Announcement) -> float:
        return random.random() * min(self._settings.patience, load.spread / self._settings.use)

    def retry(self, check: Check, random: Random) -> float | None:
        self._judge(check, random)
        asked = min(self._settings.strategy.high, check.load.retry_after)
        return max(self.t_bck, asked) + self._turn(random, self._load)  # the queue was full: no head start

    def _judge(self, check: Check, random: Random) -> None:
        settings = self._settings
        if check.load is not UNKNOWN:
            self._load = check.load
        self.is_congested = self._test.add(check.duration, is_dropped=check.is_dropped)
        if self.is_congested:
            self._waited = min(settings.t_max, random.uniform(settings.t_min, 3.0 * self._waited))
            self.t_bck = self._waited
        else:
            self._waited = settings.t_min
            self.t_bck = 0.0
