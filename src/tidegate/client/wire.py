"""Where the parts of a session send their packets: encoded for the connection there is, if there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.errors import Blame, PacketTooLarge
from tidegate.mqtt.packets import Packet, Publish
from tidegate.mqtt.primitives import VARIABLE_BYTE_INTEGER_MAX, write_string, write_variable_byte_integer
from tidegate.mqtt.topics import validate_topic_name

T_contra = TypeVar("T_contra", contravariant=True)

# Topics whose encoding is remembered: few enough to forget about, more than most clients publish to.
_REMEMBERED: Final = 1000


class Waiter(Protocol[T_contra]):
    """Who waits for an answer. An `asyncio.Future` is one; the core of the client needs no more of it."""

    def done(self) -> bool: ...
    def set_result(self, result: T_contra, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class Wire:
    """Open between CONNACK and the end of a connection; what is sent while it is closed is lost on purpose.

    Only acknowledgements are sent without looking at `is_open`; they mean nothing to the next connection.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self._max_packet_size: int | None = None
        self._write: Callable[[bytes], None] | None = None
        self._topics: dict[str, bytes] = {}

    @property
    def is_open(self) -> bool:
        return self._write is not None

    def open(self, write: Callable[[bytes], None], max_packet_size: int | None) -> None:
        self._write = write
        self._max_packet_size = max_packet_size

    def close(self) -> None:
        self._write = None

    def send(self, packet: Packet) -> None:
        """Raises `PacketTooLarge` [MQTT5-3.2.2-15] and what else the encoder refuses."""
        if self._write is not None:
            self._write(encode_packet(packet, self.version, max_packet_size=self._max_packet_size))

    def send_bytes(self, data: bytes) -> None:
        """Send a packet that is encoded and small."""
        if self._write is not None:
            self._write(data)

    def check_topic(self, topic: str) -> None:
        """Raise `TopicNameInvalid` unless this may be published to; quick for a topic used before."""
        if topic not in self._topics:
            validate_topic_name(topic, blame=Blame.LOCAL)
            if len(self._topics) >= _REMEMBERED:
                self._topics.clear()
            self._topics[topic] = write_string(topic)

    def send_publish(self, packet: Publish) -> None:
        """As `send`; most messages have no properties, and these are put together without the general encoder."""
        topic = self._topics.get(packet.topic)
        if topic is None or packet.properties or self._write is None:
            self.send(packet)
            return
        qos = packet.qos
        first_byte = 0x30 | packet.dup << 3 | qos << 1 | packet.retain
        identifier = b""
        if qos:
            assert packet.packet_identifier is not None
            identifier = packet.packet_identifier.to_bytes(2, "big")
        properties = b"\0" if self.version >= 5 else b""
        payload = packet.payload
        size = len(topic) + len(identifier) + len(properties) + len(payload)
        if size > VARIABLE_BYTE_INTEGER_MAX:
            self.send(packet)  # which says what is wrong
            return
        head = bytes((first_byte, size)) if size < 0x80 else self._head(first_byte, size)
        limit = self._max_packet_size
        if limit is not None and len(head) + size > limit:
            raise PacketTooLarge(f"Publish has {len(head) + size} bytes, the peer takes {limit}", blame=Blame.LOCAL)
        self._write(b"".join((head, topic, identifier, properties, payload)))

    @staticmethod
    def _head(first_byte: int, size: int) -> bytes:
        return bytes((first_byte,)) + write_variable_byte_integer(size)
