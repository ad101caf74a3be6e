"""When a response time means congestion: the paper's three levels of requirement, and the smoothing they share."""

from __future__ import annotations

from math import inf
from typing import Final, Protocol

from tidegate.flow.timeout.base import Check

GAMMA: Final = 0.875  # 1 - 1/8, as TCP smooths; the paper names no number


class Smoothed:
    """Eq (7): T̃_n = γ·T̃_(n-1) + (1 - γ)·T_n; the first value as it is."""

    __slots__ = ("gamma", "mean")

    def __init__(self, gamma: float = GAMMA) -> None:
        if not 0.0 <= gamma < 1.0:
            raise ValueError("gamma must be a share below 1")
        self.gamma = gamma
        self.mean = 0.0

    def add(self, value: float) -> float:
        self.mean = value if self.mean == 0.0 else self.gamma * self.mean + (1.0 - self.gamma) * value
        return self.mean


class Requirement(Protocol):
    """Judges checks of one loop, each once and in order."""

    def threshold(self, check: Check, average: float) -> float:
        """Seconds over which the response means congestion; infinite while nothing is known.

        `average` is T̃ before this check, 0 at the first. It is known while the client still waits: whoever waits
        longer need not wait for the answer to know.
        """


class Rigorous:
    """Eq (6): T_proc + T_net + ρ·T_proc, for clients that know what a request takes."""

    __slots__ = ("rho", "t_net", "t_proc")

    def __init__(self, t_proc: float, t_net: float, rho: float = 0.5) -> None:
        if t_proc <= 0.0 or t_net < 0.0 or not 0.0 <= rho < 1.0:
            raise ValueError("t_proc must be positive, t_net not negative, rho a share below 1")
        self.t_proc = t_proc
        self.t_net = t_net
        self.rho = rho

    def threshold(self, check: Check, average: float) -> float:
        return self.t_proc + self.t_net + self.rho * self.t_proc


class Mediate:
    """D_br + T_net, where the broker announces D_br: processing and the longest queueing of stable work."""

    __slots__ = ("_d_br", "t_net")

    def __init__(self, t_net: float = 0.0) -> None:
        self.t_net = t_net
        self._d_br = inf

    def threshold(self, check: Check, average: float) -> float:
        load = check.load
        if load.processing > 0.0 and load.limit > 0.0:
            self._d_br = load.processing + load.limit
        return self._d_br + self.t_net


class Light:
    """Eq (7): θ·T̃. Needs nothing, and errs most: above its mean is an exponential time in 37 % of all cases."""

    __slots__ = ("theta",)

    def __init__(self, theta: float = 1.0) -> None:
        if theta <= 0.0:
            raise ValueError("theta must be positive")
        self.theta = theta

    def threshold(self, check: Check, average: float) -> float:
        return self.theta * average if average > 0.0 else inf
