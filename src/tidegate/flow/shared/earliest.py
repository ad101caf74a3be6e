"""The product's rule: the member that will get to the message first.

Each member has a moment at which it will have worked off all it was given (`ClientLoad.free_at`); the earliest wins,
and among those that are idle the one that waits longest. While nobody reports or acknowledges anything, all are idle
for all we know, and that is round robin at its price: the cursor meets every member once a round and notices who begins
to tell.

Of the way to a far member a quarter counts. All of it would be best for the message at hand alone: near members would
get everything until their queues are as long as the way to the far one, and whoever comes next waits in these queues.

Groups over `SCAN` members keep a timetable, so that the cost hardly grows with the group. Power of two choices, the
usual way, was tried first and made messages wait several times as long as looking at all members does.

With ordering keys, messages of one key go to one member unless that one is overloaded (consistent hashing with bounded
loads). While a key's messages are worked on it stays where they are, also with some overload: members that are left and
come back to at every chance would put messages out of order more often than no keys at all.
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
BOUND_MESSAGES: Final = 1.0  # and this many messages in any case: one is no overload;
BUSY_MESSAGES: Final = 4.0  # or so many for a key whose messages are under way: to move it would cost their order
PLACES: Final = 4096  # keys with messages under way that are remembered; more are forgotten, and begin at home


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
        "_places",
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
        self._places: dict[bytes, tuple[int, Member, float]] = {}  # of keys: member, and when it will be done
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
            delay = load.delay
            if delay:
                wait -= load.discount
            if wait < delay:
                wait = delay
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
        """Where the key's messages are, else from its place on the ring on, the first that is not overloaded.

        Overloaded is meant in comparison with a sample of the group.
        """
        step = -(-len(members) // SAMPLE)
        self._next = self._next + 1 if self._next + 1 < step else 0
        sample = members[self._next :: step]
        limit = self._bound * sum(wait_of(member.load, now) for member in sample) / len(sample)
        index, member, done_at = self._places.get(key, (0, None, 0.0))
        is_under_way = done_at > now and index < len(members) and members[index] is member
        if (
            not is_under_way
            or wait_of(members[index].load, now) > limit + BUSY_MESSAGES * members[index].load.service
        ):
            index = self._from_home(members, key, now, limit)
        load = members[index].load
        self._remember(key, (index, members[index], max(load.free_at, now) + load.service), now)
        return index

    def _from_home(self, members: tuple[Member, ...], key: bytes, now: float, limit: float) -> int:
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

    def _remember(self, key: bytes, place: tuple[int, Member, float], now: float) -> None:
        places = self._places
        if len(places) >= PLACES and key not in places:
            places = {known: entry for known, entry in places.items() if entry[2] > now}
            if len(places) > PLACES // 2:
                places.clear()
            self._places = places
        places[key] = place

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
    """Seconds until the member could begin with a message sent now, as far as they count."""
    wait = load.free_at - now
    if load.awaiting:
        behind = (load.awaiting - 1) * load.service
        wait = behind + abs(wait - behind)
    return max(wait - load.discount, load.delay)
