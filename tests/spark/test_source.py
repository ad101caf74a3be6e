"""`format("mqtt")` read by Spark itself."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.conftest import publish, wait_until
from tidegate.spark.segments import Spool
from tidegate.testing import BrokerThread


@pytest.fixture
def stream(session: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a query from a broker's port into files; with `is_now`, one that ends by itself."""
    queries: list[Any] = []

    def start(port: int, *, is_now: bool = False, **options: str) -> Any:
        given = {"url": f"mqtt://127.0.0.1:{port}", "topics": "t/#", "spool": str(tmp_path / "spool")}
        frame = session.readStream.format("mqtt").options(**{**given, **options}).load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        queries.append((writer.trigger(availableNow=True) if is_now else writer).start())
        if not is_now:
            wait_until(lambda: is_connected(tmp_path) or queries[-1].exception() is not None, "a connection")
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


def is_connected(folder: Path) -> bool:
    status = folder / "spool" / "status.json"
    return status.exists() and json.loads(status.read_text()).get("state") == "connected"


def batch_sizes(query: Any) -> list[int]:
    """Rows of each micro-batch so far, but for empty ones."""
    assert query.exception() is None
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


def test_a_stream_has_every_message_once_and_goes_on_with_its_checkpoint(
    tidegate_broker: BrokerThread, stream: Callable[..., Any], session: SparkSession, tmp_path: Path
) -> None:
    port = tidegate_broker.port
    first = stream(port)
    publish(port, "t/1", [str(number).encode() for number in range(300)])
    wait_until(lambda: sum(batch_sizes(first)) == 300, "300 rows")
    first.stop()
    publish(port, "t/1", [str(number).encode() for number in range(300, 420)])
    bounds = {"maxRowsPerTrigger": "50", "partitions": "3", "minRowsPerPartition": "10", "idleTimeout": "2"}
    second = stream(port, is_now=True, **bounds)
    second.awaitTermination()
    assert batch_sizes(second) == [50, 50, 20]
    rows = session.read.parquet(str(tmp_path / "rows")).orderBy("seq").collect()
    assert [row.seq for row in rows] == list(range(420))
    assert [int(row.payload) for row in rows] == list(range(420))
    assert {(row.topic, row.qos, row.retain, row.content_type) for row in rows} == {("t/1", 1, False, None)}
    assert Spool(tmp_path / "spool").committed >= 400


def test_a_batch_takes_what_is_retained_and_no_more_than_asked(
    broker_port: int, session: SparkSession
) -> None:
    for number in range(5):
        publish(broker_port, f"state/{number}", [b'{"level": %d.5}' % number], retain=True)
    options = {
        "url": f"127.0.0.1:{broker_port}",
        "topics": "state/+",
        "payload": "json",
        "idleTimeout": "1.5",
    }
    reader = (
        session.read.format("mqtt").options(**options).schema("topic STRING, level DOUBLE, retain BOOLEAN")
    )
    found = sorted((row.topic, row.level, row.retain) for row in reader.load().collect())
    assert found == [(f"state/{number}", number + 0.5, True) for number in range(5)]
    assert reader.option("maxMessages", "3").load().count() == 3


def test_an_error_reaches_the_query_with_its_hint(session: SparkSession, tmp_path: Path) -> None:
    options = {"topics": "t", "spool": str(tmp_path / "spool"), "connectTimeout": "0.5"}
    frame = session.readStream.format("mqtt").option("url", "mqtt://127.0.0.1:1").options(**options).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(PySparkException, match=r"was not reached within 0.5 s") as caught:
        query.awaitTermination()
    assert "hint: " in str(caught.value)
    with pytest.raises(PySparkException, match="hint: "):
        session.read.format("mqtt").option("qos", "7").load()
