"""Reading a store file: what a start needs at once, and pages of queues later.

A start reads sessions, subscriptions, retained messages and wills, but of the queues only their lengths: messages
are read page by page when their client is there to take them, so a start is quick and its memory bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.broker.store.clock import Seen
from tidegate.broker.store.schema import connect

Row = tuple[Any, ...]
FETCH = 5_000


class Reader:
    """A connection for reading; may be used from several threads, one at a time."""

    def __init__(self, path: Path) -> None:
        self._db = connect(path, read_only=True)
        self._lock = threading.Lock()
        # Also numbers of messages that are missing: were they used again, a queue would get somebody else's.
        self.last_message = max(
            self._number(f"SELECT max({column}) FROM {table}")  # noqa: S608
            for table, column in (("message", "id"), ("queue", "message_id"), ("retained", "message_id"))
        )
        self.last_session = self._number("SELECT max(id) FROM session")
        self.shared: dict[int, int] = {}
        self.has_orphans = False

    def _number(self, query: str) -> int:
        value = self._db.execute(query).fetchone()[0]
        return int(value or 0)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _stream(self, query: str, *parameters: object) -> Iterator[Row]:
        cursor = self._db.execute(query, parameters)
        while rows := cursor.fetchmany(FETCH):
            yield from rows

    def counts(self) -> dict[str, int]:
        """Rows of each table, for progress and `store check`."""
        tables = ("session", "subscription", "queue", "message", "inbound", "retained", "will")
        return {table: self._number(f"SELECT count(*) FROM {table}") for table in tables}  # noqa: S608

    def load_shared(self) -> None:
        """Messages that more than one queue or the retained table refers to, with their count.

        Tells by the way whether there are messages that nothing refers to: their search costs seconds in a large
        store, and there are none unless the broker died just after a session with a long queue ended.
        """
        self.shared = dict(
            self._stream(
                "SELECT message_id, count(*) FROM "
                "(SELECT message_id FROM queue UNION ALL SELECT message_id FROM retained) "
                "GROUP BY message_id HAVING count(*) > 1"
            )
        )
        references = self._number("SELECT count(*) FROM queue") + self._number(
            "SELECT count(*) FROM retained"
        )
        distinct = references - sum(self.shared.values()) + len(self.shared)
        self.has_orphans = self._number("SELECT count(*) FROM message") != distinct

    def last_seen(self) -> Seen | None:
        """When the node wrote last that it was there."""
        found: Seen | None = self._db.execute("SELECT time, wall FROM clock").fetchone()
        return found

    def sessions(self) -> Iterator[Row]:
        """id, client_id, user, expiry, version, gone_at, sent_seq"""
        return self._stream("SELECT id, client_id, user, expiry, version, gone_at, sent_seq FROM session")

    def subscriptions(self) -> Iterator[Row]:
        return self._stream(
            "SELECT session_id, topic_filter, qos, no_local, retain_as_published, identifier FROM subscription"
        )

    def queues(self) -> Iterator[Row]:
        """session_id, entries, bytes, first seq, last seq"""
        return self._stream(
            "SELECT session_id, count(*), sum(size), min(seq), max(seq) FROM queue GROUP BY session_id"
        )

    def released(self) -> Iterator[Row]:
        """Queue entries whose PUBREL is due: session_id, seq, message_id"""
        return self._stream(
            "SELECT session_id, seq, message_id, size FROM queue WHERE released = 1 ORDER BY 1, 2"
        )

    def inbound(self) -> Iterator[Row]:
        return self._stream("SELECT session_id, packet_identifier FROM inbound")

    def retained(self) -> Iterator[Row]:
        return self._stream(
            "SELECT m.id, m.topic, m.payload, m.qos, m.properties, m.expires, m.publisher, r.author "
            "FROM retained r JOIN message m ON m.id = r.message_id"
        )

    def wills(self) -> Iterator[Row]:
        return self._stream(
            "SELECT client_id, topic, payload, qos, retain, properties, delay, expiry, due, author FROM will"
        )

    def queue_page(self, sid: int, after: int, limit: int, most_bytes: int) -> list[Row]:
        """Entries behind `after`, in order, that are not waiting for PUBCOMP; over `most_bytes` by one at most."""
        page: list[Row] = []
        with self._lock:
            rows = self._db.execute(
                "SELECT q.seq, m.id, q.qos, q.retain, q.identifiers, m.topic, m.payload, m.qos, m.properties, "
                "m.expires, m.publisher, q.share FROM queue q JOIN message m ON m.id = q.message_id "
                "WHERE q.session_id = ? AND q.seq > ? AND q.released = 0 ORDER BY q.seq LIMIT ?",
                (sid, after, limit),
            )
            for row in rows:
                page.append(row)
                most_bytes -= len(row[6])
                if most_bytes < 0:
                    break
            rows.close()
        return page
