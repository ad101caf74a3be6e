"""Which member of a group gets what another member leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.broker.index import RIGHTS_COST
from tidegate.broker.shared import SharedGroup, Tag

if TYPE_CHECKING:
    from tidegate.broker.index import Subscription
    from tidegate.broker.message import Message
    from tidegate.broker.session import Session


class Takers:
    """For the messages of one session, in one turn: who could take them is looked up once for many messages.

    `cost` is what that took, in units of work.
    """

    __slots__ = ("_allowed", "_connected", "_is_over", "_parts", "_session", "cost")

    def __init__(self, session: Session, *, is_over: bool) -> None:
        self._session = session
        self._is_over = is_over  # the session: what nobody takes is discarded
        self._parts: dict[tuple[SharedGroup, bool], SharedGroup | None] = {}
        self._allowed: dict[tuple[SharedGroup, bytes], SharedGroup | None] = {}
        self.cost = 0
        self._connected: dict[tuple[SharedGroup, bool], bool] = {}

    def find(self, message: Message, qos: int, tag: Tag, is_stored: bool) -> Subscription | None:
        """By the group's policy, of those that may have it and have room; None if there is nobody now."""
        group = self._group(message, tag)
        if group is None:
            return None
        part = self._part(group, is_stored)
        if part is None:
            return None
        chosen = part.choose(message.topic, message.publisher, self._session.core.now(), qos)
        if chosen is not None and self._has_room(chosen.session):
            return chosen
        self._parts.clear()  # somebody became full meanwhile
        part = self._part(group, is_stored)
        return None if part is None else part.members[0]

    def may_come(self, message: Message, tag: Tag, is_stored: bool) -> bool:
        """Whether somebody is connected who could take it once there is room."""
        group = self._group(message, tag)
        if group is None:
            return False
        key = (group, is_stored)
        if key not in self._connected:
            self._connected[key] = any(m.session.conn is not None for m in self._fit(group, is_stored))
        return self._connected[key]

    def _group(self, message: Message, tag: Tag) -> SharedGroup | None:
        """The group a delivery came by, cut down to those with the right to the topic."""
        index = self._session.core.index
        group = index.groups.get((tag.group.name, tag.group.topic_filter))
        may_receive = index.may_receive
        if group is None or index.has_far_groups:
            return None
        if may_receive is None:
            return group
        key = (group, message.topic)
        if key not in self._allowed:
            self.cost += RIGHTS_COST * len(group.members)
            members = [member for member in group.members if may_receive(member.session, message.topic)]
            is_all = len(members) == len(group.members)
            self._allowed[key] = group if is_all else group.restricted(members) if members else None
        return self._allowed[key]

    def _part(self, group: SharedGroup, is_stored: bool) -> SharedGroup | None:
        key = (group, is_stored)
        if key not in self._parts:
            fit = self._fit(group, is_stored)
            if self._is_over and all(m.session.conn is None for m in fit):
                ready = [m for m in fit if m.qos and not m.session.is_full]  # it waits for them to come back
            else:
                ready = [m for m in fit if m.session.is_ready]
            is_all = len(ready) == len(group.members)
            self._parts[key] = (group if is_all else group.restricted(ready)) if ready else None
        return self._parts[key]

    def _fit(self, group: SharedGroup, is_stored: bool) -> list[Subscription]:
        """What is on disk goes only to members that keep it on disk as well, so that a kill loses nothing.

        If there is no such member and the session is over, anybody is better than nobody.
        """
        others = [m for m in group.members if m.session is not self._session]
        if not is_stored:
            return others
        keepers = [m for m in others if m.session.durable is not None and m.qos > 0]
        return keepers or (others if self._is_over else [])

    def _has_room(self, session: Session) -> bool:
        return session.is_ready or (self._is_over and session.conn is None and not session.is_full)
