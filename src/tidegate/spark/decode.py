"""Rows of the spool as the columns a query asks for: messages as they are, or what their payloads say.

Columns named like those of a message come from the message, all others from the payload. A payload that does not fit is
handled as Spark's own readers do: PERMISSIVE gives a row of nulls (and the payload in `_corrupt_record`, if the schema
has that column), DROPMALFORMED no row, FAILFAST an error.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pyarrow as pa
import pyarrow.json as pa_json

from tidegate.spark.errors import PayloadError
from tidegate.spark.segments import SCHEMA

META = ("seq", *SCHEMA.names)
CORRUPT = "_corrupt_record"
ROW_SCHEMA = pa.schema([pa.field("seq", pa.int64()), *SCHEMA])
"""Columns of a message; the default of `payload=raw`."""


class Decoder:
    """Picklable: Arrow schemas travel, what is made of them stays."""

    def __init__(self, schema: pa.Schema, payload: str, mode: str) -> None:
        self.schema = schema
        self._payload = payload
        self._mode = mode
        hidden = set(META) - ({"payload"} if payload != "raw" else set())
        self._fields = [field for field in schema if field.name not in hidden and field.name != CORRUPT]
        unknown = [field.name for field in self._fields]
        if payload == "raw" and (unknown or CORRUPT in schema.names):
            raise PayloadError(
                f"messages have no column {(unknown or [CORRUPT])[0]}",
                hint=f'they have {", ".join(META)}; or set option "payload" to json or arrow',
            )
        if payload != "raw" and not self._fields:
            raise PayloadError(
                "no column is left for what the payload says",
                hint='name some in .schema(…), or use payload "raw"',
            )
        if payload == "json":
            self._check_json()

    def _check_json(self) -> None:
        """Types that no JSON becomes are refused at once, not by the first message."""
        for field in self._fields:
            try:
                _read_json(b"{}\n", pa.schema([field]))
            except pa.ArrowNotImplementedError:
                raise PayloadError(
                    f"column {field.name} is {field.type}, which is not read from JSON",
                    hint="use STRUCT or ARRAY, or payload raw and from_json in the query",
                ) from None

    def decode(self, batch: pa.RecordBatch, seq: int) -> Iterator[pa.RecordBatch]:
        """`batch` has the columns of a segment; its first row is number `seq`."""
        if not batch.num_rows:
            return
        numbers = pa.array(numpy.arange(seq, seq + batch.num_rows), pa.int64())
        if self._payload == "raw":
            yield self._columns(batch, numbers, {})
        elif self._payload == "json":
            yield from self._decode_json(batch, numbers)
        else:
            yield from self._decode_arrow(batch, numbers)

    def _columns(
        self, batch: pa.RecordBatch, numbers: pa.Array, found: dict[str, pa.Array]
    ) -> pa.RecordBatch:
        """Put columns of the message and of its payload into the order of the schema."""
        arrays = []
        for field in self.schema:
            if field.name in found:
                array = found[field.name]
            elif field.name == "seq":
                array = numbers
            elif field.name in SCHEMA.names:
                array = batch.column(field.name)
            else:
                array = pa.nulls(batch.num_rows, field.type)
            arrays.append(array if array.type == field.type else _cast(array, field))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _decode_json(self, batch: pa.RecordBatch, numbers: pa.Array) -> Iterator[pa.RecordBatch]:
        payloads = batch.column("payload").to_pylist()
        for start, end, table in self._parse_json(payloads, 0, len(payloads)):
            part, part_numbers = batch.slice(start, end - start), numbers.slice(start, end - start)
            if table is not None:
                columns = {name: _one(table.column(name)) for name in table.column_names}
                yield self._columns(part, part_numbers, columns)
            elif self._is_kept(part, payloads[start]):
                yield self._columns(part, part_numbers, self._corrupt(payloads[start]))

    def _parse_json(
        self, payloads: list[bytes], start: int, end: int
    ) -> Iterator[tuple[int, int, pa.Table | None]]:
        """Parse as many as possible in one go; a part with a fault is halved until the fault stands alone."""
        lines = [payload.replace(b"\n", b" ").replace(b"\r", b" ") for payload in payloads[start:end]]
        if all(lines):
            text = b"\n".join(lines) + b"\n"
            try:
                table = _read_json(text, pa.schema(self._fields))
            except pa.ArrowInvalid:
                table = None
            # A line gives a row or an error, or more rows than one: then the numbers differ.
            if table is not None and table.num_rows == end - start and not any(map(bytes.isspace, lines)):
                yield start, end, table
                return
        if end - start == 1:
            yield start, end, None
            return
        middle = (start + end) // 2
        yield from self._parse_json(payloads, start, middle)
        yield from self._parse_json(payloads, middle, end)

    def _decode_arrow(self, batch: pa.RecordBatch, numbers: pa.Array) -> Iterator[pa.RecordBatch]:
        for row, payload in enumerate(batch.column("payload").to_pylist()):
            one, number = batch.slice(row, 1), numbers.slice(row, 1)
            try:
                with pa.ipc.open_stream(payload) as stream:
                    table = stream.read_all()
                table.validate(full=True)  # anybody may have sent it
                columns = {
                    field.name: _one(table.column(field.name).cast(field.type))
                    for field in self._fields
                    if field.name in table.column_names
                }
            except (pa.ArrowException, KeyError, ValueError, OSError):  # two columns of a name; no UTF-8
                if self._is_kept(one, payload):
                    yield self._columns(one, number, self._corrupt(payload))
                continue
            if table.num_rows:
                rows = pa.array([0] * table.num_rows)
                for field in self._fields:
                    columns.setdefault(field.name, pa.nulls(table.num_rows, field.type))
                yield self._columns(one.take(rows), number.take(rows), columns)

    def _is_kept(self, one: pa.RecordBatch, payload: bytes) -> bool:
        if self._mode == "failfast":
            topic = one.column("topic")[0].as_py()
            raise PayloadError(
                f"a message on {topic} is not the {self._payload} of the schema: {payload[:80]!r}",
                hint="use mode PERMISSIVE or DROPMALFORMED",
            )
        return self._mode == "permissive"

    def _corrupt(self, payload: bytes) -> dict[str, pa.Array]:
        found = {field.name: pa.nulls(1, field.type) for field in self._fields}
        if CORRUPT in self.schema.names:
            kind = self.schema.field(CORRUPT).type
            is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            found[CORRUPT] = pa.array([payload.decode(errors="replace") if is_text else payload], kind)
        return found


def _read_json(text: bytes, schema: pa.Schema) -> pa.Table:
    return pa_json.read_json(
        pa.BufferReader(text),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return array.cast(field.type)
    except pa.ArrowException as error:
        raise PayloadError(
            f"column {field.name} of a message is {array.type}, not {field.type}: {error}",
            hint="give it its own type in the schema, and cast it in the query",
        ) from None


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
