"""The product's rule: the member that will get to the message first.

Each member has a moment at which it will have worked off all it was given (`ClientLoad.free_at`); the earliest wins,
and among those that are idle the one that waits longest. A far member cannot be earlier than half a round trip. While
nobody reports or acknowledges anything, all are idle for all we know, and that is round robin at its price: the cursor
meets every member once a round and notices who begins to tell.

Groups over `SCAN` members keep a timetable, so that the cost hardly grows with the group. Power of two choices, the
usual way, was tried first and made messages wait several times as long as looking at all members does.

With ordering keys, messages of one key go to one member unless that one is overloaded (consistent hashing with bounded
loads).
"""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from math import inf
from random import Random
from statistics import median_low
from typing import Final

from tidegate.flow.shared.load import ClientLoad, Member
from tidegate.flow.shared.ring import Rings
from tidegate.flow.shared.timetable import Timetable

SCAN: Final = 4  # members that are all looked at: up to here that is cheaper than a timetable
TABLES: Final = 8
SAMPLE: Final = 9  # members that tell what is usual in a group
MEDIAN_EVERY: Final = 64  # choices that a median is good for
BOUND: Final = 1.25  # times the mean backlog that a key's member may have
BOUND_MESSAGES: Final = 2.0  # and this many messages in any case: one is no overload


class Ordering(StrEnum):
    """Which messages are kept in order by giving them to one member."""

    NONE = "none"
    TOPIC = "topic"
    PUBLISHER = "publisher"


class EarliestFinish:
    """`ordering`: what to use as key, if anything; `bound`: times the mean backlog that counts as overloaded."""

    __slots__ = (
        "_bound",
        "_median",
        "_median_left",
        "_next",
        "_ordering",
        "_rings",
        "_table",
        "_tables",
        "is_counting",
    )

    def __init__(self, *, ordering: Ordering = Ordering.NONE, bound: float = BOUND) -> None:
        if not bound >= 1.0:
            raise ValueError("bound must be at least 1, the mean itself")
        self.is_counting = ordering is not Ordering.NONE
        self._ordering = ordering
        self._bound = bound
        self._rings = Rings()
        self._next = 0
        self._table: Timetable | None = None
        self._tables: dict[int, Timetable] = {}
        self._median = 0.0
        self._median_left = 0

    def choose(
        self, members: tuple[Member, ...], topic: bytes, publisher: str, now: float, random: Random
    ) -> int:
        if not self.is_counting:
            index = self._next
            if index >= len(members):
                index = 0
            if not members[index].load.is_known:
                self._next = index + 1
                return index
            self.is_counting = True
        if self._ordering is not Ordering.NONE:
            key = topic if self._ordering is Ordering.TOPIC else publisher.encode()
            chosen = self._keyed(members, key, now)
        elif len(members) <= SCAN:
            chosen = self._earliest(members, now)
        else:
            table = self._table
            if table is None or table.members is not members:
                table = self._timetable(members)
            chosen = table.earliest(now)
        load = members[chosen].load
        if not load.has_sample:
            self._lend(load, members)
        return chosen

    def _earliest(self, members: tuple[Member, ...], now: float) -> int:
        best = index = 0
        least = oldest = inf
        is_known = False
        for member in members:
            load = member.load
            wait = load.free_at - now
            if load.is_known:
                is_known = True
                awaiting = load.awaiting
                if awaiting:
                    behind = (awaiting - 1) * load.service
                    if wait < behind:
                        # Overdue: the longer it is, the longer it may still take.
                        wait = behind + behind - wait
            if wait < load.delay:
                wait = load.delay
            if wait <= least and (wait < least or member.last_sent < oldest):
                best = index
                least = wait
                oldest = member.last_sent
            index += 1  # noqa: SIM113 - cheaper than enumerate
        if not is_known:
            self.is_counting = False
            self._next = 0
        return best

    def _timetable(self, members: tuple[Member, ...]) -> Timetable:
        """Of the tuples last used; groups may be cut down to those who may receive a topic."""
        timetable = self._tables.get(id(members))
        if timetable is None:
            while len(self._tables) >= TABLES:
                del self._tables[next(iter(self._tables))]
            timetable = self._tables[id(members)] = Timetable(members)
            # Those who told anything may have left.
            self.is_counting = any(member.load.is_known for member in members)
        self._table = timetable
        return timetable

    def _keyed(self, members: tuple[Member, ...], key: bytes, now: float) -> int:
        """The first member from the key's place on that is not overloaded, compared with a sample of the group."""
        step = -(-len(members) // SAMPLE)
        self._next = self._next + 1 if self._next + 1 < step else 0
        sample = members[self._next :: step]
        limit = self._bound * sum(wait_of(member.load, now) for member in sample) / len(sample)
        best = 0
        least = inf
        for index in islice(self._rings.find(members).walk(key), SAMPLE):
            load = members[index].load
            wait = wait_of(load, now)
            if wait <= limit + BOUND_MESSAGES * load.service:
                return index
            if wait < least:
                best, least = index, wait
        return best

    def _lend(self, load: ClientLoad, members: tuple[Member, ...]) -> None:
        """A member without a sample is taken to be as fast as is usual in its group (spec 5 (e) 2)."""
        if self._median_left == 0:
            step = -(-len(members) // SAMPLE)
            known = [m.load.service for m in members[self._next % step :: step] if m.load.has_sample]
            self._median = median_low(known) if known else 0.0
            self._median_left = MEDIAN_EVERY
        self._median_left -= 1
        load.service = self._median


def wait_of(load: ClientLoad, now: float) -> float:
    """Seconds until the member could begin with a message sent now."""
    wait = load.free_at - now
    if load.awaiting:
        behind = (load.awaiting - 1) * load.service
        wait = behind + abs(wait - behind)
    return max(wait, load.delay)
