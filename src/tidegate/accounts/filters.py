"""Topic filters as sets of topics: matching, overlap and cover, for deciding about rights.

A filter is a tuple of its levels. Two filters overlap in a set of topics that is again one filter, which keeps
questions such as "can this subscription see anything it may read" exact and cheap. All functions respect that a
leading wildcard does not match topics that begin with `$` [MQTT5-4.7.2-1].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from tidegate.mqtt.topics import validate_topic_filter

Levels: TypeAlias = tuple[str, ...]

_ROOT_ANYTHING = ("+", "#")


def levels_of(topic_filter: str) -> Levels:
    """The levels of a filter that is not shared; raises `TopicFilterInvalid`."""
    validate_topic_filter(topic_filter)
    levels = tuple(topic_filter.split("/"))
    # "+/#" and "#" match the same topics; one form of it makes `covers` exact.
    return ("#",) if levels == _ROOT_ANYTHING else levels


def _is_hidden_from(wild: Levels, other: Levels) -> bool:
    return wild[0] in ("+", "#") and other[0].startswith("$")


def intersection(one: Levels, two: Levels) -> Levels | None:
    """The filter of exactly those topics that both match; None if there are none."""
    if _is_hidden_from(one, two) or _is_hidden_from(two, one):
        return None
    common: list[str] = []
    for a, b in zip(one, two, strict=False):
        depth = len(common)
        if a == "#":
            return (*common, *two[depth:])
        if b == "#":
            return (*common, *one[depth:])
        if a != b and a != "+" and b != "+":
            return None
        common.append(b if a == "+" else a)
    depth = len(common)
    rest = one[depth:] or two[depth:]
    # One ended: the other may only go on with "#", which includes its parent level (section 4.7.1.2).
    return tuple(common) if rest in ((), ("#",)) else None


def covers(wide: Levels, narrow: Levels) -> bool:
    """Whether every topic that `narrow` matches is matched by `wide`, too."""
    if _is_hidden_from(wide, narrow):
        return False
    for depth, level in enumerate(wide):
        if level == "#":
            return True
        if depth == len(narrow) or narrow[depth] == "#":
            return False
        if level not in ("+", narrow[depth]):
            return False
    return len(wide) == len(narrow)


class _Level:
    """A node of the tree of wildcard filters."""

    __slots__ = ("children", "is_end")

    def __init__(self) -> None:
        self.children: dict[str, _Level] = {}
        self.is_end = False


class FilterSet:
    """Several filters, compiled: exact topics in a set, wildcards in a tree of levels."""

    __slots__ = ("_exact", "_filters", "_tree")

    def __init__(self, filters: Iterable[Levels] = ()) -> None:
        self._filters = tuple(dict.fromkeys(filters))
        exact: set[str] = set()
        self._tree = _Level()
        for levels in self._filters:
            if "+" in levels or levels[-1] == "#":
                node = self._tree
                for level in levels:
                    node = node.children.setdefault(level, _Level())
                node.is_end = True
            else:
                exact.add("/".join(levels))
        self._exact = frozenset(exact)

    def __bool__(self) -> bool:
        return bool(self._filters)

    def __iter__(self) -> Iterator[Levels]:
        return iter(self._filters)

    def matches(self, topic: str) -> bool:
        """Whether any of the filters matches a topic name. Linear in its levels, but for many `+` branches."""
        if topic in self._exact:
            return True
        if not self._tree.children:
            return False
        names = topic.split("/")
        is_hidden = topic.startswith("$")
        stack = [(self._tree, 0)]
        while stack:
            node, depth = stack.pop()
            children = node.children
            if not (is_hidden and depth == 0):
                if "#" in children:
                    return True
                if depth < len(names) and "+" in children:
                    stack.append((children["+"], depth + 1))
            if depth == len(names):
                if node.is_end:
                    return True
            elif names[depth] in children and names[depth] not in ("+", "#"):
                stack.append((children[names[depth]], depth + 1))
        return False

    def overlaps(self, levels: Levels) -> Iterator[Levels]:
        """What a filter has in common with each of these."""
        for each in self._filters:
            common = intersection(each, levels)
            if common is not None:
                yield common

    def covers(self, levels: Levels) -> bool:
        """Whether one of the filters alone covers another. Several that do so only together do not count."""
        return any(covers(each, levels) for each in self._filters)
