"""A shared subscription: one group of sessions, each message goes to one of them.

The choice itself is a pure `flow` policy; this module keeps the members and tells the policy what it may know: which
messages went to whom, which were acknowledged, and what clients report about their load.

A member that leaves or stalls gives back what it has not acknowledged: QoS 1 in flight and everything that still waits.
QoS 2 in flight stays its own: nobody else may get it [MQTT5-4.8.2-5].
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any

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


class SharedGroup:
    """`$share/{name}/{topic_filter}`. Members keep the order in which they joined."""

    __slots__ = (
        "_changes",
        "_loads",
        "_parts",
        "_present",
        "_present_loads",
        "_random",
        "_seen",
        "full_name",
        "members",
        "moved",
        "name",
        "policy",
        "topic_filter",
        "waiters",
    )

    def __init__(self, name: str, topic_filter: bytes, policy: SharedPolicy, random: Random) -> None:
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
        if session.load is None:
            session.load = ClientLoad(monotonic())
        self.members.append(subscription)
        self._loads = (*self._loads, Member(session.client_id, session.load, monotonic()))
        self._parts.clear()
        self.changed()

    def tag(self, identifiers: tuple[int, ...]) -> Tag:
        tag = Tag(identifiers)
        tag.group = self
        return tag

    def remove(self, subscription: Subscription) -> None:
        session = subscription.session
        self._loads = tuple(
            load for m, load in zip(self.members, self._loads, strict=True) if m.session is not session
        )
        self.members = [m for m in self.members if m.session is not session]
        self._parts.clear()
        self.changed()

    def changed(self) -> None:
        """A member came, left, stalled or works again."""
        self._changes[0] += 1
        self._present, self._present_loads = [], ()  # else who left would live on here

    def restricted(self, members: list[Subscription]) -> SharedGroup:
        """The same group, policy included, with some of its members only."""
        part = SharedGroup(self.name, self.topic_filter, self.policy, self._random)
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
            if found is None:
                return None
            start = found
        chosen = members[start]
        if qos and chosen.qos:
            loads[start].on_sent(now, 1)
        elif policy.is_counting:
            loads[start].on_sent(now)
        return chosen

    def _walk(self, members: list[Subscription], start: int, qos: int) -> int | None:
        """The first from `start` on that can take it."""
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
