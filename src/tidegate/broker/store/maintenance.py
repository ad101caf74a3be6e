"""Work on a store file while no broker uses it: check, compact. `transfer.py` exports and imports.

All of it takes the broker's lock, so neither can start while the other is at work. Compaction is one transaction of
SQLite's own: a kill at any moment leaves the old file or the new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.broker.store.errors import StoreError
from tidegate.broker.store.lock import Lock
from tidegate.broker.store.schema import VERSION, connect, refuse_strangers
from tidegate.broker.store.store import FILE_NAME

TABLES = ("session", "subscription", "queue", "message", "inbound", "retained", "will")
EXPORTED = (*TABLES, "clock")
MAX_PROBLEMS = 100  # of one kind; a file with more is not read any better for naming them all

# What each row must have, and a query for those that do not, with a column that names the row.
RULES = {
    "queue entry of a session that does not exist":
        "SELECT q.session_id || '/' || q.seq FROM queue q LEFT JOIN session s ON s.id = q.session_id "
        "WHERE s.id IS NULL",
    "queue entry whose message does not exist":
        "SELECT q.session_id || '/' || q.seq FROM queue q LEFT JOIN message m ON m.id = q.message_id "
        "WHERE m.id IS NULL",
    "queue entry with impossible values":
        "SELECT session_id || '/' || seq FROM queue "
        "WHERE seq < 1 OR qos NOT IN (1, 2) OR released NOT IN (0, 1) OR released > qos - 1 "
        "OR share NOT LIKE '$share/_%/_%'",
    "subscription of a session that does not exist":
        "SELECT u.session_id || ' ' || CAST(u.topic_filter AS TEXT) FROM subscription u "
        "LEFT JOIN session s ON s.id = u.session_id WHERE s.id IS NULL",
    "subscription with impossible values":
        "SELECT session_id || ' ' || CAST(topic_filter AS TEXT) FROM subscription "
        "WHERE qos NOT IN (0, 1, 2) OR length(topic_filter) NOT BETWEEN 1 AND 65535",
    "received packet identifier of a session that does not exist":
        "SELECT i.session_id || '/' || i.packet_identifier FROM inbound i "
        "LEFT JOIN session s ON s.id = i.session_id WHERE s.id IS NULL",
    "impossible packet identifier":
        "SELECT session_id || '/' || packet_identifier FROM inbound "
        "WHERE packet_identifier NOT BETWEEN 1 AND 65535",
    "retained topic whose message does not exist":
        "SELECT CAST(r.topic AS TEXT) FROM retained r LEFT JOIN message m ON m.id = r.message_id "
        "WHERE m.id IS NULL",
    "retained topic with the message of another":
        "SELECT CAST(r.topic AS TEXT) FROM retained r JOIN message m ON m.id = r.message_id "
        "WHERE m.topic != r.topic",
    "message with impossible values":
        "SELECT id FROM message WHERE qos NOT IN (0, 1, 2) OR length(topic) NOT BETWEEN 1 AND 65535",
    "will with impossible values":
        "SELECT client_id FROM will WHERE qos NOT IN (0, 1, 2) OR length(topic) NOT BETWEEN 1 AND 65535",
}  # fmt: skip
ORPHANS = "FROM message WHERE id NOT IN (SELECT message_id FROM queue UNION SELECT message_id FROM retained)"


@dataclass(slots=True, kw_only=True)
class Findings:
    """Rows of each table; messages that nothing refers to, which a crash may leave; what is wrong."""

    counts: dict[str, int] = field(default_factory=dict)
    orphans: int = 0
    size_bytes: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Compaction:
    """Size of the file before and after, and how many messages had no owner."""

    before_bytes: int
    after_bytes: int
    orphans: int


def store_path(folder: Path) -> Path:
    """The file in a data folder; raises if there is none."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise StoreError(path, "does not exist", "name the folder that `tidegate serve --data` uses")
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep brokers and other commands out; raises StoreError while one is at work."""
    try:
        lock = Lock(path)
    except OSError as error:
        raise StoreError(path, error.strerror or str(error), "the folder must be writable") from error
    except StoreError as error:
        error.hint = "stop the broker that uses this folder first"
        raise
    try:
        yield
    finally:
        lock.release()


@contextmanager
def opened(path: Path, *, read_only: bool) -> Iterator[sqlite3.Connection]:
    """A connection to a file of this version; what SQLite finds wrong becomes a StoreError."""
    try:
        db = connect(path, read_only=read_only)
        try:
            check_version(db, path)
            yield db
        finally:
            db.close()
    except sqlite3.Error as error:
        raise StoreError(path, str(error), "`tidegate store check` names what is wrong") from error


def check_version(db: sqlite3.Connection, path: Path) -> None:
    refuse_strangers(db, path)
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version < VERSION:
        raise StoreError(
            path,
            f"has schema {version}, this Tidegate writes {VERSION}",
            "start a broker on it once: it migrates",
        )


def check(folder: Path) -> Findings:
    """Read the whole file: its structure, and whether its rows fit together. Changes nothing."""
    path = store_path(folder)
    findings = Findings(size_bytes=path.stat().st_size)
    with locked(path):
        if not findings.size_bytes:
            findings.problems.append("the file is empty")
            return findings
        try:
            db = connect(path, read_only=True)
            try:
                check_version(db, path)
                _check(db, findings)
            finally:
                db.close()
        except sqlite3.Error as error:
            findings.problems.append(str(error))
    return findings


def _check(db: sqlite3.Connection, findings: Findings) -> None:
    for (line,) in db.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
        if line != "ok":
            findings.problems.append(" ".join(str(line).split()))
    for table in TABLES:
        findings.counts[table] = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
    for name, query in RULES.items():
        for (row,) in db.execute(f"{query} LIMIT {MAX_PROBLEMS}"):
            findings.problems.append(f"{name}: {row}")
    findings.orphans = db.execute(f"SELECT count(*) {ORPHANS}").fetchone()[0]


def compact(folder: Path) -> Compaction:
    """Delete messages without owner and give free pages back; needs as much free disk as the file is large."""
    path = store_path(folder)
    with locked(path), opened(path, read_only=False) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = path.stat().st_size
        orphans = db.execute(f"DELETE {ORPHANS}").rowcount
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Compaction(before_bytes=before, after_bytes=path.stat().st_size, orphans=orphans)
