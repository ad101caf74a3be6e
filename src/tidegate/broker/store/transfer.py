"""A store as JSON lines and back: to look at, to move, to rescue.

The first line names the format, the last one counts what is between, so that a file that was cut is not taken for a
whole one. Each line between is one row: `{"table": "queue", "session_id": 1, …}`. Topics and filters are text,
payloads and properties Base64. Both directions stream: memory does not grow with the store.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from tidegate.broker.store.errors import StoreError
from tidegate.broker.store.maintenance import EXPORTED, locked, opened, store_path
from tidegate.broker.store.schema import ADDED, VERSION, connect, prepare
from tidegate.broker.store.store import FILE_NAME
from tidegate.private import make_folder

FORMAT = "tidegate-store"
TEXT = {"topic", "topic_filter"}  # bytes in the store, always UTF-8: they came in MQTT strings
BASE64 = {"payload", "properties"}
ROWS_PER_TRANSACTION = 10_000


def export_store(folder: Path, out: TextIO) -> Counter[str]:
    """Write every row; gives the number of rows of each table."""
    path = store_path(folder)
    counts: Counter[str] = Counter()
    with locked(path), opened(path, read_only=True) as db:
        _write_line(out, {"format": FORMAT, "schema": VERSION})
        for table in EXPORTED:
            cursor = db.execute(f"SELECT * FROM {table}")  # noqa: S608
            names = [column[0] for column in cursor.description]
            while rows := cursor.fetchmany(1_000):
                for row in rows:
                    _write_line(out, {"table": table} | _plain_row(path, table, names, row))
                counts[table] += len(rows)
        _write_line(out, {"end": dict(counts)})
    return counts


def export_file(folder: Path, target: Path) -> Counter[str]:
    """`export_store` to a file that appears when it is complete."""
    draft = target.with_name(f".{target.name}.part")
    try:
        draft.touch(0o600)
        with draft.open("w", encoding="utf-8") as out:
            counts = export_store(folder, out)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(target)
    except OSError as error:
        raise StoreError(target, error.strerror or str(error), "choose another file") from error
    finally:
        draft.unlink(missing_ok=True)
    return counts


def _write_line(out: TextIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def _plain_row(path: Path, table: str, names: list[str], row: tuple[Any, ...]) -> dict[str, Any]:
    try:
        return dict(zip(names, map(_plain, names, row), strict=True))
    except (AttributeError, TypeError, UnicodeDecodeError) as error:
        problem = f"{table} {row[0]} cannot be exported: {error}"
        raise StoreError(path, problem, "`tidegate store check` names what is wrong") from error


def _plain(name: str, value: Any) -> Any:
    if name in TEXT:
        return value.decode()
    return base64.b64encode(value).decode() if name in BASE64 else value


def import_store(source: Iterable[str], folder: Path, name: str = "input") -> Counter[str]:
    """Make a store of exported lines, in a folder that has none; it appears when it is complete."""
    path = folder / FILE_NAME
    try:
        make_folder(folder)
        strangers = [entry.name for entry in folder.iterdir() if entry.name != FILE_NAME + ".lock"]
    except OSError as error:
        raise StoreError(path, error.strerror or str(error), "name a folder you can write to") from error
    leftovers = {FILE_NAME + ".import" + suffix for suffix in ("", "-wal", "-shm")}
    if not leftovers.issuperset(strangers):
        raise StoreError(folder, "is not empty", "import into a new folder")
    draft = path.with_name(FILE_NAME + ".import")
    with locked(path):
        _remove(draft)
        try:
            db = connect(draft)
            try:
                prepare(db, draft)
                counts = _fill(db, source, name)
            finally:
                db.close()
            draft.rename(path)
        except sqlite3.Error as error:
            raise StoreError(name, str(error), "export the store again") from error
        finally:
            _remove(draft)
    return counts


def _remove(draft: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _fill(db: sqlite3.Connection, source: Iterable[str], name: str) -> Counter[str]:
    statements = {}
    for table in EXPORTED:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        marks = ",".join("?" * len(columns))
        statements[table] = (f"INSERT INTO {table} ({','.join(columns)}) VALUES ({marks})", columns)  # noqa: S608
    counts: Counter[str] = Counter()
    end: dict[str, int] | None = None
    db.execute("BEGIN")
    for number, row in _rows(source, name):
        if end is not None:
            raise StoreError(name, f"line {number}: nothing may follow the end")
        if "end" in row:
            end = row["end"]
            continue
        table = row.pop("table", None)
        if table not in statements:
            raise StoreError(name, f"line {number}: unknown table {table!r}")
        statement, columns = statements[table]
        if row.keys() != set(columns):
            odd = ", ".join(sorted(row.keys() ^ set(columns)))
            raise StoreError(name, f"line {number}: columns of {table} do not fit: {odd}")
        try:
            db.execute(statement, [_stored(column, row[column]) for column in columns])
        except (ValueError, TypeError, AttributeError, OverflowError, sqlite3.Error, binascii.Error) as error:
            raise StoreError(name, f"line {number}: {error}") from error
        counts[table] += 1
        if counts.total() % ROWS_PER_TRANSACTION == 0:
            db.execute("COMMIT")
            db.execute("BEGIN")
    db.execute("COMMIT")
    if end is None:
        raise StoreError(name, "has no end: it was cut", "export the store again")
    if Counter(end) != counts:
        raise StoreError(name, "has not the rows its end counts", "export the store again")
    return counts


def _rows(source: Iterable[str], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and what the lines hold, behind the first one, which must name format and schema."""
    is_first = True
    schema: Any = VERSION
    for number, line in enumerate(source, 1):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise StoreError(name, f"line {number} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise StoreError(name, f"line {number} is not an object")
        if is_first:
            is_first = False
            schema = value.get("schema")
            if value.get("format") != FORMAT or schema not in range(1, VERSION + 1):
                raise StoreError(
                    name, f"is no export of schema 1 to {VERSION}", "export with this version of Tidegate"
                )
            continue
        for version in range(schema, VERSION):
            value = ADDED[version].get(value.get("table", ""), {}) | value
        yield number, value


def _stored(name: str, value: Any) -> Any:
    if name in TEXT:
        return value.encode()
    return base64.b64decode(value, validate=True) if name in BASE64 else value
