"""A connection to another node counts what comes by it; connections of clients do not pay for that."""

from __future__ import annotations

from typing import Any

from tidegate.broker.connection import Connection
from tidegate.broker.message import Author


class LinkConnection(Connection):
    """`received` are its PUBLISH packets."""

    __slots__ = ("received",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.received = 0

    def author_of(self, topic: bytes) -> Author | None:
        cluster = self.core.cluster
        return None if cluster is None else cluster.author_of(topic)

    def _consume(self, data: bytes) -> bytes:
        counters = self.core.counters
        before = counters.publish_received
        left = super()._consume(data)
        self.received += counters.publish_received - before
        return left
