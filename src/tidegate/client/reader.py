"""Bytes of the server to the session, packet by packet.

Most of what a client gets are PUBLISH packets without properties and PUBACK packets that say success: these are read
in one loop without an object for the packet. Everything else goes through the general decoder, and everything large
or odd through `PacketReader`, which knows how to wait for it and what to refuse.
"""

from __future__ import annotations

from typing import Final

from tidegate.client.session import Session
from tidegate.flow.moving import MOVING_TOPIC
from tidegate.mqtt.decode import check_first_byte, decode_packet
from tidegate.mqtt.errors import PacketTooLarge
from tidegate.mqtt.packets import Publish
from tidegate.mqtt.reader import PacketReader

# An incomplete packet up to this size is put in front of the next chunk; a larger one is gathered by `PacketReader`,
# which copies each byte once however many chunks it takes.
_SMALL: Final = 8192
_REMEMBERED: Final = 1000  # topics known to be valid


class SessionReader:
    """Feeds a session that is open. `reader` is the one that read CONNACK, and may hold bytes behind it."""

    def __init__(self, session: Session, reader: PacketReader) -> None:
        assert reader.version is not None
        self._session = session
        self._version = reader.version
        self._max_packet_size = reader.max_packet_size
        self._rest = b""
        self._general = reader
        self._topics: dict[bytes, str] = {}

    def feed(self, data: bytes) -> None:
        """Handle the packets that are complete; raises `MQTTError` behind those in front of the fault."""
        if self._general.buffered_bytes:
            self._feed_general(data)
            return
        if self._rest:
            data = self._rest + data
            self._rest = b""
        pos = self._handle_all(data)
        if pos < len(data):
            rest = data[pos:]
            if self._is_small(rest):
                self._rest = rest
            else:
                self._feed_general(rest)

    def _handle_all(self, data: bytes) -> int:
        """Handle packets from the front; gives the position of the first that is incomplete or odd."""
        on_acknowledged = self._session.publisher.on_acknowledged
        pos = 0
        size = len(data)
        while pos + 2 <= size:
            first_byte = data[pos]
            length = data[pos + 1]
            start = pos + 2
            if length >= 0x80:
                if start >= size or data[start] >= 0x80:
                    # Three bytes and more: 16 KiB packets are rare enough for the long way.
                    return pos
                length = length & 0x7F | data[start] << 7
                start += 1
            end = start + length
            if end > size:
                return pos
            if end - pos > self._max_packet_size:
                raise PacketTooLarge(f"a packet has {end - pos} bytes, the limit is {self._max_packet_size}")
            if first_byte == 0x40 and length == 2 and (identifier := data[start] << 8 | data[start + 1]):
                on_acknowledged(identifier, 0, {})
            elif first_byte >> 4 != 3 or not self._handle_publish(first_byte, data, start, end):
                self._session.on_packet(decode_packet(first_byte, data[start:end], self._version))
            pos = end
        return pos

    def _handle_publish(self, first_byte: int, data: bytes, start: int, end: int) -> bool:
        """Handle a PUBLISH without properties on a known topic; False: it is another, nothing was done."""
        qos = first_byte >> 1 & 3
        topic_end = start + 2 + (data[start] << 8) + data[start + 1] if end - start >= 2 else end
        pos = topic_end + (2 if qos else 0)
        if self._version >= 5:
            if pos >= end or data[pos]:
                return False
            pos += 1
        if pos > end or qos == 3 or first_byte & 0x0E == 0x08:
            return False
        raw_topic = data[start + 2 : topic_end]
        topic = self._topics.get(raw_topic)
        if topic is None:
            self._learn(first_byte, data[start:end], raw_topic)
            return False
        identifier = 0
        if qos:
            identifier = data[topic_end] << 8 | data[topic_end + 1]
            if not identifier:
                return False
        self._session.on_message(
            topic, data[pos:end], qos, first_byte & 1 != 0, first_byte & 8 != 0, identifier
        )
        return True

    def _learn(self, first_byte: int, body: bytes, raw_topic: bytes) -> None:
        """Remember a topic if the general decoder finds it valid; else this raises."""
        packet = decode_packet(first_byte, body, self._version)
        assert isinstance(packet, Publish)
        if packet.topic and packet.topic != MOVING_TOPIC:  # that is for the session itself, by the long way
            if len(self._topics) >= _REMEMBERED:
                self._topics.clear()
            self._topics[raw_topic] = packet.topic

    def _is_small(self, rest: bytes) -> bool:
        """Whether an incomplete packet will be complete before it is too long to be copied again."""
        check_first_byte(rest[0], self._version)  # A wrong start never makes us wait for the rest.
        length = rest[1] if len(rest) > 1 else 0
        if length >= 0x80:
            if len(rest) > 2 and rest[2] >= 0x80:
                return False
            length = length & 0x7F | (rest[2] << 7 if len(rest) > 2 else 0)
        return length < _SMALL and length < self._max_packet_size

    def _feed_general(self, data: bytes) -> None:
        for packet in self._general.feed(data):
            self._session.on_packet(packet)
        self._general.check()
