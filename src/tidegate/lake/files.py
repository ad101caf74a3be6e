"""One table on its way to disk: rows are gathered, written in groups, and a file is complete at a size or an age.

A file that cannot be written (disk full, no such bucket) is given up: its rows are counted as lost, and the first row
of the next file says how many. For a while after a failure rows are dropped without an attempt.
"""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.broker.recording.batch import Level
from tidegate.lake.arrow import BY_MESSAGE, constant, file_metadata, memory_schema, writer_options
from tidegate.lake.settings import LakeSettings
from tidegate.lake.target import PendingFile, Target
from tidegate.schema import META_LEVEL, META_NODE, META_RUN, TABLES, Table, file_name, partition_of_us

log = logging.getLogger("tidegate.lake")

GROUP_ROWS = 262_144  # rows that are written together: memory while they wait, against size on disk
HOUR_US = 3_600_000_000
FIRST_RETRY = 1.0  # seconds
LAST_RETRY = 30.0
FAILURES = (OSError, pa.ArrowException)


class TableFiles:
    """Files of one table of one run, one at a time. `now` is seconds on a monotonic clock."""

    def __init__(self, table: str, target: Target, node: str, run: str, settings: LakeSettings) -> None:
        self.table: Table = TABLES[table]
        self._target = target
        self._node = node
        self._run = run
        self._settings = settings
        self._metadata = file_metadata(self.table) | {
            META_NODE: node.encode(),
            META_RUN: run.encode(),
            META_LEVEL: str(settings.level).encode(),
        }
        self._schema = memory_schema(self.table)  # of the open file
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._hour = -1  # of what is pending and of the file
        self._since = 0.0
        self._file: PendingFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._number = 0
        self._lost = 0  # not yet told by a row
        self._file_rows = 0  # of the open file
        self._file_weight = 0  # the same as losses are counted
        self._file_told = 0  # losses that it tells of
        self._retry_at = 0.0
        self._retry = FIRST_RETRY
        self.rows = 0  # in complete files
        self.files = 0
        self.lost = 0  # all of it

    def lose(self, count: int) -> None:
        """So many rows (for `publish`: messages) were dropped on the way here."""
        self._lost += count
        self.lost += count

    def add(self, data: pa.Table, now: float) -> None:
        """Rows with all columns but run, node and lost, which are filled in here."""
        times = data["ts"].cast(pa.int64())
        span = pc.min_max(times)
        first, last = span["min"].as_py() // HOUR_US, span["max"].as_py() // HOUR_US
        if first == last:
            self._add(data, first, now)
            return
        hours = times.to_numpy() // HOUR_US
        for hour in np.unique(hours).tolist():  # there may be years between two of them
            self._add(data.filter(pa.array(hours == hour)), hour, now)

    def _add(self, data: pa.Table, hour: int, now: float) -> None:
        if hour != self._hour or (self._pending and data.schema != self._pending[0].schema):
            self.roll(now)
        if not self._pending and self._file is None:
            self._since = now
        self._hour = hour
        self._pending.append(data)
        self._pending_rows += data.num_rows
        if self._pending_rows >= GROUP_ROWS:
            self._write_group(now)
            if self._file is not None and self._file.tell() >= self._settings.roll_bytes:
                self.roll(now)

    def due(self) -> float:
        """When the file must be complete; infinite if there is nothing to write."""
        return self._since + self._settings.roll_seconds if self._pending or self._file else float("inf")

    def roll(self, now: float) -> None:
        """Complete the file: after this it is on disk, or counted as lost."""
        if self._pending:
            self._write_group(now)
        self._complete(now)

    def _complete(self, now: float) -> None:
        if self._writer is None or self._file is None:
            return
        try:
            self._writer.close()
            self._file.commit()
        except FAILURES as error:
            self._fail(error, now)
            return
        self.files += 1
        self.rows += self._file_rows
        if self._retry > FIRST_RETRY:
            log.info("recording again", extra={"table": self.table.name})
        self._retry = FIRST_RETRY
        self._forget_file()

    def _write_group(self, now: float) -> None:
        pending, self._pending, self._pending_rows = self._pending, [], 0
        data = pa.concat_tables(pending, promote_options="permissive") if len(pending) > 1 else pending[0]
        if now < self._retry_at:
            self.lose(self._weight(data))
            return
        names = {*data.schema.names, "run", "node"} | ({"lost"} if self._lost else set())
        schema = pa.schema([field for field in memory_schema(self.table) if field.name in names])
        if self._writer is not None and schema != self._schema:
            self._complete(now)
        self._schema = schema
        told, self._lost = self._lost, 0
        self._file_told += told
        self._file_rows += data.num_rows
        self._file_weight += self._weight(data)
        try:
            if self._writer is None:
                self._open()
            assert self._writer is not None
            self._writer.write_table(self._finish(data, told))
        except FAILURES as error:
            self._fail(error, now)

    def _open(self) -> None:
        relative = f"{self.table.name}/{partition_of_us(self._hour * HOUR_US)}/"
        self._file = self._target.create(relative + file_name(self._node, self._run, self._number))
        self._number += 1
        is_by_message = self.table.name == "publish" and self._settings.level is Level.FULL
        options = writer_options(self.table, BY_MESSAGE if is_by_message else frozenset())
        self._writer = pq.ParquetWriter(self._file.stream, self._schema, **options)
        self._writer.add_key_value_metadata(self._metadata)

    def _finish(self, data: pa.Table, lost: int) -> pa.Table:
        rows = data.num_rows
        zeros = constant(0, pa.int32(), rows)
        data = data.unify_dictionaries()
        columns = {
            "run": pa.DictionaryArray.from_arrays(zeros, pa.array([self._run]), safe=False),
            "node": pa.DictionaryArray.from_arrays(zeros, pa.array([self._node]), safe=False),
        }
        if lost:
            rest = pa.nulls(rows - 1, pa.int64())
            columns["lost"] = pa.concat_arrays([pa.array([lost], pa.int64()), rest])
        elif "lost" in self._schema.names:
            columns["lost"] = pa.nulls(rows, pa.int64())
        arrays = [columns[name] if name in columns else data[name] for name in self._schema.names]
        return pa.table(arrays, schema=self._schema)

    def _weight(self, data: pa.Table) -> int:
        """What its loss would be counted as."""
        return int(pc.sum(data["count"]).as_py()) if self.table.name == "publish" else data.num_rows

    def _fail(self, error: Exception, now: float) -> None:
        if self._writer is not None:
            try:
                self._writer.close()  # else it would try to when it is forgotten, and complain
            except FAILURES:
                pass
        if self._file is not None:
            self._file.abort()
        self._lost += self._file_told
        self.lose(self._file_weight)
        self._forget_file()
        log.warning(
            "cannot record; rows are dropped and counted",
            extra={"table": self.table.name, "error": str(error), "retry_seconds": self._retry},
        )
        self._retry_at = now + self._retry
        self._retry = min(self._retry * 2.0, LAST_RETRY)

    def _forget_file(self) -> None:
        self._writer = self._file = None
        self._file_rows = self._file_weight = self._file_told = 0
