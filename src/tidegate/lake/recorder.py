"""The recorder: takes batches from the event loop without ever making it wait, and writes them on its own thread."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.broker.recording.batch import Level, Recording, Rows, Runs, Shape
from tidegate.lake.arrow import TYPES, complete
from tidegate.lake.errors import LakeError
from tidegate.lake.files import TableFiles
from tidegate.lake.settings import LakeSettings
from tidegate.lake.summing import Summing, timestamps
from tidegate.lake.target import Target
from tidegate.schema import TABLES

log = logging.getLogger("tidegate.lake")

CLOSE_TIMEOUT = 10.0


class Recorder:
    """Writes to one lake for one run of a node: `Broker(recording=recorder.recording)`.

    Other parts of a node record with `record`, from any thread.
    """

    def __init__(self, settings: LakeSettings, node: str) -> None:
        """Raises LakeError if the lake cannot be written to."""
        self.settings = settings
        self.node = node
        self.run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}.{secrets.token_hex(3)}"
        self.target = Target.open(settings.path)
        self._try()
        self._queue: SimpleQueue[Runs | Rows | None] = SimpleQueue()
        self._summing = Summing(settings.level)
        self._files: dict[str, TableFiles] = {}
        self._refused: Counter[str] = Counter()  # by table, not yet told to its files
        self._refused_lock = threading.Lock()
        self.broken = 0  # batches that could not be understood
        self._thread = threading.Thread(target=self._work, name="tidegate-recorder", daemon=True)
        self._thread.start()

    @property
    def recording(self) -> Recording:
        return Recording(sink=self, level=Level(self.settings.level), window=self.settings.window)

    def _try(self) -> None:
        """Better to say now than at the first window that nothing can be recorded."""
        try:
            probe = self.target.create(f"action/_probe-{os.getpid()}")
            probe.stream.write(b"\0")
            probe.abort()
            self.target.tighten()
        except (OSError, pa.ArrowException) as error:
            raise LakeError(
                str(self.target),
                f"cannot be written to: {error}",
                "set lake.path to a folder you may write to",
            ) from error

    # -- from the event loop, or any thread -----------------------------------------------------------------

    def offer(self, batch: Runs | Rows) -> bool:
        """Take a batch if there is room for it; never waits."""
        if self._queue.qsize() >= self.settings.max_pending:
            return False
        self._queue.put(batch)
        return True

    def record(self, table: str, rows: Iterable[Mapping[str, Any]]) -> bool:
        """Rows of any table by column name, `ts` as an aware datetime or missing for now; False if they are dropped.

        Rows that have other columns than their table raise KeyError.
        """
        known = TABLES[table]
        now = time.time()
        by_columns: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        for row in rows:
            columns = tuple(name for name in row if name != "ts")
            for name in columns:
                known.column(name)
            ts = row.get("ts")
            at = now if ts is None else ts.timestamp()
            by_columns.setdefault(columns, []).append((at, *(row[name] for name in columns)))
        is_taken = True
        for columns, values in by_columns.items():
            batch = Rows(clock=0.0, shape=Shape(table, columns), rows=values)
            if not self.offer(batch):
                is_taken = False
                self._refuse(batch)
        return is_taken

    def _refuse(self, batch: Rows) -> None:
        table, columns = batch.shape.table, batch.shape.columns
        count = len(batch.rows)
        if table == "publish" and "count" in columns:  # its losses are counted in messages
            at = 1 + columns.index("count")
            count = sum(row[at] or 0 for row in batch.rows)
        with self._refused_lock:
            self._refused[table] += count

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Complete the files; what is not written by then is lost with the process."""
        self._queue.put(None)
        self._thread.join(timeout)

    def statistics(self) -> dict[str, Any]:
        files = list(self._files.values())
        return {
            "recorder_rows": sum(each.rows for each in files),
            "recorder_files": sum(each.files for each in files),
            "recorder_lost": sum(each.lost for each in files),
            "recorder_waiting": self._queue.qsize(),
        }

    # -- on the thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        is_open = True
        while is_open:
            due = min((each.due() for each in self._files.values()), default=float("inf"))
            try:
                batch = self._queue.get(timeout=max(0.0, min(due - time.monotonic(), 60.0)))
            except Empty:
                batch = None
            else:
                is_open = batch is not None
            self._lose_refused()
            if batch is not None:
                self._take(batch)
            now = time.monotonic()
            for each in self._files.values():
                if each.due() <= now or not is_open:
                    each.roll(now)

    def _lose_refused(self) -> None:
        with self._refused_lock:
            refused, self._refused = self._refused, Counter()
        for table, count in refused.items():
            self._table(table).lose(count)

    def _take(self, batch: Runs | Rows) -> None:
        try:
            if isinstance(batch, Runs):
                self._take_runs(batch)
            else:
                files = self._table(batch.shape.table)
                files.lose(batch.lost)
                files.add(table_of(batch), time.monotonic())
        except Exception:
            # One batch that makes no sense must not end the record.
            self.broken += 1
            log.exception("a batch could not be recorded")

    def _take_runs(self, batch: Runs) -> None:
        self._table("publish").lose(batch.lost)
        for name, data in self._summing.take(batch):
            self._table(name).add(data, time.monotonic())
        if self._summing.lost_deliveries:
            self._table("deliver").lose(self._summing.lost_deliveries)
            self._summing.lost_deliveries = 0

    def _table(self, name: str) -> TableFiles:
        found = self._files.get(name)
        if found is None:
            found = TableFiles(name, self.target, self.node, self.run, self.settings)
            self._files = self._files | {name: found}  # others look at it meanwhile
        return found


def table_of(batch: Rows) -> pa.Table:
    """Rows as columns."""
    table = TABLES[batch.shape.table]
    times, *values = zip(*batch.rows, strict=True)
    rows = len(times)
    seconds = np.array(times, np.float64)
    columns: dict[str, pa.Array] = {"ts": timestamps(seconds + batch.clock)}
    if "t" in table.names and batch.clock:
        columns["t"] = pa.array(seconds)
    for name, column in zip(batch.shape.columns, values, strict=True):
        columns[name] = pa.array(column, TYPES[table.column(name).type])
    for name, value in batch.shape.constants.items():
        columns[name] = pa.repeat(pa.scalar(value, TYPES[table.column(name).type]), rows)
    return complete(table, columns, rows)
