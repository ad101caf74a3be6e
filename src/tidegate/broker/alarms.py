"""Deadlines of the broker: one heap and one timer of the loop for all of them; and the keep-alive wheel.

Keep-alive costs nothing per packet: a connection stores when it was last heard, sits in the slot of its deadline,
and is looked at only when that slot comes up; then it is either over its time or moves to a later slot.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection

log = logging.getLogger("tidegate.broker")

TICK = 0.25  # seconds; the precision of keep-alive and of all timeouts of the sweeper


class Alarms:
    """Callbacks at given times. An alarm that is no longer wanted fires and finds that out itself."""

    __slots__ = ("_heap", "_loop", "_order", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def at(self, when: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), callback))
        if self._timer is None or when < self._timer.when():
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._heap[0][0], self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for _ in range(1_000):  # bound the turn
            if not self._heap or self._heap[0][0] > now:
                break
            callback = heapq.heappop(self._heap)[2]
            try:
                callback()
            except Exception:  # one failing callback must not silence all others
                log.exception("unexpected error in an alarm")
        if self._heap and self._timer is None:
            self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._heap)


class KeepAlive:
    """A wheel of slots of one TICK each."""

    __slots__ = ("_next", "_slots")

    def __init__(self, now: float) -> None:
        self._slots: dict[int, list[Connection]] = {}
        self._next = int(now / TICK)

    def watch(self, conn: Connection, deadline: float) -> None:
        slot = int(deadline / TICK) + 1
        found = self._slots.get(slot)
        if found is None:
            self._slots[slot] = [conn]
        else:
            found.append(conn)

    def expired(self, now: float) -> Iterator[Connection]:
        """Connections that were silent for one and a half keep-alive intervals [MQTT5-3.1.2-22]."""
        current = int(now / TICK)
        while self._next <= current:
            for conn in self._slots.pop(self._next, ()):
                if conn.is_closing:
                    continue
                if conn.held is not None or not conn.is_reading:
                    conn.last_seen = now  # we do not read, so its silence is ours
                deadline = conn.last_seen + conn.keep_alive * 1.5
                if deadline <= now:
                    yield conn
                else:
                    self.watch(conn, deadline)
            self._next += 1

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))
