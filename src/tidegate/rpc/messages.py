"""What travels between the parts of the backbone: requests and replies in bundles, tasks one by one; all of it JSON.

Requests and replies are arrays in a fixed order, many to a message: what a message costs is paid once for all that were
made in the same turn of a loop. Tasks are objects, since people read them among the dead letters. Decoding checks
everything, and raises `Malformed`: these topics and queues may be open to strangers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from tidegate.rpc.errors import Malformed
from tidegate.rpc.outcome import Outcome

PRIORITIES = ("high", "normal", "low")
"""In this order they are served; each is a queue of its own, since neither backend lets one overtake inside a queue."""

UNREADABLE = "?"
"""The kind of dead letters that are no task any more."""

MAX_BUNDLE_BYTES = 256 * 1024
"""A bundle that would be larger is sent in parts: brokers take a megabyte in one message, and gateways less."""

_LATEST = 253_402_300_800.0  # the year 10000
_ENVELOPE = 400  # bytes of a request or reply besides its fields or data
_SHORT = 200  # characters that are not worth counting exactly

_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _encode(content: Any) -> bytes:
    """Not ASCII alone: escapes would make a message longer than the one that brought its text, perhaps too long to be
    sent. `json.loads` takes surrogates as they are."""
    return _dumps(content).encode("utf-8", "surrogatepass")


@dataclass(slots=True, kw_only=True)
class Request:
    """One command for one device, on its way to a gateway.

    `correlation` finds the way back, `key` is the same for each repetition, `token` orders requests for one device,
    `deadline` and `sent` are moments of the wall clock.
    """

    correlation: str
    key: str
    device: str
    type: str
    method: str
    fields: dict[str, Any]
    token: int
    deadline: float
    sent: float
    reply_to: str
    attempt: int = 1


@dataclass(slots=True, kw_only=True)
class Reply:
    """How one request fared, on its way to the caller."""

    correlation: str
    device: str
    outcome: Outcome
    reason: str = ""
    gateway: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Task:
    """Work for a task worker. `kind` chooses the user's coroutine, `not_before` delays a repetition."""

    id: str
    kind: str
    body: dict[str, Any]
    created: float
    deadline: float
    attempt: int = 1
    not_before: float = 0.0
    reply_to: str = ""
    correlation: str = ""
    priority: str = "normal"
    reason: str = ""

    def encode(self) -> bytes:
        return _encode({name: getattr(self, name) for name in self.__slots__})


def encode_requests(requests: Iterable[Request]) -> bytes:
    return _encode(
        [
            (
                r.correlation,
                r.key,
                r.device,
                r.type,
                r.method,
                r.fields,
                r.token,
                r.deadline,
                r.sent,
                r.reply_to,
                r.attempt,
            )
            for r in requests
        ]
    )


def request_size(request: Request) -> int:
    """About how many bytes it has in a bundle, rather too many than too few."""
    short = 0
    for name, value in request.fields.items():
        short += len(name) + (len(value) if isinstance(value, str) else 20)
    if short <= _SHORT:
        return _ENVELOPE + 6 * short
    return _ENVELOPE + len(json.dumps(request.fields))


def decode_requests(payload: bytes) -> list[Request]:
    requests = []
    for row in _rows(_load(payload, parse_float=_finite, parse_constant=_finite), 11):
        correlation, key, device, type_, method, fields, token, deadline, sent, reply_to, attempt = row
        _need(str, correlation, key, device, type_, method, reply_to)
        _need(dict, fields)
        _need(int, token, attempt)
        _need_moment(deadline, sent)
        if not all(map(is_text, (correlation, key, device, type_, method, reply_to))):
            raise Malformed("a request with half a character")
        requests.append(
            Request(
                correlation=correlation,
                key=key,
                device=device,
                type=type_,
                method=method,
                fields=fields,
                token=token,
                deadline=deadline,
                sent=sent,
                reply_to=reply_to,
                attempt=attempt,
            )
        )
    return requests


def encode_replies(replies: Iterable[Reply]) -> bytes:
    return _encode([(r.correlation, r.device, r.outcome, r.reason, r.gateway, r.data) for r in replies])


def reply_size(reply: Reply) -> int:
    """As `request_size`."""
    size = _ENVELOPE + len(reply.device) + len(reply.correlation) + len(reply.gateway)
    return size + len(json.dumps(reply.data)) if reply.data else size


def decode_replies(payload: bytes) -> list[Reply]:
    replies = []
    for correlation, device, outcome, reason, gateway, data in _rows(_load(payload), 6):
        _need(str, correlation, device, outcome, reason, gateway)
        _need(dict, data)
        try:
            known = Outcome(outcome)
        except ValueError:
            raise Malformed(f"a reply with the outcome {outcome[:40]!r}") from None
        replies.append(
            Reply(
                correlation=correlation,
                device=device,
                outcome=known,
                reason=reason,
                gateway=gateway,
                data=data,
            )
        )
    return replies


_MOMENTS = ("created", "deadline", "not_before")
_TASK_TYPES: dict[str, Any] = {"body": dict, "attempt": int} | dict.fromkeys(_MOMENTS, (int, float))


def decode_task(payload: bytes) -> Task:
    content = _load(payload)
    if not isinstance(content, dict) or not {"id", "kind", "body", "created", "deadline"} <= set(content):
        raise Malformed("a task without id, kind, body, created or deadline")
    known = {name: value for name, value in content.items() if name in Task.__slots__}
    for name, value in known.items():
        _need(_TASK_TYPES.get(name, str), value)
        if name in _MOMENTS:
            _need_moment(value)
    if known.get("attempt", 1) < 1:
        raise Malformed(f"a task at its attempt {known['attempt']}")
    if known.get("priority", "normal") not in PRIORITIES:
        raise Malformed(f"a task of the priority {known['priority'][:40]!r}")
    return Task(**known)


def is_text(value: str) -> bool:
    """Whether it can be written in UTF-8: JSON may have halves of characters, which nothing else takes."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _load(payload: bytes, **readers: Any) -> Any:
    try:
        return json.loads(payload, **readers)
    except (ValueError, RecursionError):
        raise Malformed(f"{len(payload)} bytes that are no JSON") from None


def _finite(text: str) -> float:
    """A number that is one, also for a gateway."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def _rows(rows: Any, width: int) -> list[list[Any]]:
    if not isinstance(rows, list):
        raise Malformed("a bundle that is no array")
    for row in rows:
        if not isinstance(row, list) or len(row) != width:
            raise Malformed(f"a bundle with something else than arrays of {width}")
    return rows


def _need(kind: Any, *values: Any) -> None:
    for value in values:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Malformed(f"{type(value).__name__} where something else belongs")


def _need_moment(*values: Any) -> None:
    _need((int, float), *values)
    for value in values:
        if not -_LATEST < value < _LATEST:
            raise Malformed("a moment that never comes")
