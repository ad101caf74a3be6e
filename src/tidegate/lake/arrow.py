"""`schema.py` in Arrow and Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
# Numbers that mostly grow, or are alike: their differences take a few bits.
DELTA: Final = frozenset({"ts", "first", "last", "seq", "gap_us", "bytes", "count"})


def file_metadata(table: Table) -> dict[bytes, bytes]:
    """What every file of the table says about itself."""
    return {META_TABLE: table.name.encode(), META_SCHEMA: str(table.version).encode()}


def arrow_schema(table: Table) -> pa.Schema:
    """The columns of a table as every file has them."""
    return pa.schema([pa.field(column.name, TYPES[column.type]) for column in table.columns])


def memory_schema(table: Table) -> pa.Schema:
    """The same for what is about to be written: names that repeat are kept as dictionaries, as they are in the file."""
    schema = arrow_schema(table)
    for at, field in enumerate(schema):
        if field.name in REPEATED.get(table.name, ()) or field.name in ("run", "node"):
            schema = schema.set(at, field.with_type(NAMES))
    return schema


def writer_options(table: Table) -> dict[str, Any]:
    """Keywords for a Parquet writer: dictionaries for names, differences for numbers, zstd over all."""
    numbers = (Type.INT64, Type.TIMESTAMP)
    delta = [c.name for c in table.columns if c.type in numbers and c.name in DELTA]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [c.name for c in table.columns if c.name not in delta],
        "column_encoding": dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
        "write_statistics": True,
        # Readers get the plain types of the table, whatever the writer had in memory.
        "store_schema": False,
    }


def complete(table: Table, columns: Mapping[str, pa.Array], rows: int) -> pa.Table:
    """A table with all columns as `memory_schema` has them; those that are not given are null."""
    schema = memory_schema(table)
    arrays = [columns[f.name] if f.name in columns else pa.nulls(rows, f.type) for f in schema]
    return pa.table(arrays, schema=schema)
