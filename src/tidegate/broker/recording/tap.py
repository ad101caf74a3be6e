"""The tap: sees what the broker does and appends it to buffers. Its methods are in the hot path.

A run of messages costs one dictionary look-up and four numbers, whatever its length. Who gets a message is not looked
at here: a stream knows its route, and the recorder works out deliveries from that. Buffers are handed over when they
are full and at the end of each window; if the recorder has no room, they are dropped and counted.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Any

from tidegate.broker.recording.batch import RUN_WIDTH, Level, Recording, Rows, Runs, Shape
from tidegate.broker.recording.gate import GateRecord
from tidegate.broker.recording.members import MemberRecord
from tidegate.broker.recording.samples import Samples

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.index import Route

RUNS = 4_096  # runs that are handed over together
ROWS = 1_024
MAX_STREAMS = 1_000_000  # of one window
MAX_CLIENTS = 2_000_000  # of one generation
FULL_WINDOW = 1.0  # seconds, at most, at level full

ACTION = Shape("action", ("kind", "reason", "src", "dst", "is_done", "detail"))


class Tap:
    """One for each running broker. `window`: seconds that summaries cover, beginning at whole multiples of it."""

    def __init__(self, core: Core, recording: Recording) -> None:
        self._core = core
        self._sink = recording.sink
        self.is_full = recording.level is Level.FULL
        self.window = min(recording.window, FULL_WINDOW) if self.is_full else recording.window
        self.now = core.now
        self._clock = time.time() - core.now()
        self._window_number = 0
        self._window_start = core.now()
        self._runs = array("d")
        self._extend = self._runs.extend
        self._streams: tuple[dict[tuple[Connection, Route], int], ...] = ({}, {}, {})
        self._stream_count = 0
        self._new_streams: list[tuple[int, int, int]] = []
        self._routes: dict[Route, int] = {}
        self._new_routes: list[Route] = []
        self._clients: dict[str, int] = {}
        self._new_clients: list[str] = []
        self._generation = 0
        self._rows: dict[int, tuple[Shape, list[tuple[Any, ...]]]] = {}
        self._lost: dict[str, int] = {}  # rows by table, messages for "publish"
        self.dropped = 0  # all of them
        self.policy_version: str | None = None
        self.gate = GateRecord(self)
        self.members = MemberRecord(self)
        self._samples = Samples(core, self)
        self._timer = core.loop.call_later(self._until_window_end(), self._end_window)

    # -- messages, in the hot path --------------------------------------------------------------------------

    def run(self, conn: Connection, route: Route, qos: int, count: int, size: int, now: float = 0.0) -> None:
        """`count` messages of `size` bytes in all, that arrived together; of one size each at level full."""
        stream = self._streams[qos].get((conn, route))
        if stream is None:
            stream = self._open(conn, route, qos, count)
            if stream < 0:
                return
        # All that a turn takes arrived together, as far as the broker can tell.
        self._extend((stream, count, size, now or self._core.turn_began or self._core.now()))
        if len(self._runs) >= RUNS * RUN_WIDTH:
            self._hand_over_runs(False)

    def forwarded(self, conn: Connection, route: Route, packets: bytes, count: int) -> None:
        """A run of QoS 0 packets as they came."""
        if self.is_full and count > 1 and not _are_alike(packets, count):
            at = 0
            while at < len(packets):
                length, body = conn.long_length(packets, at)
                self.run(conn, route, 0, 1, body + length - at)
                at = body + length
            return
        self.run(conn, route, 0, count, len(packets))

    def _open(self, conn: Connection, route: Route, qos: int, count: int) -> int:
        if self._stream_count >= MAX_STREAMS:
            self._lose("publish", count)
            return -1
        client_id = conn.session.client_id
        client = self._clients.get(client_id)
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                self._begin_generation()
            client = self._clients[client_id] = len(self._clients)
            self._new_clients.append(client_id)
        place = self._routes.get(route)
        if place is None:
            place = self._routes[route] = len(self._routes)
            self._new_routes.append(route)
        stream = self._stream_count
        self._stream_count = stream + 1
        self._streams[qos][conn, route] = stream
        self._new_streams.append((client, place, qos))
        return stream

    def _begin_generation(self) -> None:
        """Too many names: begin to number clients anew, with a new window."""
        self._hand_over_runs(True)
        self._new_clients = []
        self._clients.clear()
        self._generation += 1

    def _hand_over_runs(self, is_last: bool) -> None:
        batch = Runs(
            clock=self._clock,
            numbers=self._runs,
            window=self._window_number,
            window_start=self._window_start,
            window_end=self._core.now(),
            is_last=is_last,
            generation=self._generation,
            clients=self._new_clients,
            routes=self._new_routes,
            streams=self._new_streams,
            lost=self._lost.pop("publish", 0),
        )
        if self._sink.offer(batch):
            self._new_clients, self._new_routes, self._new_streams = [], [], []
        else:
            # The names are still new to the recorder, so they stay; only the numbers are lost.
            self._lose("publish", batch.lost + int(sum(self._runs[1::RUN_WIDTH])))
            self.dropped -= batch.lost
        self._runs = array("d")
        self._extend = self._runs.extend
        if is_last:
            self._window_number += 1
            self._window_start = self._core.now()
            self._new_routes, self._new_streams = [], []
            self._streams = ({}, {}, {})
            self._stream_count = 0
            self._routes = {}

    # -- everything else ------------------------------------------------------------------------------------

    def add(self, shape: Shape, row: tuple[Any, ...]) -> None:
        """One row; it begins with the time."""
        held = self._rows.get(id(shape))
        if held is None:
            held = self._rows[id(shape)] = (shape, [])
        rows = held[1]
        rows.append(row)
        if len(rows) >= ROWS:
            self._hand_over_rows(shape, rows)

    def action(
        self,
        kind: str,
        *,
        reason: str = "",
        src: str = "",
        dst: str = "",
        is_done: bool = True,
        detail: str | None = None,
    ) -> None:
        """Something that is worth a line."""
        self.add(ACTION, (self._core.now(), kind, reason or None, src or None, dst or None, is_done, detail))

    def _hand_over_rows(self, shape: Shape, rows: list[tuple[Any, ...]]) -> None:
        self._rows[id(shape)] = (shape, [])
        batch = Rows(clock=self._clock, shape=shape, rows=rows, lost=self._lost.pop(shape.table, 0))
        if not self._sink.offer(batch):
            self._lose(shape.table, batch.lost + len(rows))
            self.dropped -= batch.lost

    def _lose(self, table: str, count: int) -> None:
        self._lost[table] = self._lost.get(table, 0) + count
        self.dropped += count

    # -- windows --------------------------------------------------------------------------------------------

    def _until_window_end(self) -> float:
        left = self.window - time.time() % self.window
        return (
            left if left > 0.1 * self.window else left + self.window
        )  # timers may be early by a millisecond

    def _end_window(self) -> None:
        self._timer = self._core.loop.call_later(self._until_window_end(), self._end_window)
        self._clock = time.time() - self._core.now()
        self._samples.take()
        self.flush()

    def flush(self) -> None:
        """End the window now and hand everything over."""
        self._hand_over_runs(True)
        for shape, rows in list(self._rows.values()):
            if rows:
                self._hand_over_rows(shape, rows)

    def close(self) -> None:
        """The broker stops."""
        self._timer.cancel()
        self._samples.close()
        self._samples.take_load()
        self.action("stop")
        self.flush()

    def statistics(self) -> dict[str, Any]:
        return {"recorder_dropped": self.dropped}


def _are_alike(packets: bytes, count: int) -> bool:
    """Whether all packets have the size of the first."""
    size = len(packets)
    step = size // count
    if step * count != size:
        return False
    length = packets[1]
    body = 2
    if length > 127:
        if packets[2] > 127:
            return False  # large packets are few
        length = length & 0x7F | packets[2] << 7
        body = 3
        if packets[2::step] != packets[2:3] * count:
            return False
    return (
        body + length == step
        and packets[::step] == packets[:1] * count
        and packets[1::step] == packets[1:2] * count
    )
