"""What can be read of a damaged store file, as a new one.

Each table is read from its beginning and from its end up to the damage. What lies between is asked for by key: numbers
by halving what is left, all else by the sessions and messages that were found. Rows that make no sense, or whose
session or message is lost, are left out.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tidegate.broker.store.maintenance import EXPORTED
from tidegate.broker.store.schema import ADDED, VERSION, connect, prepare

log = logging.getLogger("tidegate.store")

Row: TypeAlias = tuple[Any, ...]
PROBES = 100_000  # keys that are asked for in the midst of one table
UNSURE = "\ufffd"  # stands where text could not be decoded

# What is wrong with a row that was read all the same, and what has lost what it belongs to.
SENSELESS = (
    ("session", "expiry NOT BETWEEN 0 AND 4294967295 OR version NOT IN (3, 4, 5) OR typeof(sent_seq) != 'integer'"),
    ("message", "qos NOT IN (0, 1, 2) OR typeof(topic) != 'blob' OR length(topic) NOT BETWEEN 1 AND 65535"),
    ("message", "typeof(payload) != 'blob' OR typeof(properties) != 'blob'"),
    ("subscription", "qos NOT IN (0, 1, 2) OR typeof(topic_filter) != 'blob'"),
    ("subscription", "length(topic_filter) NOT BETWEEN 1 AND 65535"),
    ("queue", "seq < 1 OR qos NOT IN (1, 2) OR released NOT IN (0, 1) OR released > qos - 1"),
    ("queue", "typeof(size) != 'integer' OR share NOT LIKE '$share/_%/_%'"),
    ("inbound", "packet_identifier NOT BETWEEN 1 AND 65535"),
    ("will", "qos NOT IN (0, 1, 2) OR typeof(topic) != 'blob' OR length(topic) NOT BETWEEN 1 AND 65535"),
    ("subscription", "session_id NOT IN (SELECT id FROM session)"),
    ("queue", "session_id NOT IN (SELECT id FROM session) OR message_id NOT IN (SELECT id FROM message)"),
    ("inbound", "session_id NOT IN (SELECT id FROM session)"),
    ("retained", "message_id NOT IN (SELECT m.id FROM message m WHERE m.topic = retained.topic)"),
)


@dataclass(slots=True)
class Salvage:
    """Rows of each table that were saved, and what is known of those that were not."""

    saved: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    """At least so many; tables that were read whole are not named."""

    def as_text(self) -> str:
        found = ", ".join(f"{count} {table}" for table, count in self.saved.items() if table != "clock" and count)
        gone = ", ".join(f"at least {count} {table}" for table, count in self.lost.items())
        return f"saved: {found or 'nothing'}; lost: {gone or 'nothing that could be counted'}"


def salvage(damaged: Path, fresh: Path) -> Salvage:
    """Make a new file of a damaged one, which stays as it is; `fresh` must not exist."""
    outcome = Salvage()
    out = connect(fresh)
    try:
        prepare(out, fresh)
        source = _open(damaged)
        if source is not None:
            try:
                _Reading(source, out, outcome).run()
            finally:
                source.close()
        _leave_out_senseless(out, outcome)
        for table in EXPORTED:
            outcome.saved[table] = out.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
    finally:
        out.close()
    return outcome


def _open(damaged: Path) -> sqlite3.Connection | None:
    try:
        source = connect(damaged, read_only=True)
        source.text_factory = lambda data: data.decode(errors="replace")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        log.error("nothing of the damaged store can be read", extra={"file": str(damaged), "error": str(error)})
        return None
    return source


def _leave_out_senseless(out: sqlite3.Connection, outcome: Salvage) -> None:
    for table, condition in SENSELESS:
        count = out.execute(f"DELETE FROM {table} WHERE {condition}").rowcount  # noqa: S608
        if count > 0:
            outcome.lost[table] = outcome.lost.get(table, 0) + count


class _Reading:
    """From one file to the other."""

    def __init__(self, source: sqlite3.Connection, out: sqlite3.Connection, outcome: Salvage) -> None:
        self._source = source
        self._out = out
        self._outcome = outcome

    def run(self) -> None:
        by_session = ("session_id", lambda: self._known("SELECT id FROM session"))
        self._table("session", "id", None)
        self._table("message", "id", None)
        self._table("subscription", "session_id, topic_filter", by_session)
        self._table("queue", "session_id, seq", by_session)
        self._table("inbound", "session_id, packet_identifier", by_session)
        self._table("retained", "topic", ("topic", lambda: self._known("SELECT DISTINCT topic FROM message")))
        self._table("will", "client_id", ("client_id", lambda: self._known("SELECT client_id FROM session")))
        self._table("clock", "id", None)

    def _known(self, query: str) -> list[Any]:
        return [row[0] for row in self._out.execute(query).fetchmany(PROBES)]

    def _table(self, table: str, key: str, between: tuple[str, Callable[[], Iterable[Any]]] | None) -> None:
        """`between`: a column, and its values to ask for where the table cannot be read in order."""
        columns = self._columns(table)
        if columns is None:
            return
        select = f"SELECT {columns} FROM {table}"  # noqa: S608
        backwards = ", ".join(f"{each} DESC" for each in key.split(", "))
        insert = f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * (columns.count(',') + 1))})"  # noqa: S608
        before = self._expected(table)
        first = self._copy(insert, self._read(f"{select} ORDER BY {key}"))
        if first.is_whole:
            return
        last = self._copy(insert, self._read(f"{select} ORDER BY {backwards}"))
        if between is not None:
            name, values = between
            for value in values():
                self._copy(insert, self._read(f"{select} WHERE {name} = ?", value))
        elif first.row is not None and last.row is not None:
            self._halve(select, insert, first.row[0], last.row[0])
        found = self._out.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        self._outcome.lost[table] = max(1, before - found)

    def _halve(self, select: str, insert: str, low: Any, high: Any) -> None:
        """Rows with a number between these two: ask in the middle, then for both halves of what is left."""
        gaps = [(low, high)]
        for _ in range(PROBES):
            if not gaps:
                return
            low, high = gaps.pop()
            if not isinstance(low, int) or not isinstance(high, int) or high - low < 2:
                continue
            middle = (low + high) // 2
            up = self._copy(insert, self._read(f"{select} WHERE id >= ? AND id < ? ORDER BY id", middle, high))
            down = self._copy(
                insert, self._read(f"{select} WHERE id < ? AND id > ? ORDER BY id DESC", middle, low)
            )
            if not up.is_whole:
                gaps.append((middle if up.row is None else up.row[0], high))
            if not down.is_whole:
                gaps.append((low, middle if down.row is None else down.row[0]))

    def _columns(self, table: str) -> str | None:
        """Those of today's schema, with what older files have not."""
        wanted = [row[1] for row in self._out.execute(f"PRAGMA table_info({table})")]
        try:
            there = {row[1] for row in self._source.execute(f"PRAGMA table_info({table})")}
        except sqlite3.DatabaseError:
            there = set()
        added = {name for version in range(1, VERSION) for name in ADDED[version].get(table, {})}
        if not there or not set(wanted) - added <= there:
            return None
        return ",".join(name if name in there else "NULL" for name in wanted)

    def _expected(self, table: str) -> int:
        try:
            return int(self._source.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608
        except sqlite3.DatabaseError:
            return 0

    def _read(self, query: str, *values: Any) -> Iterator[Row | None]:
        """Rows, and None at the end if that is where the damage begins."""
        try:
            yield from self._source.execute(query, values)
        except (sqlite3.DatabaseError, OverflowError, MemoryError):
            yield None

    def _copy(self, insert: str, rows: Iterator[Row | None]) -> _Copied:
        done = _Copied()
        self._out.execute("BEGIN")
        for row in rows:
            if row is None:
                done.is_whole = False
                break
            done.row = row
            if not any(isinstance(value, str) and UNSURE in value for value in row):
                self._insert(insert, row)
        self._out.execute("COMMIT")
        return done

    def _insert(self, insert: str, row: Row) -> None:
        try:
            self._out.execute(insert, row)
        except sqlite3.IntegrityError:  # a value where there must be one
            pass


@dataclass(slots=True)
class _Copied:
    """Whether all was read, and the last row."""

    is_whole: bool = True
    row: Row | None = None
