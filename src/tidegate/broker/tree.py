"""A tree of topic levels whose edges hold as many levels as they can: filters with wildcards, and retained topics.

Theory of operation. A node is where two names part, or where one ends. So a name costs about its own bytes and one
node, however many levels it has, and a tree of n names has fewer than 2n nodes.

A walk may pause while others change the tree: an edge is never changed in place. A node that is split or joined is
replaced by new ones, which share its children; who still holds the old one sees a whole tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

PLUS = b"+"
HASH = b"#"
V = TypeVar("V")
PAUSE = 64  # nodes visited between two pauses of a walk
_NO_CHILDREN: dict[bytes, Any] = {}


def has_wildcard(topic_filter: bytes) -> bool:
    return PLUS in topic_filter or HASH in topic_filter


class Node(Generic[V]):
    """`edge` are the levels from its parent to it, with slashes between them. `value` is None where no name ends."""

    __slots__ = ("children", "edge", "is_plain", "value")

    def __init__(self, edge: bytes, children: dict[bytes, Node[V]], value: V | None) -> None:
        self.edge = edge
        self.children = children
        self.value = value
        self.is_plain = not has_wildcard(edge)


class LevelTree(Generic[V]):
    """Names and their values. No name is the prefix of nothing: the empty name is a level, too."""

    __slots__ = ("count", "root")

    def __init__(self) -> None:
        self.root: Node[V] = Node(b"", {}, None)
        self.count = 0  # nodes

    def get(self, name: bytes) -> V | None:
        path = self._path(name)
        return path[-1].value if path else None

    def put(self, name: bytes, value: V) -> None:
        """Add the name, or give it another value."""
        node = self.root
        at = 0
        size = len(name)
        while at <= size:
            first = _level(name, at)
            child = node.children.get(first)
            if child is None:
                child = Node(name[at:], _NO_CHILDREN, None)
                self._adopt(node, first, child)
                node = child
                self.count += 1
                break
            edge = child.edge
            end = at + len(edge)
            if not (name.startswith(edge, at) and (end == size or name[end : end + 1] == b"/")):
                child = self._split(node, first, _common(edge, name[at:]))
                end = at + len(child.edge)
            node = child
            at = end + 1
        node.value = value

    def remove(self, name: bytes) -> None:
        """Take the name out, if it is there, and every node that nothing needs any more."""
        path = self._path(name)
        if not path or path[-1].value is None:
            return
        path[-1].value = None
        if not path[-1].children:
            gone = path.pop()
            del path[-1].children[_level(gone.edge, 0)]
            self.count -= 1
        node = path[-1]
        if len(path) > 1 and node.value is None and len(node.children) == 1:
            (child,) = node.children.values()
            joined = Node(node.edge + b"/" + child.edge, child.children, child.value)
            path[-2].children[_level(node.edge, 0)] = joined
            self.count -= 1

    def _path(self, name: bytes) -> list[Node[V]]:
        """The nodes from the root to that of the name; empty if there is none."""
        node = self.root
        path = [node]
        at = 0
        size = len(name)
        while at <= size:
            child = node.children.get(_level(name, at))
            if child is None or not name.startswith(child.edge, at):
                return []
            at += len(child.edge)
            if at != size and name[at : at + 1] != b"/":
                return []
            at += 1
            path.append(child)
            node = child
        return path

    def _adopt(self, parent: Node[V], first: bytes, child: Node[V]) -> None:
        if parent.children is _NO_CHILDREN:
            parent.children = {}
        parent.children[first] = child

    def _split(self, parent: Node[V], first: bytes, common: int) -> Node[V]:
        """Put a node where the edge of a child parts from a new name; gives that node."""
        child = parent.children[first]
        lower = Node(child.edge[common + 1 :], child.children, child.value)
        upper = Node(child.edge[:common], {_level(lower.edge, 0): lower}, cast(V | None, None))
        parent.children[first] = upper
        self.count += 1
        return upper

    # -- walks: each gives the values it finds, and None where it may pause ------------------------------------

    def matching(self, topic: bytes) -> Iterator[V | None]:
        """Values of the filters that match a topic name."""
        size = len(topic)
        # [MQTT5-4.7.2-1] [MQTT3-4.7.2-1]: no wildcard in the first level matches a topic that begins with $.
        is_hidden = topic[:1] == b"$"
        stack: list[tuple[Node[V], int]] = [(self.root, 0)]
        visited = 0
        while stack:
            node, at = stack.pop()
            children = node.children
            if at > size:
                if node.value is not None:
                    yield node.value
                tail = children.get(HASH)
                if tail is not None and tail.value is not None:
                    yield tail.value
                continue
            firsts = (_level(topic, at),) if is_hidden and not at else (_level(topic, at), PLUS, HASH)
            for first in firsts:
                child = children.get(first)
                if child is None:
                    continue
                if child.is_plain:
                    edge = child.edge
                    end = at + len(edge)
                    if topic.startswith(edge, at) and (end == size or topic[end : end + 1] == b"/"):
                        stack.append((child, end + 1))
                    visited += 1
                    continue
                end = _match_edge(child.edge, topic, at)
                if end == ALL:
                    if child.value is not None:
                        yield child.value
                elif end:
                    stack.append((child, end))
                visited += 1 + len(child.edge) // 16
            if visited >= PAUSE:
                visited = 0
                yield None

    def below(self, topic_filter: bytes) -> Iterator[V | None]:
        """Values of the topic names that match a filter."""
        names = topic_filter.split(b"/")
        stack: list[tuple[Node[V], int]] = [(self.root, 0)]  # where in the filter its children stand; ALL: all match
        visited = 0
        while stack:
            node, depth = stack.pop()
            visited += 1
            if visited >= PAUSE:
                visited = 0
                yield None
            if node.value is not None and (depth in (ALL, len(names)) or names[depth] == HASH):
                yield node.value
            if depth == len(names):
                continue
            name = HASH if depth == ALL else names[depth]
            if name in (PLUS, HASH):
                found = list(node.children.values())
            else:
                child = node.children.get(name)
                found = [] if child is None else [child]
            for child in found:
                if not depth and name in (PLUS, HASH) and child.edge[:1] == b"$":
                    continue
                reached = ALL if depth == ALL else _match_names(child.edge, names, depth)
                if reached:
                    stack.append((child, reached))


ALL = -1


def _level(name: bytes, at: int) -> bytes:
    end = name.find(b"/", at)
    return name[at:] if end < 0 else name[at:end]


def _common(edge: bytes, name: bytes) -> int:
    """The length of the levels that both begin with; there is at least one, and one more in the edge."""
    length = -1
    for ours, theirs in zip(edge.split(b"/"), name.split(b"/"), strict=False):
        if ours != theirs:
            break
        length += len(ours) + 1
    return length


def _match_edge(edge: bytes, topic: bytes, at: int) -> int:
    """Where in the topic the next level stands behind an edge with wildcards; 0: no match, ALL: it ends with #."""
    size = len(topic)
    for name in edge.split(b"/"):
        if name == HASH:
            return ALL
        if at > size:
            return 0
        end = topic.find(b"/", at)
        if end < 0:
            end = size
        if name != PLUS and name != topic[at:end]:
            return 0
        at = end + 1
    return at


def _match_names(edge: bytes, names: list[bytes], depth: int) -> int:
    """Where in the filter the children of an edge of a topic stand; 0: no match, ALL: all of them match."""
    for level in edge.split(b"/"):
        if depth == len(names):
            return 0
        name = names[depth]
        if name == HASH:
            return ALL
        if name != PLUS and name != level:
            return 0
        depth += 1
    return depth
