"""Who gets a message: the common queue, or the queue of a `subscribed` block or of a callback.

A message has one taker, so its acknowledgement has one owner: of the queues whose filters match its topic the one made
last, as an inner block of a program hides an outer one; `client.messages` gets what no other matches. All queues share
one bound, since there is one connection to stop reading from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidegate.client.inbox import Inbox
from tidegate.client.message import Message
from tidegate.mqtt.topics import matches, parse_shared

# Topics whose queue is remembered; matching is quick enough for those who have more.
_REMEMBERED = 1000


class Routes:
    """All queues of one client, at most `size` messages in sum; see `Inbox` for `on_taken`."""

    def __init__(self, size: int, on_taken: Callable[[Message], None]) -> None:
        self._size = size
        self.common = Inbox(on_taken)
        self._by_filter: dict[str, Inbox] = {}
        self._inboxes: tuple[Inbox, ...] = (self.common,)
        self._known: dict[str, Inbox] = {}

    def __len__(self) -> int:
        """Messages that wait to be taken."""
        if len(self._inboxes) == 1:
            return len(self.common)
        return sum(map(len, self._inboxes))

    def __iter__(self) -> Iterator[Inbox]:
        return iter(self._inboxes)

    @property
    def is_full(self) -> bool:
        return len(self) >= self._size

    @property
    def has_room(self) -> bool:
        """Half empty: reading again at every single free place would stop and start for each message."""
        return len(self) * 2 <= self._size

    def inbox_for(self, topic: str) -> Inbox:
        if not self._by_filter:
            return self.common
        inbox = self._known.get(topic)
        if inbox is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            inbox = self._known[topic] = self._match(topic)
        return inbox

    def add(self, topic_filters: list[str], inbox: Inbox) -> None:
        """From now on `inbox` gets what these filters match; a filter that had another queue leaves it."""
        for topic_filter in dict.fromkeys(topic_filters):
            self.remove(topic_filter)
            self._by_filter[topic_filter] = inbox
        self._changed()

    def remove(self, topic_filter: str) -> None:
        """A filter has no queue of its own any more; a queue without filters is closed."""
        inbox = self._by_filter.pop(topic_filter, None)
        if inbox is not None:
            self._changed()
            if inbox not in self._by_filter.values():
                inbox.close(None)

    def discard_unacknowledged(self) -> None:
        for inbox in self._inboxes:
            inbox.discard_unacknowledged()

    def close(self, error: Exception | None) -> None:
        for inbox in self._inboxes:
            inbox.close(error)

    def _match(self, topic: str) -> Inbox:
        for topic_filter, inbox in reversed(self._by_filter.items()):
            shared = parse_shared(topic_filter)
            if matches(topic_filter if shared is None else shared[1], topic):
                return inbox
        return self.common

    def _changed(self) -> None:
        self._known.clear()
        # A queue whose last filter went may still hold messages; its taker keeps it alive, not we.
        self._inboxes = tuple(dict.fromkeys((self.common, *self._by_filter.values())))
