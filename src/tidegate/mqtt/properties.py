"""MQTT 5 properties (section 2.2.2): the table of identifiers, and reading and writing of property lists.

A property list is a dictionary. `USER_PROPERTY` maps to a list of pairs in the order they came,
`SUBSCRIPTION_IDENTIFIER` to a list of integers, every other identifier to one int, str or bytes.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, TypeAlias

from tidegate.mqtt.codes import PacketType
from tidegate.mqtt.errors import (
    Blame,
    MalformedPacket,
    MQTTError,
    ProtocolError,
    QuotaExceeded,
    TopicAliasInvalid,
)
from tidegate.mqtt.primitives import (
    VARIABLE_BYTE_INTEGER_MAX,
    read_binary,
    read_byte,
    read_string,
    read_uint16,
    read_uint32,
    read_variable_byte_integer,
    write_binary,
    write_string,
    write_uint,
    write_variable_byte_integer,
)


class Property(IntEnum):
    """Property identifiers with the specification's names (MQTT 5 table 2-4)."""

    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


Properties: TypeAlias = dict[Property, Any]
"""Empty means no property list at all or one of length zero; both say the same."""

WILL: Final = 0
"""Stands for the Will Properties of a CONNECT where a packet type is expected; no packet has type 0."""


class Kind(IntEnum):
    """Data types of property values."""

    BYTE = 0
    TWO_BYTE_INTEGER = 1
    FOUR_BYTE_INTEGER = 2
    VARIABLE_BYTE_INTEGER = 3
    UTF8_STRING = 4
    BINARY_DATA = 5
    UTF8_STRING_PAIR = 6


def _read_pair(data: bytes, pos: int) -> tuple[tuple[str, str], int]:
    name, pos = read_string(data, pos)
    value, pos = read_string(data, pos)
    return (name, value), pos


_READ: Final[dict[Kind, Callable[[bytes, int], tuple[Any, int]]]] = {
    Kind.BYTE: read_byte,
    Kind.TWO_BYTE_INTEGER: read_uint16,
    Kind.FOUR_BYTE_INTEGER: read_uint32,
    Kind.VARIABLE_BYTE_INTEGER: read_variable_byte_integer,
    Kind.UTF8_STRING: read_string,
    Kind.BINARY_DATA: read_binary,
    Kind.UTF8_STRING_PAIR: _read_pair,
}
_WRITE: Final[dict[Kind, Callable[[Any], bytes]]] = {
    Kind.BYTE: lambda value: write_uint(value, 1),
    Kind.TWO_BYTE_INTEGER: lambda value: write_uint(value, 2),
    Kind.FOUR_BYTE_INTEGER: lambda value: write_uint(value, 4),
    Kind.VARIABLE_BYTE_INTEGER: write_variable_byte_integer,
    Kind.UTF8_STRING: write_string,
    Kind.BINARY_DATA: write_binary,
    Kind.UTF8_STRING_PAIR: lambda pair: write_string(pair[0]) + write_string(pair[1]),
}

_P = PacketType
_MESSAGE: Final = (_P.PUBLISH, WILL)
_OPENING: Final = (_P.CONNECT, _P.CONNACK)
_AUTHENTICATING: Final = (_P.CONNECT, _P.CONNACK, _P.AUTH)
_ANSWERS: Final = (
    *(_P.CONNACK, _P.PUBACK, _P.PUBREC, _P.PUBREL, _P.PUBCOMP),
    *(_P.SUBACK, _P.UNSUBACK, _P.DISCONNECT, _P.AUTH),
)
_EVERYWHERE: Final = (*_ANSWERS, _P.CONNECT, _P.PUBLISH, _P.SUBSCRIBE, _P.UNSUBSCRIBE, WILL)

