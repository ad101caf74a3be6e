"""A router's processor time, limited: so many seconds in each period, as a container's quota would be (E4.3).

What a router does is measured and charged here; when its quota is used up it takes no more work until the period ends.
"""

from __future__ import annotations

import asyncio
import time


class Budget:
    """`share` of one processor, in periods of `period` seconds; the thesis's routers had 0.1 of 0.1 s."""

    def __init__(self, share: float, period: float = 0.1) -> None:
        self.quota = share * period
        self.period = period
        self._began = time.monotonic()
        self._used = 0.0
        self.spent = 0.0
        self.waited = 0.0

    def spend(self, seconds: float) -> None:
        self._used += seconds
        self.spent += seconds

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
