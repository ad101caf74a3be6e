"""A queue for one type of request: so many at once, so many waiting, and the rest is told when to come again.

The paper's Table I: several queues by type, so that slow queries do not delay updates, and a bound on each. A lane
knows how long its requests take, so it can tell what a new one would wait; that is what a broker announces.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tidegate.space.errors import Fault, SpaceError

GAIN: Final = 0.05
FIRST_GUESS: Final = 0.005  # seconds a request takes, until one was measured


class Lane:
    """`workers` requests are served at once, `capacity` wait, more are refused (`Fault.BUSY`)."""

    def __init__(self, name: str, *, workers: int, capacity: int) -> None:
        if workers < 1 or capacity < 0:
            raise ValueError("workers must be positive, capacity not negative")
        self.name = name
        self.workers = workers
        self.capacity = capacity
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.processing = FIRST_GUESS
        """Smoothed seconds that a request takes, without its wait."""
        self.served = 0
        self.refused = 0

    @property
    def queueing(self) -> float:
        """Seconds that a request would wait if it came now."""
        ahead = len(self._waiting) + (self._running >= self.workers)
        return ahead * self.processing / self.workers

    @property
    def limit(self) -> float:
        """Seconds that the last one waits when half the queue is full: what is beyond is no stable work."""
        return 0.5 * self.capacity * self.processing / self.workers

    @property
    def rate(self) -> float:
        """Requests per second it can serve."""
        return self.workers / self.processing

    def enter_nowait(self) -> bool:
        """Take a place if one is free, which it is only if nobody waits; to be given back with `leave`."""
        if self._running >= self.workers:
            return False
        self._running += 1
        return True

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place, then hold it; raises `SpaceError` at once if the queue is full."""
        if self._running >= self.workers:
            if len(self._waiting) >= self.capacity:
                self.refused += 1
                raise SpaceError(
                    Fault.BUSY,
                    f"too many requests of type {self.name} wait",
                    hint="try again later",
                    retry_after=max(0.05, self.queueing),
                )
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place in self._waiting:
                    self._waiting.remove(place)
                elif place.done() and not place.cancelled():
                    self.leave()  # it had just been given the place
                raise
        else:
            self._running += 1
        began = time.perf_counter()
        try:
            yield
        finally:
            self.leave(time.perf_counter() - began)

    def leave(self, seconds: float | None = None) -> None:
        """Give the place back; `seconds` is what the request took, None if it was not served here."""
        if seconds is not None:
            self.processing += GAIN * (seconds - self.processing)
            self.served += 1
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)  # the place is handed on, not given back
                return
        self._running -= 1

    def statistics(self) -> dict[str, float]:
        return {
            "running": self._running,
            "waiting": len(self._waiting),
            "served": self.served,
            "refused": self.refused,
            "processing": self.processing,
        }
