"""A shared subscription: one group of sessions, each message goes to one of them.

The choice itself is a pure `flow` policy; this module keeps the members and tells the policy what it may know: which
messages went to whom, which were acknowledged, and what clients report about their load.

A member that leaves or stalls gives back what it has not acknowledged: QoS 1 in flight and everything that still waits.
QoS 2 in flight stays its own: nobody else may get it [MQTT5-4.8.2-5].
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidegate.flow.shared import ClientLoad, Member, SharedPolicy

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
        "_loads",
        "_parts",
        "_random",
        "_roster",
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
        self.policy = policy
        self.members: list[Subscription] = []
        self._loads: tuple[Member, ...] = ()  # what the policy knows of each member, in the same order
        self._parts: dict[tuple[Session, ...], tuple[Member, ...]] = {}  # the same, of those with the right
        self._random = random
        self.waiters: dict[Connection, None] | None = None  # publishers held until a member has room
        self.moved = 0  # messages that went on to another member

    def add(self, subscription: Subscription) -> None:
        tag = Tag((subscription.identifier,) if subscription.identifier else ())
        tag.group = self
        subscription.tag = tag
        for i, member in enumerate(self.members):
            if member.session is subscription.session:
                self.members[i] = subscription
                return
        session = subscription.session
        now = monotonic()
        if session.load is None:
            session.load = self._roster.load(session.client_id, now)
        self.members.append(subscription)
        self._loads = (*self._loads, self._roster.member(self, session.client_id, session.load, now))
        self._parts.clear()

    def remove(self, subscription: Subscription) -> None:
        session = subscription.session
        self._roster.left(self, session.client_id)
        self._loads = tuple(
            load for m, load in zip(self.members, self._loads, strict=True) if m.session is not session
        )
        self.members = [m for m in self.members if m.session is not session]
        self._parts.clear()

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
        # One tuple for all topics with the same members: policies keep state by it.
        sessions = tuple(m.session for m in members)
        loads = self._parts.get(sessions)
        if loads is None:
            if len(self._parts) >= MAX_PARTS:
                self._parts.clear()
            known = {m.session: load for m, load in zip(self.members, self._loads, strict=True)}
            loads = self._parts[sessions] = tuple(known[session] for session in sessions)
        part._loads = loads
        return part

    def choose(self, topic: bytes, publisher: str, now: float, qos: int) -> Subscription | None:
        """The member for one message; None if nobody can take it.

        A member that is connected and has room is preferred to one that is not; for QoS 1 and 2 a session that
        is away may still queue it.
        """
        members = self.members
        policy = self.policy
        start = policy.choose(self._loads, topic, publisher, now, self._random)
        first = members[start]
        session = first.session
        if session.queued and not session.is_full and not session.is_stalled:
            if qos and first.qos:
                self._loads[start].on_sent(now, 1)
            elif policy.is_counting:
                self._loads[start].on_sent(now)
            return first
        found = self._walk(start, qos)
        if found is None:
            return None
        chosen = members[found]
        if qos and chosen.qos:
            self._loads[found].on_sent(now, 1)
        elif policy.is_counting:
            self._loads[found].on_sent(now)
        return chosen

    def _walk(self, start: int, qos: int) -> int | None:
        """The first from `start` on that can take it."""
        members = self.members
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
        for i in range(start, start + count):
            at = i - count if i >= count else i
            if not members[at].session.is_full:
                return at
        return start

    def rows(self, now: float, limit: int) -> list[dict[str, Any]]:
        """Members as an operator sees them; times in milliseconds."""
        total = sum(member.share for member in self._loads) or 1
        return [
            {
                "client": member.key,
                "connected": subscription.session.conn is not None,
                "is_stalled": subscription.session.is_stalled,
                "outstanding": member.load.outstanding,
                "service_ms": round(member.load.service * 1e3, 3),
                "wait_ms": round(member.load.backlog(now) * 1e3, 3),
                "share": round(member.share / total, 4),
                "reports": member.load.report_interval > 0.0,
            }
            for subscription, member in zip(self.members[:limit], self._loads[:limit], strict=True)
        ]
