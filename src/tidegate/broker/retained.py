"""Retained messages: one per topic, found by exact name or by wildcard filter.

A tree of the topics lets a filter visit only what can match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tidegate.broker.message import Message
from tidegate.broker.tree import LevelTree, has_wildcard

if TYPE_CHECKING:
    from tidegate.broker.account import AccountTable
    from tidegate.broker.memory import Memory

RETAINED_BYTES = 500  # beside its content; its topic is here and in the tree


def kept_size(message: Message) -> int:
    """What a retained message takes."""
    return RETAINED_BYTES + len(message.topic) + message.size_bytes


class Retained:
    """At most `capacity` messages beside those of the node itself, and `most_bytes` in all; `now` is for expiry.

    One account leaves `account_capacity` of them at most. While memory is short, what comes at QoS 0 is not kept if it
    would take more than is there already; publishers at QoS 1 and 2 wait before it comes to that.
    """

    __slots__ = (
        "_accounts", "_by_topic", "_memory", "_own", "_tree", "account_capacity", "capacity", "most_bytes", "now",
        "refused", "size_bytes", "watchers",
    )  # fmt: skip

    def __init__(self, now: Callable[[], float], accounts: AccountTable, memory: Memory) -> None:
        self._accounts = accounts
        self._memory = memory
        self._own = 0  # messages of the node itself
        self._by_topic: dict[bytes, Message] = {}
        self._tree: LevelTree[bytes] = LevelTree()
        self.capacity = self.account_capacity = self.most_bytes = 0
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
        if message.publisher and not self._has_room_for(old, message):
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
        self._by_topic[topic] = message
        self._count(old, message)
        if old is None:
            self._tree.put(topic, topic)

    def _has_room_for(self, old: Message | None, new: Message) -> bool:
        """Whether the account may leave this, which may replace another's."""
        if old is None and len(self._by_topic) - self._own >= self.capacity:
            return False
        growth = kept_size(new) - (0 if old is None else kept_size(old))
        if growth > 0 and (self.size_bytes + growth > self.most_bytes or (not new.qos and self._memory.is_short)):
            return False
        author = new.author
        if author is None:
            return True
        account = self._accounts.find(author.user)
        if old is not None and old.author is not None and old.author.user == author.user:
            return growth <= 0 or not self._accounts.is_full(account)
        return account.retained < self.account_capacity and not self._accounts.is_full(account)

    def _count(self, old: Message | None, new: Message | None) -> None:
        growth = 0
        for message, sign in ((new, 1), (old, -1)):
            if message is not None:
                size = sign * kept_size(message)
                growth += size
                self._own += 0 if message.publisher else sign
                if message.author is not None:
                    self._accounts.retain(message.author.user, sign, size)
        self.size_bytes += growth
        self._memory.grew(growth)

    def remove(self, topic: bytes) -> None:
        old = self._by_topic.pop(topic, None)
        if old is None:
            return
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
