"""Telemetry that leaves its process: hops and advertisements are announced over MQTT, and joined to rows elsewhere.

Asynchronous at every step: a part keeps what it has to tell for a moment and publishes it at QoS 0, so no call waits
for a record of it; what does not fit is dropped and counted. One collector joins the hops of a call into one row of the
table `rpc` when the call has ended, and gives rows to a `Sink`, such as the lake's recorder.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import time
from types import TracebackType
from typing import IO, Any, Final, Self

from tidegate.client import Message
from tidegate.errors import TidegateError
from tidegate.private import make_folder, opener
from tidegate.rpc.errors import RpcError, Unavailable
from tidegate.rpc.options import Options, new_name
from tidegate.rpc.telemetry import Beacon, Hop, Row, Sink, Step
from tidegate.rpc.trace import Trace

log = logging.getLogger(__name__)

HOPS: Final = "telemetry/hops"
BEACONS: Final = "telemetry/beacons"
_EVERY = 0.2  # seconds between two announcements
_BUNDLE = 500  # rows a message
_LATEST = 253_402_300_800.0  # the year 10000


class Announcer:
    """An observer that publishes what it hears. At most `size` rows wait; the newest are dropped, and counted."""

    def __init__(self, options: Options, *, size: int = 50_000) -> None:
        self.dropped = 0
        self._root = options.root
        self._size = size
        self._client = options.client(
            f"rpc-{options.namespace}-{new_name('tell')}", session_expiry_interval=0
        )
        self._waiting: dict[str, list[Hop | Beacon]] = {HOPS: [], BEACONS: []}
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._client.connect()
        except TidegateError as error:
            raise Unavailable(f"the MQTT broker: {error}", hint=getattr(error, "hint", "")) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._tell()
        await self._client.disconnect()

    def on_hop(self, hop: Hop) -> None:
        self._add(HOPS, hop)

    def on_beacon(self, beacon: Beacon) -> None:
        self._add(BEACONS, beacon)

    def _add(self, kind: str, row: Hop | Beacon) -> None:
        waiting = self._waiting[kind]
        if len(waiting) >= self._size:
            self.dropped += 1
            return
        waiting.append(row)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_EVERY, self._tell)

    def _tell(self) -> None:
        self._timer = None
        for kind, waiting in self._waiting.items():
            for start in range(0, len(waiting), _BUNDLE):
                bundle = waiting[start : start + _BUNDLE]
                try:
                    self._client.publish_nowait(
                        f"{self._root}/{kind}", json.dumps(bundle, separators=(",", ":"))
                    )
                except TidegateError:
                    self.dropped += len(bundle)
            waiting.clear()


@dataclass(slots=True)
class _Pending:
    since: float
    hops: list[Hop] = field(default_factory=list)
    correlations: list[str] = field(default_factory=list)
    is_ended: bool = False


class Joiner:
    """Hops of many processes, in any order, to one row for each call that has ended.

    A row is complete `settle` seconds after its caller told the end: what other processes tell may be on its way.
    Calls whose end nobody tells within `max_age` are given up, as are the oldest beyond `size`; both are counted.
    """

    def __init__(
        self, backbone: str, *, settle: float = 1.0, max_age: float = 300.0, size: int = 100_000
    ) -> None:
        self.abandoned = 0
        self._backbone = backbone
        self._settle, self._max_age, self._size = settle, max_age, size
        self._open: OrderedDict[str, _Pending] = OrderedDict()
        self._ended: deque[tuple[float, str]] = deque()
        # What names no key yet, or never will: hops of back routers by correlation, and those of tasks.
        self._by_correlation: OrderedDict[str, list[Hop]] = OrderedDict()
        self._by_task: OrderedDict[str, list[Hop]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, hop: Hop, now: float) -> None:
        if hop.step in (Step.ENQUEUED, Step.WORKER):
            self._keep(self._by_task, hop.task, hop)
        elif not hop.key:
            self._keep(self._by_correlation, hop.correlation, hop)
        else:
            pending = self._open.get(hop.key)
            if pending is None:
                pending = self._open[hop.key] = _Pending(now)
                self._forget(now)
            pending.hops.append(hop)
            if hop.correlation:
                pending.correlations.append(hop.correlation)
            if hop.step is Step.REPLY and not pending.is_ended:
                pending.is_ended = True
                self._ended.append((now, hop.key))

    def rows(self, now: float) -> list[Row]:
        """Rows of the table `rpc` that are complete."""
        rows = []
        while self._ended and self._ended[0][0] + self._settle <= now:
            key = self._ended.popleft()[1]
            pending = self._open.pop(key, None)
            if pending is not None:
                rows.append(self._row(key, pending))
        self._forget(now)
        return rows

    def _row(self, key: str, pending: _Pending) -> Row:
        hops = pending.hops
        for correlation in pending.correlations:
            hops += self._by_correlation.pop(correlation, ())
        task = next((hop.task for hop in hops if hop.task), "")
        hops += self._by_task.get(task, ())
        # The outcome is that of the caller, whatever was told after it.
        hops.sort(key=lambda hop: (hop.step is Step.REPLY, hop.at))
        record = Trace(key, hops).record()
        row: Row = {
            name: _moment(value) if name.startswith("t_") else value for name, value in record.items()
        }
        row["backbone"] = self._backbone
        row["ts"] = row["t_reply"]
        return row

    def _keep(self, where: OrderedDict[str, list[Hop]], name: str, hop: Hop) -> None:
        if not name:
            return  # it belongs to no call
        where.setdefault(name, []).append(hop)
        while len(where) > self._size:
            where.popitem(last=False)

    def _forget(self, now: float) -> None:
        while self._open:
            key, oldest = next(iter(self._open.items()))
            if len(self._open) <= self._size and (oldest.is_ended or oldest.since + self._max_age > now):
                return
            del self._open[key]
            self.abandoned += 1


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


class Collector:
    """Hears all announcers of a namespace and gives rows to a sink, once in `every` seconds."""

    def __init__(self, options: Options, sink: Sink, *, every: float = 0.5, settle: float = 1.0) -> None:
        self.counters: Counter[str] = Counter()
        self._options = options
        self._sink = sink
        self._every = every
        self._joiner = Joiner(str(options.backend), settle=settle)
        self._beacons: list[Row] = []
        # The same name for each: a second collector takes over from the first, so that no row is written twice.
        self._client = options.client(f"rpc-{options.namespace}-collector", session_expiry_interval=0)
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._client.connect()
            for kind, callback in ((HOPS, self._on_hops), (BEACONS, self._on_beacons)):
                await self._client.subscribe(f"{self._options.root}/{kind}", callback=callback)
        except TidegateError as error:
            raise Unavailable(f"the MQTT broker: {error}", hint=getattr(error, "hint", "")) from error
        self._writer = asyncio.get_running_loop().create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
        await self._client.disconnect()
        self._flush(float("inf"))

    async def wait_closed(self) -> None:
        await self._client.wait_closed()

    def statistics(self) -> dict[str, int]:
        return {**self.counters, "open": len(self._joiner), "abandoned": self._joiner.abandoned}

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            self._flush(time())

    def _flush(self, now: float) -> None:
        beacons, self._beacons = self._beacons, []
        for table, rows in (("rpc", self._joiner.rows(now)), ("beacon", beacons)):
            if rows:
                self.counters[f"{table} rows" if self._sink.record(table, rows) else "dropped"] += len(rows)

    def _on_hops(self, message: Message) -> None:
        try:
            hops = [read_hop(row) for row in message.json()]
        except (ValueError, TypeError, RecursionError):
            self.counters["malformed"] += 1
            return
        now = time()
        for hop in hops:
            self._joiner.add(hop, now)

    def _on_beacons(self, message: Message) -> None:
        try:
            self._beacons += [_beacon_row(Beacon(*row)) for row in message.json()]
        except (ValueError, TypeError, OverflowError, RecursionError):
            self.counters["malformed"] += 1


def read_hop(row: list[Any]) -> Hop:
    """A hop as it was announced; strangers may announce anything. ValueError or TypeError if it is none."""
    hop = Hop(*row)
    hop = hop._replace(step=Step(hop.step))
    texts = (hop.key, hop.device, hop.part, hop.gateway, hop.outcome, hop.task, hop.correlation)
    if not all(isinstance(each, str) for each in texts) or not isinstance(hop.attempt, int):
        raise TypeError("a hop with other than text")
    if not 0.0 <= hop.at < _LATEST:
        raise ValueError("a hop at no moment")
    return hop


def _beacon_row(beacon: Beacon) -> Row:
    return {
        "ts": _moment(float(beacon.at)),
        "mac": str(beacon.device),
        "gw": str(beacon.gateway),
        "rssi": float(beacon.rssi),
    }


class RowFiles:
    """A sink of JSON lines, `TABLE.jsonl` in a folder; for those who have no lake."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, IO[str]] = {}
        try:
            make_folder(folder)
        except OSError as error:
            raise RpcError(f"{folder}: {error.strerror}", hint="give a folder that can be written") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()

    def record(self, table: str, rows: Iterable[Row]) -> bool:
        try:
            file = self._files.get(table)
            if file is None:
                path = self._folder / f"{table}.jsonl"
                file = self._files[table] = open(path, "a", encoding="utf-8", opener=opener)  # noqa: SIM115
            file.writelines(json.dumps(row, default=str) + "\n" for row in rows)
            file.flush()
        except OSError as error:
            log.warning("rows could not be written", extra={"table": table, "error": str(error)})
            return False
        return True
