"""What this client publishes: QoS exchanges, the server's Receive Maximum, repetition after a reconnect.

A message of QoS 1 or 2 waits here until the server's quota has room and a connection exists; its waiter is
told when the exchange is complete. Rules when a connection comes back:

- The server kept the session: everything unfinished is sent again in order [MQTT5-4.4.0-1], then what is new.
- It did not: QoS 1 messages are published anew, which may double them, as QoS 1 may; for QoS 2 nobody can
  know whether the message arrived, so the waiter gets `SessionLost`.

A message of the outbox has a `number`, from which its packet identifier follows; see `outbox` for why, and for what
is different about its QoS 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
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
from tidegate.mqtt.session import PACKET_IDENTIFIER_MAX, Outbound, PubrecOutcome


class Acknowledgement(NamedTuple):
    """The server took a message. `reason_code` is SUCCESS or NO_MATCHING_SUBSCRIBERS."""

    reason_code: int
    properties: Properties


SENT = Acknowledgement(ReasonCode.SUCCESS, {})
"""For QoS 0, which has no answer: the message was given to the network."""
STORED = Acknowledgement(ReasonCode.SUCCESS, {})
"""With an outbox: the message is on disk, and will be sent whatever happens to this process."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A message on its way."""

    packet: Publish
    waiter: Waiter[Acknowledgement]
    number: int = 0
    is_received: bool = False
    """Of the outbox only: a PUBREC came, so the message must not be published again."""

    @property
    def own_identifier(self) -> int:
        return (self.number - 1) % PACKET_IDENTIFIER_MAX + 1


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
        self._connection = 0
        self.hold_release: Callable[[Outgoing, Callable[[None], None]], None] | None = None
        """Set by the outbox: notes a PUBREC, then calls back to have PUBREL sent."""
        # QoS 2 of the outbox that waits for PUBREC, by packet identifier.
        self._numbered: dict[int, Outgoing] = {}
        self.sent_anew = 0
        """QoS 2 messages of the outbox that may arrive twice, because the server lost the session."""

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
        outbound = self._outbound
        if self._waiting or outgoing.number or not outbound.can_send or not self._wire.is_open:
            self._waiting.append(outgoing)
            self._pump()
        else:
            self._send(outgoing, outbound.send(outgoing, outgoing.packet.qos, self._taken))

    def restore_released(self, outgoing: Outgoing) -> None:
        """Before the first connection: a message whose PUBREC an earlier process has noted."""
        identifier = outgoing.own_identifier
        outgoing.is_received = True
        self._outbound.restore(identifier, 2, None)
        self._releasing[identifier] = outgoing

    def drop_oldest_waiting(self) -> Outgoing | None:
        """Forget the oldest message of the outbox that was not sent yet."""
        for index, outgoing in enumerate(self._waiting):
            if outgoing.number:
                del self._waiting[index]
                return outgoing
        return None

    def on_connected(self, limits: ServerLimits, *, session_present: bool) -> None:
        self._connection += 1
        self._aliases = OutgoingAliases(self._wanted_aliases, limits.topic_alias_maximum)
        if not session_present:
            self._start_over()
        self._outbound.reconnect(limits.receive_maximum)
        self._pump()

    def on_puback(self, packet: Puback) -> None:
        self.on_acknowledged(packet.packet_identifier, packet.reason_code, packet.properties)

    def on_acknowledged(self, identifier: int, reason_code: int, properties: Properties) -> None:
        """A PUBACK came."""
        outgoing = self._outbound.on_puback(identifier)
        if outgoing is not None:
            self._finish(outgoing, reason_code, properties)
            if self._waiting or self._outbound.is_resending:
                self._pump()

    def on_pubrec(self, packet: Pubrec) -> None:
        numbered = self._numbered.get(packet.packet_identifier)
        if numbered is None or packet.reason_code >= 0x80 or self.hold_release is None:
            self._numbered.pop(packet.packet_identifier, None)
            self._on_pubrec(packet)
            return
        numbered.is_received = True
        connection = self._connection

        def go_on(_: None) -> None:
            # On another connection the message is repeated, and the server answers with another PUBREC.
            if connection == self._connection and self._wire.is_open:
                self._numbered.pop(packet.packet_identifier, None)
                self._on_pubrec(packet)

        self.hold_release(numbered, go_on)

    def _on_pubrec(self, packet: Pubrec) -> None:
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
        self._numbered.clear()
        self._waiting.clear()

    def pump(self) -> None:
        """Another kind of request has given a packet identifier back."""
        if self._waiting:
            self._pump()

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
            outgoing = self._waiting[0]
            if outgoing.number and not outgoing.waiter.done():
                if not self._begin_numbered(outgoing):
                    return
                self._waiting.popleft()
                continue
            self._waiting.popleft()
            if not outgoing.waiter.done():  # else the caller gave up before it was sent
                self._send(outgoing, self._outbound.send(outgoing, outgoing.packet.qos, self._taken))

    def _begin_numbered(self, outgoing: Outgoing) -> bool:
        """False: its identifier is still in use, by a message 65 535 numbers ago or by another request."""
        identifier = outgoing.own_identifier
        if identifier in self._outbound or identifier in self._taken:
            return False
        qos = outgoing.packet.qos
        self._outbound.restore(identifier, qos, outgoing)
        if qos == 2:
            self._numbered[identifier] = outgoing
        self._send(outgoing, identifier)
        return True

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
                self._numbered.pop(identifier, None)
            _fail(outgoing, error)

    def _transmit(self, packet: Publish) -> None:
        aliased = self._aliases.apply(packet)
        try:
            self._wire.send_publish(aliased)
        except MQTTError:
            self._aliases.reset()
            raise

    def _start_over(self) -> None:
        anew: list[Outgoing] = []
        lost = list(self._releasing.values())
        for _, qos, outgoing in self._outbound:
            if outgoing is not None:
                (anew if qos == 1 or outgoing.number else lost).append(outgoing)
                self.sent_anew += qos == 2 and outgoing.number > 0 and not outgoing.is_received
                outgoing.packet.dup = False
        for outgoing in (*lost, *anew):
            if outgoing.is_received:
                # The server took it with PUBREC; that it forgot the session changes nothing about that.
                self._finish(outgoing, ReasonCode.SUCCESS, {})
        anew = [outgoing for outgoing in anew if not outgoing.is_received]
        for outgoing in lost:
            if outgoing.is_received:
                continue
            error = SessionLost(
                f"the server lost the session while a message to {outgoing.packet.topic!r} was on its way",
                hint="use a longer session_expiry_interval; publish it again if a second copy does no harm",
            )
            _fail(outgoing, error)
        self._outbound.clear()
        self._releasing.clear()
        self._numbered.clear()
        self._waiting.extendleft(reversed(anew))
        for outgoing in self._waiting:
            # Set on what an earlier process left in the outbox.
            self.sent_anew += outgoing.packet.dup and outgoing.packet.qos == 2 and outgoing.number > 0
            outgoing.packet.dup = False

    def _finish(self, outgoing: Outgoing, reason_code: int, properties: Properties) -> None:
        if reason_code >= 0x80:
            _fail(outgoing, PublishRefused(outgoing.packet.topic, reason_code, properties))
        elif not outgoing.waiter.done():
            outgoing.waiter.set_result(Acknowledgement(reason_code, properties))


def _fail(outgoing: Outgoing, error: Exception) -> None:
    if not outgoing.waiter.done():
        outgoing.waiter.set_exception(error)
