"""The durable store as the broker sees it: note what changed, be told when it is on disk.

Theory of operation. Changes are collected in a `Batch` by the event loop. At the end of the turn, if the writer is
idle, the batch is handed over and a new one begun; while the writer commits, the next batch fills: the slower the
disk, the larger the group. Acknowledgements that promise durability sit in the batch and are sent after its commit,
in the order they were made.

A message has one row, whoever waits for it. How many wait is counted here, and only for messages with more than
one (`_shared`): a message that is not in that map has one reference.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.broker.message import Message
from tidegate.broker.shared import Tag
from tidegate.broker.store.batch import Batch
from tidegate.broker.store.clock import Seen, StoreClock
from tidegate.broker.store.lock import Lock
from tidegate.broker.store.reader import Reader
from tidegate.broker.store.settings import Durability, StoreSettings
from tidegate.broker.store.writer import Writer, delete_orphans
from tidegate.mqtt.topics import parse_shared

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.durable import Durable
    from tidegate.broker.index import Subscription, SubscriptionIndex
    from tidegate.broker.session import Delivery, Session
    from tidegate.broker.wills import Will

log = logging.getLogger("tidegate.store")

FILE_NAME = "tidegate.db"
LINGER = 0.002  # seconds; a round trip to a client on the same network, half the time of a sync
MAX_LINGER = 0.020
SEEN_INTERVAL = 60.0  # seconds
LAZY = 0.050  # seconds that deletes wait for company
ROW_OVERHEAD = 100  # bytes a change counts for beyond its content
FREED_PER_TURN = 2_000  # messages of an ended session let go in one turn of the loop, about a millisecond


def _author(message: Message) -> str | None:
    return None if message.author is None else message.author.to_text()


def _durable(session: Session) -> Durable:
    assert session.durable is not None
    return session.durable


def _identifiers(text: str, share: str | None, index: SubscriptionIndex) -> tuple[int, ...]:
    """Subscription identifiers of a stored entry; with its group, if it came by one that has members."""
    numbers = tuple(map(int, text.split()))
    parts = parse_shared(share) if share else None
    group = index.groups.get((parts[0], parts[1].encode())) if parts else None
    return numbers if group is None else group.tag(numbers)


def _tell(batch: Batch) -> None:
    waiters, batch.waiters = batch.waiters, []
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class Store:
    """One store file. All methods belong to the event loop's thread."""

    def __init__(self, folder: Path, settings: StoreSettings) -> None:
        self.path = folder / FILE_NAME
        self.settings = settings
        self.is_relaxed = settings.durability is Durability.RELAXED
        self.batch = Batch()
        self.changes = 0  # counts every change noted, so that a caller can tell whether it caused one
        self.failure: str | None = None
        self.failures = 0
        self.commits = 0
        self.rows_written = 0
        self.is_blocked = False
        self.waiters: dict[Connection, None] | None = None
        self._next_message = 1
        self._next_session = 1
        self._shared: dict[int, int] = {}
        self._writing: Batch | None = None
        self._is_scheduled = False
        # `close` hands over the last batch from a thread of its own, `_hand_over` the ones before from the loop's.
        self._handing = threading.Lock()
        self._is_closed = False
        self._read_failure = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._lock: Lock | None = None
        self._clock: StoreClock | None = None
        self._seen_alarm: asyncio.TimerHandle | None = None

    # -- life -----------------------------------------------------------------------------------------------

    def open(self, loop: asyncio.AbstractEventLoop, reader: Reader, lock: Lock) -> None:
        """Begin writing. `reader` tells which numbers are taken; `lock` keeps other processes out until the end."""
        self._lock = lock
        self._loop = loop
        self._clock = StoreClock(loop.time(), time.time(), reader.last_seen(), self.settings.plausible_downtime)
        self._note_seen()
        self._reader = reader
        self._next_message = reader.last_message + 1
        self._next_session = reader.last_session + 1
        self._shared = reader.shared
        self._writer = Writer(self.path, self._on_done, self.settings.retry)
        if reader.has_orphans:
            self._writer.put(delete_orphans)

    def close(self, timeout: float) -> None:
        """Write everything noted so far; what a failing disk does not take in time is lost and said so."""
        assert self._writer is not None and self._reader is not None
        assert self._loop is not None
        if self._seen_alarm is not None:
            self._seen_alarm.cancel()
        with self._handing:
            self._is_closed = True
            self.batch.clock = self._seen()
            if not self.batch.is_empty:
                self._writer.put(self.batch)
        if not self._writer.close(timeout):
            log.error("store closed before everything was written", extra={"error": self.failure})
        self._reader.close()
        assert self._lock is not None
        self._lock.release()

    @property
    def now(self) -> float:
        """The store's own time."""
        assert self._clock is not None and self._loop is not None
        return self._clock.at(self._loop.time())

    def store_time(self, expires: float | None) -> float | None:
        """Loop time as the store's."""
        assert self._clock is not None
        return None if expires is None else self._clock.at(expires)

    def loop_time(self, store_time: float | None) -> float | None:
        assert self._clock is not None
        return None if store_time is None else self._clock.loop_time(store_time)

    def _seen(self) -> Seen:
        return self.now, time.time()

    def _note_seen(self) -> None:
        """Once a minute it is written that the node is there: from then on the next start counts."""
        assert self._loop is not None
        self.batch.clock = self._seen()
        self._note(0)
        self._seen_alarm = self._loop.call_later(SEEN_INTERVAL, self._note_seen)

    # -- sessions -------------------------------------------------------------------------------------------

    def new_session(self) -> int:
        self._next_session += 1
        return self._next_session - 1

    def save_session(self, session: Session, *, is_connected: bool) -> None:
        gone_at = None if is_connected else self.now
        durable = _durable(session)
        self.batch.sessions[durable.sid] = (
            durable.sid, session.client_id, session.user, session.expiry, session.version, gone_at,
            durable.sent_seq,
        )  # fmt: skip
        self._note(ROW_OVERHEAD + len(session.client_id))
        if is_connected and session.conn is not None:
            # What a former connection asked for may not be on disk yet. A repetition on this one must not be
            # answered sooner: every answer waits for this batch, and with it for all before.
            session.conn.last_batch = self.batch

    def end_session(self, session: Session) -> None:
        """Forget the session and its queue; `done` was called for what it had in memory.

        The writer finds what it had on disk only; those messages are let go after the commit.
        """
        sid = _durable(session).sid
        self.batch.ended.add(sid)
        self.batch.sessions.pop(sid, None)
        self._note(0)

    def save_subscription(self, session: Session, name: bytes, subscription: Subscription | None) -> None:
        row = None
        if subscription is not None:
            row = (
                _durable(session).sid, name, subscription.qos, subscription.no_local, subscription.retain_as_published,
                subscription.identifier,
            )  # fmt: skip
        self.batch.subscriptions[_durable(session).sid, name] = row
        self._note(ROW_OVERHEAD + len(name))

    # -- queues ---------------------------------------------------------------------------------------------

    def enqueue(self, session: Session, delivery: Delivery) -> None:
        message, qos, retain, identifiers, seq = delivery
        self._refer(message)
        size = message.size_bytes
        text = " ".join(map(str, identifiers)) if identifiers else ""
        share = identifiers.group.full_name if type(identifiers) is Tag else None
        sid = _durable(session).sid
        self.batch.inserts[sid, seq] = (sid, seq, message.mid, qos, retain, text, size, 0, share)
        self.batch.wake[session] = seq
        self._note(ROW_OVERHEAD)

    def expects_acknowledgement(self) -> None:
        """What was noted last is on its way to a client that is there."""
        self.batch.is_hopeful = True

    def done(self, session: Session, mid: int, seq: int) -> None:
        """The client has it: forget the queue entry, and the message if nobody else waits for it."""
        if not seq:
            return  # queued at QoS 0: never in the store, whoever else has the message there
        batch = self.batch
        key = (_durable(session).sid, seq)
        if batch.inserts.pop(key, None) is None:
            batch.deletes.append(key)
        else:
            batch.cancelled += 1
        batch.releases.pop(key, None)
        self._release(mid)
        if not batch.inserts and not self._is_scheduled:
            self._schedule()

    def released(self, session: Session, seq: int) -> None:
        """PUBREC came: from now on PUBREL is sent, never PUBLISH again."""
        batch = self.batch
        key = (_durable(session).sid, seq)
        row = batch.inserts.get(key)
        if row is not None:
            batch.inserts[key] = (*row[:7], 1, *row[8:])
        else:
            batch.releases[key] = None
        self._note(0)

    def sent(self, session: Session) -> None:
        """Lazily remember how far the session was sent; it decides only about the DUP flag after a crash."""
        durable = _durable(session)
        self.batch.sent[durable.sid] = durable.sent_seq

    def _refer(self, message: Message) -> None:
        mid = message.mid
        if mid:
            self._shared[mid] = self._shared.get(mid, 1) + 1
            return
        mid = message.mid = self._next_message
        self._next_message += 1
        self.batch.messages[mid] = (
            mid, message.topic, message.payload, message.qos, message.properties, self.store_time(message.expires),
            message.publisher,
        )  # fmt: skip
        self.batch.size_bytes += message.size_bytes

    def _release(self, mid: int) -> None:
        count = self._shared.get(mid)
        if count is None:
            row = self.batch.messages.pop(mid, None)
            if row is None:
                self.batch.gone.append(mid)
            else:
                self.batch.size_bytes -= (
                    len(row[1]) + len(row[2]) + len(row[4]) + 64
                )  # as `Message.size_bytes` has it
        elif count == 2:
            del self._shared[mid]
        else:
            self._shared[mid] = count - 1

    async def load(self, session: Session, after: int, limit: int) -> list[Delivery]:
        """The next entries of a queue that are on disk, in order."""
        assert self._reader is not None and self._loop is not None
        reader = self._reader
        try:
            rows = await self._loop.run_in_executor(
                None, reader.queue_page, _durable(session).sid, after, limit, self.settings.memory_queue_bytes
            )
        except sqlite3.Error as error:
            if self._read_failure != str(error):
                self._read_failure = str(error)
                log.error(
                    "store cannot be read, a queue waits",
                    extra={"client": session.client_id, "error": str(error)},
                )
            return []  # the caller asks again
        self._read_failure = ""
        tags: dict[tuple[str, str], tuple[int, ...]] = {}
        return [self._delivery(row, session.core.index, tags) for row in rows]

    def _delivery(
        self, row: tuple[Any, ...], index: SubscriptionIndex, tags: dict[tuple[str, str], tuple[int, ...]]
    ) -> Delivery:
        seq, mid, qos, retain, text, topic, payload, message_qos, properties, expires, publisher, share = row
        message = Message(topic, payload, message_qos, False, properties, self.loop_time(expires), publisher)
        message.mid = mid
        identifiers: tuple[int, ...] = ()
        if share or text:
            key = (share, text)
            known = tags.get(key)
            if known is None:
                known = tags[key] = _identifiers(text, share, index)
            identifiers = known
        return message, qos, bool(retain), identifiers, seq

    @property
    def is_unreadable(self) -> bool:
        """Whether the last attempt to read failed."""
        return bool(self._read_failure)

    # -- QoS 2 from clients, retained messages, wills -------------------------------------------------------

    def received(self, session: Session, packet_identifier: int, is_there: bool) -> None:
        self.batch.inbound[_durable(session).sid, packet_identifier] = is_there
        self._note(0)

    def retain(self, topic: bytes, old: Message | None, new: Message | None) -> None:
        if topic.startswith(b"$SYS/"):
            return  # said anew after every start
        if new is not None:
            self._refer(new)
        if old is not None and old.mid:
            self._release(old.mid)
        self.batch.retained[topic] = None if new is None else (new.mid, _author(new))
        self._note(ROW_OVERHEAD)

    def save_will(self, client_id: str, will: Will | None, due: float | None = None) -> None:
        row = None
        if will is not None:
            m = will.message
            row = (
                client_id, m.topic, m.payload, m.qos, m.retain, m.properties, will.delay, will.expiry,
                self.store_time(due), _author(m),
            )  # fmt: skip
        self.batch.wills[client_id] = row
        self._note(ROW_OVERHEAD + len(client_id) + (0 if will is None else will.message.size_bytes))

    # -- commits --------------------------------------------------------------------------------------------

    def acknowledge(self, conn: Connection, packet: bytes) -> None:
        """Send `packet` once everything noted so far is on disk."""
        conn.last_batch = self.batch
        self.batch.acks.append((conn, packet))
        if not self._is_scheduled:
            self._schedule()

    async def on_disk(self) -> None:
        """Return when everything noted so far is on disk, deletes too, however long the disk takes."""
        assert self._loop is not None
        if self.is_idle:
            return
        waiter = self._loop.create_future()
        self.batch.waiters.append(waiter)
        if not self._is_scheduled:
            self._schedule()
        await waiter

    @property
    def is_idle(self) -> bool:
        """Whether everything noted so far is on disk."""
        return self._writing is None and self.batch.is_empty

    def _note(self, size: int) -> None:
        self.changes += 1
        batch = self.batch
        batch.size_bytes += size
        if batch.size_bytes > self.settings.max_uncommitted_bytes and not self.is_blocked:
            self.is_blocked = True
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        """Look at the batch at the end of this turn, or when the writer is done with the one before."""
        self._is_scheduled = True
        if self._writing is None:
            assert self._loop is not None
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        """Give the batch to the writer, if it is idle and there is a reason.

        What was just sent to clients may be acknowledged in a moment and then need not be written at all: such a
        batch lingers. Deletes alone are in no hurry.
        """
        if self._writing is not None:
            return
        assert self._loop is not None
        self._is_scheduled = False
        batch = self.batch
        if not batch.has_promises:
            self._settle(batch)
            if not batch.has_rows:
                _tell(batch)
            elif not batch.is_lazy:
                batch.is_lazy = True
                self._loop.call_later(LAZY, self._write, batch)
        elif batch.is_hopeful:
            if not batch.is_lingering:
                batch.is_lingering = True
                now = self._loop.time()
                self._loop.call_later(LINGER, self._linger, batch, now + MAX_LINGER, now + LINGER, 0)
        else:
            self._write(batch)

    def _linger(self, batch: Batch, latest: float, due: float, cancelled: int) -> None:
        """Wait on while acknowledgements come in, or the loop is too busy to have seen them."""
        if self.batch is not batch or self._writing is not None:
            return
        assert self._loop is not None
        now = self._loop.time()
        if batch.has_promises and now < latest and (batch.cancelled != cancelled or now - due > LINGER):
            self._loop.call_later(LINGER, self._linger, batch, latest, now + LINGER, batch.cancelled)
        else:
            self._write(batch)

    def _write(self, batch: Batch) -> None:
        with self._handing:
            if self.batch is not batch or self._writing is not None or self._is_closed:
                return
            assert self._writer is not None
            self._writing, self.batch = batch, Batch()
            self._is_scheduled = False
            self._writer.put(batch)

    def _on_done(self, batch: Batch, error: str | None) -> None:
        """On the writer's thread."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._committed, batch, error)
        except RuntimeError:
            pass  # the loop is closed: the broker has stopped, nobody waits

    def _committed(self, batch: Batch, error: str | None) -> None:
        if error is not None:
            if self.failure != error:
                log.error("store cannot write, QoS 1 and 2 publishers wait", extra={"error": error})
            self.failure = error
            self.failures += 1
            return
        if self.failure is not None:
            log.warning("store writes again", extra={"after": self.failure})
            self.failure = None
        self.commits += 1
        self.rows_written += len(batch.inserts) + len(batch.messages) + len(batch.deletes)
        self._writing = None
        batch.is_committed = True
        self._settle(batch)
        _tell(batch)
        if batch.freed:
            self._let_go(iter(batch.freed))
        self._hand_over()  # also for an empty batch: what was scheduled while the writer was busy ends here

    def _settle(self, batch: Batch) -> None:
        """What the batch promised holds: send its acknowledgements and let waiting sessions go on."""
        acks, batch.acks = batch.acks, []
        wake, batch.wake = batch.wake, {}
        for conn, packet in acks:
            session = conn.session
            if session.conn is conn:
                session.write(packet)
        for session, seq in wake.items():
            durable = _durable(session)
            if durable.durable_seq < seq:
                durable.durable_seq = seq
            if session.pending is not None or durable.tail:
                session.drain()
        if self.is_blocked and self.batch.size_bytes < self.settings.max_uncommitted_bytes / 2:
            self.is_blocked = False
            waiters, self.waiters = self.waiters, None
            for conn in waiters or ():
                conn.release()

    def _let_go(self, freed: Iterator[int]) -> None:
        """Release messages of ended sessions, part by part: a queue may have been long."""
        part = list(islice(freed, FREED_PER_TURN))
        for mid in part:
            self._release(mid)
        if part:
            self._note(0)
            assert self._loop is not None
            self._loop.call_soon(self._let_go, freed)

    def statistics(self) -> dict[str, Any]:
        return {
            "store_commits": self.commits,
            "store_rows_written": self.rows_written,
            "store_failures": self.failures,
            "store_is_failing": int(self.failure is not None),
            "store_uncommitted_bytes": self.batch.size_bytes,
        }
