"""A router's processor time, limited: so many seconds in each period, as a container's quota would be (E4.3).

What a router does is measured and charged here; when its quota is used up it takes no more work until the period ends.
What its process does for it beneath (sockets, the MQTT client, the event loop) is charged in proportion.
"""

from __future__ import annotations

import asyncio
import time

_ENOUGH = 0.005  # seconds that routers measured themselves, before the factor is computed again
_SMOOTHING = 0.3
_HIGHEST = 10.0  # a process that does little has costs of its own that are nobody's


class Overhead:
    """How much more processor time a process uses than its routers measure, as a factor; one for a process."""

    def __init__(self) -> None:
        self.factor = 1.0
        self._measured = 0.0
        self._before = time.process_time()

    def add(self, seconds: float) -> float:
        """What a router measured; gives what it is charged with."""
        self._measured += seconds
        if self._measured >= _ENOUGH:
            now = time.process_time()
            found = min(_HIGHEST, max(1.0, (now - self._before) / self._measured))
            self.factor += _SMOOTHING * (found - self.factor)
            self._measured, self._before = 0.0, now
        return seconds * self.factor


class Budget:
    """`share` of one processor, in periods of `period` seconds; the thesis's routers had 0.1 of 0.1 s."""

    def __init__(self, share: float, overhead: Overhead, period: float = 0.1) -> None:
        self.quota = share * period
        self.period = period
        self._overhead = overhead
        self._began = time.monotonic()
        self._used = 0.0
        self.spent = 0.0
        self.waited = 0.0

    def spend(self, seconds: float) -> None:
        charged = self._overhead.add(seconds)
        self._used += charged
        self.spent += charged

    async def wait(self) -> None:
        """Return when there is quota left. What was overdrawn is paid for in the periods that follow."""
        while True:
            now = time.monotonic()
            periods = int((now - self._began) / self.period)
            if periods:
                self._began += periods * self.period
                self._used = max(0.0, self._used - periods * self.quota)
            if self._used < self.quota:
                return
            pause = self._began + self.period - now
            self.waited += pause
            await asyncio.sleep(pause)
