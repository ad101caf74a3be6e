"""What a node wants to get from another: the filters of its own clients, each once, and its shared groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from tidegate.mqtt import packets
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.packets import Subscribe, Unsubscribe
from tidegate.mqtt.properties import Properties, Property

if TYPE_CHECKING:
    from tidegate.broker.index import Subscription

Filter: TypeAlias = tuple[str, bytes]
"""Group, empty for none, and topic filter."""

PER_PACKET: Final = 200  # filters
MAX_IDENTIFIER: Final = 268_435_455


class Interest:
    """Counts subscriptions by filter. `changed` holds what is to be said: True subscribe, False unsubscribe."""

    __slots__ = ("_counts", "_group_by_identifier", "_identifiers", "changed")

    def __init__(self) -> None:
        self._counts: dict[Filter, int] = {}
        self._identifiers: dict[Filter, int] = {}  # of groups: what comes for them bears it
        self._group_by_identifier: dict[int, Filter] = {}
        self.changed: dict[Filter, bool] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[Filter]:
        return iter(self._counts)

    def note(self, subscription: Subscription, is_added: bool) -> None:
        """A client's subscription came or went."""
        key = (subscription.share, subscription.topic_filter)
        count = self._counts.get(key, 0) + (1 if is_added else -1)
        if count > 0:
            self._counts[key] = count
            if is_added and count == 1:
                self.changed[key] = True
        elif key in self._counts:
            del self._counts[key]
            self.changed[key] = False
            self._group_by_identifier.pop(self._identifiers.pop(key, 0), None)

    def identifier(self, key: Filter) -> int:
        """The Subscription Identifier of a group: the same after a restart, as messages that bear it may wait."""
        known = self._identifiers.get(key)
        if known is None:
            share, topic_filter = key
            digest = hashlib.blake2b(share.encode() + b"/" + topic_filter, digest_size=4).digest()
            known = int.from_bytes(digest) % MAX_IDENTIFIER + 1
            while known in self._group_by_identifier:
                known = known % MAX_IDENTIFIER + 1
            self._identifiers[key] = known
            self._group_by_identifier[known] = key
        return known

    def group(self, identifier: int) -> Filter | None:
        return self._group_by_identifier.get(identifier)

    def packets(self, keys: dict[Filter, bool], next_identifier: Iterator[int]) -> Iterator[bytes]:
        """SUBSCRIBE and UNSUBSCRIBE for these; groups one by one, as each has an identifier of its own."""
        plain = [key for key, is_wanted in keys.items() if is_wanted and not key[0]]
        for at in range(0, len(plain), PER_PACKET):
            yield self._subscribe(plain[at : at + PER_PACKET], next(next_identifier), {})
        for key, is_wanted in keys.items():
            if is_wanted and key[0]:
                properties: Properties = {Property.SUBSCRIPTION_IDENTIFIER: [self.identifier(key)]}
                yield self._subscribe([key], next(next_identifier), properties)
        gone = [filter_text(key) for key, is_wanted in keys.items() if not is_wanted]
        for at in range(0, len(gone), PER_PACKET):
            packet = Unsubscribe(
                packet_identifier=next(next_identifier), topic_filters=gone[at : at + PER_PACKET]
            )
            yield encode_packet(packet, 5)

    @staticmethod
    def _subscribe(keys: list[Filter], packet_identifier: int, properties: Properties) -> bytes:
        packet = Subscribe(
            packet_identifier=packet_identifier,
            subscriptions=[
                # Retained messages come by a way of their own.
                packets.Subscription(
                    topic_filter=filter_text(key), qos=2, retain_as_published=True, retain_handling=2
                )
                for key in keys
            ],
            properties=properties,
        )
        return encode_packet(packet, 5)


def filter_text(key: Filter) -> str:
    share, topic_filter = key
    return f"$share/{share}/{topic_filter.decode()}" if share else topic_filter.decode()


def is_shared_with_others(topic_filter: bytes) -> bool:
    """$SYS and the like are each node's own."""
    return not topic_filter.startswith(b"$")
