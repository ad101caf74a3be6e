"""Requests that wait for their response: matched by Correlation Data (MQTT 5 section 4.10)."""

from __future__ import annotations

import secrets

from tidegate.client.message import Message
from tidegate.client.wire import Waiter


class Calls:
    """Open requests of one client, all answered on one response topic."""

    def __init__(self) -> None:
        self.topic = ""
        """Where responses come; empty until the server has granted the subscription."""
        self._open: dict[bytes, Waiter[Message]] = {}
        self._next = secrets.randbits(63)
        self.late = 0
        """Responses nobody waited for any more."""

    def __len__(self) -> int:
        return len(self._open)

    @staticmethod
    def new_topic(prefix: str, client_id: str) -> str:
        # Random, so that nobody can guess it and answer in another's place, and no wildcard of an
        # identifier can make it invalid.
        name = "".join(character for character in client_id if character not in "+#/\0") or "anonymous"
        return f"{prefix}/{name}/{secrets.token_hex(8)}"

    def open(self, waiter: Waiter[Message]) -> bytes:
        """The Correlation Data of a new request."""
        self._next = (self._next + 1) & 0xFFFF_FFFF_FFFF_FFFF
        correlation = self._next.to_bytes(8, "big")
        self._open[correlation] = waiter
        return correlation

    def close(self, correlation: bytes) -> None:
        self._open.pop(correlation, None)

    def on_message(self, message: Message) -> bool:
        """Whether the message was a response, and so is none of the application's business."""
        if not self.topic or message.topic != self.topic:
            return False
        waiter = self._open.pop(message.correlation_data or b"", None)
        if waiter is None or waiter.done():
            self.late += 1
        else:
            waiter.set_result(message)
        return True

    def fail(self, error: Exception) -> None:
        for waiter in self._open.values():
            if not waiter.done():
                waiter.set_exception(error)
        self._open.clear()
