"""The few MQTT packets a load run sends, as bytes, for protocol levels 4 (3.1.1) and 5.

Nothing here shares code with the broker: a fault in the broker's codec must not hide itself from the tool
that measures it. `Burst` is the fast part: many PUBLISH packets of one size in one buffer, of which only the
bytes that differ (stamp, sequence number, packet identifier) are written anew, by slices with a stride
instead of a loop.

Payload of every message, big-endian:

    offset 0   1 byte    1 if the packet carries a stamp, else 0
    offset 1   8 bytes   time.monotonic_ns() when the burst was built (stamped packets only)
    offset 9   2 bytes   sequence number of the publisher, modulo 65536
    offset 11  filler
"""

from __future__ import annotations

import struct

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x30, 0x40, 0x50, 0x62, 0x70
PINGRESP = 0xD0
PINGREQ_PACKET = b"\xc0\x00"
DISCONNECT_PACKET = b"\xe0\x00"  # a remaining length of 0 is right for both versions [MQTT5-3.14.2.1]

STAMP_FLAG, STAMP, SEQUENCE = 0, 1, 9
MINIMUM_PAYLOAD_BYTES = 11
MAXIMUM_BURST = 4096

# Twice the cycle, so that a run of numbers which wraps is still one slice.
SEQUENCE_HIGH = bytes((n >> 8) & 0xFF for n in range(2 * 65536))
SEQUENCE_LOW = bytes(n & 0xFF for n in range(2 * 65536))
# Packet identifiers go round 1..65535; 0 is not allowed [MQTT5-2.2.1-3].
_IDENTIFIER_HIGH = bytes((n % 65535 + 1) >> 8 for n in range(2 * 65535))
_IDENTIFIER_LOW = bytes((n % 65535 + 1) & 0xFF for n in range(2 * 65535))

_STAMP = struct.Struct(">BQ")


def encode_length(value: int) -> bytes:
    """Return `value` as a variable byte integer."""
    out = bytearray()
    while True:
        value, digit = divmod(value, 128)
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def decode_length(data: bytes, pos: int) -> tuple[int, int] | None:
    """Return (value, position behind it) of the variable byte integer at `pos`, None if it is cut off."""
    value = shift = 0
    for index in range(pos, min(pos + 4, len(data))):
        digit = data[index]
        value |= (digit & 0x7F) << shift
        if digit < 0x80:
            return value, index + 1
        shift += 7
    return None


def _packet(first_byte: int, body: bytes) -> bytes:
    return bytes((first_byte,)) + encode_length(len(body)) + body


SESSION_EXPIRY = 3600  # seconds that an MQTT 5 broker keeps a persistent session of ours


def _field(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def connect(
    client_id: str,
    *,
    protocol: int,
    keep_alive: int = 0,
    username: str | None = None,
    password: str | None = None,
    persistent: bool = False,
) -> bytes:
    """Return a CONNECT that asks for a clean session, or for one that outlives the connection."""
    flags = 0x00 if persistent else 0x02
    flags |= (0x80 if username is not None else 0) | (0x40 if password is not None else 0)
    body = _field(b"MQTT") + bytes((protocol, flags)) + keep_alive.to_bytes(2, "big")
    if protocol == 5:
        body += b"\x05\x11" + SESSION_EXPIRY.to_bytes(4, "big") if persistent else b"\x00"
    body += _field(client_id.encode())
    for credential in (username, password):
        if credential is not None:
            body += _field(credential.encode())
    return _packet(0x10, body)


def subscribe(packet_identifier: int, topic_filter: str, *, qos: int, protocol: int) -> bytes:
    """Return a SUBSCRIBE for one filter."""
    properties = b"\x00" if protocol == 5 else b""
    body = packet_identifier.to_bytes(2, "big") + properties + _field(topic_filter.encode()) + bytes((qos,))
    return _packet(0x82, body)


def publish(topic: str, payload: bytes, *, qos: int, protocol: int, packet_identifier: int = 1) -> bytes:
    """Return a PUBLISH; the identifier only appears if the QoS calls for one [MQTT5-2.2.1-2]."""
    identifier = packet_identifier.to_bytes(2, "big") if qos else b""
    properties = b"\x00" if protocol == 5 else b""
    return _packet(PUBLISH | qos << 1, _field(topic.encode()) + identifier + properties + payload)


def acknowledgements(first_byte: int, high: bytes, low: bytes) -> bytes:
    """Return one four-byte packet for each identifier, given as the columns of their high and low bytes."""
    count = len(high)
    out = bytearray(bytes((first_byte, 2, 0, 0)) * count)
    out[2::4] = high
    out[3::4] = low
    return bytes(out)


class Burst:
    """Up to `size` consecutive PUBLISH packets of one publisher, ready to be sent with one call.

    Cost of `fill` is a few slice assignments, about 1 ns a packet each.
    """

    __slots__ = ("_buffer", "_identifier_at", "_sequence_at", "_stamp_at", "_view", "qos", "size", "stride")

    def __init__(self, topic: str, *, payload_bytes: int, qos: int, protocol: int, size: int) -> None:
        payload = bytes(MINIMUM_PAYLOAD_BYTES) + b"." * (payload_bytes - MINIMUM_PAYLOAD_BYTES)
        packet = publish(topic, payload, qos=qos, protocol=protocol)
        self.qos = qos
        self.size = size
        self.stride = len(packet)
        payload_at = self.stride - payload_bytes
        self._stamp_at = payload_at + STAMP_FLAG
        self._sequence_at = payload_at + SEQUENCE
        self._identifier_at = payload_at - 2 - (1 if protocol == 5 else 0)
        self._buffer = bytearray(packet * size)
        self._view = memoryview(self._buffer)

    def fill(self, count: int, sent: int, now_ns: int) -> memoryview:
        """Return the packets `sent`..`sent + count - 1` of this publisher, the first one stamped.

        The view is into a buffer that the next call overwrites: send or copy it first.
        """
        buffer, stride, end = self._buffer, self.stride, count * self.stride
        sequence = sent & 0xFFFF
        buffer[self._sequence_at : end : stride] = SEQUENCE_HIGH[sequence : sequence + count]
        buffer[self._sequence_at + 1 : end : stride] = SEQUENCE_LOW[sequence : sequence + count]
        if self.qos:
            turn = sent % 65535
            buffer[self._identifier_at : end : stride] = _IDENTIFIER_HIGH[turn : turn + count]
            buffer[self._identifier_at + 1 : end : stride] = _IDENTIFIER_LOW[turn : turn + count]
        _STAMP.pack_into(buffer, self._stamp_at, 1, now_ns)
        return self._view[:end]
