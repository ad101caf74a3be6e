"""How many routers there should be: a pure rule of arrivals, cost, backlog and age (spec 4, e6).

R = ceil(arrivals · cost / target utilisation), plus what works off the backlog within `drain` seconds; and never fewer
than now while the oldest request is older than `max_age`. Up at once, since every second of delay is somebody's wait;
down after `cool_down` seconds in which fewer would have done, and then to the most that was wanted in that time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil

from tidegate.rpc.errors import RpcError


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Settings of the rule; seconds, and shares of a router's time."""

    minimum: int = 1
    maximum: int = 20
    utilisation: float = 0.7
    max_age: float = 1.0
    drain: float = 5.0
    cool_down: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise RpcError(
                f"from {self.minimum} to {self.maximum} routers",
                hint="give 0 <= --min <= --max, --max from 1",
            )
        if not 0.0 < self.utilisation <= 1.0:
            raise RpcError(f"a target utilisation of {self.utilisation:g}", hint="above 0, at most 1")
        if self.max_age <= 0.0 or self.drain <= 0.0 or self.cool_down < 0.0:
            raise RpcError("an age, drain or cool-down that is no time", hint="give seconds above 0")


@dataclass(slots=True, kw_only=True)
class Sample:
    """What was measured: requests that arrive in a second, seconds of one router per request, requests that wait,
    seconds the oldest of them has waited, routers that run."""

    now: float
    arrivals: float
    cost: float
    backlog: int
    oldest: float
    replicas: int


class Autoscaler:
    """One group of routers."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self._wanted: deque[tuple[float, int]] = deque()

    def decide(self, sample: Sample) -> int:
        """How many routers there should be from now on."""
        wanted = self._want(sample)
        self._wanted.append((sample.now, wanted))
        since = sample.now - self.scale.cool_down
        while self._wanted[0][0] < since:
            self._wanted.popleft()
        if wanted >= sample.replicas:
            return wanted
        return max(want for _, want in self._wanted)

    def _want(self, sample: Sample) -> int:
        scale = self.scale
        busy = (sample.arrivals + sample.backlog / scale.drain) * sample.cost
        wanted = ceil(busy / scale.utilisation - 1e-9)
        if sample.oldest > scale.max_age:
            # The cost is an estimate: if requests grow old, it was too low.
            wanted = max(wanted, sample.replicas + 1)
        elif sample.backlog == 0 and sample.arrivals == 0.0:
            wanted = 0
        return min(scale.maximum, max(scale.minimum, wanted))
