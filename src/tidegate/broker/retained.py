"""Retained messages: one per topic, found by exact name or by wildcard filter.

The tree mirrors topic levels so that a filter visits only what can match; a node is a dictionary from level to
node, and the message of a topic is stored under `None`, which no level can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tidegate.broker.hooks import NODE_TOPIC
from tidegate.broker.index import HASH, PLUS, has_wildcard
from tidegate.broker.message import Message

_Node = dict[Any, Any]


class Retained:
    """At most `capacity` messages, beside those of the node itself; `now` tells the time for expiry."""

    __slots__ = ("_by_topic", "_tree", "capacity", "now", "refused", "size_bytes", "watchers")

    def __init__(self, capacity: int, now: Callable[[], float]) -> None:
        self._by_topic: dict[bytes, Message] = {}
        self._tree: _Node = {}
        self.capacity = capacity
        self.now = now
        self.size_bytes = 0
        self.refused = 0
        self.watchers: list[Callable[[bytes, Message | None, Message | None], None]] = []

    def __len__(self) -> int:
        return len(self._by_topic)

    def keep(self, message: Message) -> bool:
        """Replace what the topic had; an empty payload removes it [MQTT5-3.3.1-6]. False if there is no room."""
        topic = message.topic
        if not message.payload:
            self.remove(topic)
            return True
        old = self._by_topic.get(topic)
        if old is None:
            if len(self._by_topic) >= self.capacity and not topic.startswith(NODE_TOPIC):
                self.refused += 1
                return False
        else:
            self.size_bytes -= old.size_bytes
        self._by_topic[topic] = message
        self.size_bytes += message.size_bytes
        node = self._tree
        for level in topic.split(b"/"):
            child = node.get(level)
            if child is None:
                child = node[level] = {}
            node = child
        node[None] = message
        for watch in self.watchers:
            watch(topic, old, message)
        return True

    def remove(self, topic: bytes) -> None:
        old = self._by_topic.pop(topic, None)
        if old is None:
            return
        self.size_bytes -= old.size_bytes
        path: list[tuple[_Node, bytes]] = []
        node = self._tree
        for level in topic.split(b"/"):
            path.append((node, level))
            node = node[level]
        del node[None]
        for parent, level in reversed(path):
            if parent[level]:
                break
            del parent[level]
        for watch in self.watchers:
            watch(topic, old, None)

    def get(self, topic: bytes) -> Message | None:
        message = self._by_topic.get(topic)
        if message is not None and message.expires is not None and message.expires <= self.now():
            self.remove(topic)
            return None
        return message

    def match(self, topic_filter: bytes) -> Iterator[Message]:
        """Messages whose topic matches; lazily, so that a long answer can be given in pieces.

        Changes made meanwhile are seen or not, each topic at most once.
        """
        if not has_wildcard(topic_filter):
            message = self.get(topic_filter)
            if message is not None:
                yield message
            return
        for message in self._walk(self._tree, topic_filter.split(b"/"), 0):
            if message.expires is not None and message.expires <= self.now():
                self.remove(message.topic)
            else:
                yield message

    def _walk(self, node: _Node, names: list[bytes], depth: int) -> Iterator[Message]:
        if depth == len(names):
            if None in node:
                yield node[None]
            return
        name = names[depth]
        if name == HASH:
            yield from self._below(node, skip_hidden=depth == 0)
        elif name == PLUS:
            for level in list(node):
                if level is not None and not (depth == 0 and level[:1] == b"$") and level in node:
                    yield from self._walk(node[level], names, depth + 1)
        elif name in node:
            yield from self._walk(node[name], names, depth + 1)

    def _below(self, node: _Node, skip_hidden: bool) -> Iterator[Message]:
        stack = [node]
        while stack:
            current = stack.pop()
            for level in list(current):
                if level not in current:
                    continue
                if level is None:
                    yield current[None]
                elif not (skip_hidden and level[:1] == b"$"):
                    stack.append(current[level])
            skip_hidden = False
