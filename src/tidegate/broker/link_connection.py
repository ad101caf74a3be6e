"""A connection to another node counts what comes by it; connections of clients do not pay for that."""

from __future__ import annotations

from typing import Any

from tidegate.broker.connection import Connection


class LinkConnection(Connection):
    """`received` are its PUBLISH packets."""

    __slots__ = ("received",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.received = 0

    def _consume(self, data: bytes) -> bytes:
        counters = self.core.counters
        before = counters.publish_received
        left = super()._consume(data)
        self.received += counters.publish_received - before
        return left
