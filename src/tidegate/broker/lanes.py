"""Lanes: the order in which chunks are served while the node is behind.

While the loop keeps up, a chunk is handled where it arrives. Under load it waits here until the end of the turn. A
connection has at most one chunk here and is not read while it waits, so memory is bounded by the number of connections.

There are two lanes. In that of publishers the most urgent are served first: rare senders before fast ones, with ageing
(`flow/priority`). In the other are long chunks of everything else (thousands of PINGREQs, say), and what a turn had no
time for, small ones first. A few acknowledgements, a PINGREQ or a short SUBSCRIBE pass by.

The loop works in slices, between which it looks for new messages. While slow senders are there, slices are short, for
their sake; among fast ones only, long ones are cheaper.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core

BRIEF = 64  # bytes of a chunk without a message in it that is handled at once
PATIENCE = 1e-6  # seconds that a chunk in the other lane waits longer for each of its bytes
SMALL = 2_048  # bytes of a chunk that does not have to wait for a larger one behind it before it is written
SLOW_SENDER = 100.0  # messages a second of somebody whose next one should not wait for a whole long slice
SLICE, SHORT_SLICE = 0.002, 0.0005  # seconds of work before the loop looks for new messages
PART, SHORT_PART = 65_536, 16_384  # bytes of one chunk that are handled at a time
SHORT_FOR = 1.0  # seconds since a slow sender was seen


class Lanes:
    """`is_open`: chunks go through here."""

    __slots__ = (
        "_core", "_heap", "_is_scheduled", "_order", "_others", "_short_until", "_slice", "is_open", "part"
    )  # fmt: skip

    def __init__(self, core: Core) -> None:
        self._core = core
        self._heap: list[tuple[float, int, float, Connection]] = []  # key, order, arrival
        self._others: list[tuple[float, int, Connection]] = []  # due, order
        self._order = 0
        self._is_scheduled = False
        self._short_until = 0.0
        self._slice = SLICE
        self.part = PART
        self.is_open = False

    def __len__(self) -> int:
        return len(self._heap) + len(self._others)

    def put(self, conn: Connection) -> None:
        """The connection has a chunk in `more` that begins with a message."""
        core = self._core
        if not core.turn_began:
            core.begin_turn()
        self._order += 1
        gate = core.gate
        now = core.now()
        key = 0.0 if gate is None else gate.key(conn, now)
        heapq.heappush(self._heap, (key, self._order, now, conn))
        if len(conn.more or b"") <= SMALL and (
            conn.publisher is None or conn.publisher.likely_rate < SLOW_SENDER
        ):
            self._short_until = now + SHORT_FOR
            self._slice, self.part = SHORT_SLICE, SHORT_PART
        self._schedule()

    def put_other(self, conn: Connection) -> None:
        """The connection has something else in `more`, or the rest of what it had a turn for."""
        self._order += 1
        due = self._core.now() + len(conn.more or b"") * PATIENCE
        heapq.heappush(self._others, (due, self._order, conn))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._core.loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_scheduled = False
        core = self._core
        heap = self._heap
        began = now = core.now()
        has_small = False
        if now > self._short_until:
            self._slice, self.part = SLICE, PART
        others = self._others
        try:
            while heap and now - began < self._slice:
                _, _, arrival, conn = heapq.heappop(heap)
                core.meter.chunk(now - arrival)
                is_small = conn.more is None or len(conn.more) <= SMALL
                if has_small and not is_small:
                    core.write()
                has_small = is_small
                conn.serve()
                now = core.now()
            until = core.now() + SLICE
            while others and core.now() < until:
                heapq.heappop(others)[2].serve()
        finally:
            if heap or others:
                self._schedule()
        core.flush()
