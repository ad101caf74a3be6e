"""`schema.py` in Arrow and Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.schema import META_SCHEMA, META_TABLE, Table, Type

TYPES: Final[Mapping[Type, pa.DataType]] = {
    Type.STRING: pa.string(),
    Type.BOOL: pa.bool_(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT64: pa.float64(),
    Type.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Type.LIST_INT16: pa.list_(pa.int16()),
    Type.LIST_INT64: pa.list_(pa.int64()),
    Type.LIST_FLOAT64: pa.list_(pa.float64()),
}
NAMES: Final = pa.dictionary(pa.int32(), pa.string())
REPEATED: Final = {"publish": ("client_id", "topic")}
FILLED_IN: Final = frozenset({"run", "node", "lost"})  # when a file is written
RANGED: Final = frozenset({"ts", "seq", "kind"})
# Numbers that mostly grow, or are alike: their differences take a few bits.
DELTA: Final = frozenset({"ts", "first", "last", "seq", "gap_us", "bytes", "count"})

BY_MESSAGE: Final = frozenset({"qos", "window_us", "count"})  # of `publish` at level full
BATCH_ROWS: Final = 65_536  # the usual 1 024 make each value dearer by half a nanosecond

_constants: dict[tuple[int, pa.DataType], pa.Array] = {}


def constant(value: int, kind: pa.DataType, rows: int) -> pa.Array:
    """The same number so many times; parts of one array, as filling new memory costs more than all else about it."""
    found = _constants.get((value, kind))
    if found is None or len(found) < rows:
        found = pa.array(np.full(max(rows, BATCH_ROWS), value, kind.to_pandas_dtype()))
        _constants[value, kind] = found
    return found.slice(0, rows)


def file_metadata(table: Table) -> dict[bytes, bytes]:
    """What every file of the table says about itself."""
    return {META_TABLE: table.name.encode(), META_SCHEMA: str(table.version).encode()}


def arrow_schema(table: Table) -> pa.Schema:
    """The columns of a table as every file has them."""
    return pa.schema([pa.field(c.name, TYPES[c.type], nullable=not c.is_required) for c in table.columns])


def memory_schema(table: Table) -> pa.Schema:
    """The same for what is about to be written: names that repeat are kept as dictionaries, as they are in the file."""
    schema = arrow_schema(table)
    for at, field in enumerate(schema):
        if field.name in REPEATED.get(table.name, ()) or field.name in ("run", "node"):
            schema = schema.set(at, field.with_type(NAMES))
    return schema


def writer_options(table: Table, constant: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Keywords for a Parquet writer: dictionaries for names, differences for numbers, zstd over all.

    `constant`: columns of numbers that hardly change in a file, as it is with a row for each message. Written plainly
    they cost a third of any encoding; and there LZ4 takes half the time of zstd for files that are a tenth larger.
    """
    numbers = (Type.INT64, Type.TIMESTAMP)
    names = [c.name for c in table.columns]
    delta = [c.name for c in table.columns if c.type in numbers and c.name in DELTA - constant]
    plain = [name for name in names if name in constant]
    return {
        "compression": "lz4" if constant else "zstd",
        "compression_level": None if constant else 1,
        "use_dictionary": [name for name in names if name not in delta and name not in constant],
        "column_encoding": dict.fromkeys(delta, "DELTA_BINARY_PACKED") | dict.fromkeys(plain, "PLAIN"),
        "write_batch_size": BATCH_ROWS,
        # They cost as much as the encoding, and nothing else is ever looked for by range.
        "write_statistics": [c.name for c in table.columns if c.name in RANGED],
        # Readers get the plain types of the table, whatever the writer had in memory.
        "store_schema": False,
    }


def chosen(table: Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """A table with these columns only."""
    schema = pa.schema([field for field in memory_schema(table) if field.name in columns])
    return pa.table([columns[name] for name in schema.names], schema=schema)


def complete(table: Table, columns: Mapping[str, pa.Array], rows: int) -> pa.Table:
    """A table with all columns but `FILLED_IN`; those that are not given are null."""
    fields = [field for field in memory_schema(table) if field.name not in FILLED_IN]
    arrays = [columns[f.name] if f.name in columns else pa.nulls(rows, f.type) for f in fields]
    return pa.table(arrays, schema=pa.schema(fields))
