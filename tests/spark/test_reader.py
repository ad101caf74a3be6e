"""What the source answers when Spark plans: offsets, bounds, partitions, refusals. No session is needed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.spark.conftest import publish, wait_until
from tidegate.spark.datasource import MqttDataSource
from tidegate.spark.encode import Encoder
from tidegate.spark.errors import OptionError, PayloadError, SourceError, SpoolError
from tidegate.spark.options import read_options
from tidegate.spark.segments import Spool
from tidegate.spark.sink import publish_all
from tidegate.spark.source import MqttStreamReader
from tidegate.testing import BrokerThread

Open = Callable[..., MqttStreamReader]


@pytest.fixture
def open_reader(tidegate_broker: BrokerThread, spool: Spool) -> Iterator[Open]:
    made: list[MqttStreamReader] = []

    def start(**options: str) -> MqttStreamReader:
        given = {"url": f"127.0.0.1:{tidegate_broker.port}", "topics": "t", "spool": str(spool.folder)}
        source = MqttDataSource({**given, **options})
        made.append(source.streamReader(source.schema()))
        return made[-1]

    yield start
    for reader in made:
        reader.stop()


def test_a_batch_is_bounded_divided_read_and_deleted(
    tidegate_broker: BrokerThread, open_reader: Open, spool: Spool
) -> None:
    reader = open_reader(maxRowsPerTrigger="50", partitions="3", minRowsPerPartition="10")
    assert reader.initialOffset() == {"seq": 0}
    assert reader.getDefaultReadLimit() == ReadMaxRows(50)
    publish(tidegate_broker.port, "t", [str(number).encode() for number in range(120)])
    wait_until(lambda: spool.end() == 120, "120 rows")
    assert reader.latestOffset({"seq": 0}, ReadMaxRows(50)) == {"seq": 50}
    assert reader.latestOffset({"seq": 100}, ReadMaxRows(50)) == {"seq": 120}
    assert reader.latestOffset({"seq": 0}, ReadAllAvailable()) == reader.reportLatestOffset() == {"seq": 120}
    partitions = reader.partitions({"seq": 0}, {"seq": 50})
    assert [(each.start, each.end) for each in partitions] == [(0, 16), (16, 33), (33, 50)]
    assert len(reader.partitions({"seq": 0}, {"seq": 15})) == 1
    rows = [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
    assert [(row["seq"], int(row["payload"])) for row in rows] == [(number, number) for number in range(50)]
    reader.commit({"seq": 120})
    assert (spool.segments(), spool.end()) == ([], 120)


def test_a_checkpoint_without_its_spool_is_refused(open_reader: Open) -> None:
    with pytest.raises(SpoolError, match="the checkpoint is at 10") as caught:
        open_reader().latestOffset({"seq": 10}, ReadAllAvailable())
    assert "belong together" in caught.value.hint


def test_a_full_spool_takes_the_question_for_a_commit(
    tidegate_broker: BrokerThread, open_reader: Open, spool: Spool
) -> None:
    reader = open_reader(maxSpoolBytes="1k", receiveMaximum="1")
    reader.initialOffset()
    publish(tidegate_broker.port, "t", [bytes(2000)] * 3)
    done = 0
    while done < 3:
        wait_until(lambda done=done: spool.end() > done, "more rows")  # type: ignore[misc]
        done = reader.latestOffset({"seq": done}, ReadAllAvailable())["seq"]
        # All before it is processed, and nobody says so: asked for more, it makes room.
        reader.latestOffset({"seq": done}, ReadAllAvailable())
    wait_until(lambda: reader.latestOffset({"seq": 3}, ReadAllAvailable()) == {"seq": 3}, "the end")
    assert spool.end() == 3


def test_what_is_available_now_ends_with_the_silence(
    tidegate_broker: BrokerThread, open_reader: Open, spool: Spool
) -> None:
    reader = open_reader(idleTimeout="0.3")
    reader.initialOffset()
    publish(tidegate_broker.port, "t", [b"x"] * 10)
    wait_until(lambda: spool.end() == 10, "10 rows")
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"seq": 0}, ReadAllAvailable()) == {"seq": 10}
    publish(tidegate_broker.port, "t", [b"late"])
    wait_until(lambda: reader.reportLatestOffset() == {"seq": 11}, "a late row")
    assert reader.latestOffset({"seq": 0}, ReadAllAvailable()) == {"seq": 10}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"spool": None}, "option spool is missing"),
        ({"qos": "7"}, "option qos is '7'"),
        ({"payload": "json"}, "nothing says what columns it has"),
        ({"maxMessages": "5"}, "option maxMessages is for batch reads"),
    ],
)
def test_a_wrong_option_is_refused_with_a_hint(
    tmp_path: Path, options: dict[str, str | None], text: str
) -> None:
    given = {"url": "mqtt://127.0.0.1:1", "topics": "t", "spool": str(tmp_path / "spool"), **options}
    source = MqttDataSource({name: value for name, value in given.items() if value is not None})
    with pytest.raises(OptionError, match=text) as caught:
        source.streamReader(source.schema())
    assert caught.value.hint


def test_a_batch_from_nobody_names_the_address_and_a_hint() -> None:
    source = MqttDataSource({"url": "mqtt://127.0.0.1:1", "topics": "t"})
    reader = source.reader(source.schema())
    with pytest.raises(SourceError, match=r"mqtt://127.0.0.1:1: ") as caught:
        list(reader.read(reader.partitions()[0]))
    assert caught.value.hint


def test_a_row_that_cannot_be_published_is_explained_once(tidegate_broker: BrokerThread) -> None:
    options = read_options({"url": f"127.0.0.1:{tidegate_broker.port}"}, "sink")
    batch = pa.RecordBatch.from_pydict({"topic": pa.array([None], pa.string()), "payload": [b""]})
    with pytest.raises(PayloadError) as caught:
        publish_all(iter([batch]), Encoder(batch.schema.names, options), options)
    assert str(caught.value).count("hint:") == 1
