"""Rows of Spark as messages: a payload column as it is, a row as JSON, or many rows as one Arrow stream."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.spark.errors import PayloadError
from tidegate.spark.options import MqttOptions

FIELDS = ("content_type", "response_topic", "correlation_data", "user_properties", "message_expiry_interval")
"""Columns that become properties of the message (MQTT 5)."""
RESERVED = ("topic", "qos", "retain", *FIELDS)
PAYLOAD_NAMES = ("payload", "value")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_pairs(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    pair = kind.value_type
    return (
        pa.types.is_struct(pair)
        and pair.num_fields == 2
        and all(_is_text(pair.field(each).type) for each in range(2))
    )


_TYPES: dict[str, tuple[str, Callable[[pa.DataType], bool]]] = {
    "topic": ("STRING", _is_text),
    "qos": ("INT", pa.types.is_integer),
    "retain": ("BOOLEAN", pa.types.is_boolean),
    "content_type": ("STRING", _is_text),
    "response_topic": ("STRING", _is_text),
    "correlation_data": ("BINARY", _is_bytes),
    "user_properties": ("ARRAY<STRUCT<name STRING, value STRING>>", _is_pairs),
    "message_expiry_interval": ("INT", pa.types.is_integer),
}


@dataclass(slots=True, kw_only=True)
class Outgoing:
    """Arguments of `Client.publish`."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    fields: dict[str, Any] = field(default_factory=dict)


class Encoder:
    """Knows the columns and where the topic comes from; raises `PayloadError` for what cannot be published."""

    def __init__(self, names: list[str], options: MqttOptions) -> None:
        self._options = options
        self._names = names
        self._data = [name for name in names if name not in RESERVED]
        self._fields = [name for name in FIELDS if name in names]
        if "topic" not in names and options.topic is None:
            raise PayloadError(
                "nothing says which topic to publish to", hint='add a column "topic", or option "topic"'
            )
        if self._fields and options.mqtt_version < 5:
            raise PayloadError(
                f"column {self._fields[0]} needs MQTT 5", hint='drop it, or set option "mqttVersion" to 5'
            )
        if options.payload == "raw":
            other = [name for name in self._data if name not in PAYLOAD_NAMES]
            if other or len(self._data) != 1:
                what = (
                    f"column {other[0]} has no place in a raw message"
                    if other
                    else "there is no payload column"
                )
                raise PayloadError(
                    what,
                    hint='select "payload" (binary or text) and "topic", or set option "payload" to json or arrow',
                )
        elif not self._data:
            raise PayloadError("no column is left for the payload", hint="select more than the topic")
        if options.payload == "arrow" and (self._fields or {"qos", "retain"} & set(names)):
            raise PayloadError(
                "a message of many rows has one QoS and no properties of single rows",
                hint="use the options qos and retain, and drop columns of these names",
            )

    def encode(self, batch: pa.RecordBatch) -> Iterator[Outgoing]:
        """The messages of some rows, in their order; with `arrow`, in their order for each topic."""
        if not batch.num_rows:
            return
        _check_types(batch.schema)
        if self._options.payload == "arrow":
            yield from self._encode_arrow(batch)
            return
        topics = self._column(batch, "topic", self._options.topic)
        qos = self._column(batch, "qos", self._options.qos)
        retain = self._column(batch, "retain", self._options.retain)
        fields = [batch.column(name).to_pylist() for name in self._fields]
        for row, payload in enumerate(self._payloads(batch)):
            given = {
                name: column[row]
                for name, column in zip(self._fields, fields, strict=True)
                if column[row] is not None
            }
            if "user_properties" in given:
                given["user_properties"] = tuple(_pair(each) for each in given["user_properties"])
            yield Outgoing(
                topic=self._checked(topics[row]),
                payload=payload,
                qos=qos[row],
                retain=retain[row],
                fields=given,
            )

    def _payloads(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        if self._options.payload == "raw":
            for value in batch.column(self._data[0]).to_pylist():
                if isinstance(value, str):
                    yield value.encode()
                elif value is None or isinstance(value, bytes):
                    yield value or b""  # an empty payload is how a retained message is removed
                else:
                    raise PayloadError(
                        f"column {self._data[0]} is neither binary nor text",
                        hint="cast it, or set option payload to json",
                    )
        else:
            for row in batch.select(self._data).to_pylist():
                yield json.dumps(row, separators=(",", ":"), default=_plain).encode()

    def _encode_arrow(self, batch: pa.RecordBatch) -> Iterator[Outgoing]:
        data = batch.select(self._data)
        if "topic" not in self._names:
            parts = [(self._options.topic, data)]
        else:
            rows: dict[str | None, list[int]] = {}
            for row, topic in enumerate(batch.column("topic").to_pylist()):
                rows.setdefault(topic or self._options.topic, []).append(row)
            parts = [(topic, data.take(pa.array(indices))) for topic, indices in rows.items()]
        step = self._options.rows_per_message
        for topic, part in parts:
            for start in range(0, part.num_rows, step):
                piece = part.slice(start, step)
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, piece.schema) as stream:
                    stream.write_batch(piece)
                yield Outgoing(
                    topic=self._checked(topic),
                    payload=sink.getvalue().to_pybytes(),
                    qos=self._options.qos,
                    retain=self._options.retain,
                )

    def _column(self, batch: pa.RecordBatch, name: str, default: Any) -> list[Any]:
        if name not in self._names:
            return [default] * batch.num_rows
        return [default if value is None else value for value in batch.column(name).to_pylist()]

    @staticmethod
    def _checked(topic: str | None) -> str:
        if topic is None:
            raise PayloadError("a row has no topic", hint='fill column "topic", or set option "topic"')
        return topic


def _check_types(schema: pa.Schema) -> None:
    """Columns with a meaning have the type for it; one of nulls alone says nothing."""
    for name, (wanted, is_right) in _TYPES.items():
        if name in schema.names:
            kind = schema.field(name).type
            if not (is_right(kind) or pa.types.is_null(kind)):
                raise PayloadError(f"column {name} is {kind}, not {wanted}", hint="cast, rename or drop it")


def _pair(pair: dict[str, str | None] | None) -> tuple[str, str]:
    name, value = (pair or {"name": None, "value": None}).values()
    if name is None or value is None:
        raise PayloadError(
            "a name or a value in column user_properties is null", hint="filter such pairs, or coalesce them"
        )
    return name, value


def _plain(value: object) -> Any:
    """What JSON has no word for."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    raise PayloadError(
        f"a value of type {type(value).__name__} has no form in JSON", hint="cast or drop its column"
    )
