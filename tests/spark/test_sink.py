"""`format("mqtt")` written by Spark itself."""

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.conftest import DEADLINE, publish, wait_until
from tidegate.broker.settings import Limits
from tidegate.client import Client, Message
from tidegate.testing import BrokerThread


def received(port: int, number: int, act: Callable[[], object]) -> list[Message]:
    """What a subscriber of everything gets while `act` runs, until so many messages came."""
    is_ready = threading.Event()

    async def run() -> list[Message]:
        async with asyncio.timeout(DEADLINE), Client(f"127.0.0.1:{port}") as client:
            await client.subscribe("#", qos=2)
            is_ready.set()
            return [await anext(client.messages) for _ in range(number)]

    # Spark finds its data sources by the session of the thread, which therefore is this one.
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(asyncio.run, run())
        assert is_ready.wait(DEADLINE)
        act()
        return found.result(DEADLINE)


def test_rows_are_published_each_to_its_topic(broker_port: int, session: SparkSession) -> None:
    frame = session.range(0, 200, 1, 3).selectExpr(
        "concat('s/', id % 4) AS topic", "CAST(id AS STRING) AS payload"
    )
    write = frame.write.format("mqtt").option("url", f"127.0.0.1:{broker_port}").mode("append")
    messages = received(broker_port, 200, write.save)
    assert sorted((message.topic, int(message.payload)) for message in messages) == sorted(
        (f"s/{number % 4}", number) for number in range(200)
    )
    assert {message.qos for message in messages} == {1}


def test_rows_become_json_or_arrow(tidegate_broker: BrokerThread, session: SparkSession) -> None:
    frame = session.range(10).selectExpr("id", "id / 4 AS level").coalesce(1)

    def write(payload: str) -> Callable[[], None]:
        options = {"url": f"127.0.0.1:{tidegate_broker.port}", "topic": "out", "payload": payload, "qos": "2"}
        return frame.write.format("mqtt").options(**options).mode("append").save

    rows = [json.loads(message.payload) for message in received(tidegate_broker.port, 10, write("json"))]
    assert rows == [{"id": number, "level": number / 4} for number in range(10)]
    (message,) = received(tidegate_broker.port, 1, write("arrow"))
    assert pa.ipc.open_stream(message.payload).read_all().to_pylist() == rows


def test_a_stream_from_mosquitto_to_mosquitto(
    mosquitto_port: int, session: SparkSession, tmp_path: Path
) -> None:
    url = f"127.0.0.1:{mosquitto_port}"
    query: list[Any] = []

    def act() -> None:
        source = {"url": url, "topics": "in/#", "spool": str(tmp_path / "spool"), "payload": "json"}
        doubled = (
            session.readStream.format("mqtt").options(**source).schema("n BIGINT").load()
            .selectExpr("'out' AS topic", "CAST(n * 2 AS STRING) AS payload")
        )  # fmt: skip
        write = doubled.writeStream.format("mqtt").option("url", url)
        query.append(write.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
        wait_until(lambda: "connected" in _text(tmp_path / "spool" / "status.json"), "a connection")
        publish(mosquitto_port, "in/1", [b'{"n": %d}' % number for number in range(20)])

    try:
        messages = received(mosquitto_port, 40, act)
    finally:
        for each in query:
            each.stop()
    assert sorted(int(m.payload) for m in messages if m.topic == "out") == [2 * n for n in range(20)]


def test_a_refused_message_fails_the_write(session: SparkSession) -> None:
    frame = session.createDataFrame([("t", "x" * 5000)], "topic STRING, payload STRING")
    with (
        BrokerThread(limits=Limits(max_packet_size=1024)) as broker,
        pytest.raises(PySparkException, match="1024"),
    ):
        frame.write.format("mqtt").option("url", f"127.0.0.1:{broker.port}").mode("append").save()


def test_what_was_published_cannot_be_overwritten(session: SparkSession) -> None:
    frame = session.createDataFrame([("t", "x")], "topic STRING, payload STRING")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        frame.write.format("mqtt").option("url", "127.0.0.1:1").mode("overwrite").save()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
