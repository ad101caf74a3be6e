"""The part of a session that survives the process: its numbers in the store and the part of its queue on disk.

Every QoS 1 and 2 message for a durable session gets the next sequence number. The packet identifier follows from
it, so a message that is sent again after a crash has the identifier it had before, without having written anything
when it was sent: a QoS 2 receiver recognises it [MQTT5-4.3.3-3].

The queue begins in memory (`Session.pending`) and goes on on disk: `tail` entries behind `tail_after`, read page by
page when the client takes them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.broker.hooks import SessionCopy
    from tidegate.broker.session import Delivery, Session
    from tidegate.broker.store import Store

RETRY = 0.05  # seconds until entries that were not on disk yet are looked for again


def packet_identifier(seq: int) -> int:
    return (seq - 1) % 65_535 + 1


class Durable:
    """Numbers of one stored session."""

    __slots__ = (
        "copy", "durable_seq", "fresh", "gone_at", "is_loading", "kept_seq", "next_seq", "sent_seq", "sid", "store",
        "tail", "tail_after", "tail_bytes", "waiters",
    )  # fmt: skip

    def __init__(self, store: Store, sid: int) -> None:
        self.store = store
        self.sid = sid
        self.next_seq = 1
        self.sent_seq = 0  # up to here messages may have been sent: they get DUP
        self.kept_seq = 0  # up to here it is not known what was sent: QoS 2 stays
        self.durable_seq = 0  # up to here messages are on disk: QoS 2 may be sent
        self.tail = 0
        self.tail_bytes = 0
        self.tail_after = 0
        self.is_loading = False
        self.waiters = 0  # who needs all of it in memory: others make way
        self.fresh: deque[Delivery] | None = None  # the end of the tail, kept in memory too while all of it is loaded
        self.gone_at = 0.0
        self.copy: SessionCopy | None = None  # another node has one and must follow

    def set_tail(self, count: int, size: int, after: int, last: int) -> None:
        """What recovery found: `count` entries between `after` and `last`."""
        self.tail = count
        self.tail_bytes = size
        self.tail_after = after
        self.next_seq = max(last, self.sent_seq) + 1
        self.durable_seq = self.next_seq - 1

    def may_have_been_sent(self, seq: int) -> bool:
        return seq <= self.sent_seq or seq <= self.kept_seq

    def left_tail(self, session: Session, size: int) -> None:
        """A message that is on disk alone went elsewhere."""
        self.tail -= 1
        self.tail_bytes -= size
        session.waits(-size)
        session.core.counters.queued_messages -= 1

    def may_send(self, qos: int, seq: int) -> bool:
        """QoS 2 goes out after its commit: were it sent before, a crash could make the publisher send it anew."""
        return qos != 2 or seq <= self.durable_seq or self.store.is_relaxed

    def load(self, session: Session) -> None:
        """Read the next page of the tail, unless that is under way."""
        if not self.is_loading:
            self.is_loading = True
            session.core.spawn(self._load(session))

    async def _load(self, session: Session) -> None:
        try:
            page = await self.store.load(session, self.tail_after, self.store.settings.memory_queue)
        finally:
            self.is_loading = False
        core = session.core
        if core.sessions.get(session.client_id) is not session:
            return
        if not page:
            core.loop.call_later(RETRY, session.drain)
            return
        self._take(session, page)
        session.drain()

    async def load_all(self, session: Session) -> None:
        """Bring the whole tail into memory; what comes meanwhile stays there, however slow the disk is."""
        self.waiters += 1
        try:
            while self.is_loading:
                await asyncio.sleep(RETRY)
            if self.tail:
                await self._load_all(session)
        finally:
            self.waiters -= 1

    async def _load_all(self, session: Session) -> None:
        self.is_loading = True
        fresh = self.fresh = deque()
        try:
            while self.tail > len(fresh):
                page = await self.store.load(session, self.tail_after, self.store.settings.memory_queue)
                if fresh:
                    page = [delivery for delivery in page if delivery[4] < fresh[0][4]]
                if not self.tail:
                    return  # the session ended
                if page:
                    self._take(session, page)
                    session.drain()  # a client that is there need not wait for the rest
                else:
                    await asyncio.sleep(RETRY)  # not on disk yet
            if self.tail:
                self._take(session, fresh)
        finally:
            self.is_loading = False
            self.fresh = None
            session.core.loop.call_soon(session.drain)  # a client that took all there was in memory waits for more

    def _take(self, session: Session, page: Iterable[Delivery]) -> None:
        """What was on disk only is in memory."""
        if session.pending is None:
            session.pending = deque()
        for delivery in page:
            size = delivery[0].size_bytes
            session.pending.append(delivery)
            session.pending_bytes += size
            self.tail -= 1
            self.tail_bytes -= size
            self.tail_after = delivery[4]
