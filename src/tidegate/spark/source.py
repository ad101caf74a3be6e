"""`spark.read` and `spark.readStream` with `format("mqtt")`.

Streaming: a spool process (see `spool`) receives and numbers the rows; an offset is such a number. Planning happens in
a process that Spark keeps for the query; readers are pickled to get to the tasks, so whatever is open is opened late
and stays behind. Batch: every task connects, takes what comes until it is quiet or enough, and leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidegate.client import Client
from tidegate.errors import TidegateError
from tidegate.spark.batches import to_batch
from tidegate.spark.decode import Decoder
from tidegate.spark.errors import OptionError, SourceError, SparkMqttError, SpoolError
from tidegate.spark.options import MqttOptions
from tidegate.spark.segments import Done, Segment, Spool
from tidegate.spark.supervise import SpoolSupervisor

CHUNK_ROWS = 10_000  # rows of an Arrow batch given to Spark: its own default
LOOK = 0.05


@dataclass
class SpoolPartition(InputPartition):
    """Rows `start` to `end` (excluded)."""

    start: int
    end: int


@dataclass
class SessionPartition(InputPartition):
    """One of the clients of a batch read, and how many messages it may take."""

    number: int
    group: str | None
    most: int | None


class MqttStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the spool of one query. Offsets are `{"seq": n}`: rows below n."""

    def __init__(self, options: MqttOptions, given: dict[str, str], decoder: Decoder) -> None:
        if options.spool is None:
            raise OptionError(
                "option spool is missing",
                hint="name a folder for received messages, one a query, kept like its checkpointLocation",
            )
        if options.max_messages is not None:
            raise OptionError("option maxMessages is for batch reads", hint="use maxRowsPerTrigger")
        self._options = options
        self._given = given
        self._decoder = decoder
        self._spool = Spool(options.spool)
        self._supervisor: SpoolSupervisor | None = None
        self._available_now: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_supervisor": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins: at the first row that is still there."""
        self._receiving()
        segments = self._spool.segments()
        return {"seq": segments[0].start if segments else self._spool.committed}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        self._receiving()
        begin = start["seq"]
        end = self._spool.end()
        if end < begin:
            raise SpoolError(
                f"the spool {self._spool.folder} has rows up to {end}, the checkpoint is at {begin}",
                hint="the spool and the checkpoint of a query belong together: keep both, or begin with both anew",
            )
        if end == begin and self._spool.size_bytes() >= self._options.max_spool_bytes:
            # Spark commits a batch when it has planned the next, which needs new rows, for which there is no room. That
            # we are asked for what follows `begin` means that all before it is done.
            self._spool.commit(begin)
        if self._available_now is not None:
            end = min(end, max(self._available_now, begin))
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        return {"seq": end}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_rows_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """For the progress of the query: how far behind it is."""
        return {"seq": self._spool.end()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is available: all that comes before the broker is silent for `idleTimeout`."""
        self._receiving()
        assert self._supervisor is not None
        self._supervisor.wait_connected(self._options.connect_timeout)
        end = self._spool.end()
        since = time.monotonic()
        while time.monotonic() - since < self._options.idle_timeout:
            if self._spool.size_bytes() >= self._options.max_spool_bytes:
                break  # no more can come before some of it is processed
            time.sleep(LOOK)
            if (latest := self._spool.end()) != end:
                end, since = latest, time.monotonic()
        self._available_now = end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[SpoolPartition]:
        begin, stop = start["seq"], end["seq"]
        self._spool.slices(begin, stop)  # what is missing is said here, once, and not by every task
        rows = stop - begin
        number = max(1, min(self._options.partitions, rows // self._options.rows_per_partition))
        edges = [begin + rows * each // number for each in range(number + 1)]
        return [SpoolPartition(*each) for each in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpoolPartition)
        began = time.time_ns() // 1000
        at = partition.start
        for segment, first, last in self._spool.slices(partition.start, partition.end):
            for batch in self._batches(segment, first, last):
                yield from self._decoder.decode(batch, at)
                at += batch.num_rows
        if self._options.group is not None and at > partition.start:
            self._spool.note_done(Done(at, at - partition.start, began, time.time_ns() // 1000))

    def commit(self, end: dict[str, int]) -> None:
        self._spool.commit(end["seq"])

    def stop(self) -> None:
        if self._supervisor is not None:
            self._supervisor.stop()

    def _receiving(self) -> None:
        if self._supervisor is None:
            self._supervisor = SpoolSupervisor(self._options, self._given)
        self._supervisor.ensure()

    def _batches(self, segment: Segment, first: int, last: int) -> Iterator[pa.RecordBatch]:
        return self._spool.read(segment, first, last, chunk_rows=CHUNK_ROWS)


class MqttBatchReader(DataSourceReader):
    """Takes what comes: retained messages, what a session kept, what is published meanwhile.

    Messages are acknowledged when they are handed to Spark, which may still fail to process them. Who must not lose any
    uses a stream with `trigger(availableNow=True)`.
    """

    def __init__(self, options: MqttOptions, decoder: Decoder) -> None:
        if options.spool is not None:
            raise OptionError(
                "option spool is for streaming reads",
                hint="leave it out, or use readStream with trigger(availableNow=True)",
            )
        self._options = options
        self._decoder = decoder

    def partitions(self) -> list[SessionPartition]:
        options = self._options
        # Without a group every client would get every message.
        number = options.partitions if options.group is not None else 1
        most = options.max_messages
        if most is not None:
            number = min(number, most)
        return [
            SessionPartition(each, options.group, None if most is None else (most + each) // number)
            for each in range(number)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SessionPartition)
        seq = partition.number << 40  # numbers of several clients must not meet
        with asyncio.Runner() as runner:
            session = self._receive(partition)
            try:
                while True:
                    try:
                        batch = runner.run(_next(session))
                    except SparkMqttError:
                        raise
                    except TidegateError as error:
                        raise SourceError(
                            f"{self._options.url}: {error}", hint=getattr(error, "hint", "")
                        ) from error
                    if batch is None:
                        return
                    yield from self._decoder.decode(batch, seq)
                    seq += batch.num_rows
            finally:
                runner.run(session.aclose())

    async def _receive(self, partition: SessionPartition) -> AsyncGenerator[pa.RecordBatch, None]:
        options = self._options
        client_id = options.client_id
        if client_id and partition.number:
            client_id = f"{client_id}-{partition.number}"
        client = Client(
            options.endpoint,
            options.client_options(
                client_id=client_id,
                # A named client may have a session with messages in it; reading must not throw it away.
                clean_start=not client_id,
                session_expiry_interval=options.session_expiry if client_id else 0,
                receive_queue_size=CHUNK_ROWS,
                receive_maximum=min(options.receive_maximum, CHUNK_ROWS),
                manual_ack=True,
                reports="off",
            ),
        )
        left = partition.most
        async with client:
            await client.subscribe(*options.filters, qos=options.qos)
            while left is None or left > 0:
                try:
                    async with asyncio.timeout(options.idle_timeout):
                        messages = await client.messages.get_many(
                            CHUNK_ROWS if left is None else min(left, CHUNK_ROWS)
                        )
                except TimeoutError:
                    return
                yield to_batch(messages, time.time_ns() // 1000)
                client.ack_many(messages)
                left = None if left is None else left - len(messages)


async def _next(batches: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    with contextlib.suppress(StopAsyncIteration):
        return await anext(batches)
    return None
