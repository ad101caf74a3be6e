"""Payloads become columns, and those that do not fit are handled as Spark's readers do."""

import io
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.client import Message
from tidegate.spark.batches import to_batch
from tidegate.spark.decode import ROW_SCHEMA, Decoder
from tidegate.spark.errors import PayloadError

JSON = pa.schema(
    [("seq", pa.int64()), ("topic", pa.string()), ("a", pa.int64()), ("_corrupt_record", pa.string())]
)


def messages(*payloads: bytes) -> pa.RecordBatch:
    return to_batch([Message(topic=f"t/{i}", payload=payload) for i, payload in enumerate(payloads)], 0)


def rows(decoder: Decoder, batch: pa.RecordBatch, seq: int = 0) -> list[dict[str, object]]:
    return [row for part in decoder.decode(batch, seq) for row in part.to_pylist()]


def ipc(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def test_raw_messages_get_their_numbers() -> None:
    found = rows(Decoder(ROW_SCHEMA, "raw", "permissive"), messages(b"x", b"y"), 40)
    assert [(row["seq"], row["topic"], row["payload"]) for row in found] == [
        (40, "t/0", b"x"),
        (41, "t/1", b"y"),
    ]


def test_raw_messages_may_be_asked_for_some_columns_only() -> None:
    schema = pa.schema([("payload", pa.binary()), ("topic", pa.string())])
    assert rows(Decoder(schema, "raw", "permissive"), messages(b"x")) == [{"payload": b"x", "topic": "t/0"}]


def test_json_fields_stand_beside_columns_of_the_message() -> None:
    found = rows(Decoder(JSON, "json", "permissive"), messages(b'{"a": 1, "z": [1]}', b'{"a":\n2}', b"{}"), 7)
    assert [(row["seq"], row["topic"], row["a"]) for row in found] == [
        (7, "t/0", 1),
        (8, "t/1", 2),
        (9, "t/2", None),
    ]


WRONG = [b"", b" ", b"nonsense", b'{"a": 1', b'{"a": "text"}', b"[1]", b'{"a":1}{"a":2}', b"\xff\xfe", b"7"]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_payload_that_does_not_fit_disturbs_no_other(wrong: bytes) -> None:
    payloads = [b'{"a": %d}' % i for i in range(20)]
    payloads[13] = wrong
    permissive = rows(Decoder(JSON, "json", "permissive"), messages(*payloads))
    assert [row["a"] for row in permissive] == [None if i == 13 else i for i in range(20)]
    assert permissive[13]["_corrupt_record"] == wrong.decode(errors="replace")
    assert [row["seq"] for row in permissive] == list(range(20))
    dropped = rows(Decoder(JSON, "json", "dropmalformed"), messages(*payloads))
    assert [row["a"] for row in dropped] == [i for i in range(20) if i != 13]
    with pytest.raises(PayloadError, match="a message on t/13"):
        rows(Decoder(JSON, "json", "failfast"), messages(*payloads))


RIGHT = st.integers(-(2**63), 2**63 - 1).map(lambda a: json.dumps({"a": a}).encode())


@given(st.lists(RIGHT | st.sampled_from(WRONG), max_size=30))
def test_json_gives_one_row_a_message_whatever_comes(payloads: list[bytes]) -> None:
    found = rows(Decoder(JSON, "json", "permissive"), messages(*payloads))
    assert [row["seq"] for row in found] == list(range(len(payloads)))
    assert [row["a"] for row in found] == [None if p in WRONG else json.loads(p)["a"] for p in payloads]


def test_arrow_payloads_give_many_rows_each() -> None:
    schema = pa.schema([("seq", pa.int64()), ("a", pa.int64()), ("b", pa.string())])
    payloads = (ipc(pa.table({"a": [1, 2], "other": [0, 0]})), ipc(pa.table({"a": pa.array([], pa.int64())})),
                ipc(pa.table({"b": ["x"], "a": pa.array([3], pa.int32())})))  # fmt: skip
    assert rows(Decoder(schema, "arrow", "failfast"), messages(*payloads)) == [
        {"seq": 0, "a": 1, "b": None},
        {"seq": 0, "a": 2, "b": None},
        {"seq": 2, "a": 3, "b": "x"},
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"nonsense",
        ipc(pa.table({"a": [1]}))[:-30],
        ipc(pa.table({"a": ["text"]})),
        ipc(pa.table([[1], [2]], names=["a", "a"])),
        ipc(pa.table({"a": [1], "zz": [1]})).replace(b"zz", b"\xff\xff"),
        ipc(pa.table({"a": [1], "z": ["text"]})).replace(b"text", b"\xff" * 4),
    ],
)
def test_a_wrong_arrow_payload_is_kept_dropped_or_refused(wrong: bytes) -> None:
    schema = pa.schema([("a", pa.int64()), ("_corrupt_record", pa.binary())])
    good = ipc(pa.table({"a": [1]}))
    assert rows(Decoder(schema, "arrow", "permissive"), messages(good, wrong)) == [
        {"a": 1, "_corrupt_record": None},
        {"a": None, "_corrupt_record": wrong},
    ]
    assert len(rows(Decoder(schema, "arrow", "dropmalformed"), messages(good, wrong))) == 1
    with pytest.raises(PayloadError):
        rows(Decoder(schema, "arrow", "failfast"), messages(good, wrong))


def test_a_schema_that_cannot_be_filled_is_refused() -> None:
    with pytest.raises(PayloadError, match="messages have no column a"):
        Decoder(JSON, "raw", "permissive")
    with pytest.raises(PayloadError, match="no column is left"):
        Decoder(pa.schema([("topic", pa.string())]), "json", "permissive")
    with pytest.raises(PayloadError, match="column m is map<string, string>"):
        Decoder(pa.schema([("m", pa.map_(pa.string(), pa.string()))]), "json", "permissive")


def test_a_column_of_the_message_in_a_type_it_has_not_is_named() -> None:
    decoder = Decoder(pa.schema([("topic", pa.int32()), ("a", pa.int64())]), "json", "permissive")
    with pytest.raises(PayloadError, match="column topic of a message is string, not int32"):
        rows(decoder, messages(b"{}"))
