"""Packets out of a byte stream that arrives in pieces of any size.

Each byte is copied a fixed number of times, however the stream is cut: while a packet is incomplete its total
size is known and later pieces are only appended. A packet is refused as soon as the bytes that condemn its
fixed header are there: a wrong first byte or a too large Remaining Length never makes us wait for the rest or
store it.
"""

from typing import Final

from tidegate.mqtt.decode import check_first_byte, decode_packet
from tidegate.mqtt.errors import MalformedPacket, MQTTError, PacketTooLarge, ProtocolError
from tidegate.mqtt.packets import Connect, Packet
from tidegate.mqtt.primitives import VARIABLE_BYTE_INTEGER_MAX

_CONNECT_FIRST_BYTE: Final = 0x10
MAX_PACKET_SIZE: Final = VARIABLE_BYTE_INTEGER_MAX + 5
"""The largest packet there is: five bytes of fixed header and the largest Remaining Length."""


class PacketReader:
    """Incremental decoder of one direction of one connection.

    Without a version it reads as a server: the first packet must be a CONNECT, which sets `version`, and no
    second one may follow. With a version it reads any packet of that version.

    The first fault ends the stream. `feed` returns the packets in front of it, if any; the fault is kept in
    `error`, raised by `check()` and by every further `feed`. A `feed` with no packet in front raises at once:

        for packet in reader.feed(data):
            handle(packet)
        reader.check()
    """

    __slots__ = ("_buffer", "_is_server", "_need", "error", "max_packet_size", "version")

    def __init__(self, version: int | None = None, max_packet_size: int = MAX_PACKET_SIZE) -> None:
        self.version = version
        self.max_packet_size = max_packet_size
        """Bytes of a whole packet, fixed header included [MQTT5-3.1.2-24]."""
        self.error: MQTTError | None = None
        self._is_server = version is None
        self._buffer = bytearray()
        self._need = 0  # bytes the buffer must hold before looking at it again makes sense

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def check(self) -> None:
        """Raise the fault that ended the stream, if there was one."""
        if self.error is not None:
            raise self.error

    def feed(self, data: bytes) -> list[Packet]:
        """Take the next bytes; gives the packets they complete."""
        self.check()
        source: bytes | bytearray
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._need:
                return []
            source = self._buffer
        else:
            source = data
        packets: list[Packet] = []
        try:
            pos = self._decode_all(source, packets)
        except MQTTError as error:
            self.error = error
            self._buffer = bytearray()
            if not packets:
                raise
            return packets
        if source is data:
            self._buffer += data[pos:]
        else:
            del self._buffer[:pos]
        return packets

    def _decode_all(self, source: bytes | bytearray, packets: list[Packet]) -> int:
        """Decode complete packets from the front; gives the position of the first incomplete one."""
        pos = 0
        size = len(source)
        while pos < size:
            first_byte = source[pos]
            self._check_start(first_byte)
            header = self._read_remaining_length(source, pos)
            if header is None:
                self._need = 0
                return pos
            start, end = header
            if end - pos > self.max_packet_size:
                raise PacketTooLarge(f"a packet has {end - pos} bytes, the limit is {self.max_packet_size}")
            if end > size:
                self._need = end - pos
                return pos
            packet = decode_packet(first_byte, bytes(source[start:end]), self.version or 0)
            if self.version is None and isinstance(packet, Connect):
                self.version = packet.protocol_level
            packets.append(packet)
            pos = end
        self._need = 0
        return pos

    def _check_start(self, first_byte: int) -> None:
        if self.version is None:
            # The type decides: a CONNECT with wrong flags is malformed, anything else is out of order.
            if first_byte >> 4 != _CONNECT_FIRST_BYTE >> 4:
                raise ProtocolError("the first packet is not a CONNECT [MQTT5-3.1.0-1]")
            check_first_byte(first_byte, 5)
            return
        if self._is_server and first_byte >> 4 == _CONNECT_FIRST_BYTE >> 4:
            raise ProtocolError("a second CONNECT on the same connection [MQTT5-3.1.0-2]")
        check_first_byte(first_byte, self.version)

    @staticmethod
    def _read_remaining_length(source: bytes | bytearray, pos: int) -> tuple[int, int] | None:
        """Where the body starts and ends, or None if the fixed header is not complete."""
        length = shift = 0
        for position in range(pos + 1, min(pos + 5, len(source))):
            byte = source[position]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                return position + 1, position + 1 + length
            shift += 7
        if shift == 28:
            raise MalformedPacket("Remaining Length has more than four bytes")
        return None
