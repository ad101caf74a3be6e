"""The thread that writes batches, one transaction each.

Many rows go into one statement: the interpreter lock is released once per statement, not once per row, so the
event loop is not slowed by a busy writer. A batch that cannot be written (disk full, device error) is tried again
until it can, or the store is closed; nothing of it is lost meanwhile.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tidegate.broker.store.batch import Batch
from tidegate.broker.store.schema import connect

log = logging.getLogger("tidegate.store")

ROWS_PER_STATEMENT = 128

Row = tuple[Any, ...]


def _chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]


def insert_rows(db: sqlite3.Connection, statement: str, width: int, rows: Iterable[Row]) -> None:
    """`statement` up to VALUES, for all rows; full chunks share one prepared statement."""
    row = "(" + ",".join("?" * width) + ")"
    for chunk in _chunks(list(rows)):
        values = [value for each in chunk for value in each]
        db.execute(f"{statement} VALUES {','.join([row] * len(chunk))}", values)


def delete_rows(db: sqlite3.Connection, table: str, columns: str, rows: Iterable[Row]) -> None:
    """Delete by key columns, many keys a statement. Table and columns are constants of this package.

    The keys are a table of their own: SQLite would read all of `table` for the pairs of a bare `IN (VALUES …)`.
    """
    width = columns.count(",") + 1
    row = "(" + ",".join("?" * width) + ")"
    for chunk in _chunks(list(rows)):
        values = [value for each in chunk for value in each]
        keys = f"WITH keys({columns}) AS (VALUES {','.join([row] * len(chunk))})"
        db.execute(f"{keys} DELETE FROM {table} WHERE ({columns}) IN (SELECT {columns} FROM keys)", values)  # noqa: S608


def write_batch(db: sqlite3.Connection, batch: Batch) -> None:
    """All of it or nothing. Raises what SQLite raises."""
    db.execute("BEGIN IMMEDIATE")
    try:
        _write(db, batch)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _write(db: sqlite3.Connection, batch: Batch) -> None:
    ended = batch.ended
    delete_rows(db, "queue", "session_id, seq", batch.deletes)
    if ended:
        keys = [(sid,) for sid in ended]
        # What is still queued was not in memory: only now it is known which messages these sessions let go.
        batch.freed = [row[2] for row in batch.inserts.values() if row[0] in ended]
        for key in keys:
            batch.freed += (
                row[0] for row in db.execute("SELECT message_id FROM queue WHERE session_id = ?", key)
            )
        delete_rows(db, "session", "id", keys)
        for table in ("subscription", "queue", "inbound"):
            delete_rows(db, table, "session_id", keys)
    insert_rows(
        db,
        "INSERT OR REPLACE INTO session (id, client_id, user, expiry, version, gone_at, sent_seq)",
        7,
        (row for sid, row in batch.sessions.items() if sid not in ended),
    )
    gone = [key for key, row in batch.subscriptions.items() if row is None]
    delete_rows(db, "subscription", "session_id, topic_filter", gone)
    insert_rows(
        db,
        "INSERT OR REPLACE INTO subscription "
        "(session_id, topic_filter, qos, no_local, retain_as_published, identifier)",
        6,
        (row for row in batch.subscriptions.values() if row is not None and row[0] not in ended),
    )
    insert_rows(
        db,
        "INSERT INTO message (id, topic, payload, qos, properties, expires, publisher)",
        7,
        batch.messages.values(),
    )
    insert_rows(
        db,
        "INSERT INTO queue (session_id, seq, message_id, qos, retain, identifiers, size, released, share)",
        9,
        (row for row in batch.inserts.values() if row[0] not in ended),
    )
    for sid, seq in batch.releases:
        db.execute("UPDATE queue SET released = 1 WHERE session_id = ? AND seq = ?", (sid, seq))
    delete_rows(
        db, "inbound", "session_id, packet_identifier", [k for k, v in batch.inbound.items() if not v]
    )
    insert_rows(
        db,
        "INSERT OR REPLACE INTO inbound (session_id, packet_identifier)",
        2,
        (key for key, is_there in batch.inbound.items() if is_there and key[0] not in ended),
    )
    delete_rows(db, "retained", "topic", [(t,) for t, row in batch.retained.items() if row is None])
    insert_rows(
        db,
        "INSERT OR REPLACE INTO retained (topic, message_id, author)",
        3,
        ((topic, *row) for topic, row in batch.retained.items() if row is not None),
    )
    delete_rows(db, "message", "id", [(mid,) for mid in batch.gone])
    delete_rows(db, "will", "client_id", [(c,) for c, row in batch.wills.items() if row is None])
    insert_rows(
        db,
        "INSERT OR REPLACE INTO will "
        "(client_id, topic, payload, qos, retain, properties, delay, expiry, due, author)",
        10,
        (row for row in batch.wills.values() if row is not None),
    )
    if batch.clock is not None:
        db.execute("INSERT OR REPLACE INTO clock (id, time, wall) VALUES (1, ?, ?)", batch.clock)
    for sid, seq in batch.sent.items():
        db.execute("UPDATE session SET sent_seq = ? WHERE id = ?", (seq, sid))


def delete_orphans(db: sqlite3.Connection) -> None:
    """Delete messages that nothing refers to; reads every queue once."""
    try:
        db.execute(
            "DELETE FROM message WHERE id NOT IN (SELECT message_id FROM queue UNION SELECT message_id FROM retained)"
        )
    except sqlite3.Error as error:
        log.warning("messages without owner were not deleted", extra={"error": str(error)})


class Writer:
    """Owns the writing connection. `done(batch, error)` is called on the writer's thread after each attempt."""

    def __init__(self, path: Path, done: Callable[[Batch, str | None], None], retry: float) -> None:
        self._path = path
        self._done = done
        self._retry = retry
        self._work: SimpleQueue[Batch | Callable[[sqlite3.Connection], None] | None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidegate-store", daemon=True)
        self._thread.start()

    def put(self, work: Batch | Callable[[sqlite3.Connection], None]) -> None:
        """Write a batch, or run a function with the connection between batches (compaction, for example)."""
        self._work.put(work)

    def close(self, timeout: float) -> bool:
        """Write what was put and end; False if it did not finish in time (the disk fails, say)."""
        self._work.put(None)
        self._thread.join(timeout)
        self._closing.set()
        self._thread.join(1.0)
        return not self._thread.is_alive()

    def _run(self) -> None:
        db = connect(self._path)
        try:
            while (work := self._work.get()) is not None:
                if isinstance(work, Batch):
                    self._write(db, work)
                else:
                    work(db)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            log.exception("store closed with an error")
        finally:
            db.close()

    def _write(self, db: sqlite3.Connection, batch: Batch) -> None:
        while not self._closing.is_set():
            try:
                if batch.has_rows:
                    write_batch(db, batch)
            except sqlite3.Error as error:
                self._done(batch, str(error))
                self._closing.wait(self._retry)
            else:
                self._done(batch, None)
                return
