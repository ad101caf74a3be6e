"""Classes of traffic that an administrator pins: by topic filter, authenticated user and listener.

Nothing a client says about itself counts. A topic is only as good as the rights that guard it: a rule by topic filter
assumes that not everybody may publish there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidegate.errors import TidegateError


class InvalidRule(TidegateError):
    """A rule that could never mean what was intended; `rule` is its position, from 1."""

    def __init__(self, rule: int, problem: str) -> None:
        super().__init__(f"priority rule {rule}: {problem}")
        self.rule = rule


@dataclass(slots=True, kw_only=True, frozen=True)
class Band:
    """Part of the order that a class occupies: 0 is served first, 1 last. Rates order the members inside."""

    first: float
    last: float

    def place(self, share: float) -> float:
        """Where a member stands whose rate is at this share (0 to 1) of all rates."""
        return self.first + (self.last - self.first) * share


URGENT: Final = Band(first=0.0, last=0.0)
NORMAL: Final = Band(first=0.0, last=1.0)
BULK: Final = Band(first=1.0, last=1.0)


@dataclass(slots=True, kw_only=True, frozen=True)
class Rule:
    """Every condition that is given must hold; `limit` is a quota in messages per second, 0 for none.

    `is_service`: its publishers send what others ask for, and are not judged for it.
    """

    name: str
    band: Band = NORMAL
    topic_filter: str | None = None
    user: str | None = None
    listener: str | None = None
    limit: float = 0.0
    is_service: bool = False


class Classes:
    """Rules in order; the first that matches decides. Cost linear in rules: ask once per route, not per message."""

    __slots__ = ("_levels", "rules")

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(rules)
        for number, rule in enumerate(self.rules, 1):
            _check(number, rule)
        self._levels = tuple(
            None if rule.topic_filter is None else rule.topic_filter.split("/") for rule in self.rules
        )

    def find(self, *, topic: str | None, user: str, listener: str) -> Rule | None:
        """The rule for a message; `user` "" is anonymous. Without a topic only rules without a filter can match."""
        names = None if topic is None else topic.split("/")
        for rule, levels in zip(self.rules, self._levels, strict=True):
            if rule.user is not None and rule.user != user:
                continue
            if rule.listener is not None and rule.listener != listener:
                continue
            if levels is None or (names is not None and _matches(levels, names)):
                return rule
        return None


def _matches(levels: list[str], names: list[str]) -> bool:
    if names[0][:1] == "$" and levels[0] in ("+", "#"):
        return False  # [MQTT5-4.7.2-1]
    for at, level in enumerate(levels):
        if level == "#":
            return True  # also matches the parent level, for which the names are used up (section 4.7.1.2)
        if at == len(names) or level not in ("+", names[at]):
            return False
    return len(levels) == len(names)


def _check(number: int, rule: Rule) -> None:
    if rule.topic_filter is None and rule.user is None and rule.listener is None:
        raise InvalidRule(
            number, "give a topic filter, a user or a listener; a rule without any hides the rest"
        )
    if rule.user == "":
        raise InvalidRule(number, "anonymous clients are not a user; pin their listener instead")
    if not 0.0 <= rule.band.first <= rule.band.last <= 1.0:
        raise InvalidRule(
            number, f"a band lies between 0 and 1, its first place before its last: {rule.band}"
        )
    if not rule.limit >= 0.0:
        raise InvalidRule(number, f"a limit is not negative: {rule.limit}")
    if rule.is_service and (rule.limit or rule.topic_filter is not None):
        raise InvalidRule(number, "a service has neither a limit nor a topic filter: name its user or listener")
    if rule.topic_filter is None:
        return
    levels = rule.topic_filter.split("/")
    if rule.topic_filter == "" or "#" in levels[:-1]:
        raise InvalidRule(number, f"{rule.topic_filter!r} is not a topic filter: '#' is its last level")
    if any(level not in ("+", "#") and ("+" in level or "#" in level) for level in levels):
        raise InvalidRule(number, f"{rule.topic_filter!r} is not a topic filter: a wildcard fills its level")
