"""Decides about topics: rules of a user, its groups and the patterns, compiled into sets of filters.

Rules: what nothing allows is denied; a rule that denies wins. A subscription is granted if it can match anything
readable, as each delivery is checked again; with `is_strict` only if everything it can match is readable.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidegate.accounts.filters import FilterSet, Levels, covers, intersection, levels_of
from tidegate.accounts.names import ClientNames
from tidegate.accounts.rights_file import Access, RightsTable, Rule
from tidegate.mqtt.errors import MQTTError
from tidegate.mqtt.topics import parse_shared

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.session import Session

MAX_CLIENTS = 20_000  # compiled rights kept, a little more than the connections of a node
_PLACEHOLDER = re.compile("%[uc]")
_SYS: Levels = ("$SYS", "#")


class TopicRights:
    """What one client may do."""

    __slots__ = ("_denied_read", "_denied_write", "_is_strict", "_read", "_write")

    def __init__(self, rules: Iterable[tuple[Access, bool, Levels]], *, is_strict: bool) -> None:
        found = tuple(rules)

        def select(access: Access, is_denied: bool) -> FilterSet:
            return FilterSet(
                levels for what, denied, levels in found if access in what and denied == is_denied
            )

        self._read, self._denied_read = select(Access.READ, False), select(Access.READ, True)
        self._write, self._denied_write = select(Access.WRITE, False), select(Access.WRITE, True)
        self._is_strict = is_strict

    def may_write(self, topic: str) -> bool:
        return self._write.matches(topic) and not self._denied_write.matches(topic)

    def may_read(self, topic: str) -> bool:
        return self._read.matches(topic) and not self._denied_read.matches(topic)

    def may_subscribe(self, topic_filter: str) -> bool:
        try:
            shared = parse_shared(topic_filter)
            levels = levels_of(shared[1] if shared else topic_filter)
        except MQTTError:
            return False
        if self._is_strict:
            return self._read.covers(levels) and not any(
                intersection(denied, levels) for denied in self._denied_read
            )
        return any(
            not any(covers(denied, common) for denied in self._denied_read)
            for common in self._read.overlaps(levels)
        )


class Rights:
    """An `Authoriser` over a rights file; `replace` swaps the file in one step."""

    def __init__(self, table: RightsTable, *, is_strict: bool = False, sys_readable: bool = False) -> None:
        self.replace(table, is_strict=is_strict, sys_readable=sys_readable)

    def replace(self, table: RightsTable, *, is_strict: bool, sys_readable: bool) -> None:
        """Decide by other rules from now on; the broker must forget what it has cached (`rights_changed`)."""
        self._table = table
        self._names = ClientNames(table)
        self._is_strict = is_strict
        self._sys_readable = sys_readable
        self._is_per_client = any("%c" in rule.topic_filter for rule in table.patterns)
        self._compiled: OrderedDict[tuple[str | None, str], TopicRights] = OrderedDict()

    def may_be_named(self, user: str | None, client_id: str) -> bool:
        return self._names.may_use(user, client_id)

    def may_publish(self, client: Connection, topic: str) -> bool:
        return self.of(client.username, client.session.client_id).may_write(topic)

    def may_still_publish(self, user: str | None, client_id: str, topic: str) -> bool:
        return self.of(user, client_id).may_write(topic)

    def may_subscribe(self, client: Connection, topic_filter: str) -> bool:
        return self.of(client.username, client.session.client_id).may_subscribe(topic_filter)

    def may_receive(self, session: Session, topic: str) -> bool:
        return self.of(session.user, session.client_id).may_read(topic)

    def of(self, user: str | None, client_id: str) -> TopicRights:
        """The compiled rights of a client."""
        key = (user, client_id if self._is_per_client else "")
        compiled = self._compiled
        rights = compiled.get(key)
        if rights is None:
            rights = compiled[key] = self._compile(user, client_id)
            if len(compiled) > MAX_CLIENTS:
                compiled.popitem(last=False)
        else:
            compiled.move_to_end(key)
        return rights

    def _compile(self, user: str | None, client_id: str) -> TopicRights:
        table = self._table
        found = [(rule.access, rule.is_denied, levels_of(rule.topic_filter)) for rule in table.rules_of(user)]
        for rule in table.patterns:
            levels = substitute(rule, user, client_id)
            if levels is not None:
                found.append((rule.access, rule.is_denied, levels))
        if self._sys_readable:
            found.append((Access.READ, False, _SYS))
        return TopicRights(found, is_strict=self._is_strict)


def substitute(rule: Rule, user: str | None, client_id: str) -> Levels | None:
    """The filter of a pattern for one client; None if it does not apply.

    Names are chosen by strangers: one that holds `/`, `+` or `#`, or that would turn the first level into a `$`
    topic, could reach other clients' topics. A pattern that allows then does not apply; one that denies is
    widened to everything from that level on, since not applying it would open what it is to protect.
    """
    topic_filter = rule.topic_filter
    if "%u" in topic_filter and user is None:
        return None
    values = {"%u": user or "", "%c": client_id}
    levels: list[str] = []
    for depth, level in enumerate(topic_filter.split("/")):
        used = [values[name] for name in _PLACEHOLDER.findall(level)]
        filled = _PLACEHOLDER.sub(lambda found: values[found[0]], level)
        is_hidden = depth == 0 and filled.startswith("$") and not level.startswith("$")
        if is_hidden or not all(_is_plain(value) for value in used):
            return levels_of("/".join([*levels, "#"])) if rule.is_denied else None
        levels.append(filled)
    try:
        return levels_of("/".join(levels))
    except MQTTError:  # too long with the names put in
        return levels_of("#") if rule.is_denied else None


def _is_plain(value: str) -> bool:
    return bool(value) and not any(c in "+#/" or ord(c) < 32 or ord(c) == 127 for c in value)
