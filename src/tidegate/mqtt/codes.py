"""Packet types and reason codes of MQTT 5, the CONNACK return codes of 3.1.1, and which code may go where."""

from enum import IntEnum
from typing import Final


class PacketType(IntEnum):
    """The upper four bits of a packet's first byte (MQTT 5 section 2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class ReasonCode(IntEnum):
    """MQTT 5 section 2.4. From 0x80 on a code means failure. Names that share a value are aliases."""

    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class ConnectReturnCode(IntEnum):
    """CONNACK return codes of MQTT 3.1.1 (section 3.2.2.3)."""

    ACCEPTED = 0
    UNACCEPTABLE_PROTOCOL_VERSION = 1
    IDENTIFIER_REJECTED = 2
    SERVER_UNAVAILABLE = 3
    BAD_USER_NAME_OR_PASSWORD = 4
    NOT_AUTHORIZED = 5


REASON_OF_RETURN_CODE: Final[dict[int, ReasonCode]] = {
    0: ReasonCode.SUCCESS,
    1: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    2: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    3: ReasonCode.SERVER_UNAVAILABLE,
    4: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    5: ReasonCode.NOT_AUTHORIZED,
}

# Conditions that pass or that another server does not have: a 3.1.1 client should try again later.
_TRY_AGAIN: Final = frozenset(
    {
        ReasonCode.UNSPECIFIED_ERROR,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.USE_ANOTHER_SERVER,
        ReasonCode.SERVER_MOVED,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
    }
)
_RETURN_CODE_OF_REASON: Final = {reason: code for code, reason in REASON_OF_RETURN_CODE.items()}


def connect_return_code(reason: int) -> int:
    """The nearest 3.1.1 return code for an MQTT 5 CONNACK reason code.

    What has no counterpart is either "try again" (3) or a refusal of what the client asked for (5).
    """
    code = _RETURN_CODE_OF_REASON.get(ReasonCode(reason))
    if code is not None:
        return code
    if reason in _TRY_AGAIN:
        return ConnectReturnCode.SERVER_UNAVAILABLE
    return ConnectReturnCode.NOT_AUTHORIZED


REASON_CODES: Final[dict[int, ReasonCode]] = {int(code): code for code in ReasonCode}
"""Value to member: a dictionary is several times quicker than calling the enumeration."""

_PUBLISH_RECEIVED: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_PUBLISH_RELEASED: Final = frozenset({0x00, 0x92})

LEGAL: Final[dict[PacketType, frozenset[int]]] = {
    PacketType.CONNACK: frozenset(
        {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F}
    ),
    PacketType.PUBACK: _PUBLISH_RECEIVED,
    PacketType.PUBREC: _PUBLISH_RECEIVED,
    PacketType.PUBREL: _PUBLISH_RELEASED,
    PacketType.PUBCOMP: _PUBLISH_RELEASED,
    PacketType.SUBACK: frozenset({0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}),
    PacketType.UNSUBACK: frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}),
    # Section 2.4 lists 0x8C for DISCONNECT, section 3.14.2.1 does not; the wider reading harms nobody.
    PacketType.DISCONNECT: frozenset(
        {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90}
        | {*range(0x93, 0x9F), 0xA0, 0xA1, 0xA2}
    ),
    PacketType.AUTH: frozenset({0x00, 0x18, 0x19}),
}
"""Reason codes each MQTT 5 packet may carry, in either direction (sections 3.2 to 3.15)."""
