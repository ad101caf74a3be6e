"""No PINGREQ waits too long behind the messages of a publisher that is not read."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from tidegate.broker.holding import SWEEP_SHARE, sweep, unread_bytes

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core

SWEEP_PARTS = 8  # of those whose backlog is to be swept: so many ticks until all had their turn


class Backlogs:
    """What held publishers have sent and nobody has read, since when; looked at with every tick."""

    __slots__ = ("_core", "_since")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._since: dict[Connection, tuple[float, float]] = {}  # since when, and when it was last seen

    def sweep(self, now: float) -> None:
        gate = self._core.gate
        old, self._since = self._since, {}
        for conn, (since, seen) in old.items():
            if now - seen < 1.0 and not conn.is_closing:  # between two holds it waits for a moment
                self._since[conn] = (since, seen)
        overdue: list[tuple[float, int, Connection, int]] = []
        for conn in gate.waiters or () if gate is not None else ():
            if not conn.keep_alive or conn.is_reading:
                continue
            unread = unread_bytes(conn)
            if not unread:
                self._since.pop(conn, None)
                continue
            since = self._since.get(conn, (now, now))[0]
            self._since[conn] = (since, now)
            due = since + SWEEP_SHARE * conn.keep_alive
            if due < now:
                overdue.append((due, len(overdue), conn, unread))
        # One at a time, and of many a part: it is work for nobody's good but their own.
        for _, _, conn, unread in heapq.nsmallest(1 + len(overdue) // SWEEP_PARTS, overdue):
            sweep(conn, unread)
            self._since[conn] = (now, now)