TABLE: Final[dict[Property, tuple[Kind, frozenset[int]]]] = {
    Property.PAYLOAD_FORMAT_INDICATOR: (Kind.BYTE, frozenset(_MESSAGE)),
    Property.MESSAGE_EXPIRY_INTERVAL: (Kind.FOUR_BYTE_INTEGER, frozenset(_MESSAGE)),
    Property.CONTENT_TYPE: (Kind.UTF8_STRING, frozenset(_MESSAGE)),
    Property.RESPONSE_TOPIC: (Kind.UTF8_STRING, frozenset(_MESSAGE)),
    Property.CORRELATION_DATA: (Kind.BINARY_DATA, frozenset(_MESSAGE)),
    Property.SUBSCRIPTION_IDENTIFIER: (
        Kind.VARIABLE_BYTE_INTEGER,
        frozenset({_P.PUBLISH, _P.SUBSCRIBE}),
    ),
    Property.SESSION_EXPIRY_INTERVAL: (Kind.FOUR_BYTE_INTEGER, frozenset({*_OPENING, _P.DISCONNECT})),
    Property.ASSIGNED_CLIENT_IDENTIFIER: (Kind.UTF8_STRING, frozenset({_P.CONNACK})),
    Property.SERVER_KEEP_ALIVE: (Kind.TWO_BYTE_INTEGER, frozenset({_P.CONNACK})),
    Property.AUTHENTICATION_METHOD: (Kind.UTF8_STRING, frozenset(_AUTHENTICATING)),
    Property.AUTHENTICATION_DATA: (Kind.BINARY_DATA, frozenset(_AUTHENTICATING)),
    Property.REQUEST_PROBLEM_INFORMATION: (Kind.BYTE, frozenset({_P.CONNECT})),
    Property.WILL_DELAY_INTERVAL: (Kind.FOUR_BYTE_INTEGER, frozenset({WILL})),
    Property.REQUEST_RESPONSE_INFORMATION: (Kind.BYTE, frozenset({_P.CONNECT})),
    Property.RESPONSE_INFORMATION: (Kind.UTF8_STRING, frozenset({_P.CONNACK})),
    Property.SERVER_REFERENCE: (Kind.UTF8_STRING, frozenset({_P.CONNACK, _P.DISCONNECT})),
    Property.REASON_STRING: (Kind.UTF8_STRING, frozenset(_ANSWERS)),
    Property.RECEIVE_MAXIMUM: (Kind.TWO_BYTE_INTEGER, frozenset(_OPENING)),
    Property.TOPIC_ALIAS_MAXIMUM: (Kind.TWO_BYTE_INTEGER, frozenset(_OPENING)),
    Property.TOPIC_ALIAS: (Kind.TWO_BYTE_INTEGER, frozenset({_P.PUBLISH})),
    Property.MAXIMUM_QOS: (Kind.BYTE, frozenset({_P.CONNACK})),
    Property.RETAIN_AVAILABLE: (Kind.BYTE, frozenset({_P.CONNACK})),
    Property.USER_PROPERTY: (Kind.UTF8_STRING_PAIR, frozenset(_EVERYWHERE)),
    Property.MAXIMUM_PACKET_SIZE: (Kind.FOUR_BYTE_INTEGER, frozenset(_OPENING)),
    Property.WILDCARD_SUBSCRIPTION_AVAILABLE: (Kind.BYTE, frozenset({_P.CONNACK})),
    Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE: (Kind.BYTE, frozenset({_P.CONNACK})),
    Property.SHARED_SUBSCRIPTION_AVAILABLE: (Kind.BYTE, frozenset({_P.CONNACK})),
}
"""Type of each property and the packets (or WILL) that may carry it."""

# By raw identifier, so that the loop needs one lookup and no enumeration call.
_READERS: Final = {int(p): (p, kind, _READ[kind], where) for p, (kind, where) in TABLE.items()}
UNLIMITED: Final = 1 << 30
_NOT_ZERO: Final = frozenset({Property.RECEIVE_MAXIMUM, Property.MAXIMUM_PACKET_SIZE})


