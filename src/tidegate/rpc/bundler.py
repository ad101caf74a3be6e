"""Many small things in few messages, without making the first one wait.

What is added in one turn of the loop leaves together. While `at_once` sends are under way, what comes gathers, so that
bundles grow with the load and a lone request is never delayed. Where a message costs much, a `pause` between the
beginnings of two sends bounds what all of them cost, for as much latency.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class Bundler(Generic[T]):
    """`send` gets at most `limit` things at a time and deals with its own faults. Who adds bounds what waits.

    With `size`, a bundle has at most `max_size` in all; what is larger has one of its own.
    """

    def __init__(
        self,
        send: Callable[[list[T]], Awaitable[None]],
        *,
        limit: int,
        at_once: int = 4,
        pause: float = 0.0,
        size: Callable[[T], int] | None = None,
        max_size: int = 0,
    ) -> None:
        self._send = send
        self._size = size
        self._max_size = max_size
        self._limit = limit
        self._at_once = at_once
        self._pause = pause
        self._not_before = 0.0
        self._waiting: deque[T] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._tasks

    def add(self, item: T) -> None:
        self._waiting.append(item)
        if not self._is_due and len(self._tasks) < self._at_once:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._start)

    async def drain(self) -> None:
        """Wait until all that was added has been sent."""
        while not self.is_idle:
            if self._tasks:
                await asyncio.wait(self._tasks)
            else:
                await asyncio.sleep(self._pause)

    async def close(self) -> None:
        """Drop what waits and end what is under way."""
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self) -> None:
        self._is_due = False
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._tasks) < self._at_once:
            if self._pause:
                now = loop.time()
                if now < self._not_before:
                    self._is_due = True
                    loop.call_at(self._not_before, self._start)
                    return
                self._not_before = now + self._pause
            task = loop.create_task(self._run(self._take()))
            self._tasks.add(task)
            task.add_done_callback(self._on_done)

    def _take(self) -> list[T]:
        """The next bundle."""
        waiting = self._waiting
        count = min(self._limit, len(waiting))
        if self._size is None:
            return [waiting.popleft() for _ in range(count)]
        bundle = [waiting.popleft()]
        left = self._max_size - self._size(bundle[0])
        while len(bundle) < count and (left := left - self._size(waiting[0])) >= 0:
            bundle.append(waiting.popleft())
        return bundle

    async def _run(self, bundle: list[T]) -> None:
        try:
            await self._send(bundle)
        except Exception:  # a fault of one bundle must not stop the others
            log.exception("a bundle could not be sent")

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._waiting and not self._is_due:
            self._start()
