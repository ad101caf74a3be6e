"""A shared subscription: one group of sessions, each message goes to one of them.

The choice itself is a pure `flow` policy; this module only keeps the members and what the policy may know.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tidegate.flow.shared import ClientLoad, Member, SharedPolicy

if TYPE_CHECKING:
    from tidegate.broker.index import Subscription
    from tidegate.broker.session import Session


class SharedGroup:
    """`$share/{name}/{topic_filter}`. Members keep the order in which they joined."""

    __slots__ = ("_loads", "_parts", "_random", "members", "name", "policy", "topic_filter")

    def __init__(self, name: str, topic_filter: bytes, policy: SharedPolicy, random: Random) -> None:
        self.name = name
        self.topic_filter = topic_filter
        self.policy = policy
        self.members: list[Subscription] = []
        self._loads: tuple[Member, ...] = ()  # what the policy knows of each member, in the same order
        self._parts: dict[tuple[Session, ...], tuple[Member, ...]] = {}  # the same, of those with the right
        self._random = random

    def add(self, subscription: Subscription) -> None:
        for i, member in enumerate(self.members):
            if member.session is subscription.session:
                self.members[i] = subscription
                return
        self.members.append(subscription)
        self._loads = (*self._loads, Member(subscription.session.client_id, ClientLoad()))
        self._parts.clear()

    def remove(self, subscription: Subscription) -> None:
        session = subscription.session
        self._loads = tuple(
            load for m, load in zip(self.members, self._loads, strict=True) if m.session is not session
        )
        self.members = [m for m in self.members if m.session is not session]
        self._parts.clear()

    def restricted(self, members: list[Subscription]) -> SharedGroup:
        """The same group, policy included, with some of its members only."""
        part = SharedGroup(self.name, self.topic_filter, self.policy, self._random)
        part.members = members
        # One tuple for all topics with the same members: policies keep state by it.
        sessions = tuple(m.session for m in members)
        loads = self._parts.get(sessions)
        if loads is None:
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
        start = self.policy.choose(self._loads, topic, publisher, now, self._random)
        first = members[start]
        if first.session.queued and not first.session.is_full:
            if self.policy.is_counting:
                self._loads[start].on_sent(now)
            return first
        found = self._walk(start, qos)
        if found is None:
            return None
        if self.policy.is_counting:
            self._loads[found].on_sent(now)
        return members[found]

    def _walk(self, start: int, qos: int) -> int | None:
        """The first from `start` on that can take it."""
        members = self.members
        count = len(members)
        for i in range(start, start + count):
            at = i - count if i >= count else i
            session = members[at].session
            if session.conn is not None and not session.paused and not session.is_full:
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
