"""Bytes of packets a well-behaved encoder refuses to make, and a look at the bytes a server really sent.

Written without the product's codec on purpose: a fault in the codec must not hide itself.
"""

from tidegate.testing.raw import RawClient

PROTOCOL = b"\x00\x04MQTT\x05"


def length(value: int) -> bytes:
    """A Variable Byte Integer with the fewest bytes."""
    encoded = bytearray()
    while True:
        value, digit = divmod(value, 128)
        encoded.append(digit | 0x80 if value else digit)
        if not value:
            return bytes(encoded)


def frame(first_byte: int, body: bytes) -> bytes:
    return bytes((first_byte,)) + length(len(body)) + body


def prefixed(data: bytes | str) -> bytes:
    """A string or binary field: two bytes of length, then the data as given."""
    raw = data.encode() if isinstance(data, str) else data
    return len(raw).to_bytes(2, "big") + raw


def connect(
    payload: bytes,
    *,
    flags: int = 0x02,
    keep_alive: int = 60,
    properties: bytes = b"",
    protocol: bytes = PROTOCOL,
    first_byte: int = 0x10,
) -> bytes:
    """A CONNECT from its parts; `payload` holds everything from the client identifier on."""
    header = protocol + bytes((flags,)) + keep_alive.to_bytes(2, "big")
    return frame(first_byte, header + length(len(properties)) + properties + payload)


def publish(
    topic: bytes | str, payload: bytes = b"", *, first_byte: int = 0x30, properties: bytes = b""
) -> bytes:
    """A PUBLISH of QoS 0, whatever its topic and properties hold."""
    return frame(first_byte, prefixed(topic) + length(len(properties)) + properties + payload)


def subscribe(*filters: tuple[bytes | str, int], identifier: int = 1, first_byte: int = 0x82) -> bytes:
    """A SUBSCRIBE without properties; each filter comes with its options byte."""
    body = b"".join(prefixed(name) + bytes((options,)) for name, options in filters)
    return frame(first_byte, identifier.to_bytes(2, "big") + b"\0" + body)


def unsubscribe(*filters: bytes | str, identifier: int = 1, first_byte: int = 0xA2) -> bytes:
    return frame(first_byte, identifier.to_bytes(2, "big") + b"\0" + b"".join(map(prefixed, filters)))


def split_frames(data: bytes) -> list[bytes]:
    """Whole packets of a stream, fixed header included; what is incomplete at the end is left out."""
    frames = []
    start = 0
    while start < len(data):
        size = shift = 0
        position = start + 1
        while position < len(data):
            digit = data[position]
            size |= (digit & 0x7F) << shift
            shift += 7
            position += 1
            if digit < 0x80:
                break
        else:
            break
        if position + size > len(data):
            break
        frames.append(data[start : position + size])
        start = position + size
    return frames


def receive_frames(client: RawClient, count: int) -> list[bytes]:
    """The next `count` packets as bytes; the client must not have unread packets."""
    data = b""
    while len(frames := split_frames(data)) < count:
        more = client.receive_bytes()
        assert more, f"the server closed after {frames!r}"
        data += more
    assert len(frames) == count, f"more than {count} packets: {frames!r}"
    return frames


def receive_frames_until_closed(client: RawClient) -> list[bytes]:
    """Every packet up to the end of the connection, as bytes."""
    data = b""
    while more := client.receive_bytes():
        data += more
    return split_frames(data)
