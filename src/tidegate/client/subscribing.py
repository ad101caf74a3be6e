"""SUBSCRIBE and UNSUBSCRIBE: open requests, and what was granted, to ask for it again in a new session."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.client.errors import ClientError, SubscribeRefused, UnsubscribeRefused
from tidegate.client.wire import Waiter, Wire
from tidegate.mqtt.errors import Blame, MQTTError, ProtocolError
from tidegate.mqtt.packets import Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from tidegate.mqtt.properties import Properties, Property
from tidegate.mqtt.topics import validate_topic_filter

TopicFilter: TypeAlias = str | tuple[str, int] | Subscription

log = logging.getLogger(__name__)

# Filters asked for again in one packet: few enough for a small Maximum Packet Size, many enough to be quick.
_FILTERS_A_PACKET = 50


@dataclass(slots=True, eq=False)
class Request:
    """One open SUBSCRIBE or UNSUBSCRIBE. Nobody waits for those sent to restore a lost session."""

    packet: Subscribe | Unsubscribe
    waiter: Waiter[list[int]] | None


class Requests:
    """Sync core of `Client.subscribe` and `Client.unsubscribe`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.open: dict[int, Request] = {}
        """By packet identifier."""
        self._waiting: deque[Request] = deque()
        self._granted: dict[str, tuple[Subscription, int | None]] = {}
        self.next_identifier: Callable[[], int] = lambda: 1
        """Set by the session: publications use the same numbers."""

    def __len__(self) -> int:
        return len(self.open) + len(self._waiting)

    @property
    def granted(self) -> list[str]:
        """The filters this client is subscribed to."""
        return list(self._granted)

    def send(self, request: Request) -> None:
        """Send now, or when there is a connection; raises `MQTTError` for what cannot be encoded."""
        if not self._wire.is_open:
            self._waiting.append(request)
            return
        packet = request.packet
        packet.packet_identifier = self.next_identifier()
        self._wire.send(packet)
        self.open[packet.packet_identifier] = request

    def unsubscribe_later(self, topic_filters: list[str]) -> None:
        """End subscriptions that nobody takes messages of any more, when there is a connection; nobody waits for it."""
        waiter: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.send(Request(Unsubscribe(packet_identifier=0, topic_filters=topic_filters), waiter))

    def on_connected(self, *, session_present: bool) -> None:
        again = [] if session_present else [Request(packet, None) for packet in self._again()]
        waiting, self._waiting = self._waiting, deque()
        for request in (*again, *waiting):
            if request.waiter is not None and request.waiter.done():
                continue  # the caller gave up
            try:
                self.send(request)
            except MQTTError as error:
                _fail(request, error)

    def on_connection_lost(self) -> None:
        """Unanswered requests are repeated on the next connection."""
        # What restored the lost session is still in `_granted` and will be asked for from there.
        self._waiting.extendleft(
            request for request in reversed(self.open.values()) if request.waiter is not None
        )
        self.open.clear()

    def on_suback(self, packet: Suback) -> None:
        request = self.open.pop(packet.packet_identifier, None)
        if request is None or not isinstance(request.packet, Subscribe):
            raise ProtocolError("a SUBACK answers no SUBSCRIBE")
        subscriptions = request.packet.subscriptions
        codes = packet.reason_codes
        if len(codes) != len(subscriptions):
            raise ProtocolError("a SUBACK has another number of reason codes than filters [MQTT5-3.9.3-1]")
        identifiers = request.packet.properties.get(Property.SUBSCRIPTION_IDENTIFIER)
        identifier = identifiers[0] if identifiers else None
        for subscription, code in zip(subscriptions, codes, strict=True):
            if code < 0x80:
                self._granted[subscription.topic_filter] = (subscription, identifier)
            else:
                self._granted.pop(subscription.topic_filter, None)
        if max(codes) >= 0x80:
            names = [subscription.topic_filter for subscription in subscriptions]
            _fail(request, SubscribeRefused(names, codes, packet.properties))
        else:
            _finish(request, codes)

    def on_unsuback(self, packet: Unsuback) -> None:
        request = self.open.pop(packet.packet_identifier, None)
        if request is None or not isinstance(request.packet, Unsubscribe):
            raise ProtocolError("an UNSUBACK answers no UNSUBSCRIBE")
        names = request.packet.topic_filters
        codes = packet.reason_codes or [0] * len(names)  # 3.1.1 has none
        if len(codes) != len(names):
            raise ProtocolError("an UNSUBACK has more or fewer reason codes than filters [MQTT5-3.11.3-1]")
        for name, code in zip(names, codes, strict=True):
            if code < 0x80:
                self._granted.pop(name, None)
        if max(codes) >= 0x80:
            _fail(request, UnsubscribeRefused(names, codes, packet.properties))
        else:
            _finish(request, codes)

    def fail(self, error: Exception) -> None:
        for request in (*self.open.values(), *self._waiting):
            _fail(request, error)
        self.open.clear()
        self._waiting.clear()

    def _again(self) -> Iterator[Subscribe]:
        by_identifier: dict[int | None, list[Subscription]] = {}
        for subscription, identifier in self._granted.values():
            by_identifier.setdefault(identifier, []).append(subscription)
        for identifier, subscriptions in by_identifier.items():
            for start in range(0, len(subscriptions), _FILTERS_A_PACKET):
                yield subscribe_packet(subscriptions[start : start + _FILTERS_A_PACKET], identifier)


def check_filters(topic_filters: Sequence[str]) -> None:
    """Raises `ClientError` or `TopicFilterInvalid` for filters that no server could take."""
    if not topic_filters:
        raise ClientError("no topic filter was given", hint="name at least one, such as plant/#")
    for topic_filter in topic_filters:
        validate_topic_filter(topic_filter, blame=Blame.LOCAL)


def subscription_list(
    topics: Iterable[TopicFilter], qos: int, no_local: bool, retain_as_published: bool, retain_handling: int
) -> list[Subscription]:
    """What `Client.subscribe` was given, with the options of those filters that come without."""
    subscriptions: list[Subscription] = []
    for topic in topics:
        if isinstance(topic, Subscription):
            subscriptions.append(topic)
            continue
        topic_filter, level = (topic, qos) if isinstance(topic, str) else topic
        subscriptions.append(
            Subscription(
                topic_filter=topic_filter,
                qos=level,
                no_local=no_local,
                retain_as_published=retain_as_published,
                retain_handling=retain_handling,
            )
        )
    return subscriptions


def subscribe_packet(
    subscriptions: list[Subscription],
    identifier: int | None,
    user_properties: tuple[tuple[str, str], ...] = (),
) -> Subscribe:
    """A SUBSCRIBE that gets its packet identifier when it is sent."""
    properties: Properties = {}
    if identifier is not None:
        properties[Property.SUBSCRIPTION_IDENTIFIER] = [identifier]
    if user_properties:
        properties[Property.USER_PROPERTY] = list(user_properties)
    return Subscribe(packet_identifier=0, subscriptions=subscriptions, properties=properties)


def _finish(request: Request, codes: list[int]) -> None:
    if request.waiter is not None and not request.waiter.done():
        request.waiter.set_result(list(codes))


def _fail(request: Request, error: Exception) -> None:
    if request.waiter is None:
        # Losing a subscription must not go unnoticed when nobody asked for it just now.
        log.warning("a subscription could not be restored", extra={"error": str(error)})
    elif not request.waiter.done():
        request.waiter.set_exception(error)