def decode_properties(
    data: bytes, pos: int, packet: int, max_user_properties: int = UNLIMITED
) -> tuple[Properties, int]:
    """Read a property list with its length prefix from `data[pos:]`; gives it and the position behind it.

    `packet` is a `PacketType`, or `WILL`.
    """
    length, pos = read_variable_byte_integer(data, pos)
    if not length:
        return {}, pos
    end = pos + length
    if end > len(data):
        raise MalformedPacket("Property Length reaches behind the end of the packet")
    props: Properties = {}
    while pos < end:
        entry = _READERS.get(data[pos])
        if entry is None or packet not in entry[3]:
            # Section 2.2.2.2: an identifier not valid for its packet type is malformed, not a protocol error.
            raise MalformedPacket(f"property 0x{data[pos]:02X} is not allowed in {_packet_name(packet)}")
        prop, kind, read, _ = entry
        value, pos = read(data, pos + 1)
        if pos > end:
            break
        if prop is Property.USER_PROPERTY:
            pairs = props.setdefault(prop, [])
            if len(pairs) >= max_user_properties:
                raise QuotaExceeded(f"{_packet_name(packet)} has over {max_user_properties} user properties")
            pairs.append(value)
            continue
        if kind is not Kind.UTF8_STRING and kind is not Kind.BINARY_DATA:
            _check_number(prop, kind, value, Blame.PEER)
        elif prop is Property.RESPONSE_TOPIC:
            _check_response_topic(value, Blame.PEER)
        if prop is Property.SUBSCRIPTION_IDENTIFIER:
            if prop in props and packet != PacketType.PUBLISH:
                raise ProtocolError("SUBSCRIPTION_IDENTIFIER occurs more than once")
            props.setdefault(prop, []).append(value)
        elif prop in props:
            raise ProtocolError(f"{prop.name} occurs more than once")
        else:
            props[prop] = value
    if pos != end:
        raise MalformedPacket("a property reaches behind Property Length")
    return props, end


def encode_properties(props: Properties, packet: int | None = None) -> bytes:
    """Write a property list with its length prefix; with `packet` also check that it may carry them."""
    if not props:
        return b"\0"
    parts: list[bytes] = []
    for prop, value in props.items():
        kind, where = TABLE[prop]
        if packet is not None and packet not in where:
            raise MalformedPacket(f"{prop.name} is not allowed in {_packet_name(packet)}", blame=Blame.LOCAL)
        identifier = bytes((prop,))
        write = _WRITE[kind]
        if prop is Property.USER_PROPERTY:
            parts.extend(identifier + write(pair) for pair in value)
        elif prop is Property.SUBSCRIPTION_IDENTIFIER:
            if len(value) > 1 and packet == PacketType.SUBSCRIBE:
                raise ProtocolError("SUBSCRIBE carries one Subscription Identifier", blame=Blame.LOCAL)
            for number in value:
                _check_number(prop, kind, number, Blame.LOCAL)
                parts.append(identifier + write(number))
        else:
            if kind is not Kind.UTF8_STRING and kind is not Kind.BINARY_DATA:
                _check_number(prop, kind, value, Blame.LOCAL)
            elif prop is Property.RESPONSE_TOPIC:
                _check_response_topic(value, Blame.LOCAL)
            parts.append(identifier + write(value))
    body = b"".join(parts)
    return write_variable_byte_integer(len(body)) + body


def check_authentication(props: Properties, blame: Blame) -> None:
    """Authentication Data without a method is a protocol error (sections 3.1.2.11.10, 3.2.2.3.18)."""
    if Property.AUTHENTICATION_DATA in props and Property.AUTHENTICATION_METHOD not in props:
        raise ProtocolError("Authentication Data without Authentication Method", blame=blame)


def _check_number(prop: Property, kind: Kind, value: int, blame: Blame) -> None:
    problem: type[MQTTError] | None = None
    if kind is Kind.BYTE:
        # Every one-byte property is a truth value or, for Maximum QoS, 0 or 1.
        if value not in (0, 1):
            problem = ProtocolError
    elif prop is Property.TOPIC_ALIAS:
        if value == 0:
            problem = TopicAliasInvalid  # [MQTT5-3.3.2-8]
    elif prop is Property.SUBSCRIPTION_IDENTIFIER:
        if not 1 <= value <= VARIABLE_BYTE_INTEGER_MAX:
            problem = ProtocolError  # section 3.8.2.1.2
    elif value == 0 and prop in _NOT_ZERO:
        problem = ProtocolError  # sections 3.1.2.11.3 and 3.1.2.11.4
    if problem is not None:
        raise problem(f"{prop.name} cannot be {value}", blame=blame)


def _check_response_topic(topic: str, blame: Blame) -> None:
    if not topic or "+" in topic or "#" in topic:
        raise ProtocolError("RESPONSE_TOPIC is empty or has wildcards [MQTT5-3.3.2-14]", blame=blame)


def _packet_name(packet: int) -> str:
    return "Will Properties" if packet == WILL else PacketType(packet).name
