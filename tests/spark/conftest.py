"""Brokers of several makes, and what tests of the spool need.

A query of Spark costs seconds before its first row. So what a reader or a writer decides is tested on that object, what
the receiving process does on that process, and Spark is asked only what Spark alone can answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.brokers import Broker
from tidegate.client import Client
from tidegate.spark.segments import Spool
from tidegate.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE = 60.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {DEADLINE:g} s"
        time.sleep(0.02)


def publish(port: int, topic: str, payloads: list[bytes], *, qos: int = 1, retain: bool = False) -> None:
    async def run() -> None:
        async with Client(f"127.0.0.1:{port}") as client:
            for payload in payloads:
                await client.publish(topic, payload, qos=qos, retain=retain)

    asyncio.run(run())


def payloads_in(spool: Spool) -> list[bytes]:
    """Of all rows that are visible."""
    found: list[bytes] = []
    for segment in spool.segments():
        for batch in spool.read(segment, 0, segment.rows, chunk_rows=10_000):
            found += batch.column("payload").to_pylist()
    return found


@pytest.fixture(params=["tidegate", "mosquitto"])
def broker_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a broker of ours, then of Mosquitto."""
    if request.param == "tidegate":
        with BrokerThread() as ours:
            yield ours.port
    else:
        with Broker(name="mosquitto") as other:
            yield other.port


@pytest.fixture
def mosquitto_port() -> Iterator[int]:
    with Broker(name="mosquitto") as broker:
        yield broker.port


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """The session of the run, with `format("mqtt")`."""
    from tidegate.spark import register

    register(spark)
    return spark
