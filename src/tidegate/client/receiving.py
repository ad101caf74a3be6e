"""What the server publishes to us: aliases, QoS 2 without doubles, acknowledgements in order.

An acknowledgement is sent when the application has taken a message (or says so itself), not when it arrives.
So the server's quota, our Receive Maximum, bounds what waits in this process, and what a crash loses is sent
again. A server that ignores the quota (Mosquitto 2.0.11 does, once a queue has built up) is counted, not
disconnected: reading stops while the application's queue is full, which bounds it as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from tidegate.client.aliases import IncomingAliases
from tidegate.client.message import Message, Receipt
from tidegate.client.wire import Wire
from tidegate.mqtt.codes import LEGAL, PacketType, ReasonCode
from tidegate.mqtt.errors import Blame, ProtocolError
from tidegate.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tidegate.mqtt.properties import Properties, Property
from tidegate.mqtt.session import Inbound


class Receiver:
    """Turns PUBLISH into `Message` and owes the server an answer for each."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._acknowledge = self.acknowledge  # made once, not for every message
        self._inbound = Inbound()
        self._aliases = IncomingAliases(0)
        self.connection = 0
        self._receive_maximum = 0
        self.over_receive_maximum = 0
        """Messages a server sent although our Receive Maximum was used up."""
        # Unanswered, or answered behind one that is not: answers leave from the front only.
        self._owed: dict[int, deque[Receipt]] = {1: deque(), 2: deque()}
        self.on_acknowledged: Callable[[Receipt], None] | None = None
        """Told when the application acknowledges what it took, for load reports."""
        self.next_report: Callable[[], tuple[str, str] | None] | None = None
        """Asked for a User Property to go with a PUBACK, if load reports travel that way."""

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
        self.connection += 1
        self._owed = {1: deque(), 2: deque()}

    def on_publish(self, packet: Publish) -> Message | None:
        """The message to pass on, or None for the repetition of one that was; raises `MQTTError`."""
        return self.receive(
            self._aliases.resolve(packet),
            packet.payload,
            packet.qos,
            packet.retain,
            packet.dup,
            packet.packet_identifier or 0,
            packet.properties,
        )

    def receive(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        dup: bool,
        packet_identifier: int,
        properties: Properties,
    ) -> Message | None:
        """As `on_publish`, from the fields of a packet whose topic is known."""
        if not qos:
            return Message(topic, payload, 0, retain, False, properties)
        receipt = Receipt(packet_identifier, qos, self.connection)
        if qos == 1:
            self._inbound.receive_qos1()
        elif not self._inbound.receive(packet_identifier):
            self._wire.send(Pubrec(packet_identifier=packet_identifier))
            return None
        owed = self._owed
        owed[qos].append(receipt)
        if len(owed[1]) + len(owed[2]) > self._receive_maximum:
            self.over_receive_maximum += 1
        return Message(topic, payload, qos, retain, dup, properties, receipt, self._acknowledge)

    def on_pubrel(self, packet: Pubrel) -> None:
        is_known = self._inbound.release(packet.packet_identifier)
        code = ReasonCode.SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self._wire.send(Pubcomp(packet_identifier=packet.packet_identifier, reason_code=code))

    def acknowledge(
        self, receipt: Receipt, reason_code: int = 0, properties: Properties | None = None
    ) -> None:
        """Answer one message; see `Message.ack`."""
        if receipt.answer is not None or receipt.connection != self.connection:
            return
        if reason_code not in LEGAL[PacketType.PUBACK]:
            raise ProtocolError(f"no message is answered with 0x{reason_code:02X}", blame=Blame.LOCAL)
        if receipt.taken_at and self.on_acknowledged is not None:
            self.on_acknowledged(receipt)
        if receipt.qos == 1 and not reason_code and not properties:
            # Nearly all there are; nobody needs them as packets. A success needs no reason code in MQTT 5 either.
            receipt.answer = b"\x40\x02" + receipt.packet_identifier.to_bytes(2, "big")
        else:
            kind = Puback if receipt.qos == 1 else Pubrec
            receipt.answer = kind(
                packet_identifier=receipt.packet_identifier,
                reason_code=reason_code,
                properties={} if properties is None else properties,
            )
        owed = self._owed[receipt.qos]
        while owed and (answer := owed[0].answer) is not None:
            self._send(owed.popleft(), answer)

    def acknowledge_many(self, receipts: Iterable[Receipt]) -> None:
        """As `acknowledge` for each, with success; PUBACK packets leave as one piece."""
        if self.on_acknowledged is not None or self.next_report is not None:
            for receipt in receipts:
                self.acknowledge(receipt)
            return
        connection = self.connection
        for receipt in receipts:
            if receipt.connection == connection and receipt.answer is None:
                if receipt.qos == 1:
                    receipt.answer = b"\x40\x02" + receipt.packet_identifier.to_bytes(2, "big")
                else:
                    self.acknowledge(receipt)
        owed = self._owed[1]
        ready: list[bytes] = []
        while owed and isinstance(answer := owed[0].answer, bytes):
            owed.popleft()
            ready.append(answer)
        self._inbound.unacknowledged -= len(ready)
        if ready:
            self._wire.send_bytes(b"".join(ready))
        while owed and (other := owed[0].answer) is not None:  # a refusal given before, and what waited behind it
            self._send(owed.popleft(), other)

    def _send(self, receipt: Receipt, answer: Puback | Pubrec | bytes) -> None:
        if receipt.qos == 1:
            self._inbound.puback_sent()
            report = None if self.next_report is None else self.next_report()
            if report is not None:
                if isinstance(answer, bytes):
                    answer = Puback(packet_identifier=receipt.packet_identifier)
                pairs = answer.properties.get(Property.USER_PROPERTY, ())
                answer.properties = {**answer.properties, Property.USER_PROPERTY: [*pairs, report]}
        elif isinstance(answer, Pubrec) and answer.reason_code >= 0x80:
            # A refusal ends the exchange: no PUBREL follows [MQTT5-4.3.3-9].
            self._inbound.release(answer.packet_identifier)
        if isinstance(answer, bytes):
            self._wire.send_bytes(answer)
        else:
            self._wire.send(answer)
