"""What a client says about its load, and how that looks on the wire.

One record, three carriers: the body of an extended PINGREQ (property length, properties, JSON; spec 5 (b)), the value
of a User Property on an acknowledgement, and the payload of a PUBLISH. The last two are the JSON alone. Whatever
arrives, reading gives a report or None: a client that reports nonsense is still answered and served.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

NEGOTIATION: Final = ("tidegate-pingreq", "1")
"""User Property of CONNECT (the offer) and CONNACK (the answer); without it an extended PINGREQ is malformed."""

LOAD_TOPIC: Final = "$tide/load"
"""A PUBLISH here is a report, for the broker alone."""

LOAD_PROPERTY: Final = "tidegate-load"
"""User Property on a PUBACK whose value is the JSON."""

MAX_BYTES: Final = 1024  # of JSON and of properties: ours has about 90, and parsing must stay cheap
QUEUE_MAX: Final = 1 << 53  # what JSON numbers hold exactly
SECONDS_MAX: Final = 1e6  # longer than any message takes; keeps sums and products finite

# Figure 39 of the thesis first, which is what we write; then its source listing 2, spelling included.
_QUEUE_NAMES: Final = ("msgsInQueue", "numberOfMsgsInQueue")
_TIME_NAMES: Final = ("processingTimePerMsg", "processingTimerPerMsg")
_USER_PROPERTY: Final = 0x26


@dataclass(slots=True, kw_only=True)
class LoadReport:
    """State of a client. `queue_length` excludes what is in process; `processing_time` is a mean in seconds.

    `count`: messages that mean is over, None from clients that do not say. `processed`: all messages processed since
    the client connected; a total survives lost reports, a difference would not.
    """

    queue_length: int
    processing_time: float
    count: int | None = None
    processed: int | None = None

    def encode_value(self) -> str:
        """The JSON, milliseconds to three places."""
        fields: dict[str, Any] = {
            _QUEUE_NAMES[0]: self.queue_length,
            _TIME_NAMES[0]: round(self.processing_time * 1000.0, 3),
        }
        if self.count is not None:
            fields["count"] = self.count
        if self.processed is not None:
            fields["processed"] = self.processed
        return json.dumps(fields, separators=(",", ":"))

    def encode_pingreq(self) -> bytes:
        """What follows the fixed header of an extended PINGREQ, without properties."""
        return b"\0" + self.encode_value().encode()


def parse_value(value: str | bytes) -> LoadReport | None:
    """The report in a User Property value or a payload; None if there is none."""
    if len(value) > MAX_BYTES:
        return None
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError):  # ValueError includes bad UTF-8 and integers of absurd length
        return None
    if not isinstance(fields, dict):
        return None
    queue_length = _whole(_first(fields, _QUEUE_NAMES))
    processing_time = _number(_first(fields, _TIME_NAMES))
    if queue_length is None or processing_time is None or processing_time > SECONDS_MAX * 1000.0:
        return None
    report = LoadReport(queue_length=queue_length, processing_time=processing_time / 1000.0)
    for name in ("count", "processed"):
        if fields.get(name) is not None:
            number = _whole(fields[name])
            if number is None:
                return None
            setattr(report, name, number)
    return report


def parse_pingreq(body: bytes) -> LoadReport | None:
    """The report in the body of a PINGREQ; None for the standard one, which is empty, and for anything malformed."""
    length = shift = position = 0
    while True:
        if position == len(body) or position == 4:
            return None
        byte = body[position]
        position += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    end = position + length
    if end > len(body) or length > MAX_BYTES or not _are_user_properties(body[position:end]):
        return None
    return parse_value(body[end:])


def _are_user_properties(data: bytes) -> bool:
    """Whether it is User Properties and nothing else; they are metadata that nobody reads yet."""
    position = 0
    while position < len(data):
        if data[position] != _USER_PROPERTY:
            return False
        position += 1
        for _ in range(2):
            start = position + 2
            if start > len(data):
                return False
            position = start + int.from_bytes(data[start - 2 : start])
            if position > len(data):
                return False
            try:
                data[start:position].decode()
            except UnicodeDecodeError:
                return False
    return True


def _first(fields: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in fields:
            return fields[name]
    return None


def _number(value: Any) -> float | None:
    """A number that is finite and not negative; JSON's true is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and value > QUEUE_MAX:
        return None
    return float(value) if isfinite(value) and value >= 0 else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None or number > QUEUE_MAX else int(number)
