"""Tables of the store file, and how older files become newer ones.

A message is stored once, whoever waits for it. `queue.seq` counts per session and decides the order; the packet
identifier follows from it (see `Session`), so sending a message writes nothing.
Times are those of the store's own clock (`clock.py`), near seconds since the epoch, so that they survive a restart.
"""

import os
import sqlite3
from pathlib import Path
from typing import Any

from tidegate.broker.store.errors import StoreError

VERSION = 3
APPLICATION_ID = 0x54494445  # "TIDE"

CLOCK = """
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    time REAL NOT NULL,         -- of the store
    wall REAL NOT NULL          -- of the machine at that moment
)
"""

TABLES = """
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    client_id TEXT NOT NULL UNIQUE,
    user TEXT,
    expiry INTEGER NOT NULL,
    version INTEGER NOT NULL,
    gone_at REAL,               -- NULL while connected
    sent_seq INTEGER NOT NULL   -- messages up to here may have been sent before
);
CREATE TABLE subscription (
    session_id INTEGER NOT NULL,
    topic_filter BLOB NOT NULL, -- as subscribed, with $share/…
    qos INTEGER NOT NULL,
    no_local INTEGER NOT NULL,
    retain_as_published INTEGER NOT NULL,
    identifier INTEGER NOT NULL,
    PRIMARY KEY (session_id, topic_filter)
) WITHOUT ROWID;
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    topic BLOB NOT NULL,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    properties BLOB NOT NULL,
    expires REAL,
    publisher TEXT NOT NULL
);
CREATE TABLE queue (
    session_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    message_id INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    identifiers TEXT NOT NULL,  -- subscription identifiers, separated by blanks
    size INTEGER NOT NULL,
    released INTEGER NOT NULL,  -- 1: PUBREC came, PUBREL is due
    share TEXT,                 -- the shared subscription it came by, with $share/…, or NULL
    PRIMARY KEY (session_id, seq)
) WITHOUT ROWID;
CREATE TABLE inbound (
    session_id INTEGER NOT NULL,
    packet_identifier INTEGER NOT NULL,
    PRIMARY KEY (session_id, packet_identifier)
) WITHOUT ROWID;
CREATE TABLE retained (
    topic BLOB PRIMARY KEY,
    message_id INTEGER NOT NULL,
    author TEXT                 -- user and client identifier as JSON, NULL: the node, or not known
) WITHOUT ROWID;
CREATE TABLE will (
    client_id TEXT PRIMARY KEY,
    topic BLOB NOT NULL,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    properties BLOB NOT NULL,
    delay INTEGER NOT NULL,
    expiry INTEGER,
    due REAL,                   -- NULL while its client is connected
    author TEXT                 -- as of retained messages
) WITHOUT ROWID;
""" + CLOCK

# Statements that turn a file of version N into one of version N + 1.
MIGRATIONS = {
    1: "ALTER TABLE queue ADD COLUMN share TEXT",
    2: "ALTER TABLE retained ADD COLUMN author TEXT; ALTER TABLE will ADD COLUMN author TEXT; " + CLOCK,
}
# Columns that version N + 1 has and version N has not, with the value of older rows; for exports of older files.
ADDED: dict[int, dict[str, dict[str, Any]]] = {
    1: {"queue": {"share": None}},
    2: {"retained": {"author": None}, "will": {"author": None}},
}


WRITER_CACHE, READER_CACHE = 32_768, 4_096  # KiB


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection set up for the store; the caller serialises its use."""
    if not read_only and not path.exists():
        # Payloads and names are nobody else's business; SQLite gives its log the rights of the file. A file that is
        # there must not be opened by us: closing it would drop the locks of all connections this process has to it,
        # and the next stranger that reads the file would take itself for the last one and delete the log.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    uri = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=64)
    if not read_only:
        # WAL: readers see the last commit while the writer writes. FULL: a commit is on disk when it returns.
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA wal_autocheckpoint = 4000")
    # Reading goes once through a queue, page by page; writing comes back to the same pages.
    db.execute(f"PRAGMA cache_size = -{READER_CACHE if read_only else WRITER_CACHE}")
    return db


def refuse_strangers(db: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError for a database of another program, or of a Tidegate newer than this one."""
    application = db.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StoreError(path, "is a database of another program", "name another folder with --data")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise StoreError(
            path,
            f"was written by a newer Tidegate (schema {version}, this one knows {VERSION})",
            "upgrade Tidegate",
        )


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file, or bring an older one up to date, in one transaction."""
    refuse_strangers(db, path)
    version = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        steps = [TABLES] if not tables else [MIGRATIONS[v] for v in range(version, VERSION)]
        for step in steps:
            for statement in step.split(";"):
                if statement.strip():
                    db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
