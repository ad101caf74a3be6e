"""What a member of a shared subscription has and will not do goes on to another member.

When: when it leaves (after `features.shared_wait`, if it may come back), when it has acknowledged nothing for
`features.shared_stall` seconds, when its session ends, and when a member joins or comes back while others are away.

Rules. QoS 1 in flight and all that waits, in memory or on disk, may go; QoS 2 that was sent may not [MQTT5-4.8.2-5].
Order among the messages of one member is kept. A message is with the other member before it is taken from this one,
both in one transaction if it is on disk; if nobody can take it, it stays. Long queues go in parts, so that nobody else
waits for it and memory never holds more than a part of what is on disk.

A session that ends while others can take what it has lives on as an estate: nobody's session, under a name no client
can have, until all is given away. After a restart it is found in the store under that name.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from tidegate.broker.shared import Tag
from tidegate.broker.takers import Takers

if TYPE_CHECKING:
    from tidegate.broker.core import Core
    from tidegate.broker.durable import Durable
    from tidegate.broker.index import Subscription
    from tidegate.broker.long_work import Job
    from tidegate.broker.session import Delivery, Session

# In flight, and another member has it now; keeps the identifier until it is acknowledged.
GIVEN_ON = (0, 1, 0)
PART = 200  # messages in one turn, some 2 ms
MOST_COST = 2_000  # units of work in one turn to ask for rights
RETRY = 0.1  # seconds until members without room are asked again
ESTATE = "\0"  # begins the name of an estate; no MQTT string can hold it
ESTATE_EXPIRY = 600  # seconds an estate waits if those who could take it are gone meanwhile


class Outcome(Enum):
    """Of one message."""

    MOVED = auto()
    EXPIRED = auto()
    STAYS = auto()
    WAITS = auto()
    """There is somebody for it, who has no room now."""


def hand_on(session: Session) -> int:
    """Give what came by a group, and can be given, to other members; returns how many went now, the rest follows."""
    core = session.core
    if session.errand is not None or not has_backlog(session):
        return 0
    if session not in core.estates and not _has_company(session):
        return 0
    errand = Errand(session, is_over=session in core.estates)
    moved = errand.go_on()
    errand.go_on_later()
    return moved


def has_backlog(session: Session) -> bool:
    """Whether a member of a group has anything that others could do."""
    durable = session.durable
    return session.load is not None and bool(
        session.inflight or session.pending or (durable is not None and durable.tail)
    )


def _has_company(session: Session) -> bool:
    """Whether another member of any of its groups is there: else looking through a long queue is idle."""
    groups = session.core.index.groups
    for subscription in session.subscriptions.values():
        if subscription.share:
            group = groups.get((subscription.share, subscription.topic_filter))
            if group is not None and any(
                member.session.conn is not None and member.session is not session for member in group.members
            ):
                return True
    return False


def hand_on_later(session: Session, epoch: int) -> None:
    """Its time to come back is over."""
    if session.epoch == epoch and session.conn is None:
        hand_on(session)


class Help:
    """Members that joined groups, or came back, take what those have who are away or stalled, and what is nobody's."""

    __slots__ = ("_core", "_joined")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._joined: dict[Session, dict[tuple[str, bytes], None]] = {}  # and groups that were not looked at yet

    def ask(self, session: Session, subscriptions: Iterable[Subscription]) -> None:
        """Look at the groups of these soon, in parts; for one session there is one job, however often it asks."""
        is_new = session not in self._joined
        wanted = self._joined.setdefault(session, {})
        for subscription in subscriptions:
            if subscription.share:
                wanted[subscription.share, subscription.topic_filter] = None
        if is_new:
            self._core.long_work.add(self._help(session))

    def _help(self, session: Session) -> Job:
        core = self._core
        while self._joined[session] and session.conn is not None:
            groups = [core.index.groups.get(key) for key in self._joined[session]]
            self._joined[session] = {}
            asked = {session}
            for group in groups:
                yield 1
                for member in list(group.members) if group is not None else ():
                    other = member.session
                    if other not in asked:
                        asked.add(other)
                        yield PART if _is_idle(other) and hand_on(other) else 1
            for estate in list(core.estates):
                yield PART if hand_on(estate) else 1
        del self._joined[session]


def _is_idle(session: Session) -> bool:
    """Whether a member is stalled, or has been away for longer than others wait for it."""
    core = session.core
    if session.conn is not None:
        return session.is_stalled
    return session.left_at <= core.now() - core.features.shared_wait


