"""Errors of the protocol: each carries the reason code to tell the peer and whose fault it was.

Names follow the specification's reason codes rather than the suffix habit of Python.
"""

from enum import StrEnum
from typing import ClassVar

from tidegate.errors import TidegateError
from tidegate.mqtt.codes import ReasonCode


class Blame(StrEnum):
    """Who broke the protocol: the bytes we read, or the packet we were asked to write."""

    PEER = "peer"
    LOCAL = "local"


class MQTTError(TidegateError):
    """A packet that must not be accepted or sent.

    `reason_code` is what MQTT 5 says in CONNACK or DISCONNECT; a 3.1.1 connection is just closed. `advice` is the hint
    for those who wanted to send such a packet.
    """

    reason_code: ClassVar[ReasonCode] = ReasonCode.UNSPECIFIED_ERROR
    advice: ClassVar[str] = ""

    def __init__(self, message: str, *, blame: Blame = Blame.PEER) -> None:
        super().__init__(message)
        self.blame = blame
        if blame is Blame.LOCAL:
            self.hint = self.advice


class MalformedPacket(MQTTError):
    """The bytes cannot be parsed as the specification says."""

    reason_code = ReasonCode.MALFORMED_PACKET
    advice = "MQTT has no way to write this; give a value that it has"


class ProtocolError(MQTTError):
    """The bytes parse, but what they say is not allowed."""

    reason_code = ReasonCode.PROTOCOL_ERROR
    advice = "MQTT does not allow this; leave out, or add, what the message names"


class UnsupportedProtocolVersion(MQTTError):
    """A CONNECT names a protocol we do not speak; the answer is CONNACK 0x84 (3.1.1: 0x01)."""

    reason_code = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION

    def __init__(self, name: str, level: int, *, blame: Blame = Blame.PEER) -> None:
        super().__init__(
            f"protocol {name!r} level {level} is not supported; use MQTT 3.1.1 or 5.0", blame=blame
        )
        self.name = name
        self.level = level


class TopicFilterInvalid(MQTTError):
    """A topic filter breaks the rules of section 4.7 or 4.8."""

    reason_code = ReasonCode.TOPIC_FILTER_INVALID
    advice = "write levels with / between them, + for any one level, # for all that follow: plant/+/state, plant/#"


class TopicNameInvalid(MQTTError):
    """A topic name is empty, too long or contains a wildcard."""

    reason_code = ReasonCode.TOPIC_NAME_INVALID
    advice = "publish to one topic, by its name: plant/1/state"


class PacketIdentifierInUse(MQTTError):
    """A packet identifier is used for two exchanges at once, or none is left."""

    reason_code = ReasonCode.PACKET_IDENTIFIER_IN_USE
    advice = "wait for the answers to what was sent before"


class ReceiveMaximumExceeded(MQTTError):
    """More QoS 1 and 2 publications are unacknowledged than the receiver allows."""

    reason_code = ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    advice = "wait for acknowledgements before sending more"


class TopicAliasInvalid(MQTTError):
    """A Topic Alias is zero, above the maximum or unknown."""

    reason_code = ReasonCode.TOPIC_ALIAS_INVALID
    advice = "use one from 1 to the receiver's Topic Alias Maximum, or none"


class PacketTooLarge(MQTTError):
    """A packet exceeds Maximum Packet Size, or what a Remaining Length can say."""

    reason_code = ReasonCode.PACKET_TOO_LARGE
    advice = "send less at once, or raise the receiver's limit"


class QuotaExceeded(MQTTError):
    """A packet has more user properties, or more topic filters, than the receiver takes."""

    reason_code = ReasonCode.QUOTA_EXCEEDED
    advice = "send fewer at once, or raise the receiver's limit"
