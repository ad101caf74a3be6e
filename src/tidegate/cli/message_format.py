"""How `tidegate sub` writes a message: patterns with % as mosquitto_sub has them, or JSON."""

import base64
import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from tidegate.client import Message

Render: TypeAlias = Callable[["Message", datetime], bytes]

# C0 and C1 controls but tab and newline; C1 only as UTF-8 has them, since single bytes above 0x7F are text.
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\e": "\x1b", "\\\\": "\\"}


class FormatError(ValueError):
    """A pattern with a letter that means nothing."""

    def __init__(self, letter: str) -> None:
        known = " ".join(f"%{name}" for name in LETTERS)
        super().__init__(f"%{letter} has no meaning; known: {known} %%")
        self.letter = letter


def compile_pattern(pattern: str) -> Render:
    """A function from message and time of arrival to bytes; raises `FormatError`."""
    pieces: list[Render] = []
    rest = pattern
    while rest:
        text, percent, rest = rest.partition("%")
        if text:
            pieces.append(_constant(_unescape(text)))
        if percent:
            letter, rest = rest[:1], rest[1:]
            pieces.append(_constant(b"%") if letter == "%" else _letter(letter))
    return lambda message, arrived: b"".join([piece(message, arrived) for piece in pieces])


def as_object(message: "Message", arrived: datetime) -> dict[str, Any]:
    """One message as JSON can say it; a payload that is not text comes as base64."""
    result: dict[str, Any] = {
        "time": arrived.isoformat(),
        "topic": message.topic,
        "qos": message.qos,
        "retain": message.retain,
        "dup": message.dup,
        "length": len(message.payload),
    }
    try:
        result["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        result["payload_base64"] = base64.b64encode(message.payload).decode()
    if message.properties:
        result["properties"] = {
            prop.name.lower(): base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for prop, value in message.properties.items()
        }
    return result


def as_json(message: "Message", arrived: datetime) -> bytes:
    return json.dumps(as_object(message, arrived), ensure_ascii=False).encode()


def escape_controls(line: bytes) -> bytes:
    """For terminals: what strangers publish must not move the cursor or hide what was there."""
    return _CONTROLS.sub(lambda found: b"".join(b"\\x%02x" % byte for byte in found[0]), line)


def _as_json_inside(message: "Message", arrived: datetime) -> bytes:
    """As `as_json`, with a JSON payload as a value instead of text."""
    result = as_object(message, arrived)
    try:
        result["payload"] = message.json()
    except ValueError:
        pass  # Not JSON: it stays text or base64.
    return json.dumps(result, ensure_ascii=False).encode()


def _constant(text: bytes) -> Render:
    return lambda _message, _arrived: text


def _letter(letter: str) -> Render:
    try:
        return LETTERS[letter]
    except KeyError:
        raise FormatError(letter) from None


def _unescape(text: str) -> bytes:
    return re.sub(r"\\[ntr0e\\]", lambda found: _ESCAPES[found[0]], text).encode()


def _text(value: Callable[["Message"], object]) -> Render:
    """A piece that is text; None is written as nothing."""

    def render(message: "Message", _arrived: datetime) -> bytes:
        found = value(message)
        return b"" if found is None else str(found).encode()

    return render


def _pairs(message: "Message") -> str:
    return " ".join(f"{name}:{value}" for name, value in message.user_properties)


def _format_indicator(message: "Message") -> int | None:
    from tidegate.client import Property

    return message.properties.get(Property.PAYLOAD_FORMAT_INDICATOR)


LETTERS: Final[dict[str, Render]] = {
    "t": _text(lambda message: message.topic),
    "p": lambda message, _arrived: message.payload,
    "x": _text(lambda message: message.payload.hex()),
    "X": _text(lambda message: message.payload.hex().upper()),
    "b": lambda message, _arrived: base64.b64encode(message.payload),
    "l": _text(lambda message: len(message.payload)),
    "q": _text(lambda message: message.qos),
    "r": _text(lambda message: int(message.retain)),
    "d": _text(lambda message: int(message.dup)),
    "I": lambda _message, arrived: arrived.isoformat(timespec="milliseconds").encode(),
    "U": lambda _message, arrived: f"{arrived.timestamp():.6f}".encode(),
    "j": as_json,
    "J": _as_json_inside,
    "P": _text(_pairs),
    "C": _text(lambda message: message.content_type),
    "R": _text(lambda message: message.response_topic),
    "D": lambda message, _arrived: message.correlation_data or b"",
    "E": _text(lambda message: message.message_expiry_interval),
    "F": _text(_format_indicator),
    "S": _text(lambda message: ",".join(map(str, message.subscription_identifiers))),
}
"""Letters of patterns, as `docs/client.md` lists them."""
