"""Retained messages: one per topic, found by exact name or by wildcard filter.

A tree of the topics lets a filter visit only what can match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidegate.broker.message import Message
from tidegate.broker.tree import LevelTree, has_wildcard


class Retained:
    """At most `capacity` messages, beside those of the node itself; `now` tells the time for expiry.

    One account leaves `account_capacity` of them at most.
    """

    __slots__ = (
        "_by_topic", "_by_user", "_own", "_tree", "account_capacity", "capacity", "now", "refused", "size_bytes",
        "watchers",
    )  # fmt: skip

    def __init__(self, now: Callable[[], float]) -> None:
        self._own = 0  # messages of the node itself
        self._by_user: dict[str | None, int] = {}  # messages that users left
        self._by_topic: dict[bytes, Message] = {}
        self._tree: LevelTree[bytes] = LevelTree()
        self.capacity = self.account_capacity = 0
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
        is_full = old is None and len(self._by_topic) - self._own >= self.capacity
        if message.publisher and (is_full or not self._has_room_for(old, message)):
            self.refused += 1
            return False
        self._put(message, old)
        for watch in self.watchers:
            watch(topic, old, message)
        return True

    def restore(self, message: Message) -> None:
        """As it was kept before the node stopped, whatever the bounds are now."""
        self._put(message, None)

    def _put(self, message: Message, old: Message | None) -> None:
        topic = message.topic
        if old is not None:
            self.size_bytes -= old.size_bytes
        self._count(old, message)
        self._by_topic[topic] = message
        self.size_bytes += message.size_bytes
        if old is None:
            self._tree.put(topic, topic)

    def _has_room_for(self, old: Message | None, new: Message) -> bool:
        """Whether the account may leave this, which may replace another's."""
        author = new.author
        if author is None or (old is not None and old.author is not None and old.author.user == author.user):
            return True
        return self._by_user.get(author.user, 0) < self.account_capacity

    def _count(self, old: Message | None, new: Message | None) -> None:
        self._own += (new is not None and not new.publisher) - (old is not None and not old.publisher)
        by_user = self._by_user
        if new is not None and new.author is not None:
            by_user[new.author.user] = by_user.get(new.author.user, 0) + 1
        if old is not None and old.author is not None:
            by_user[old.author.user] -= 1
            if not by_user[old.author.user]:
                del by_user[old.author.user]

    def remove(self, topic: bytes) -> None:
        old = self._by_topic.pop(topic, None)
        if old is None:
            return
        self.size_bytes -= old.size_bytes
        self._count(old, None)
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