def bequeath(session: Session, subscriptions: Mapping[bytes, Subscription]) -> bool:
    """The session is over, and had these subscriptions: False if nothing remains that somebody can take."""
    core = session.core
    if not has_backlog(session) or not _has_heirs(session, subscriptions.values()):
        return False
    errand = Errand(session, is_over=True)
    errand.go_on()
    if errand.is_done and not errand.has_missed:
        return False
    durable = session.durable
    session.expiry = ESTATE_EXPIRY
    session.client_id = ESTATE + session.client_id
    if durable is not None:
        session.client_id += f" {durable.sid}"  # unique in the store
        for name in subscriptions:
            durable.store.save_subscription(session, name, None)
        durable.store.save_session(session, is_connected=False)
    keep_estate(session, core.now() + ESTATE_EXPIRY)
    errand.go_on_later()
    return True


def _has_heirs(session: Session, subscriptions: Iterable[Subscription]) -> bool:
    """Whether its groups have other members, there or not."""
    groups = session.core.index.groups
    return any(each.share and (each.share, each.topic_filter) in groups for each in subscriptions)


def keep_estate(session: Session, until: float) -> None:
    core = session.core
    core.estates[session] = core.alarms.at(until, partial(_end_estate, session))


def _end_estate(session: Session) -> None:
    core = session.core
    core.alarms.cancel(core.estates.pop(session))
    session.epoch += 1
    session.discard()


