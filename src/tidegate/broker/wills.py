"""Will messages: published when a connection ends without a proper DISCONNECT, at once or after their delay."""

from dataclasses import dataclass

from tidegate.broker.message import Message


@dataclass(slots=True, kw_only=True)
class Will:
    """`message.expires` is set when the will is published; `expiry` is its Message Expiry Interval."""

    message: Message
    delay: int = 0
    expiry: int | None = None
