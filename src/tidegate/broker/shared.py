"""A shared subscription: one group of sessions, each message goes to one of them.

The choice itself is a pure `flow` policy; this module keeps the members and tells the policy what it may know: which
messages went to whom, which were acknowledged, and what clients report about their load.

A member that leaves or stalls gives back what it has not acknowledged: QoS 1 in flight and everything that still waits.
QoS 2 in flight stays its own: nobody else may get it [MQTT5-4.8.2-5].
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidegate.broker.waiting import release
from tidegate.flow.shared import ClientLoad, Member, SharedPolicy
from tidegate.flow.shared.earliest import wait_of

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.index import Subscription
    from tidegate.broker.session import Session


MAX_PARTS = 256  # different sets of members, by their rights, that a group knows


class Tag(tuple[int, ...]):  # noqa: SLOT001 - it has to carry the group
    """Subscription identifiers of a delivery that came by a group, and the group: where it goes if it must go on."""

    group: SharedGroup


class Roster:
    """Makes what policies know of members. `speeds`: seconds a message takes, by group and client or "" and client."""

    def __init__(self) -> None:
        self.speeds: Mapping[tuple[str, str], float] = {}

    def load(self, client_id: str, now: float) -> ClientLoad:
        """What is known of a client at its first report, or when it joins its first group."""
        return ClientLoad(now)

    def member(self, group: SharedGroup, client_id: str, load: ClientLoad, now: float) -> Member:
        """A client joins a group."""
        self._prime(load, group.name, client_id)
        return Member(client_id, load, now)

    def left(self, group: SharedGroup, client_id: str) -> None:
        """It leaves the group."""

    def prime(self, session: Session) -> None:
        """All that was known of a client was forgotten, and it still is in its groups."""
        if session.load is not None and self.speeds:
            for subscription in session.subscriptions.values():
                if subscription.share:
                    self._prime(session.load, subscription.share, session.client_id)

    def _prime(self, load: ClientLoad, group: str, client_id: str) -> None:
        if self.speeds:
            load.prime(self.speeds.get((group, client_id)) or self.speeds.get(("", client_id)) or 0.0)


class SharedGroup:
    """`$share/{name}/{topic_filter}`. Members keep the order in which they joined."""

    __slots__ = (
        "_changes",
        "_loads",
        "_parts",
        "_present",
        "_present_loads",
        "_random",
        "_roster",
        "_seen",
        "full_name",
        "members",
        "moved",
        "name",
        "policy",
        "topic_filter",
        "waiters",
    )

    def __init__(
        self,
        name: str,
        topic_filter: bytes,
        policy: SharedPolicy,
        random: Random,
        roster: Roster | None = None,
    ) -> None:
        self._roster = roster or Roster()
        self.name = name
        self.topic_filter = topic_filter
        self.full_name = f"$share/{name}/{topic_filter.decode()}"  # as it is subscribed to
        self.policy = policy
        self.members: list[Subscription] = []
        self._loads: tuple[Member, ...] = ()  # what the policy knows of each member, in the same order
        self._parts: dict[tuple[Session, ...], tuple[Member, ...]] = {}  # the same, of those with the right
        # Those that are there: a rule that looked at all would find the absent idle, and one neighbour their stand-in.
        self._present: list[Subscription] = []
        self._present_loads: tuple[Member, ...] = ()
        self._changes = [0]  # counts who came and went; one list for the group and its parts
        self._seen = -1
        self._random = random
        self.waiters: dict[Connection, None] | None = None  # publishers held until a member has room
        self.moved = 0  # messages that went on to another member

    def add(self, subscription: Subscription) -> None:
        subscription.tag = self.tag((subscription.identifier,) if subscription.identifier else ())
        for i, member in enumerate(self.members):
            if member.session is subscription.session:
                self.members[i] = subscription
                self.changed()
                return
        session = subscription.session
        now = monotonic()
        if session.load is None:
            session.load = self._roster.load(session.client_id, now)
        self.members.append(subscription)
        self._loads = (*self._loads, self._roster.member(self, session.client_id, session.load, now))
        self._parts.clear()
        self.changed()

    def tag(self, identifiers: tuple[int, ...]) -> Tag:
        tag = Tag(identifiers)
        tag.group = self
        return tag

    def remove(self, subscription: Subscription) -> None:
        session = subscription.session
        self._roster.left(self, session.client_id)
        self._loads = tuple(
            load for m, load in zip(self.members, self._loads, strict=True) if m.session is not session
        )
        self.members = [m for m in self.members if m.session is not session]
        self._parts.clear()
        self.changed()

    def changed(self) -> None:
        """A member came, left, stalled or works again; publishers that wait for the group try again."""
        self._changes[0] += 1
        if self.waiters is not None:
            release(self)
        self._present, self._present_loads = [], ()  # else who left would live on here

    def loads(self, limit: int) -> tuple[Member, ...]:
        """What policies know of the first members."""
        return self._loads[:limit]

    def are_all(self, members: tuple[Member, ...]) -> bool:
        """Whether these are the members, and not some of them."""
        return members is self._loads

    def restricted(self, members: list[Subscription]) -> SharedGroup:
        """The same group, policy included, with some of its members only."""
        part = SharedGroup(self.name, self.topic_filter, self.policy, self._random, self._roster)
        part.members = members
        part._loads = self._loads_of(members)
        part._changes = self._changes
        return part

    def _loads_of(self, members: list[Subscription]) -> tuple[Member, ...]:
        """What the policy knows of some members: one tuple for the same members, as policies keep state by it."""
        sessions = tuple(m.session for m in members)
        loads = self._parts.get(sessions)
        if loads is None:
            if len(self._parts) >= MAX_PARTS:
                self._parts.clear()
            known = {m.session: load for m, load in zip(self.members, self._loads, strict=True)}
            loads = self._parts[sessions] = tuple(known[session] for session in sessions)
        return loads

    def _look(self) -> None:
        """Find out who is there; if nobody is, all count."""
        self._seen = self._changes[0]
        present = [m for m in self.members if m.session.conn is not None and not m.session.is_stalled]
        if present and len(present) < len(self.members):
            self._present, self._present_loads = present, self._loads_of(present)
        else:
            self._present, self._present_loads = self.members, self._loads

    @property
    def offered(self) -> list[Subscription]:
        """Those a message is offered to."""
        if self._seen != self._changes[0]:
            self._look()
        return self._present

    def choose(self, topic: bytes, publisher: str, now: float, qos: int) -> Subscription | None:
        """The member for one message; None if nobody can take it.

        A member that is connected and has room is preferred to one that is not; for QoS 1 and 2 a session that
        is away may still queue it.
        """
        if self._seen != self._changes[0]:
            self._look()
        members = self._present
        loads = self._present_loads
        policy = self.policy
        start = policy.choose(loads, topic, publisher, now, self._random)
        session = members[start].session
        if not session.queued or session.is_full or session.is_stalled:
            found = self._walk(members, start, qos)
            if found is None and qos and members is not self.members:
                members, loads = self.members, self._loads
                found = self._with_room(members, 0)
            if found is None:
                if not qos:
                    return None
                members, loads, found = self._present, self._present_loads, start
            start = found
        chosen = members[start]
        if qos and chosen.qos:
            loads[start].on_sent(now, 1)
        elif policy.is_counting:
            loads[start].on_sent(now)
        return chosen

    def _walk(self, members: list[Subscription], start: int, qos: int) -> int | None:
        """The first from `start` on that can take it; None if nobody has room."""
        count = len(members)
        for i in range(start, start + count):
            at = i - count if i >= count else i
            session = members[at].session
            if session.is_ready:
                return at
        if qos == 0:
            for at, member in enumerate(members):
                if member.session.conn is not None:
                    return at
            return None
        return self._with_room(members, start)

    def _with_room(self, members: list[Subscription], start: int) -> int | None:
        """The first that can queue it; what it would not queue while it is away does not count."""
        count = len(members)
        for i in range(start, start + count):
            at = i - count if i >= count else i
            session = members[at].session
            if not session.is_full and (members[at].qos or session.conn is not None):
                return at
        return None

    def view(self, now: float, limit: int) -> dict[str, Any]:
        """The group as an operator sees it; times in milliseconds. Of many members those with the most to do."""
        loads = self._loads
        shown: Iterable[int] = range(len(loads))
        if len(loads) > limit:
            shown = sorted(heapq.nlargest(limit, shown, key=lambda at: loads[at].load.outstanding))
        total = sum(member.share for member in loads) or 1
        return {
            "group": self.name,
            "filter": self.topic_filter.decode(),
            "total": len(loads),
            "connected": sum(subscription.session.conn is not None for subscription in self.members),
            "outstanding": sum(member.load.outstanding for member in loads),
            "moved": self.moved,
            "members": [_row(self.members[at].session, loads[at], now, total) for at in shown],
        }


def _row(session: Session, member: Member, now: float, total: float) -> dict[str, Any]:
    load = member.load
    return {
        "client": member.key,
        "connected": session.conn is not None,
        "is_stalled": session.is_stalled,
        "outstanding": load.outstanding,
        "service_ms": round(load.service * 1e3, 3),
        "wait_ms": round(load.backlog(now) * 1e3, 3),
        "expected_ms": round(wait_of(load, now) * 1e3, 3),
        "sent_ago_ms": round((now - member.last_sent) * 1e3, 3) if member.share else None,
        "sent": member.share,
        "share": round(member.share / total, 4),
        "reports": load.report_interval > 0.0,
    }
