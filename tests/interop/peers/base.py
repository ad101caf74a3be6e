"""What the tests ask of a client, whoever wrote it: one small blocking interface over very different libraries.

A peer does what it is told and keeps what it received; every wait has a deadline. Values here are in the
words of the specification, and each peer translates them into its library's own.
"""

import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

DEADLINE = 20.0
"""Seconds any answer may take: these run beside other tests on small machines."""

UserProperties = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a broker listens. `transport` is tcp, tls, ws, wss or unix; `path` the socket file of the last."""

    transport: str
    port: int = 0
    path: str = ""
    ca_file: Path | None = None
    host: str = "127.0.0.1"

    @property
    def is_tls(self) -> bool:
        return self.transport in ("tls", "wss")

    @property
    def is_websocket(self) -> bool:
        return self.transport in ("ws", "wss")

    def tls_context(self) -> ssl.SSLContext:
        assert self.ca_file is not None
        return ssl.create_default_context(cafile=str(self.ca_file))


@dataclass(frozen=True, kw_only=True)
class Properties:
    """The properties of a PUBLISH (MQTT 5) that an application chooses; None: absent."""

    user: UserProperties = ()
    response_topic: str | None = None
    correlation_data: bytes | None = None
    content_type: str | None = None
    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    topic_alias: int | None = None


@dataclass(frozen=True, kw_only=True)
class Message:
    """A PUBLISH as the client's application saw it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = field(default_factory=Properties)


@dataclass(frozen=True, kw_only=True)
class Will:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a peer connects. `session_expiry` only in MQTT 5; a 3.1.1 session without `clean_start` never expires."""

    address: Address
    client_id: str
    version: int
    clean_start: bool = True
    session_expiry: int = 0
    topic_alias_maximum: int = 0
    will: Will | None = None


class Inbox:
    """Messages in order of arrival, filled by whatever thread the library uses."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._changed = threading.Condition()

    def put(self, message: Message) -> None:
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()

    def take_until(self, is_last: Callable[[Message], bool]) -> list[Message]:
        """Remove and give everything up to the first message that is the last; TimeoutError if it never comes."""
        end = time.monotonic() + DEADLINE
        with self._changed:
            seen = 0
            while True:
                for at in range(seen, len(self._messages)):
                    if is_last(self._messages[at]):
                        taken, self._messages[: at + 1] = self._messages[: at + 1], []
                        return taken
                seen = len(self._messages)
                if not self._changed.wait(end - time.monotonic()):
                    raise TimeoutError(f"the last message never came; {seen} others: {self._messages[:5]!r}")

    def take(self) -> Message:
        """Remove and give the next message."""
        return self.take_until(lambda message: True)[0]

    def take_all(self) -> list[Message]:
        """Remove and give what is there now."""
        with self._changed:
            taken, self._messages = self._messages, []
            return taken


class Peer(Protocol):
    """A client of another project. `publish` returns when the broker has acknowledged (QoS 0: when written)."""

    inbox: Inbox

    def __init__(self, options: Options) -> None: ...

    def connect(self) -> bool:
        """Connect; whether the broker said that it has a session."""

    def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        """Subscribe; the QoS the broker granted."""

    def unsubscribe(self, topic_filter: str) -> None: ...

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None: ...

    def disconnect(self) -> None:
        """DISCONNECT, and close."""

    def drop(self) -> None:
        """Close the network connection as a crash would, without DISCONNECT."""

    def close(self) -> None:
        """Let go of everything, connected or not; may be called twice."""
