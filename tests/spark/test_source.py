"""`format("mqtt")` read by Spark itself."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.conftest import publish, wait_until
from tidegate.spark import register
from tidegate.spark.segments import Spool
from tidegate.testing import BrokerThread


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture
def stream(session: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a query from a broker's port into files; with `is_now`, one that ends by itself."""
    queries: list[Any] = []

    def start(port: int, *, schema: str | None = None, is_now: bool = False, **options: str) -> Any:
        given = {"url": f"mqtt://127.0.0.1:{port}", "topics": "t/#", "spool": str(tmp_path / "spool")}
        reader = session.readStream.format("mqtt").options(**{**given, **options})
        frame = (reader.schema(schema) if schema else reader).load()
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


def rows_of(query: Any, folder: Path, number: int) -> list[Any]:
    """All rows, of this query and those before it with the same checkpoint, when this one has read so many."""

    def is_done() -> bool:
        return (
            query.exception() is not None
            or sum(each["numInputRows"] for each in query.recentProgress) >= number
        )

    wait_until(is_done, f"{number} rows")
    assert query.exception() is None
    return SparkSession.active().read.parquet(str(folder / "rows")).orderBy("seq").collect()


def test_a_stream_has_every_message_once_and_in_order(
    broker_port: int, stream: Callable[..., Any], tmp_path: Path
) -> None:
    query = stream(broker_port)
    publish(broker_port, "t/1", [str(number).encode() for number in range(300)])
    rows = rows_of(query, tmp_path, 300)
    assert [row.seq for row in rows] == list(range(300))
    assert [int(row.payload) for row in rows] == list(range(300))
    assert {(row.topic, row.qos, row.retain, row.content_type) for row in rows} == {("t/1", 1, False, None)}


def test_a_query_goes_on_with_its_checkpoint_and_deletes_what_is_done(
    broker_port: int, stream: Callable[..., Any], tmp_path: Path
) -> None:
    first = stream(broker_port, schema="event_id BIGINT, seq BIGINT", payload="json")
    publish(broker_port, "t/1", [b'{"event_id": %d}' % number for number in range(100)])
    rows_of(first, tmp_path, 100)
    first.stop()
    publish(broker_port, "t/1", [b'{"event_id": %d}' % number for number in range(100, 150)])
    second = stream(broker_port, schema="event_id BIGINT, seq BIGINT", payload="json", is_now=True)
    second.awaitTermination()
    assert [row.event_id for row in rows_of(second, tmp_path, 50)] == list(range(150))
    assert Spool(tmp_path / "spool").committed >= 100


def test_rows_per_trigger_and_partitions_are_bounded(
    broker_port: int, stream: Callable[..., Any], tmp_path: Path
) -> None:
    stream(broker_port).stop()
    publish(broker_port, "t/1", [b"x"] * 120)
    query = stream(broker_port, is_now=True, maxRowsPerTrigger="50", partitions="3", minRowsPerPartition="10")
    query.awaitTermination()
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sizes == [50, 50, 20]
    assert len(rows_of(query, tmp_path, 120)) == 120


def test_a_batch_takes_what_is_retained_and_what_comes(broker_port: int, session: SparkSession) -> None:
    for number in range(5):
        publish(broker_port, f"state/{number}", [b'{"level": %d.5}' % number], retain=True)
    frame = (
        session.read.format("mqtt")
        .options(url=f"127.0.0.1:{broker_port}", topics="state/+", payload="json", idleTimeout="0.5")
        .schema("topic STRING, level DOUBLE, retain BOOLEAN")
        .load()
    )
    found = sorted((row.topic, row.level, row.retain) for row in frame.collect())
    assert found == [(f"state/{number}", number + 0.5, True) for number in range(5)]


def test_a_batch_ends_with_enough_messages(tidegate_broker: BrokerThread, session: SparkSession) -> None:
    for number in range(5):
        publish(tidegate_broker.port, f"state/{number}", [b"x"], retain=True)
    options = {"url": f"127.0.0.1:{tidegate_broker.port}", "topics": "state/+", "maxMessages": "3"}
    assert session.read.format("mqtt").options(**options).load().count() == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"spool": None}, "option spool is missing"),
        ({"qos": "7"}, "option qos is '7'"),
        ({"payload": "json"}, "nothing says what columns it has"),
        ({"url": "mqtt://127.0.0.1:1", "connectTimeout": "0.5"}, "was not reached within 0.5 s"),
    ],
)
def test_a_wrong_option_ends_the_query_with_a_hint(
    session: SparkSession, tmp_path: Path, options: dict[str, str | None], text: str
) -> None:
    given = {"url": "mqtt://127.0.0.1:1", "topics": "t", "spool": str(tmp_path / "spool"), **options}
    given = {name: value for name, value in given.items() if value is not None}

    def run() -> None:
        frame = session.readStream.format("mqtt").options(**given).load()
        frame.writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "c")
        ).start().awaitTermination()

    with pytest.raises(PySparkException, match=text) as caught:
        run()
    assert "hint: " in str(caught.value)


def test_a_checkpoint_without_its_spool_is_refused(
    tidegate_broker: BrokerThread, stream: Callable[..., Any], tmp_path: Path
) -> None:
    query = stream(tidegate_broker.port)
    publish(tidegate_broker.port, "t/1", [b"x"] * 10)
    rows_of(query, tmp_path, 10)
    query.stop()
    other = stream(tidegate_broker.port, spool=str(tmp_path / "another"), is_now=True)
    with pytest.raises(PySparkException, match="belong together"):
        other.awaitTermination()
