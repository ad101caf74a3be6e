"""Bytes of MQTT 3.1.1 packets, right or wrong on purpose: the encoder refuses to make the wrong ones."""

from typing import Final

ILL_FORMED_UTF8: Final = {
    "surrogate": b"a\xed\xa0\x80",
    "overlong": b"a\xc0\xaf",
    "beyond the last code point": b"a\xf4\x90\x80\x80",
    "cut off": b"a\xe2\x82",
    "not a lead byte": b"a\xff",
}


def packet(first_byte: int, body: bytes = b"") -> bytes:
    """A packet with this first byte and the Remaining Length that its body has."""
    length = len(body)
    encoded = bytearray([first_byte])
    while True:
        length, digit = divmod(length, 128)
        encoded.append(digit | (0x80 if length else 0))
        if not length:
            return bytes(encoded) + body


def string(value: str | bytes) -> bytes:
    """A string field: its length, then its bytes, whatever they are."""
    encoded = value.encode() if isinstance(value, str) else value
    return len(encoded).to_bytes(2, "big") + encoded


def connect(
    client_id: str | bytes = "wire",
    *fields: str | bytes,
    flags: int = 0x02,
    name: bytes = b"MQTT",
    level: int = 4,
    keep_alive: int = 0,
) -> bytes:
    """A CONNECT whose flags and payload fields need not agree."""
    header = string(name) + bytes([level, flags]) + keep_alive.to_bytes(2, "big")
    return packet(0x10, header + b"".join(string(field) for field in (client_id, *fields)))


def publish(
    topic: str | bytes, payload: bytes = b"", *, flags: int = 0, packet_identifier: int | None = None
) -> bytes:
    """A PUBLISH; `flags` are the lower four bits of its first byte."""
    identifier = b"" if packet_identifier is None else packet_identifier.to_bytes(2, "big")
    return packet(0x30 | flags, string(topic) + identifier + payload)


def subscribe(*filters: tuple[str | bytes, int], packet_identifier: int = 1, first_byte: int = 0x82) -> bytes:
    """A SUBSCRIBE; each filter comes with its Requested QoS byte."""
    pairs = b"".join(string(name) + bytes([qos]) for name, qos in filters)
    return packet(first_byte, packet_identifier.to_bytes(2, "big") + pairs)


def unsubscribe(*filters: str | bytes, packet_identifier: int = 1, first_byte: int = 0xA2) -> bytes:
    """An UNSUBSCRIBE."""
    names = b"".join(string(name) for name in filters)
    return packet(first_byte, packet_identifier.to_bytes(2, "big") + names)


def split(data: bytes) -> list[tuple[int, bytes]]:
    """First byte and body of each whole packet in the data; none of them longer than 127 bytes."""
    packets = []
    pos = 0
    while pos + 2 <= len(data) and pos + 2 + data[pos + 1] <= len(data):
        end = pos + 2 + data[pos + 1]
        packets.append((data[pos], data[pos + 2 : end]))
        pos = end
    return packets