class Errand:
    """Carries the messages of one session away, part by part, until none is left or it is not wanted any more."""

    __slots__ = (
        "_after",
        "_durable",
        "_epoch",
        "_inflight",
        "_is_memory_done",
        "_is_over",
        "_is_tail_done",
        "_is_waiting",
        "_owns_tail",
        "_session",
        "_skipped",
        "has_missed",
    )

    def __init__(self, session: Session, *, is_over: bool) -> None:
        self._session = session
        self._is_over = is_over  # its client will never come back
        self._durable: Durable | None = session.durable
        self._epoch = session.epoch
        self._inflight = deque(pid for pid, entry in session.inflight.items() if entry[1] == 1)
        self._skipped = 0  # at the front of the queue in memory: they stay
        self._is_memory_done = False
        self._is_tail_done = False
        self._owns_tail = False  # nobody else reads the queue on disk meanwhile
        self._after = 0  # up to this sequence number it was looked at
        self._is_waiting = False
        self.has_missed = False  # something stays because nobody is there for it

    @property
    def is_done(self) -> bool:
        durable = self._durable
        return self._is_memory_done and (durable is None or not durable.tail or self._is_tail_done)

    @property
    def _is_wanted(self) -> bool:
        """The member is still away, or stalled."""
        session = self._session
        return (
            session.epoch == self._epoch
            and (session.conn is None or session.is_stalled)
            and not session.core.is_stopping
        )

    def go_on_later(self) -> None:
        """The rest in turns of its own, if there is any."""
        if not self.is_done:
            self._session.errand = self
            self._session.core.spawn(self._run())

    async def _run(self) -> None:
        session, durable = self._session, self._durable
        is_wanted = True
        try:
            while not self.is_done:
                await asyncio.sleep(RETRY if self._is_waiting else 0)
                is_wanted = self._is_wanted
                if not is_wanted:
                    break
                if durable is not None and durable.waiters:
                    await self._make_way(durable)
                elif not self._is_memory_done:
                    self.go_on()
                elif durable is not None:
                    await self._tail_part(durable)
            if self._owns_tail and durable is not None:
                # Who reads the queue after us must not find what was given away.
                await durable.store.on_disk()
        finally:
            if session.errand is self:
                session.errand = None
            if self._owns_tail and durable is not None:
                durable.is_loading = False
        if session in session.core.estates and self.is_done and not self.has_missed:
            _end_estate(session)
        if not is_wanted and not session.core.is_stopping and _is_idle(session):
            hand_on(session)  # its client came back and left again meanwhile
        session.drain()  # its client may be back, and waits for the tail

    async def _make_way(self, durable: Durable) -> None:
        """Somebody needs the whole queue, to take it to another node say: go on afterwards, with what is left."""
        if self._owns_tail:
            await durable.store.on_disk()
            durable.is_loading = self._owns_tail = False
        self._is_memory_done = False
        self._is_waiting = True

    # -- what is in memory ----------------------------------------------------------------------------------

    def go_on(self) -> int:
        """The next part of what is in memory; returns how many went."""
        session = self._session
        takers = Takers(session, is_over=self._is_over)
        self._is_waiting = False
        moved = looked = 0
        while self._inflight and looked < PART and takers.cost < MOST_COST and not self._is_waiting:
            looked += 1
            moved += self._give_inflight(takers)
        if not self._inflight:
            moved += self._give_pending(takers, PART - looked)
        self._count(moved)
        return moved

    def _give_inflight(self, takers: Takers) -> bool:
        session = self._session
        pid = self._inflight[0]
        entry = session.inflight.get(pid)
        outcome = Outcome.STAYS
        if entry is not None and len(entry) == 5 and entry[1] == 1:
            outcome = self._give(takers, entry)
        if outcome is Outcome.WAITS:
            self._is_waiting = True
            return False
        self._inflight.popleft()
        if outcome is not Outcome.STAYS:
            if session.conn is not None:
                session.inflight[pid] = GIVEN_ON
            else:
                del session.inflight[pid]
        return outcome is Outcome.MOVED

    def _give_pending(self, takers: Takers, limit: int) -> int:
        session = self._session
        pending = session.pending
        if pending is None:
            self._is_memory_done = True
            return 0
        moved = 0
        pending.rotate(-self._skipped)
        for _ in range(min(limit, len(pending) - self._skipped)):
            if takers.cost >= MOST_COST:
                break
            outcome = self._give(takers, pending[0])
            if outcome is Outcome.WAITS:
                self._is_waiting = True
                break
            if outcome is Outcome.STAYS:
                pending.rotate(-1)
                self._skipped += 1
                continue
            session.count_out(pending.popleft()[0].size_bytes)
            moved += outcome is Outcome.MOVED
        pending.rotate(self._skipped)
        self._is_memory_done = len(pending) <= self._skipped
        if not pending:
            session.pending = None
        if session.is_full:
            session.check_room()
        return moved

    # -- what is on disk alone ------------------------------------------------------------------------------

    async def _tail_part(self, durable: Durable) -> None:
        session = self._session
        if not self._owns_tail:
            if durable.is_loading:
                self._is_waiting = True
                return
            durable.is_loading = self._owns_tail = True
            self._after = durable.tail_after
            self._is_memory_done = False  # a page may have come from disk just before
            return
        page = await durable.store.load(session, self._after, PART)
        if not self._is_wanted:
            return
        self._is_waiting = not page
        if not page:  # the end, unless some are not on disk yet, or the disk cannot be read
            self._is_tail_done = (
                durable.durable_seq >= durable.next_seq - 1 and not durable.store.is_unreadable
            )
            return
        takers = Takers(session, is_over=self._is_over)
        moved = 0
        for delivery in page:
            if takers.cost >= MOST_COST:
                break  # it is read again
            outcome = self._give(takers, delivery)
            if outcome is Outcome.WAITS:
                self._is_waiting = True
                break
            self._after = delivery[4]
            if outcome is not Outcome.STAYS:
                durable.left_tail(session, delivery[0].size_bytes)
                moved += outcome is Outcome.MOVED
        self._count(moved)
        if session.is_full:
            session.check_room()

    # -- one message ----------------------------------------------------------------------------------------

    def _give(self, takers: Takers, delivery: Delivery) -> Outcome:
        """Put it into another member's queue and out of this session's store."""
        message, qos, retain, tag, seq = delivery
        session, durable = self._session, self._durable
        core = session.core
        if not isinstance(tag, Tag):
            return Outcome.STAYS
        is_stored = durable is not None and seq > 0
        if qos == 2 and durable is not None and is_stored and durable.may_have_been_sent(seq):
            return Outcome.STAYS
        if message.expires is not None and message.expires <= core.now():  # [MQTT5-3.3.2-5]
            core.counters.expired += 1
            session.forget(delivery)
            return Outcome.EXPIRED
        chosen = takers.find(message, qos, tag, is_stored)
        if chosen is None:
            if takers.may_come(message, tag, is_stored):
                return Outcome.WAITS
            self.has_missed = True
            return Outcome.STAYS
        if message.mid and not is_stored:
            message = message.copy()  # its number in the store may be nobody's by now
        tag.group.moved += 1
        # What was read from disk knows only whether it was sent to this member as a retained one.
        retain = (message.retain or retain) and chosen.retain_as_published
        chosen.session.deliver(message, min(qos, chosen.qos), retain, chosen.tag)
        session.forget(delivery)
        return Outcome.MOVED

    def _count(self, moved: int) -> None:
        self._session.core.counters.shared_moved += moved
        self._session.count_load()
