"""`df.write` and `df.writeStream` with `format("mqtt")`.

Every task has a client of its own and publishes its rows with many in flight. It commits only when the broker has
acknowledged every one of them; a refusal, or silence for `timeout`, fails the task. Spark runs a failed task again, and
a batch again after a crash, so messages may come twice: let consumers drop doubles by an identifier in the payload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidegate.client import Client
from tidegate.errors import TidegateError
from tidegate.spark.connect import connect
from tidegate.spark.encode import Encoder, Outgoing
from tidegate.spark.errors import SinkError, SparkMqttError
from tidegate.spark.options import MqttOptions


@dataclass
class Published(WriterCommitMessage):
    """All messages of a task were acknowledged."""

    messages: int


class MqttWriter(DataSourceArrowWriter):
    """Batch."""

    def __init__(self, options: MqttOptions, schema: StructType) -> None:
        self._options = options
        self._encoder = Encoder(schema.names, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return publish_all(iterator, self._encoder, self._options)


class MqttStreamWriter(DataSourceStreamArrowWriter):
    """Streaming; there is nothing to do when a whole batch is done, its messages are with the broker."""

    def __init__(self, options: MqttOptions, schema: StructType) -> None:
        self._options = options
        self._encoder = Encoder(schema.names, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return publish_all(iterator, self._encoder, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what was published stays published, and comes again with the batch."""


def publish_all(batches: Iterator[pa.RecordBatch], encoder: Encoder, options: MqttOptions) -> Published:
    """Publish the rows of a task and wait for every acknowledgement; raises `SparkMqttError`."""
    try:
        return Published(asyncio.run(_publish(batches, encoder, options)))
    except SparkMqttError:
        raise
    except TidegateError as error:
        raise SinkError(f"{options.url}: {error}", hint=getattr(error, "hint", "")) from error


async def _publish(batches: Iterator[pa.RecordBatch], encoder: Encoder, options: MqttOptions) -> int:
    loop = asyncio.get_running_loop()
    wanted = options.client_options(
        send_queue_size=options.max_in_flight,
        max_in_flight=options.max_in_flight if options.mqtt_version == 5 else None,
        reconnect=True,
        reconnect_min_delay=0.05,
        reconnect_max_delay=2.0,
        operation_timeout=options.timeout,
        reports="off",
    )
    client = await connect(options.endpoint, wanted, seconds=options.connect_timeout)
    total = 0
    try:
        window = _Window(client, options)
        while True:
            # Spark may take its time for the next rows; pings go on meanwhile.
            batch = await loop.run_in_executor(None, next, batches, None)
            if batch is None:
                break
            for message in encoder.encode(batch):
                await window.publish(message)
                total += 1
        await window.wait_empty()
    finally:
        await client.disconnect()
    return total


class _Window:
    """Messages in flight, at most `maxInFlight`, and the first that failed."""

    def __init__(self, client: Client, options: MqttOptions) -> None:
        self._client = client
        self._timeout = options.timeout
        self._limit = options.max_in_flight
        self._open = 0
        self._fault: BaseException | None = None
        self._changed = asyncio.Event()

    async def publish(self, message: Outgoing) -> None:
        if message.qos == 0:
            await self._client.publish(
                message.topic, message.payload, qos=0, retain=message.retain, **message.fields
            )
            return
        await self._wait_below(self._limit)
        future = self._client.publish_nowait(
            message.topic, message.payload, qos=message.qos, retain=message.retain, **message.fields
        )
        self._open += 1
        future.add_done_callback(self._on_done)

    async def wait_empty(self) -> None:
        await self._wait_below(1)

    async def _wait_below(self, number: int) -> None:
        while self._open >= number and self._fault is None:
            self._changed.clear()
            before = self._open
            try:
                async with asyncio.timeout(self._timeout):
                    await self._changed.wait()
            except TimeoutError:
                if self._open == before:
                    raise SinkError(
                        f"{self._open} messages were not acknowledged within {self._timeout:g} s",
                        hint="check the broker, or raise option timeout",
                    ) from None
        if self._fault is not None:
            raise self._fault

    def _on_done(self, future: asyncio.Future[Any]) -> None:
        self._open -= 1
        if future.cancelled():
            self._fault = self._fault or SinkError("the client was closed before all was acknowledged")
        else:
            self._fault = self._fault or future.exception()
        self._changed.set()
