"""A message as the application sees it, and the receipt that says whether it was acknowledged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tidegate.mqtt.packets import Puback, Pubrec
from tidegate.mqtt.properties import Properties, Property


# Not keyword-only, as values usually are here: one of each is made for every message, and by position that takes a
# third of the time (0.5 against 1.6 µs for `Message`).
@dataclass(slots=True, eq=False)
class Receipt:
    """What we owe the server for one QoS 1 or 2 message. `answer` is set once, by the acknowledgement.

    `taken_at` is when the application took it, for load reports; 0 until then, or if nobody reports.
    """

    packet_identifier: int
    qos: int
    connection: int
    answer: Puback | Pubrec | bytes | None = None
    taken_at: float = 0.0


Acknowledge: TypeAlias = Callable[[Receipt, int, Properties], None]


@dataclass(slots=True, eq=False)
class Message:
    """A PUBLISH of the server. `topic` is complete even if it came as a Topic Alias."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    properties: Properties = field(default_factory=dict)
    receipt: Receipt | None = field(default=None, repr=False)
    acknowledge: Acknowledge | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The payload as UTF-8; bytes that are not become U+FFFD."""
        return self.payload.decode(errors="replace")

    def json(self) -> Any:
        """The payload as JSON; raises `ValueError`."""
        return json.loads(self.payload)

    @property
    def content_type(self) -> str | None:
        return self.properties.get(Property.CONTENT_TYPE)

    @property
    def response_topic(self) -> str | None:
        return self.properties.get(Property.RESPONSE_TOPIC)

    @property
    def correlation_data(self) -> bytes | None:
        return self.properties.get(Property.CORRELATION_DATA)

    @property
    def message_expiry_interval(self) -> int | None:
        return self.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)

    @property
    def user_properties(self) -> list[tuple[str, str]]:
        return list(self.properties.get(Property.USER_PROPERTY, ()))

    @property
    def subscription_identifiers(self) -> list[int]:
        return list(self.properties.get(Property.SUBSCRIPTION_IDENTIFIER, ()))

    @property
    def is_acknowledged(self) -> bool:
        """Whether nothing is owed for it; always true at QoS 0."""
        return self.receipt is None or self.receipt.answer is not None

    def ack(self, reason_code: int = 0, *, user_properties: tuple[tuple[str, str], ...] = ()) -> None:
        """Acknowledge a message taken with `manual_ack`; from 0x80 on, refuse it (MQTT 5).

        Acknowledgements leave in the order the messages came [MQTT5-4.6.0-2, MQTT5-4.6.0-3]: one waits until
        those of earlier messages of the same QoS are given. A second call, or one after the connection the
        message came on has ended, does nothing; in the latter case the server sends the message again.
        """
        if self.receipt is not None and self.acknowledge is not None:
            properties: Properties = {}
            if user_properties:
                properties[Property.USER_PROPERTY] = list(user_properties)
            self.acknowledge(self.receipt, reason_code, properties)
