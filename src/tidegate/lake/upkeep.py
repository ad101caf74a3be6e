"""Compaction and retention: many small files of one hour become one, and old hours go.

Readers may be at work meanwhile. A compacted file gets its name first and the small ones are deleted afterwards; it
says in its metadata which ones it replaces, and they are hidden (renamed to a name that begins with `_`) before they
are deleted. A crash in between leaves files twice for a moment: `check` and the next `compact` recognise them by that
list and finish the work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.lake.arrow import arrow_schema, file_metadata, writer_options
from tidegate.lake.catalog import LakeFile, State, mark_duplicates, scan
from tidegate.lake.errors import LakeError
from tidegate.lake.target import Target
from tidegate.schema import META_LEVEL, META_NODE, META_REPLACES, PARQUET, TABLES, TEMPORARY, replaced_names

SETTLED = timedelta(minutes=5)  # an hour that ended so long ago gets no more files
STALE = timedelta(hours=1)  # a temporary file that nobody wrote to for so long was left behind
FAILURES = (OSError, pa.ArrowException)

Say = Callable[[str], None]


@dataclass(slots=True)
class Done:
    """What was done, or would be."""

    files: int = 0
    into: int = 0
    rows: int = 0
    freed: int = 0  # bytes


def compact(
    target: Target,
    *,
    tables: tuple[str, ...] = (),
    now: datetime | None = None,
    least: int = 2,
    include_current: bool = False,
    say: Say = lambda _line: None,
) -> Done:
    """One file for each table, hour and node, where there are at least `least`; raises LakeError."""
    now = now or datetime.now(UTC)
    done = Done()
    files = list(scan(target, tables))
    _finish(target, files, say)
    mark_duplicates(target, files)
    groups: dict[tuple[str, datetime, str], list[LakeFile]] = {}
    for each in files:
        if each.state is State.DUPLICATE:
            _hide_and_delete(target, each.path)
            done.files += 1
            done.freed += each.size
        elif (
            each.state is State.GOOD
            and each.hour is not None
            and (include_current or each.hour + timedelta(hours=1) + SETTLED <= now)
        ):
            groups.setdefault((each.table, each.hour, each.node), []).append(each)
    for (table, _hour, _node), group in sorted(groups.items()):
        if len(group) < least:
            continue
        size, rows = _merge(target, table, group)
        done.files += len(group)
        done.into += 1
        done.rows += rows
        done.freed += sum(each.size for each in group) - size
        say(f"{PurePosixPath(group[0].path).parent}: {len(group)} files into one of {rows} rows")
    return done


def _merge(target: Target, table: str, group: list[LakeFile]) -> tuple[int, int]:
    """Write the one, then remove the many; gives bytes and rows of the one."""
    known = TABLES[table]
    schema = arrow_schema(known)
    group.sort(key=lambda each: each.path)
    names = [PurePosixPath(each.path).name for each in group]
    token = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    folder = PurePosixPath(group[0].path).parent
    stem = names[0].removesuffix(PARQUET).removesuffix(".all")
    path = str(folder / f"{stem}.{token}.all{PARQUET}")
    pending = target.create(path)
    rows = 0
    try:
        with pq.ParquetWriter(pending.stream, schema, **writer_options(known)) as writer:
            for each in group:
                rows += _copy(target, each, schema, writer)
            writer.add_key_value_metadata(
                file_metadata(known)
                | {
                    META_NODE: group[0].node.encode(),
                    META_LEVEL: _level(group).encode(),
                    META_REPLACES: json.dumps(names).encode(),
                }
            )
        size = pending.tell()
        pending.commit()
    except FAILURES as error:
        pending.abort()
        raise LakeError(
            path, f"cannot be written: {error}", "nothing was changed; check the disk and the file it names"
        ) from error
    for each in group:
        _hide_and_delete(target, each.path)
    return size, rows


def _level(group: list[LakeFile]) -> str:
    """What all of them are of; empty, which readers take for either, if they differ."""
    levels = {each.level for each in group}
    return levels.pop() if len(levels) == 1 else ""


def _copy(target: Target, each: LakeFile, schema: pa.Schema, writer: pq.ParquetWriter) -> int:
    rows = 0
    with target.filesystem.open_input_file(target.path(each.path)) as file:
        parquet = pq.ParquetFile(file)
        for number in range(parquet.num_row_groups):
            data = parquet.read_row_group(number)
            arrays = [
                data[field.name].cast(field.type)
                if field.name in data.column_names
                else pa.nulls(data.num_rows, field.type)
                for field in schema
            ]
            writer.write_table(pa.table(arrays, schema=schema))
            rows += data.num_rows
    return rows


def replaced(target: Target, path: str) -> list[str]:
    """Names that a compacted file stands for; none for any other file."""
    try:
        with target.filesystem.open_input_file(target.path(path)) as file:
            return replaced_names(pq.read_metadata(file).metadata)
    except FAILURES:
        return []


def mark_replaced(target: Target, files: Iterable[LakeFile]) -> None:
    """Files that a compacted one stands for, and that a crash left, are duplicates."""
    by_path = {each.path: each for each in files}
    for each in list(by_path.values()):
        if each.state.is_data and each.path.endswith(f".all{PARQUET}"):
            folder = PurePosixPath(each.path).parent
            for name in replaced(target, each.path):
                old = by_path.get(str(folder / name))
                if old is not None and old is not each and old.state.is_data:
                    old.state, old.problem = State.DUPLICATE, f"is part of {each.path}"


def _finish(target: Target, files: list[LakeFile], say: Say) -> None:
    """Complete what an interrupted compaction left."""
    mark_replaced(target, files)
    for each in files:
        if each.state is State.DUPLICATE:
            say(f"{each.path}: {each.problem}; deleted")


def prune(
    target: Target,
    *,
    older_than: timedelta | None = None,
    tables: tuple[str, ...] = (),
    now: datetime | None = None,
    is_dry: bool = False,
    say: Say = lambda _line: None,
) -> Done:
    """Delete hours that ended longer ago than that, and temporary files that nobody writes to any more."""
    now = now or datetime.now(UTC)
    done = Done()
    for each in list(scan(target, tables)):
        is_old = (
            older_than is not None
            and each.hour is not None
            and not each.is_hidden
            and each.table in TABLES
            and each.hour + timedelta(hours=1) <= now - older_than
        )
        is_left = each.state is State.TEMPORARY and each.table in TABLES and each.modified < now - STALE
        if not (is_old or is_left):
            continue
        done.files += 1
        done.rows += each.rows
        done.freed += each.size
        say(f"{'would delete' if is_dry else 'deleted'} {each.path}")
        if not is_dry:
            try:
                target.delete(each.path)
            except FAILURES as error:
                raise LakeError(each.path, f"cannot be deleted: {error}", "check its rights") from error
    return done


def _hide_and_delete(target: Target, path: str) -> None:
    """A reader that lists files now does not see it any more; one that has it open reads on."""
    at = PurePosixPath(path)
    hidden = str(at.with_name(f"{TEMPORARY}old-{at.name}"))
    try:
        target.move(path, hidden)
        target.delete(hidden)
    except FileNotFoundError:
        pass  # another compaction was faster
    except FAILURES as error:
        raise LakeError(path, f"cannot be removed: {error}", "run compact again") from error
