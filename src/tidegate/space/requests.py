"""A request to a space and its response, whatever carries them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.flow.timeout import UNKNOWN, Announcement
from tidegate.space.errors import Fault, SpaceError, malformed
from tidegate.space.rights import ANONYMOUS, Access

JSON: Final = "application/json"
ACCEPT: Final = "accept"
"""User Property of a request: the content types its sender understands, as in HTTP."""
PREFIX: Final = "tide/space"
"""Requests go to `PREFIX/<space>/<operation>`, notifications come from `PREFIX/<space>/changes/<watch>`."""


class Operation(StrEnum):
    """What can be asked of a space; over MQTT the last level of the topic."""

    QUERY = "query"  # SPARQL query
    UPDATE = "update"  # SPARQL update
    INSERT = "insert"  # RDF
    REMOVE = "remove"  # RDF
    WATCH = "watch"  # SPARQL query, or a triple mask in JSON
    CHECK = "check"  # JSON: what was missed of a watch

    @property
    def access(self) -> Access:
        is_writing = self in (Operation.UPDATE, Operation.INSERT, Operation.REMOVE)
        return Access.WRITE if is_writing else Access.READ


@dataclass(slots=True, kw_only=True)
class Request:
    """`client` tells clients apart for the count of watchers: any text that is the same each time."""

    space: str
    operation: Operation
    body: bytes
    content_type: str | None = None
    accept: str | None = None
    who: str = ANONYMOUS
    client: str = ""
    room: int | None = None  # bytes that the way back can carry, None for any number


@dataclass(slots=True, kw_only=True)
class Response:
    """`error` None: it went well. `version` is the space's that the answer is about."""

    body: bytes = b""
    content_type: str = ""
    version: int = 0
    load: Announcement = UNKNOWN
    error: SpaceError | None = None


def changes_topic(space: str, watch: str, prefix: str = PREFIX) -> str:
    return f"{prefix}/{space}/changes/{watch}"


def as_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise malformed("the request is not UTF-8") from None


def no_room(room: int) -> SpaceError:
    return SpaceError(
        Fault.TOO_LARGE,
        f"the answer has more than {room} bytes, and the MQTT broker takes no such packet",
        hint="ask for less, ask over HTTP, or raise max_packet_size of the MQTT broker",
    )
