"""The QoS 1 and 2 exchanges of section 4.3 as two small machines, one a direction, used by both ends.

`Outbound` owns the packet identifiers of what we publish, `Inbound` remembers which QoS 2 publications of the
peer are not yet released. They hold no clock, no packets and no buffers: the caller sends what they answer. A
node keeps a pair for each session, a million of them, so containers exist only while something is in flight.

An exchange is one value `(qos, message)` in a dictionary that keeps the order of sending:

    (1, message)  PUBLISH sent, waits for PUBACK
    (2, message)  PUBLISH sent, waits for PUBREC
    (2, None)     PUBREL sent, waits for PUBCOMP; the message is no longer needed

The step to PUBREL moves an exchange to the end. So PUBLISH packets stay in the order they were first sent
[MQTT5-4.6.0-1], and PUBREL packets in the order their PUBREC packets came [MQTT5-4.6.0-4].
"""

from collections import OrderedDict
from collections.abc import Container, Iterator
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

from tidegate.mqtt.errors import Blame, PacketIdentifierInUse, ReceiveMaximumExceeded

M = TypeVar("M")

RECEIVE_MAXIMUM_DEFAULT: Final = 65_535
PACKET_IDENTIFIER_MAX: Final = 65_535


class PubrecOutcome(StrEnum):
    """What a PUBREC asks the sender to do."""

    SEND_PUBREL = "send_pubrel"
    ENDED = "ended"
    """The receiver refused the message: the identifier is free again, nothing is sent."""
    UNKNOWN = "unknown"
    """No such QoS 2 exchange: an MQTT 5 sender answers PUBREL with 0x92."""


class InFlight(NamedTuple, Generic[M]):
    """An unfinished exchange; `message` is None when a PUBREL (not a PUBLISH) was sent last."""

    packet_identifier: int
    qos: int
    message: M | None


class Outbound(Generic[M]):
    """Exchanges we started. `message` may be any object but None.

    `send` only when `can_send`; after a new connection call `reconnect`, send everything `resend` gives, and
    call `resend` again after acknowledgements until `is_resending` is false; only then come new messages.
    """

    __slots__ = ("_in_flight", "_last_identifier", "_to_resend", "receive_maximum")

    def __init__(self, receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT) -> None:
        self.receive_maximum = receive_maximum
        self._last_identifier = 0
        self._in_flight: dict[int, tuple[int, M | None]] | None = None
        # Ordered, quick to take from the front and from the middle.
        self._to_resend: OrderedDict[int, None] | None = None

    def __len__(self) -> int:
        """Unfinished exchanges."""
        return len(self._in_flight) if self._in_flight else 0

    def __contains__(self, packet_identifier: int) -> bool:
        return self._in_flight is not None and packet_identifier in self._in_flight

    def __iter__(self) -> Iterator[InFlight[M]]:
        """All unfinished exchanges in order, to be stored or handed over; `restore` takes them back."""
        for identifier, (qos, message) in list((self._in_flight or {}).items()):
            yield InFlight(identifier, qos, message)

    @property
    def is_resending(self) -> bool:
        return bool(self._to_resend)

    @property
    def can_send(self) -> bool:
        """Whether the peer's Receive Maximum leaves room for a new message [MQTT5-3.3.4-7]."""
        return not self._to_resend and len(self) < self.receive_maximum

    def next_identifier(self, also_in_use: Container[int] = ()) -> int:
        """A free identifier [MQTT5-2.2.1-3], not reserved. Linear only when nearly all are taken.

        A client passes the identifiers of its open SUBSCRIBE and UNSUBSCRIBE packets: they share the numbers.
        """
        taken: Container[int] = self._in_flight or ()
        identifier = self._last_identifier
        for _ in range(PACKET_IDENTIFIER_MAX):
            identifier = identifier % PACKET_IDENTIFIER_MAX + 1
            if identifier not in taken and identifier not in also_in_use:
                self._last_identifier = identifier
                return identifier
        raise PacketIdentifierInUse("all 65 535 packet identifiers are in use", blame=Blame.LOCAL)

    def send(self, message: M, qos: int, also_in_use: Container[int] = ()) -> int:
        """Begin an exchange of QoS 1 or 2; gives the packet identifier for its PUBLISH."""
        if not self.can_send:
            raise ReceiveMaximumExceeded("the peer's Receive Maximum is used up", blame=Blame.LOCAL)
        identifier = self.next_identifier(also_in_use)
        self._entries()[identifier] = (qos, message)
        return identifier

    def on_puback(self, packet_identifier: int) -> M | None:
        """End a QoS 1 exchange; gives its message, or None if there is no such exchange."""
        entries = self._in_flight
        if entries is None:
            return None
        entry = entries.get(packet_identifier)
        if entry is None or entry[0] != 1:
            return None
        self._end(packet_identifier)
        return entry[1]

    def on_pubrec(self, packet_identifier: int, reason_code: int = 0) -> tuple[PubrecOutcome, M | None]:
        """Second step of QoS 2; the message comes with the answer that lets it go, else None."""
        entries = self._in_flight
        entry = None if entries is None else entries.get(packet_identifier)
        if entries is None or entry is None or entry[0] != 2:
            return PubrecOutcome.UNKNOWN, None
        if reason_code >= 0x80:
            self._end(packet_identifier)
            return PubrecOutcome.ENDED, entry[1]
        if entry[1] is not None:
            # Out and in again: see the module's note about order.
            del entries[packet_identifier]
            entries[packet_identifier] = (2, None)
            self._resent(packet_identifier)
        return PubrecOutcome.SEND_PUBREL, entry[1]

    def on_pubcomp(self, packet_identifier: int) -> bool:
        """End a QoS 2 exchange; False if it is unknown or still waits for PUBREC."""
        if self._in_flight is None or self._in_flight.get(packet_identifier) != (2, None):
            return False
        self._end(packet_identifier)
        return True

    def reconnect(self, receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT) -> None:
        """A new connection took over the session: all unfinished exchanges are to be sent again."""
        self.receive_maximum = receive_maximum
        self._to_resend = OrderedDict.fromkeys(self._in_flight) if self._in_flight else None

    def resend(self) -> Iterator[InFlight[M]]:
        """What to send again now [MQTT5-4.4.0-1]: PUBLISH with DUP, or PUBREL; within Receive Maximum.

        Each is given once a connection. The caller sends what it gets before it handles further packets.
        """
        while self._to_resend and self._in_flight is not None:
            identifier = next(iter(self._to_resend))
            qos, message = self._in_flight[identifier]
            sent = len(self._in_flight) - len(self._to_resend)
            # A repeated PUBREL needs no quota (section 4.9).
            if message is not None and sent >= self.receive_maximum:
                return
            del self._to_resend[identifier]
            yield InFlight(identifier, qos, message)
        self._to_resend = None

    def restore(self, packet_identifier: int, qos: int, message: M | None) -> None:
        """Put back an exchange as `__iter__` gave it, in that order, before `reconnect`."""
        if packet_identifier in self:
            raise PacketIdentifierInUse(
                f"packet identifier {packet_identifier} is restored twice", blame=Blame.LOCAL
            )
        self._entries()[packet_identifier] = (qos, message)
        self._last_identifier = packet_identifier

    def clear(self) -> None:
        """The session ended: forget all exchanges."""
        self._in_flight = self._to_resend = None

    def _entries(self) -> dict[int, tuple[int, M | None]]:
        if self._in_flight is None:
            self._in_flight = {}
        return self._in_flight

    def _end(self, packet_identifier: int) -> None:
        assert self._in_flight is not None
        del self._in_flight[packet_identifier]
        self._resent(packet_identifier)
        if not self._in_flight:
            self._in_flight = None

    def _resent(self, packet_identifier: int) -> None:
        """A late acknowledgement may answer what still waits to be sent again."""
        if self._to_resend:
            self._to_resend.pop(packet_identifier, None)


