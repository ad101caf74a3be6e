"""Deadlines of the broker: one heap and one timer of the loop for all of them; and the keep-alive wheel.

Keep-alive costs nothing per packet: a connection stores when it was last heard, sits in the slot of its deadline,
and is looked at only when that slot comes up; then it is either over its time or moves to a later slot.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection

log = logging.getLogger("tidegate.broker")

MAX_CANCELLED = 64  # cancelled alarms that may stay in the heap whatever its size
TICK = 0.25  # seconds; the precision of keep-alive and of all timeouts of the sweeper


class Alarm:
    """One callback at one time; `callback` is None once it was cancelled."""

    __slots__ = ("callback", "order", "when")

    def __init__(self, when: float, order: int, callback: Callable[[], None]) -> None:
        self.when = when
        self.order = order
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: Alarm) -> bool:
        return (self.when, self.order) < (other.when, other.order)


class Alarms:
    """Callbacks at given times. Cancelled ones are swept out once they are the majority."""

    __slots__ = ("_cancelled", "_due", "_heap", "_loop", "_order", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[Alarm] = []
        self._order = itertools.count()
        self._timer: asyncio.Handle | None = None
        self._due = 0.0  # of the timer: uvloop gives a handle without a time for what is due at once
        self._cancelled = 0

    def at(self, when: float, callback: Callable[[], None]) -> Alarm:
        alarm = Alarm(when, next(self._order), callback)
        heapq.heappush(self._heap, alarm)
        if self._timer is None or when < self._due:
            self._arm()
        return alarm

    def cancel(self, alarm: Alarm | None) -> None:
        """Forget an alarm, and what its callback holds; also one that has fired, or None."""
        if alarm is None or alarm.callback is None:
            return
        alarm.callback = None
        self._cancelled += 1
        if self._cancelled > MAX_CANCELLED and self._cancelled * 2 > len(self._heap):
            self._heap = [each for each in self._heap if each.callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = self._heap[0].when
        self._timer = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = monotonic()
        for _ in range(1_000):  # bound the turn
            if not self._heap or self._heap[0].when > now:
                break
            alarm = heapq.heappop(self._heap)
            callback, alarm.callback = alarm.callback, None
            if callback is None:
                self._cancelled -= 1
                continue
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
        return len(self._heap) - self._cancelled


class KeepAlive:
    """A wheel of slots of one TICK each."""

    __slots__ = ("_next", "_slots")

    def __init__(self, now: float) -> None:
        self._slots: dict[int, dict[Connection, None]] = {}
        self._next = int(now / TICK)

    def watch(self, conn: Connection, deadline: float) -> None:
        slot = conn.keep_alive_slot = int(deadline / TICK) + 1
        found = self._slots.get(slot)
        if found is None:
            found = self._slots[slot] = {}
        found[conn] = None

    def forget(self, conn: Connection) -> None:
        """The connection ended."""
        found = self._slots.get(conn.keep_alive_slot)
        if found is not None:
            found.pop(conn, None)
            if not found:
                del self._slots[conn.keep_alive_slot]

    def expired(self, now: float) -> list[Connection]:
        """Connections that were silent for one and a half keep-alive intervals [MQTT5-3.1.2-22]."""
        current = int(now / TICK)
        silent: list[Connection] = []
        while self._next <= current:
            for conn in self._slots.pop(self._next, ()):
                if conn.held is not None or not conn.is_reading:
                    conn.last_seen = now  # we do not read, so its silence is ours
                deadline = conn.last_seen + conn.keep_alive * 1.5
                if deadline <= now:
                    silent.append(conn)
                else:
                    self.watch(conn, deadline)
            self._next += 1
        return silent

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))
