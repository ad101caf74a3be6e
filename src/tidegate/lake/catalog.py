"""What is in a lake, and what is wrong with it: every file is opened, none is trusted.

A file is `good`, or its state says why it is set aside: `temporary` (being written, or left by a crash), `foreign` (not
Parquet, or not one of our tables), `truncated`, `misplaced` (its rows are of another hour), `duplicate` (another file
has the same rows) or `newer` (of a schema that this version does not know; it is readable, and read).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidegate.lake.arrow import arrow_schema
from tidegate.lake.errors import LakeError
from tidegate.lake.target import Target
from tidegate.schema import (
    META_LEVEL,
    META_NODE,
    META_SCHEMA,
    META_TABLE,
    PARQUET,
    TABLES,
    TEMPORARY,
    partition_start,
)

MAGIC = b"PAR1"
HOUR = timedelta(hours=1)


class State(StrEnum):
    """What a file is."""

    GOOD = "good"
    NEWER = "newer"
    TEMPORARY = "temporary"
    FOREIGN = "foreign"
    TRUNCATED = "truncated"
    MISPLACED = "misplaced"
    DUPLICATE = "duplicate"

    @property
    def is_data(self) -> bool:
        """Whether its rows count."""
        return self in (State.GOOD, State.NEWER)


@dataclass(slots=True, kw_only=True)
class LakeFile:
    """One file; `path` is relative to the lake. Times are those of the first and last row."""

    path: str
    size: int
    modified: datetime
    state: State = State.GOOD
    problem: str = ""
    table: str = ""
    hour: datetime | None = None
    rows: int = 0
    schema: int = 0
    node: str = ""
    level: str = ""
    first: datetime | None = None
    last: datetime | None = None
    unknown: tuple[str, ...] = ()  # columns that the table does not have
    missing: tuple[str, ...] = ()  # columns that it has and the file lacks

    @property
    def is_hidden(self) -> bool:
        return any(part.startswith((TEMPORARY, ".")) for part in PurePosixPath(self.path).parts)


@dataclass(slots=True)
class Summary:
    """What `ls` shows of one table."""

    files: int = 0
    rows: int = 0
    size: int = 0
    first: datetime | None = None
    last: datetime | None = None
    hours: set[datetime] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)


def scan(target: Target, tables: tuple[str, ...] = ()) -> Iterator[LakeFile]:
    """Every file of the lake, or of some tables, looked at; raises LakeError if there is no such lake."""
    if not target.exists():
        raise LakeError(str(target), "there is no such lake", "name the folder that lake.path names")
    for info in target.files():
        relative = target.relative(info.path)
        table = relative.partition("/")[0]
        if tables and table not in tables:
            continue
        if table == "policy" or table.startswith((TEMPORARY, ".")):
            continue  # snapshots and notes may live beside the tables
        yield look(target, info)


def look(target: Target, info: fs.FileInfo) -> LakeFile:
    """Open one file and say what it is."""
    relative = target.relative(info.path)
    found = LakeFile(
        path=relative,
        size=info.size or 0,
        modified=info.mtime.astimezone(UTC) if info.mtime else datetime.fromtimestamp(0, UTC),
        table=relative.partition("/")[0],
        hour=partition_start(relative),
    )
    if found.is_hidden:
        found.state, found.problem = State.TEMPORARY, "being written, or left behind"
    elif found.table not in TABLES or not relative.endswith(PARQUET):
        found.state, found.problem = State.FOREIGN, "belongs to no table"
    else:
        try:
            with target.filesystem.open_input_file(info.path) as file:
                _open(found, file)
        except (pa.ArrowException, OSError) as error:
            found.state = State.FOREIGN
            found.problem = " ".join(str(error).split())[:200]
    return found


def _open(found: LakeFile, file: pa.NativeFile) -> None:
    head = file.read(4)
    if head != MAGIC:
        found.state, found.problem = State.FOREIGN, "not Parquet"
        return
    file.seek(max(0, found.size - 4))
    if found.size < 12 or file.read(4) != MAGIC:
        found.state, found.problem = State.TRUNCATED, "ends before its footer"
        return
    file.seek(0)
    try:
        parquet = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        found.state, found.problem = State.TRUNCATED, f"its footer cannot be read: {error}"
        return
    _read_metadata(found, parquet)


def _read_metadata(found: LakeFile, parquet: pq.ParquetFile) -> None:
    metadata = parquet.metadata
    told = metadata.metadata or {}
    table = TABLES[found.table]
    schema = arrow_schema(table)
    columns = parquet.schema_arrow
    found.rows = metadata.num_rows
    found.node = told.get(META_NODE, b"").decode(errors="replace")
    found.level = told.get(META_LEVEL, b"").decode(errors="replace")
    found.unknown = tuple(name for name in columns.names if name not in schema.names)
    found.missing = tuple(name for name in schema.names if name not in columns.names)
    named = told.get(META_TABLE, found.table.encode()).decode(errors="replace")
    if named != found.table:
        found.state, found.problem = State.FOREIGN, f"is a file of table {named!r}"
        return
    if META_TABLE not in told and not {"ts", "node"} <= set(columns.names):
        found.state, found.problem = State.FOREIGN, "has not the columns of the table"
        return
    wrong = [
        f"{name} is {columns.field(name).type}"
        for name in schema.names
        if name in columns.names and not _fits(columns.field(name).type, schema.field(name).type)
    ]
    if wrong:
        found.state, found.problem = State.FOREIGN, f"a column has another type: {', '.join(wrong)}"
        return
    try:
        found.schema = int(told.get(META_SCHEMA, b"0"))
    except ValueError:
        found.schema = 0
    if found.schema > table.version:
        found.state, found.problem = State.NEWER, f"schema {found.schema}, known is {table.version}"
    found.first, found.last = _span(metadata, columns.names.index("ts") if "ts" in columns.names else -1)
    if found.hour is None:
        found.state, found.problem = State.MISPLACED, "not in a folder date=…/hour=…"
    elif (
        found.first is not None
        and found.last is not None
        and not found.hour <= found.first <= found.last < found.hour + HOUR
    ):
        found.state = State.MISPLACED
        found.problem = f"has rows from {found.first:%Y-%m-%d %H:%M} to {found.last:%Y-%m-%d %H:%M}"


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(found))
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found))
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(found)) and _fits(found.value_type, wanted.value_type)
    return bool(found == wanted)


def _span(metadata: Any, column: int) -> tuple[datetime | None, datetime | None]:
    """First and last `ts`, from the statistics; None without."""
    low: list[datetime] = []
    high: list[datetime] = []
    for number in range(metadata.num_row_groups if column >= 0 else 0):
        statistics = metadata.row_group(number).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            return None, None
        low.append(_aware(statistics.min))
        high.append(_aware(statistics.max))
    return (min(low), max(high)) if low else (None, None)


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def mark_duplicates(target: Target, files: list[LakeFile]) -> None:
    """Files with the same bytes under another name count once; the first by name stays."""
    alike: dict[tuple[str, int, int], list[LakeFile]] = {}
    for each in files:
        if each.state.is_data:
            alike.setdefault((each.table, each.size, each.rows), []).append(each)
    for group in alike.values():
        if len(group) < 2:
            continue
        seen: dict[str, str] = {}
        for each in group:
            digest = hashlib.sha256(target.read(each.path)).hexdigest()
            first = seen.setdefault(digest, each.path)
            if first != each.path:
                each.state, each.problem = State.DUPLICATE, f"the same as {first}"


def summaries(files: list[LakeFile]) -> dict[str, Summary]:
    """By table, of files that count."""
    found: dict[str, Summary] = {}
    for each in files:
        if not each.state.is_data:
            continue
        entry = found.setdefault(each.table, Summary())
        entry.files += 1
        entry.rows += each.rows
        entry.size += each.size
        entry.nodes.add(each.node)
        if each.hour is not None:
            entry.hours.add(each.hour)
        if each.first is not None:
            entry.first = each.first if entry.first is None else min(entry.first, each.first)
        if each.last is not None:
            entry.last = each.last if entry.last is None else max(entry.last, each.last)
    return dict(sorted(found.items()))
