"""Messages of the client as rows of Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidegate.client import Message, Property
from tidegate.spark.segments import SCHEMA

_PROPERTIES = {
    "content_type": Property.CONTENT_TYPE,
    "response_topic": Property.RESPONSE_TOPIC,
    "correlation_data": Property.CORRELATION_DATA,
}


def to_batch(messages: Sequence[Message], received_us: int) -> pa.RecordBatch:
    """One row a message, with the columns of `SCHEMA`. `received_us` is Unix time in microseconds."""
    number = len(messages)
    columns: dict[str, Any] = {
        "received": pa.repeat(pa.scalar(received_us, pa.timestamp("us", tz="UTC")), number),
        "topic": pa.array([message.topic for message in messages], pa.string()),
        "payload": pa.array([message.payload for message in messages], pa.binary()),
        "qos": pa.array([message.qos for message in messages], pa.int32()),
        "retain": pa.array([message.retain for message in messages], pa.bool_()),
        "dup": pa.array([message.dup for message in messages], pa.bool_()),
    }
    if any([message.properties for message in messages]):  # noqa: C419 - a list is quicker here
        for name, identifier in _PROPERTIES.items():
            values = [message.properties.get(identifier) for message in messages]
            columns[name] = pa.array(values, SCHEMA.field(name).type)
        pairs = [
            [{"name": name, "value": value} for name, value in message.user_properties] or None
            for message in messages
        ]
        columns["user_properties"] = pa.array(pairs, SCHEMA.field("user_properties").type)
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(number, field.type) for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
