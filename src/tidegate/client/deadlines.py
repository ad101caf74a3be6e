"""Deadlines of calls that wait for an answer: one timer for all that are equally patient.

`asyncio.timeout` makes a timer for every call and cancels nearly all of them again, which cost more than a QoS 1
message itself. Calls with the same patience expire in the order they began, so each patience is a queue of which
only the front matters.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from tidegate.client.errors import OperationTimeout

# Answered calls may stand behind one that is not; above this many the queue is rebuilt when it has doubled.
_KEEP: Final = 1000


Late: TypeAlias = Callable[[float, str], OperationTimeout]
"""Makes the error of a call that took more than so many seconds, about a topic."""


class _Entry(NamedTuple):
    deadline: float
    waiter: asyncio.Future[Any]
    late: Late
    topic: str


class Deadlines:
    """Gives waiters an `OperationTimeout` when their time is over. Cost per call: one append."""

    def __init__(self) -> None:
        self._queues: dict[float, deque[_Entry]] = {}
        self._timers: dict[float, asyncio.TimerHandle] = {}
        self._tidy_above: dict[float, int] = {}

    def add(self, waiter: asyncio.Future[Any], seconds: float, late: Late, topic: str) -> None:
        queue = self._queues.get(seconds)
        if queue is None:
            queue = self._queues[seconds] = deque()
            self._tidy_above[seconds] = _KEEP
        while queue and queue[0].waiter.done():
            queue.popleft()
        loop = waiter.get_loop()
        queue.append(_Entry(loop.time() + seconds, waiter, late, topic))
        if seconds not in self._timers:
            self._timers[seconds] = loop.call_later(seconds, self._expire, seconds)
        if len(queue) > self._tidy_above[seconds]:
            self._queues[seconds] = queue = deque(entry for entry in queue if not entry.waiter.done())
            self._tidy_above[seconds] = max(_KEEP, 2 * len(queue))

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._queues.clear()

    def _expire(self, seconds: float) -> None:
        queue = self._queues[seconds]
        loop = asyncio.get_running_loop()
        now = loop.time()
        while queue and (queue[0].waiter.done() or queue[0].deadline <= now):
            entry = queue.popleft()
            if not entry.waiter.done():
                entry.waiter.set_exception(entry.late(seconds, entry.topic))
        if queue:
            self._timers[seconds] = loop.call_at(queue[0].deadline, self._expire, seconds)
        else:
            # Patience may be a different number for each call (what is left until some moment).
            del self._timers[seconds], self._queues[seconds], self._tidy_above[seconds]


def not_acknowledged(seconds: float, topic: str) -> OperationTimeout:
    return took_too_long(seconds, f"to acknowledge a message to {topic!r}")


def no_response(seconds: float, topic: str) -> OperationTimeout:
    return OperationTimeout(
        f"no response to a request on {topic!r} came within {seconds:g} s",
        hint="give the one who answers more time, or see whether it runs and answers such requests",
    )


def took_too_long(seconds: float, what: str) -> OperationTimeout:
    return OperationTimeout(
        f"the server took more than {seconds:g} s {what}", hint="give it more time, or look at its load"
    )
