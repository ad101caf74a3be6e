"""Data representation of MQTT 5 section 1.5: integers, strings, binary data.

Readers take `(data, pos)` and give `(value, next_pos)`; they never look behind the end of `data` and raise
`MalformedPacket` when it ends too early. Writers raise with `Blame.LOCAL`.
"""

from typing import Final

from tidegate.mqtt.errors import Blame, MalformedPacket

VARIABLE_BYTE_INTEGER_MAX: Final = 268_435_455
"""Four groups of seven bits (MQTT 5 table 1-1)."""


def read_variable_byte_integer(data: bytes | bytearray, pos: int) -> tuple[int, int]:
    """Read one to four bytes. More than the minimum number of bytes is accepted from others, never sent."""
    value = shift = 0
    for position in range(pos, min(pos + 4, len(data))):
        byte = data[position]
        if byte < 0x80:
            return value | byte << shift, position + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if shift == 28:
        raise MalformedPacket("a Variable Byte Integer has more than four bytes")
    raise MalformedPacket("the packet ends inside a Variable Byte Integer")


def write_variable_byte_integer(value: int) -> bytes:
    """Encode with the minimum number of bytes [MQTT5-1.5.5-1]."""
    if 0 <= value < 0x80:
        return bytes((value,))
    if not 0 <= value <= VARIABLE_BYTE_INTEGER_MAX:
        raise MalformedPacket(f"{value} does not fit a Variable Byte Integer", blame=Blame.LOCAL)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uint16(data: bytes, pos: int) -> tuple[int, int]:
    end = pos + 2
    if end > len(data):
        raise MalformedPacket("the packet ends inside a Two Byte Integer")
    return int.from_bytes(data[pos:end], "big"), end


def read_uint32(data: bytes, pos: int) -> tuple[int, int]:
    end = pos + 4
    if end > len(data):
        raise MalformedPacket("the packet ends inside a Four Byte Integer")
    return int.from_bytes(data[pos:end], "big"), end


def read_byte(data: bytes, pos: int) -> tuple[int, int]:
    if pos >= len(data):
        raise MalformedPacket("the packet ends where a byte is expected")
    return data[pos], pos + 1


def read_binary(data: bytes, pos: int) -> tuple[bytes, int]:
    start = pos + 2
    # A short slice gives a too small length, but then `start` alone is already behind the end.
    end = start + int.from_bytes(data[pos:start], "big")
    if end > len(data):
        raise MalformedPacket("the packet ends inside a length-prefixed field")
    return data[start:end], end


def read_string(data: bytes, pos: int) -> tuple[str, int]:
    """Read a UTF-8 Encoded String; U+FEFF is kept wherever it stands [MQTT5-1.5.4-3]."""
    start = pos + 2
    end = start + int.from_bytes(data[pos:start], "big")
    if end > len(data):
        raise MalformedPacket("the packet ends inside a UTF-8 string")
    try:
        text = data[start:end].decode()  # strict: refuses surrogates [MQTT5-1.5.4-1]
    except UnicodeDecodeError:
        raise MalformedPacket("a string is not well-formed UTF-8") from None
    if "\0" in text:
        raise MalformedPacket("a string contains U+0000 [MQTT5-1.5.4-2]")
    return text, end


def write_binary(value: bytes) -> bytes:
    if len(value) > 0xFFFF:
        raise MalformedPacket(f"{len(value)} bytes do not fit a length-prefixed field", blame=Blame.LOCAL)
    return len(value).to_bytes(2, "big") + value


def write_string(text: str) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise MalformedPacket("a string contains a surrogate", blame=Blame.LOCAL) from None
    if b"\0" in raw:
        raise MalformedPacket("a string contains U+0000", blame=Blame.LOCAL)
    return write_binary(raw)


def write_uint(value: int, size: int) -> bytes:
    """Encode a Two or Four Byte Integer (or one byte); `size` is in bytes."""
    if not 0 <= value < 1 << 8 * size:
        raise MalformedPacket(f"{value} does not fit {size} bytes", blame=Blame.LOCAL)
    return value.to_bytes(size, "big")
