"""What the broker counts. Plain integers, added to once per chunk or rarer."""

from typing import Any


class Counters:
    """Totals since start, except `queued_messages`, which is the present number."""

    __slots__ = (
        "bytes_received", "bytes_sent", "closes", "connections_maximum", "connections_total",
        "connects_refused", "discarded", "dropped", "expired", "messages_received", "protocol_errors",
        "publish_bytes_received", "publish_denied", "publish_held", "publish_received", "publish_refused",
        "publish_sent", "queued_messages", "sessions_expired", "shared_moved", "subscribe_denied", "too_large", "work",
    )  # fmt: skip

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)
        self.closes: dict[str, int] = {}

    bytes_received: int
    bytes_sent: int
    connections_maximum: int
    connections_total: int
    connects_refused: int
    discarded: int
    dropped: int
    expired: int
    messages_received: int
    protocol_errors: int
    publish_bytes_received: int
    publish_denied: int
    publish_held: int
    publish_received: int
    publish_refused: int
    publish_sent: int
    queued_messages: int
    sessions_expired: int
    shared_moved: int
    subscribe_denied: int
    too_large: int
    work: int

    def count_close(self, why: str) -> None:
        self.closes[why] = self.closes.get(why, 0) + 1

    def snapshot(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}
