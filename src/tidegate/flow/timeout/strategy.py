"""The adaptive strategy: ask sooner after a loss, later without one (spec 3, eq 3 and Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.flow.timeout.estimates import Losses, Sawtooth


@dataclass(slots=True, kw_only=True, frozen=True)
class StrategySettings:
    """Times in seconds. The paper gives no number but α > 1, δ > 0; bounds are ambiguity 15.

    `growth` (ambiguity 2): `delta` adds δ as eq (3) does; `ndelta` adds N·δ as Algorithm 2 does, and then keeps the
    old value if that would reach T.
    """

    start: float = 5.0
    alpha: float = 2.0
    delta: float = 0.5
    low: float = 0.2
    high: float = 60.0
    growth: Literal["delta", "ndelta"] = "delta"

    def __post_init__(self) -> None:
        if self.alpha <= 1.0 or self.delta <= 0.0:
            raise ValueError("alpha must be above 1 and delta positive")
        if not 0.0 < self.low <= self.start <= self.high:
            raise ValueError("low, start and high must be positive and in this order")


class Strategy:
    """t_ast of one loop."""

    __slots__ = ("losses", "settings", "t_ast")

    def __init__(self, settings: StrategySettings) -> None:
        self.settings = settings
        self.t_ast = settings.start
        self.losses = Losses()

    def expected(self) -> Sawtooth | None:
        return self.losses.sawtooth(self.settings.alpha, self.settings.delta)

    def next(self, losses: int, interval: float, *, is_frozen: bool = False) -> float:
        """Take note of a check; `is_frozen` forbids the decrease: the loss has another cause (spec 3 (e) 3).

        However many updates were lost, the timeout is divided once a check (the use of K).
        """
        settings = self.settings
        self.losses.add(losses, interval)
        if losses > 0:
            if not is_frozen:
                self.t_ast = max(settings.low, self.t_ast / settings.alpha)
            return self.t_ast
        if settings.growth == "delta":
            grown = self.t_ast + settings.delta
        else:
            expected = self.expected()
            grown = self.t_ast + settings.delta * (1.0 if expected is None else max(1.0, expected.steps))
            if expected is not None and grown >= expected.end:
                grown = self.t_ast
        self.t_ast = min(settings.high, grown)
        return self.t_ast
