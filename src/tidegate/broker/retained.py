"""Retained messages: one per topic, found by exact name or by wildcard filter.

A tree of the topics lets a filter visit only what can match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidegate.broker.hooks import NODE_TOPIC
from tidegate.broker.message import Message
from tidegate.broker.tree import LevelTree, has_wildcard


class Retained:
    """At most `capacity` messages, beside those of the node itself; `now` tells the time for expiry."""

    __slots__ = ("_by_topic", "_tree", "capacity", "now", "refused", "size_bytes", "watchers")

    def __init__(self, capacity: int, now: Callable[[], float]) -> None:
        self._by_topic: dict[bytes, Message] = {}
        self._tree: LevelTree[bytes] = LevelTree()
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
        if old is None:
            self._tree.put(topic, topic)
        for watch in self.watchers:
            watch(topic, old, message)
        return True

    def remove(self, topic: bytes) -> None:
        old = self._by_topic.pop(topic, None)
        if old is None:
            return
        self.size_bytes -= old.size_bytes
        self._tree.remove(topic)
        for watch in self.watchers:
            watch(topic, old, None)

    def get(self, topic: bytes) -> Message | None:
        message = self._by_topic.get(topic)
        if message is not None and message.expires is not None and message.expires <= self.now():
            self.remove(topic)
            return None
        return message

    def match(self, topic_filter: bytes) -> Iterator[Message]:
        """Messages whose topic matches."""
        return (message for message in self.search(topic_filter) if message is not None)

    def search(self, topic_filter: bytes) -> Iterator[Message | None]:
        """The same lazily, and None where the search may pause, so that a long answer can be given in pieces.

        Changes made meanwhile are seen or not, each topic at most once.
        """
        topics = self._tree.below(topic_filter) if has_wildcard(topic_filter) else (topic_filter,)
        for topic in topics:
            if topic is None:
                yield None
            else:
                message = self.get(topic)
                if message is not None:
                    yield message