class Inbound:
    """Publications of the peer that we have not finished acknowledging."""

    __slots__ = ("_carried_over", "_received", "receive_maximum", "unacknowledged")

    def __init__(self, receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT) -> None:
        self.receive_maximum = receive_maximum
        """What we told the peer on this connection."""
        self.unacknowledged = 0
        """QoS 1 publications whose PUBACK we have not sent yet."""
        self._received: set[int] | None = None
        self._carried_over = 0

    def __len__(self) -> int:
        """QoS 2 identifiers received and not released."""
        return len(self._received) if self._received else 0

    def __contains__(self, packet_identifier: int) -> bool:
        return self._received is not None and packet_identifier in self._received

    def __iter__(self) -> Iterator[int]:
        """The identifiers to store or hand over; `restore` takes them back."""
        return iter(sorted(self._received or ()))

    def receive(self, packet_identifier: int) -> bool:
        """A QoS 2 PUBLISH came: True if it is new and must be passed on; answer PUBREC either way.

        Raises `ReceiveMaximumExceeded` [MQTT5-3.3.4-7, MQTT5-3.3.4-9].
        """
        if self._received is None:
            self._received = set()
        elif packet_identifier in self._received:
            return False
        self._check_quota()
        self._received.add(packet_identifier)
        return True

    def release(self, packet_identifier: int) -> bool:
        """A PUBREL came (or we refused by PUBREC of 0x80 or above); False: unknown, answer 0x92."""
        if self._received is None or packet_identifier not in self._received:
            return False
        self._received.discard(packet_identifier)
        self._carried_over = min(self._carried_over, len(self._received))
        if not self._received:
            self._received = None
        return True

    def receive_qos1(self) -> None:
        """A QoS 1 PUBLISH came whose PUBACK is sent later. Raises `ReceiveMaximumExceeded`."""
        if self._received or self.unacknowledged >= self.receive_maximum:
            self._check_quota()
        self.unacknowledged += 1

    def puback_sent(self) -> None:
        self.unacknowledged -= 1

    def reconnect(self, receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT) -> None:
        """A new connection took over: QoS 1 starts afresh, QoS 2 identifiers stay.

        Identifiers of an earlier connection do not count: the peer's quota was full again when it connected,
        and a repeated PUBREL takes none of it (section 4.9).
        """
        self.receive_maximum = receive_maximum
        self.unacknowledged = 0
        self._carried_over = len(self)

    def restore(self, packet_identifier: int) -> None:
        if self._received is None:
            self._received = set()
        self._received.add(packet_identifier)

    def clear(self) -> None:
        """The session ended."""
        self._received = None
        self.unacknowledged = self._carried_over = 0

    def _check_quota(self) -> None:
        if len(self) - self._carried_over + self.unacknowledged >= self.receive_maximum:
            raise ReceiveMaximumExceeded(f"more than {self.receive_maximum} publications are unacknowledged")
