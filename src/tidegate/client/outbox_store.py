"""The file of the outbox: SQLite in WAL mode, written by a thread of its own in group commits.

The event loop only puts operations into a queue; what has gathered while one commit was under way is the next. With
`synchronous = FULL` a commit survives the loss of power, not only of the process. Deletions can wait: repeating one
after a crash repeats a message that QoS 1 may repeat, and for QoS 2 only a PUBREL.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, NamedTuple, TypeAlias

from tidegate.client.errors import OutboxError
from tidegate.private import opener

_BATCH: Final = 1000  # operations a commit; more would only delay the first of them
_DELETIONS_WAIT: Final = 0.05  # seconds
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    properties BLOB NOT NULL,
    released INTEGER NOT NULL DEFAULT 0
)
"""
_COLUMNS: Final = "number, topic, payload, qos, retain, properties, released"


class Row(NamedTuple):
    """One message; `released` when its PUBREC came, so that only PUBREL may be sent."""

    number: int
    topic: str
    payload: bytes
    qos: int
    retain: int
    properties: bytes
    released: int = 0


class Contents(NamedTuple):
    """What a file held when it was opened; `last_number` is the highest ever used."""

    rows: list[Row]
    messages: int
    last_number: int


Done: TypeAlias = Callable[[Any], None]
"""What to call when an operation is finished: with None, with what was asked for, or with an `OutboxError`."""
_Operation: TypeAlias = tuple[str, Any, Done | None]


class OutboxStore:
    """`announce` gets the finished operations of a batch, in the thread; it must hand them to the event loop."""

    def __init__(self, path: Path, announce: Callable[[list[tuple[Done, Any]]], None]) -> None:
        self._path = path
        self._announce = announce
        self._operations: queue.SimpleQueue[_Operation] = queue.SimpleQueue()
        self._deletions: list[tuple[int]] = []
        self._thread = threading.Thread(target=self._run, name="tidegate client outbox", daemon=True)

    def start(self, window: int, done: Done) -> None:
        """Open the file; `done` gets its `Contents`, at most `window` rows, or an `OutboxError`."""
        self._operations.put(("open", window, done))
        self._thread.start()

    def put(self, row: Row, done: Done) -> None:
        self._operations.put(("put", row, done))

    def release(self, number: int, done: Done) -> None:
        """PUBREC came for a QoS 2 message."""
        self._operations.put(("release", number, done))

    def delete(self, number: int) -> None:
        self._operations.put(("delete", number, None))

    def read(self, after: int, limit: int, done: Done) -> None:
        """Rows behind number `after`, in order."""
        self._operations.put(("read", (after, limit), done))

    def close(self, done: Done) -> None:
        """Finish everything that was asked for, then close the file."""
        self._operations.put(("close", None, done))

    # The thread.

    def _run(self) -> None:
        _, window, done = self._operations.get()
        assert done is not None
        try:
            db, contents = self._open(window)
        except Exception as error:  # noqa: BLE001 - somebody waits for an answer, whatever it is
            self._announce([(done, self._explain(error))])
            return
        self._announce([(done, contents)])
        while True:
            batch = self._next_batch()
            closed = next((done for kind, _, done in batch if kind == "close"), None)
            self._commit(db, batch)
            if closed is not None:
                with contextlib.suppress(sqlite3.Error):  # everything is committed or has been refused
                    db.close()
                self._announce([(closed, None)])
                return

    def _next_batch(self) -> list[_Operation]:
        """What there is to do beside deletions; empty when it is time to commit these alone."""
        while True:
            batch: list[_Operation] = []
            try:
                batch.append(self._operations.get(timeout=_DELETIONS_WAIT if self._deletions else None))
                while len(batch) < _BATCH:
                    batch.append(self._operations.get_nowait())
            except queue.Empty:
                if not batch:
                    return []
            self._deletions += [(argument,) for kind, argument, _ in batch if kind == "delete"]
            batch = [operation for operation in batch if operation[0] != "delete"]
            if batch or len(self._deletions) >= _BATCH:
                return batch

    def _commit(self, db: sqlite3.Connection, batch: list[_Operation]) -> None:
        puts = [argument for kind, argument, _ in batch if kind == "put"]
        releases = [(argument,) for kind, argument, _ in batch if kind == "release"]
        waiting = [(kind, argument, done) for kind, argument, done in batch if done and kind != "close"]
        try:
            if puts or releases or self._deletions:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(f"INSERT INTO outbox ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", puts)  # noqa: S608
                db.executemany("UPDATE outbox SET released = 1 WHERE number = ?", releases)
                db.executemany("DELETE FROM outbox WHERE number = ?", self._deletions)
                db.execute("COMMIT")
                self._deletions.clear()
            results: list[tuple[Done, Any]] = [
                (done, _read(db, *argument) if kind == "read" else None) for kind, argument, done in waiting
            ]
        except Exception as error:  # noqa: BLE001 - as above
            if db.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            explained = self._explain(error)
            results = [(done, explained) for _, _, done in waiting]
        if results:
            self._announce(results)

    def _open(self, window: int) -> tuple[sqlite3.Connection, Contents]:
        os.close(opener(self._path, os.O_RDWR | os.O_CREAT))  # SQLite gives its log the rights of the file
        db = sqlite3.connect(self._path, isolation_level=None, timeout=1.0)
        try:
            # One process a file: two would send each other's messages and break each other's order.
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute(_SCHEMA)
            known = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
            if known is None:
                # A new file does not begin at 1: packet identifiers follow from the numbers, and the server may
                # still hold some of this client's from an earlier file.
                known = (SystemRandom().randrange(1, 65_536),)
                db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('outbox', ?)", known)
            (last,) = known
            (count,) = db.execute("SELECT count(*) FROM outbox").fetchone()
            return db, Contents(_read(db, 0, window), count, last)
        except BaseException:
            db.close()
            raise

    def _explain(self, error: Exception) -> OutboxError:
        explained = OutboxError(
            f"the outbox {str(self._path)!r} cannot be used: {error}",
            hint="give each client a file of its own, on a disk with room",
        )
        explained.__cause__ = error
        return explained


def _read(db: sqlite3.Connection, after: int, limit: int) -> list[Row]:
    query = f"SELECT {_COLUMNS} FROM outbox WHERE number > ? ORDER BY number LIMIT ?"  # noqa: S608
    return [Row(*values) for values in db.execute(query, (after, limit))]
