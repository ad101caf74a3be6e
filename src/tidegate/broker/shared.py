"""A shared subscription: one group of sessions, each message goes to one of them.

The choice itself is a pure `flow` policy; this module only keeps the members and what the policy may know.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tidegate.flow.shared import SharedPolicy

if TYPE_CHECKING:
    from tidegate.broker.index import Subscription


class SharedGroup:
    """`$share/{name}/{topic_filter}`. Members keep the order in which they joined."""

    __slots__ = ("_random", "members", "name", "policy", "topic_filter")

    def __init__(self, name: str, topic_filter: bytes, policy: SharedPolicy, random: Random) -> None:
        self.name = name
        self.topic_filter = topic_filter
        self.policy = policy
        self.members: list[Subscription] = []
        self._random = random

    def add(self, subscription: Subscription) -> None:
        for i, member in enumerate(self.members):
            if member.session is subscription.session:
                self.members[i] = subscription
                return
        self.members.append(subscription)

    def remove(self, subscription: Subscription) -> None:
        self.members = [m for m in self.members if m.session is not subscription.session]

    def restricted(self, members: list[Subscription]) -> SharedGroup:
        """The same group, policy included, with some of its members only."""
        part = SharedGroup(self.name, self.topic_filter, self.policy, self._random)
        part.members = members
        return part

    def choose(self, topic: bytes, publisher: str, now: float, qos: int) -> Subscription | None:
        """The member for one message; None if nobody can take it.

        A member that is connected and has room is preferred to one that is not; for QoS 1 and 2 a session that
        is away may still queue it.
        """
        members = self.members
        count = len(members)
        start = self.policy.choose(count, topic, publisher, now, self._random)
        first = members[start]
        if first.session.queued and not first.session.is_full:
            return first
        for i in range(start, start + count):
            member = members[i - count if i >= count else i]
            session = member.session
            if session.conn is not None and not session.paused and not session.is_full:
                return member
        if qos == 0:
            for member in members:
                if member.session.conn is not None:
                    return member
            return None
        for i in range(start, start + count):
            member = members[i - count if i >= count else i]
            if not member.session.is_full:
                return member
        return members[start]
