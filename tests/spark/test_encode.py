"""Rows become messages."""

import datetime
import json

import pyarrow as pa
import pytest

from tidegate.spark.encode import Encoder, Outgoing
from tidegate.spark.errors import PayloadError
from tidegate.spark.options import read_options


def encode(batch: pa.RecordBatch, **options: str) -> list[Outgoing]:
    given = read_options({"url": "localhost", **options}, "sink")
    return list(Encoder(batch.schema.names, given).encode(batch))


def test_a_payload_column_is_published_as_it_is() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["a", None], "payload": [b"x", None], "qos": [2, None], "retain": [None, True]}
    )
    first, second = encode(batch, topic="default")
    assert (first.topic, first.payload, first.qos, first.retain) == ("a", b"x", 2, False)
    assert (second.topic, second.payload, second.qos, second.retain) == ("default", b"", 1, True)


def test_text_is_utf8_and_properties_go_with_it() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": ["grün"],
            "content_type": ["text/plain"],
            "user_properties": [[{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]],
            "response_topic": pa.array([None], pa.string()),
        }
    )
    (message,) = encode(batch, topic="t")
    assert message.payload == "grün".encode()
    assert message.fields == {"content_type": "text/plain", "user_properties": (("a", "1"), ("a", "2"))}


def test_a_row_becomes_a_json_object() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["t"], "n": [1], "at": [moment], "raw": [b"\0\xff"], "list": [[1.5, None]]}
    )
    (message,) = encode(batch, payload="json")
    assert json.loads(message.payload) == {
        "n": 1, "at": "2026-01-02T03:04:05+00:00", "raw": "AP8=", "list": [1.5, None],
    }  # fmt: skip


def test_rows_of_one_topic_share_arrow_messages() -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["a", "b", "a", "a"], "n": [1, 2, 3, 4]})
    found = [
        (message.topic, pa.ipc.open_stream(message.payload).read_all().column("n").to_pylist())
        for message in encode(batch, payload="arrow", rowsPerMessage="2")
    ]
    assert found == [("a", [1, 3]), ("a", [4]), ("b", [2])]


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({"payload": [b""]}, {}, "nothing says which topic"),
        ({"topic": ["t"], "a": [1]}, {}, "column a has no place"),
        ({"topic": ["t"]}, {}, "there is no payload column"),
        ({"topic": ["t"]}, {"payload": "json"}, "no column is left"),
        ({"topic": ["t"], "payload": [1]}, {}, "neither binary nor text"),
        ({"topic": pa.array([None], pa.string()), "payload": [b""]}, {}, "a row has no topic"),
        ({"topic": ["t"], "a": [1], "qos": [1]}, {"payload": "arrow"}, "one QoS"),
        ({"topic": [7], "payload": [b""]}, {}, "column topic is int64, not STRING"),
        ({"topic": [7], "n": [1]}, {"payload": "arrow"}, "column topic is int64, not STRING"),
        ({"topic": ["t"], "payload": [b""], "qos": [1.0]}, {}, "column qos is double, not INT"),
        ({"topic": ["t"], "payload": [b""], "retain": ["yes"]}, {}, "column retain is string"),
        ({"topic": ["t"], "payload": [b""], "correlation_data": ["x"]}, {}, "correlation_data is string"),
        ({"topic": ["t"], "payload": [b""], "user_properties": ["x"]}, {}, "user_properties is string"),
        (
            {"topic": ["t"], "payload": [b""], "user_properties": [[{"name": "a", "value": "b"}, None]]},
            {},
            "user_properties is null",
        ),
        ({"topic": ["t"], "payload": [b""], "content_type": ["x"]}, {"mqttVersion": "3.1.1"}, "needs MQTT 5"),
    ],
)
def test_what_cannot_be_published_is_refused(
    columns: dict[str, object], options: dict[str, str], text: str
) -> None:
    with pytest.raises(PayloadError, match=text):
        encode(pa.RecordBatch.from_pydict(columns), **options)
