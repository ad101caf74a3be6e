"""What the server publishes to us: aliases, QoS 2 without doubles, acknowledgements in order.

An acknowledgement is sent when the application has taken a message (or says so itself), not when it arrives.
So the server's quota, our Receive Maximum, bounds what waits in this process, and what a crash loses is sent
again. A server that ignores the quota (Mosquitto 2.0.11 does, once a queue has built up) is counted, not
disconnected: reading stops while the application's queue is full, which bounds it as well.
"""

from __future__ import annotations

from collections import deque

from tidegate.client.aliases import IncomingAliases
from tidegate.client.message import Message, Receipt
from tidegate.client.wire import Wire
from tidegate.mqtt.codes import LEGAL, PacketType, ReasonCode
from tidegate.mqtt.errors import Blame, ProtocolError
from tidegate.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tidegate.mqtt.properties import Properties
from tidegate.mqtt.session import Inbound


class Receiver:
    """Turns PUBLISH into `Message` and owes the server an answer for each."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._inbound = Inbound()
        self._aliases = IncomingAliases(0)
        self._connection = 0
        self._receive_maximum = 0
        self.over_receive_maximum = 0
        """Messages a server sent although our Receive Maximum was used up."""
        # Unanswered, or answered behind one that is not: answers leave from the front only.
        self._owed: dict[int, deque[Receipt]] = {1: deque(), 2: deque()}

    def __len__(self) -> int:
        """Messages whose acknowledgement is still owed."""
        return len(self._owed[1]) + len(self._owed[2])

    def on_connected(self, receive_maximum: int, alias_maximum: int, *, session_present: bool) -> None:
        """Begin a connection. If the session goes on, what was not acknowledged comes again."""
        if session_present:
            for receipt in self._owed[2]:
                if receipt.answer is None:
                    self._inbound.release(receipt.packet_identifier)
        else:
            self._inbound.clear()
        self._inbound.reconnect()
        self._receive_maximum = receive_maximum
        self._aliases = IncomingAliases(alias_maximum)
        self._connection += 1
        self._owed = {1: deque(), 2: deque()}

    def on_publish(self, packet: Publish) -> Message | None:
        """The message to pass on, or None for the repetition of one that was; raises `MQTTError`."""
        topic = self._aliases.resolve(packet)
        receipt: Receipt | None = None
        if packet.qos:
            assert packet.packet_identifier is not None
            receipt = Receipt(
                packet_identifier=packet.packet_identifier, qos=packet.qos, connection=self._connection
            )
            if packet.qos == 1:
                self._inbound.receive_qos1()
            elif not self._inbound.receive(packet.packet_identifier):
                self._wire.send(Pubrec(packet_identifier=packet.packet_identifier))
                return None
            self._owed[packet.qos].append(receipt)
            if len(self) > self._receive_maximum:
                self.over_receive_maximum += 1
        return Message(
            topic=topic,
            payload=packet.payload,
            qos=packet.qos,
            retain=packet.retain,
            dup=packet.dup,
            properties=packet.properties,
            receipt=receipt,
            acknowledge=None if receipt is None else self.acknowledge,
        )

    def on_pubrel(self, packet: Pubrel) -> None:
        is_known = self._inbound.release(packet.packet_identifier)
        code = ReasonCode.SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self._wire.send(Pubcomp(packet_identifier=packet.packet_identifier, reason_code=code))

    def acknowledge(
        self, receipt: Receipt, reason_code: int = 0, properties: Properties | None = None
    ) -> None:
        """Answer one message; see `Message.ack`."""
        if receipt.answer is not None or receipt.connection != self._connection:
            return
        if reason_code not in LEGAL[PacketType.PUBACK]:
            raise ProtocolError(f"no message is answered with 0x{reason_code:02X}", blame=Blame.LOCAL)
        kind = Puback if receipt.qos == 1 else Pubrec
        receipt.answer = kind(
            packet_identifier=receipt.packet_identifier,
            reason_code=reason_code,
            properties={} if properties is None else properties,
        )
        owed = self._owed[receipt.qos]
        while owed and (answer := owed[0].answer) is not None:
            owed.popleft()
            if isinstance(answer, Puback):
                self._inbound.puback_sent()
            elif answer.reason_code >= 0x80:
                # A refusal ends the exchange: no PUBREL follows [MQTT5-4.3.3-9].
                self._inbound.release(answer.packet_identifier)
            self._wire.send(answer)
