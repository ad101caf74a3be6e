"""An application message on its way through the broker, and its wire forms.

Rules: what recipients share is encoded once and kept on the message; a recipient adds only its packet
identifier. Topic and payload are bytes, never decoded on the way. `properties` is the encoded MQTT 5
property list as it is forwarded: without length prefix, without Topic Alias (a matter of one connection)
and without Message Expiry Interval (which is counted down, `expires`).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

QOS0 = 0x30
_EMPTY = b""


def variable_byte_integer(value: int) -> bytes:
    """Encode a Variable Byte Integer of at most four bytes; the caller keeps the bound."""
    if value < 128:
        return bytes((value,))
    if value < 16_384:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 2_097_152:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))


class Author(NamedTuple):
    """Who left a message that is there when they are gone: a retained one, or a will."""

    user: str | None
    client_id: str

    def to_text(self) -> str:
        return json.dumps(self)

    @classmethod
    def from_text(cls, text: str | None) -> Author | None:
        return None if text is None else cls(*json.loads(text))


class Message:
    """One PUBLISH as accepted. `expires` is on the loop's clock, None for never.

    `author` of a retained message or a will is asked for their rights later, too; None: nobody is, as the node itself.
    """

    __slots__ = (
        "author",
        "expires",
        "head4",
        "head5",
        "mid",
        "payload",
        "properties",
        "publisher",
        "q0v4",
        "q0v5",
        "qos",
        "retain",
        "tail5",
        "topic",
    )

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: bytes = _EMPTY,
        expires: float | None = None,
        publisher: str = "",
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.expires = expires
        self.publisher = publisher
        self.author: Author | None = None
        self.mid = 0  # its number in the store, 0 while it is not stored
        self.q0v4: bytes | None = None
        self.q0v5: bytes | None = None
        self.head4: bytes | None = None
        self.head5: bytes | None = None
        self.tail5: bytes | None = None

    def copy(self) -> Message:
        """The same message, unknown to the store."""
        same = Message(
            self.topic, self.payload, self.qos, self.retain, self.properties, self.expires, self.publisher
        )
        same.author = self.author
        return same

    def forget_forms(self) -> None:
        """It stays for long: what was encoded for those who got it now is made anew for others."""
        self.q0v4 = self.q0v5 = self.head4 = self.head5 = self.tail5 = None

    @property
    def size_bytes(self) -> int:
        """What the message counts for in a queue: its content and a share of the bookkeeping."""
        return len(self.topic) + len(self.payload) + len(self.properties) + 64

    def plain(self, version: int) -> bytes:
        """The whole QoS 0 packet without retain flag or per-recipient properties; shared by recipients.

        Not for messages that expire: their interval depends on the moment of sending.
        """
        if version == 5:
            packet = self.q0v5
            if packet is None:
                packet = self.q0v5 = self.encode(5, 0, None)
        else:
            packet = self.q0v4
            if packet is None:
                packet = self.q0v4 = self.encode(4, 0, None)
        return packet

    def parts(self, version: int) -> tuple[bytes, bytes]:
        """What stands after the first byte and before the packet identifier, and what stands after it.

        For QoS 1 and 2 without per-recipient properties; both are shared by all recipients of a version.
        """
        if version == 5:
            head = self.head5
            if head is None or self.tail5 is None:
                tail = variable_byte_integer(len(self.properties)) + self.properties + self.payload
                head = self._head(len(tail))
                self.head5, self.tail5 = head, tail
                return head, tail
            return head, self.tail5
        head = self.head4
        if head is None:
            head = self.head4 = self._head(len(self.payload))
        return head, self.payload

    def _head(self, tail_size: int) -> bytes:
        topic = self.topic
        return variable_byte_integer(len(topic) + 4 + tail_size) + len(topic).to_bytes(2, "big") + topic

    def encode(
        self,
        version: int,
        qos: int,
        packet_identifier: bytes | None,
        *,
        retain: bool = False,
        dup: bool = False,
        subscription_identifiers: Collection[int] = (),
        now: float | None = None,
        alias: int = 0,
        send_topic: bool = True,
    ) -> bytes:
        """The general form: any flags, subscription identifiers, expiry counted down to `now`, topic alias."""
        first = QOS0 | qos << 1 | (8 if dup else 0) | (1 if retain else 0)
        topic = self.topic if send_topic else _EMPTY
        pid = packet_identifier or _EMPTY
        if version == 5:
            properties = self.properties
            if self.expires is not None and now is not None:
                # [MQTT5-3.3.2-6]: the received value minus the time the message has been waiting.
                remaining = max(1, int(self.expires - now + 0.5))
                properties += b"\x02" + remaining.to_bytes(4, "big")
            if subscription_identifiers:
                properties += b"".join([b"\x0b" + variable_byte_integer(each) for each in subscription_identifiers])
            if alias:
                properties += b"\x23" + alias.to_bytes(2, "big")
            middle = pid + variable_byte_integer(len(properties)) + properties
        else:
            middle = pid
        length = 2 + len(topic) + len(middle) + len(self.payload)
        return b"".join(
            (
                bytes((first,)),
                variable_byte_integer(length),
                len(topic).to_bytes(2, "big"),
                topic,
                middle,
                self.payload,
            )
        )
