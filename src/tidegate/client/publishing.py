"""What this client publishes: QoS exchanges, the server's Receive Maximum, repetition after a reconnect.

A message of QoS 1 or 2 waits here until the server's quota has room and a connection exists; its waiter is
told when the exchange is complete. Rules when a connection comes back:

- The server kept the session: everything unfinished is sent again in order [MQTT5-4.4.0-1], then what is new.
- It did not: QoS 1 messages are published anew, which may double them, as QoS 1 may; for QoS 2 nobody can
  know whether the message arrived, so the waiter gets `SessionLost`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.client.aliases import OutgoingAliases
from tidegate.client.errors import PublishRefused, SessionLost
from tidegate.client.limits import ServerLimits
from tidegate.client.wire import Waiter, Wire
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.errors import MQTTError
from tidegate.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tidegate.mqtt.properties import Properties
from tidegate.mqtt.session import Outbound, PubrecOutcome


class Acknowledgement(NamedTuple):
    """The server took a message. `reason_code` is SUCCESS or NO_MATCHING_SUBSCRIBERS."""

    reason_code: int
    properties: Properties


SENT = Acknowledgement(ReasonCode.SUCCESS, {})
"""For QoS 0, which has no answer: the message was given to the network."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A message on its way."""

    packet: Publish
    waiter: Waiter[Acknowledgement]


class Publisher:
    """Sync core of `Client.publish`. `taken` holds identifiers of other open requests of this session."""

    def __init__(self, wire: Wire, topic_aliases: int, taken: Container[int]) -> None:
        self._wire = wire
        self._wanted_aliases = topic_aliases
        self._taken = taken
        self._aliases = OutgoingAliases(0, 0)
        self._outbound: Outbound[Outgoing] = Outbound()
        self._waiting: deque[Outgoing] = deque()
        # After PUBREC the machine lets go of the message, but its waiter waits for PUBCOMP.
        self._releasing: dict[int, Outgoing] = {}

    def __len__(self) -> int:
        """Messages that are not acknowledged yet."""
        return len(self._waiting) + len(self._outbound)

    def __contains__(self, packet_identifier: int) -> bool:
        return packet_identifier in self._outbound

    def next_identifier(self) -> int:
        """An identifier for another kind of request; all kinds share the numbers [MQTT5-2.2.1-3]."""
        return self._outbound.next_identifier(self._taken)

    def publish_qos0(self, packet: Publish) -> None:
        """Send now or raise; the wire must be open."""
        self._transmit(packet)

    def publish(self, outgoing: Outgoing) -> None:
        """QoS 1 or 2: send now or when there is room; faults reach the waiter."""
        self._waiting.append(outgoing)
        self._pump()

    def on_connected(self, limits: ServerLimits, *, session_present: bool) -> None:
        self._aliases = OutgoingAliases(self._wanted_aliases, limits.topic_alias_maximum)
        if not session_present:
            self._start_over()
        self._outbound.reconnect(limits.receive_maximum)
        self._pump()

    def on_puback(self, packet: Puback) -> None:
        outgoing = self._outbound.on_puback(packet.packet_identifier)
        if outgoing is not None:
            self._finish(outgoing, packet.reason_code, packet.properties)
            self._pump()

    def on_pubrec(self, packet: Pubrec) -> None:
        identifier = packet.packet_identifier
        outcome, outgoing = self._outbound.on_pubrec(identifier, packet.reason_code)
        if outcome is PubrecOutcome.ENDED:
            outgoing = outgoing or self._releasing.pop(identifier, None)
            if outgoing is not None:
                self._finish(outgoing, packet.reason_code, packet.properties)
            self._pump()
        elif outcome is PubrecOutcome.SEND_PUBREL:
            if outgoing is not None:
                self._releasing[identifier] = outgoing
            self._wire.send(Pubrel(packet_identifier=identifier))
        elif packet.reason_code < 0x80:
            not_found = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            self._wire.send(Pubrel(packet_identifier=identifier, reason_code=not_found))

    def on_pubcomp(self, packet: Pubcomp) -> None:
        if self._outbound.on_pubcomp(packet.packet_identifier):
            outgoing = self._releasing.pop(packet.packet_identifier, None)
            if outgoing is not None:
                # 0x92 here means that the server had released it before, which a repeated PUBREL can meet.
                self._finish(outgoing, ReasonCode.SUCCESS, packet.properties)
            self._pump()

    def fail(self, error: Exception) -> None:
        """The client ends: nothing that waits will be answered."""
        unfinished = [outgoing for _, _, outgoing in self._outbound if outgoing is not None]
        for outgoing in (*unfinished, *self._releasing.values(), *self._waiting):
            _fail(outgoing, error)
        self._outbound.clear()
        self._releasing.clear()
        self._waiting.clear()

    def _pump(self) -> None:
        """Send what the quota has room for: first what is to be repeated, then what waits."""
        if not self._wire.is_open:
            return
        for identifier, _, outgoing in self._outbound.resend():
            if outgoing is None:
                self._wire.send(Pubrel(packet_identifier=identifier))
            else:
                outgoing.packet.dup = True  # [MQTT5-3.3.1-1]
                self._send(outgoing, identifier)
        while self._waiting and self._outbound.can_send:
            outgoing = self._waiting.popleft()
            if not outgoing.waiter.done():  # else the caller gave up before it was sent
                self._send(outgoing, self._outbound.send(outgoing, outgoing.packet.qos, self._taken))

    def _send(self, outgoing: Outgoing, identifier: int) -> None:
        packet = outgoing.packet
        packet.packet_identifier = identifier
        try:
            self._transmit(packet)
        except MQTTError as error:
            if packet.qos == 1:
                self._outbound.on_puback(identifier)
            else:
                self._outbound.on_pubrec(identifier, ReasonCode.UNSPECIFIED_ERROR)
            _fail(outgoing, error)

    def _transmit(self, packet: Publish) -> None:
        aliased = self._aliases.apply(packet)
        try:
            self._wire.send(aliased)
        except MQTTError:
            self._aliases.reset()
            raise

    def _start_over(self) -> None:
        anew: list[Outgoing] = []
        lost = list(self._releasing.values())
        for _, qos, outgoing in self._outbound:
            if outgoing is not None:
                (anew if qos == 1 else lost).append(outgoing)
        for outgoing in lost:
            error = SessionLost(
                f"the server lost the session while a message to {outgoing.packet.topic!r} was on its way",
                hint="use a longer session_expiry_interval; publish it again if a second copy does no harm",
            )
            _fail(outgoing, error)
        self._outbound.clear()
        self._releasing.clear()
        for outgoing in reversed(anew):
            outgoing.packet.dup = False
            self._waiting.appendleft(outgoing)

    def _finish(self, outgoing: Outgoing, reason_code: int, properties: Properties) -> None:
        if reason_code >= 0x80:
            _fail(outgoing, PublishRefused(outgoing.packet.topic, reason_code, properties))
        elif not outgoing.waiter.done():
            outgoing.waiter.set_result(Acknowledgement(reason_code, properties))


def _fail(outgoing: Outgoing, error: Exception) -> None:
    if not outgoing.waiter.done():
        outgoing.waiter.set_exception(error)
