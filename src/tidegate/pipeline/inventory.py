"""The files of a lake before Spark reads them: what is there, what is fit to be read, and what is wrong with the rest.

Only footers are read. They tell a truncated or foreign file, an older version, a copy of another file, its level, and
by the statistics of `ts` whether rows lie outside their hour. So a healthy file costs Spark no check per row, and an
unhealthy one is named rather than failing a job or bending its result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidegate.pipeline.errors import PipelineError
from tidegate.schema import (
    META_LEVEL,
    META_SCHEMA,
    META_TABLE,
    PARQUET,
    TEMPORARY,
    Table,
    Type,
    partition_start,
    replaced_names,
)

THREADS: Final = 8
HOUR: Final = timedelta(hours=1)

ARROW: Final = {
    Type.STRING: pa.types.is_string,
    Type.BOOL: pa.types.is_boolean,
    Type.INT16: pa.types.is_int16,
    Type.INT32: pa.types.is_int32,
    Type.INT64: pa.types.is_int64,
    Type.FLOAT64: pa.types.is_float64,
    Type.TIMESTAMP: pa.types.is_timestamp,
    Type.LIST_INT16: pa.types.is_list,
    Type.LIST_INT64: pa.types.is_list,
    Type.LIST_FLOAT64: pa.types.is_list,
}


@dataclass(slots=True, kw_only=True, frozen=True)
class LakeFile:
    """A file that can be read. `is_displaced`: some `ts` lie outside its hour, and those rows must be left out."""

    path: str
    hour: datetime
    rows: int
    size: int
    fingerprint: str
    level: str = ""  # full or summary; empty: both may be in it
    is_displaced: bool = False
    replaces: frozenset[str] = frozenset()  # names of files of its folder that it was compacted from


# Of a lake that is written while it is read: told, and nothing to mend.
USUAL: Final = frozenset({"late", "open-hour"})


@dataclass(slots=True, kw_only=True, frozen=True)
class Issue:
    """A row of the data-quality table."""

    kind: str
    table: str
    subject: str
    count: int
    detail: str


@dataclass(slots=True)
class Inventory:
    """Files of one table within a time, and what is wrong."""

    table: Table
    files: list[LakeFile] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def hours(self) -> list[datetime]:
        return sorted({each.hour for each in self.files})

    def within(self, hours: Iterable[datetime]) -> Inventory:
        """The files of some hours only."""
        wanted = set(hours)
        return Inventory(self.table, [each for each in self.files if each.hour in wanted], [])

    def at_level(self, level: str) -> Inventory:
        """The files that may have rows of a level."""
        return Inventory(self.table, [each for each in self.files if each.level in (level, "")], [])

    def fingerprints(self) -> dict[str, str]:
        """For each hour what it was made from: changes if a file comes, goes or differs."""
        found: dict[str, list[str]] = {}
        for each in self.files:
            found.setdefault(f"{each.hour:%Y-%m-%dT%H}", []).append(each.fingerprint)
        return {
            hour: hashlib.sha256("".join(sorted(parts)).encode()).hexdigest()[:16]
            for hour, parts in found.items()
        }


def open_filesystem(place: str) -> tuple[fs.FileSystem, str]:
    """The file system and the path in it. `s3a`, as Hadoop writes it, is `s3` here."""
    if "://" not in place:
        return fs.LocalFileSystem(), place.rstrip("/") or "/"
    try:
        filesystem, path = fs.FileSystem.from_uri(place.replace("s3a://", "s3://", 1))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise PipelineError(
            f"{place}: no such file system: {error}", "use a folder, file://, s3a:// or hdfs://"
        ) from error
    return filesystem, path.rstrip("/")


def take_inventory(
    lake: str, table: Table, since: datetime | None = None, until: datetime | None = None
) -> Inventory:
    """List and check a table, but no hours outside of the time. Raises `PipelineError` if there is no lake."""
    filesystem, root = open_filesystem(lake)
    if filesystem.get_file_info(root).type != fs.FileType.Directory:
        raise PipelineError(
            f"{lake}: there is no such folder", "--lake names the folder that holds publish/, load/, …"
        )
    found = Inventory(table)
    listed: list[tuple[str, datetime, int]] = []
    selector = fs.FileSelector(f"{root}/{table.name}", allow_not_found=True, recursive=True)
    for info in sorted(filesystem.get_file_info(selector), key=lambda each: each.path):
        inside = info.path[len(root) + 1 :]
        if not info.is_file or any(part[:1] in (TEMPORARY, ".") for part in inside.split("/")):
            continue  # being written, or not data
        hour = partition_start(inside)
        if hour is None or not info.path.endswith(PARQUET):
            found.issues.append(
                Issue(
                    kind="foreign",
                    table=table.name,
                    subject=inside,
                    count=1,
                    detail="not a file of a lake: passed over",
                )
            )
        elif (since is None or hour + HOUR > since) and (until is None or hour < until):
            listed.append((info.path, hour, info.size))
    with ThreadPoolExecutor(THREADS) as pool:
        checked = list(pool.map(lambda each: _check(filesystem, root, table, *each), listed))
    seen: dict[str, str] = {}
    # A compaction that is under way, or was cut off, leaves both a file and those that it stands for.
    replaced = {
        f"{file.path.rpartition('/')[0]}/{name}": file.path[len(root) + 1 :]
        for file, _ in checked
        if file is not None
        for name in file.replaces
    }
    for file, issues in checked:
        found.issues.extend(issues)
        if file is None:
            continue
        inside = file.path[len(root) + 1 :]
        original = replaced.get(file.path) or seen.get(file.fingerprint)
        if original is not None:
            found.issues.append(
                Issue(
                    kind="duplicate",
                    table=table.name,
                    subject=inside,
                    count=file.rows,
                    detail=f"all of it is in {original}: passed over",
                )
            )
            continue
        seen[file.fingerprint] = inside
        found.files.append(file)
    return found


def _check(
    filesystem: fs.FileSystem, root: str, table: Table, path: str, hour: datetime, size: int
) -> tuple[LakeFile | None, list[Issue]]:
    inside = path[len(root) + 1 :]

    def issue(kind: str, count: int, detail: str) -> Issue:
        return Issue(kind=kind, table=table.name, subject=inside, count=count, detail=detail)

    try:
        with filesystem.open_input_file(path) as source:
            footer = pq.read_metadata(source)
            fingerprint = _fingerprint(source, size)
    except FileNotFoundError:
        return None, [issue("vanished", 1, "was there when the folder was listed: compacted or pruned")]
    except (pa.ArrowException, OSError) as error:
        return None, [issue("truncated", 1, f"not a whole Parquet file: {str(error).splitlines()[0][:120]}")]
    schema = footer.schema.to_arrow_schema()
    known = footer.metadata or {}
    claimed = known.get(META_TABLE)
    if claimed is not None and claimed.decode() != table.name:
        return None, [issue("foreign", footer.num_rows, f"holds rows of {claimed.decode()}: passed over")]
    wrong = _wrong_columns(table, schema)
    if wrong:
        return None, [issue("foreign", footer.num_rows, f"{wrong}: passed over")]
    issues = []
    unknown = sorted(set(schema.names) - set(table.names))
    if unknown:
        issues.append(issue("unknown-columns", len(unknown), f"ignored: {', '.join(unknown[:5])}"))
    told = known.get(META_SCHEMA, b"")
    version = int(told) if told.isdigit() else 0
    if version > table.version:
        issues.append(
            issue("newer", footer.num_rows, f"schema {version}; this pipeline knows {table.version}")
        )
    # A file of this version may lack what would be null in all its rows.
    missing = [name for name in table.names if name not in schema.names] if version < table.version else []
    if missing:
        issues.append(issue("older", footer.num_rows, f"without {', '.join(missing[:5])}: read as null"))
    if footer.num_rows == 0:
        return None, issues
    first, last = _range(footer, "ts")
    is_displaced = (
        isinstance(first, datetime)
        and isinstance(last, datetime)
        and (_utc(first) < hour or _utc(last) >= hour + HOUR)
    )
    if is_displaced:
        issues.append(
            issue(
                "clock",
                footer.num_rows,
                f"rows from {first} to {last}: those outside of the hour are left out",
            )
        )
    level = known.get(META_LEVEL, b"").decode(errors="replace")
    file = LakeFile(
        path=path,
        hour=hour,
        rows=footer.num_rows,
        size=size,
        fingerprint=fingerprint,
        level=level if level in ("full", "summary") else "",
        is_displaced=is_displaced,
        replaces=frozenset(replaced_names(known)),
    )
    return file, issues


def _wrong_columns(table: Table, schema: pa.Schema) -> str:
    """Why these are not rows of the table; empty if they are."""
    for column in table.columns:
        at = schema.get_field_index(column.name)
        if at < 0:
            # Columns of the first version are in every file that was ever written.
            if column.is_required and column.since == 1:
                return f"has no column {column.name}"
        elif not ARROW[column.type](schema.field(at).type):
            return f"column {column.name} is {schema.field(at).type}, not {column.type}"
    return ""


def _range(footer: pq.FileMetaData, name: str) -> tuple[object, object]:
    """Least and greatest value of a column by the footer; None where it does not tell."""
    at = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == name), -1)
    least: list[object] = []
    greatest: list[object] = []
    for group in range(footer.num_row_groups if at >= 0 else 0):
        statistics = footer.row_group(group).column(at).statistics
        if statistics is not None and statistics.has_min_max:
            least.append(statistics.min)
            greatest.append(statistics.max)
    if not least:
        return None, None
    return min(least), max(greatest)  # type: ignore[type-var]


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _fingerprint(source: pa.NativeFile, size: int) -> str:
    """A footer holds the size and the statistics of every column chunk: two files that share it are one."""
    source.seek(size - 8)
    length = int.from_bytes(source.read(4), "little")
    source.seek(max(0, size - 8 - length))
    return hashlib.sha256(source.read(length) + size.to_bytes(8, "little")).hexdigest()[:32]
