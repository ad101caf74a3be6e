"""Bytes a server must refuse, with the reason code that says why; built by hand, not by our own encoder.

The codec's tests feed them to a `PacketReader`, the broker's tests send them to a running broker: a case of
stage "connect" is the first thing on a connection, one of stage "connected" follows a successful CONNECT of
`version`. On MQTT 3.1.1 the reason code never reaches the peer (the connection is closed) except for 0x84 as
return code 1.
"""

from typing import Literal, NamedTuple

Stage = Literal["connect", "connected"]

MALFORMED_PACKET = 0x81
PROTOCOL_ERROR = 0x82
UNSUPPORTED_PROTOCOL_VERSION = 0x84
TOPIC_FILTER_INVALID = 0x8F
TOPIC_NAME_INVALID = 0x90
TOPIC_ALIAS_INVALID = 0x94


class Case(NamedTuple):
    name: str
    version: int
    data: bytes
    reason_code: int
    stage: Stage


def packet(first_byte: int, *parts: bytes) -> bytes:
    """A packet of at most 127 bytes behind its fixed header."""
    body = b"".join(parts)
    assert len(body) < 128
    return bytes((first_byte, len(body))) + body


def text(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return len(raw).to_bytes(2, "big") + raw


def props(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((len(body),)) + body


def connect(version: int, *, flags: int = 0x02, properties: bytes = b"", rest: bytes = b"") -> bytes:
    """A CONNECT of client "c"; `rest` is what follows the client identifier."""
    head = text("MQTT") + bytes((version, flags)) + b"\0\x3c"
    if version == 5:
        head += props(properties)
    return packet(0x10, head, text("c"), rest)


def _connect_cases(version: int) -> list[Case]:
    no_props = b"\0" if version == 5 else b""
    will = no_props + text("will") + text("gone")
    full = connect(version)
    head = text("MQTT") + bytes((version, 0x02)) + b"\0\x3c" + no_props

    def case(name: str, data: bytes, reason_code: int = MALFORMED_PACKET) -> Case:
        return Case(f"{name}, v{version}", version, data, reason_code, "connect")

    return [
        case("CONNECT with reserved fixed header flags", b"\x11" + full[1:]),
        case("CONNECT with the reserved connect flag", connect(version, flags=0x03)),
        case("CONNECT with Will QoS 3", connect(version, flags=0x1E, rest=will)),
        case("CONNECT with Will QoS but no will", connect(version, flags=0x0A)),
        case("CONNECT with Will Retain but no will", connect(version, flags=0x22)),
        case("CONNECT with a will flag but no will", connect(version, flags=0x06)),
        case("CONNECT with a user name flag but no user name", connect(version, flags=0x82)),
        case("CONNECT with trailing bytes", connect(version, rest=b"\0")),
        case("CONNECT without payload", packet(0x10, head)),
        case("CONNECT that ends in its protocol name", packet(0x10, b"\0\4MQ")),
        case("CONNECT that ends before keep alive", packet(0x10, text("MQTT"), bytes((version, 2)), b"\0")),
        case("CONNECT with an empty body", packet(0x10)),
        case("CONNECT with a client identifier that is no UTF-8", packet(0x10, head, text(b"\xc3\x28"))),
        case("CONNECT with U+0000 in its client identifier", packet(0x10, head, text("a\0b"))),
        case("CONNECT with a surrogate in its client identifier", packet(0x10, head, text(b"\xed\xa0\x80"))),
        case("CONNECT with a Remaining Length of five bytes", b"\x10\x80\x80\x80\x80\x01"),
        case(
            "CONNECT with a wildcard in its will topic",
            connect(version, flags=0x06, rest=no_props + text("a/#") + text("x")),
            TOPIC_NAME_INVALID,
        ),
        case(
            "CONNECT with an empty will topic",
            connect(version, flags=0x06, rest=no_props + text("") + text("x")),
            TOPIC_NAME_INVALID,
        ),
        case("PINGREQ as the first packet", b"\xc0\0", PROTOCOL_ERROR),
        case("PUBLISH as the first packet", packet(0x30, text("a"), no_props, b"x"), PROTOCOL_ERROR),
        case("DISCONNECT as the first packet", b"\xe0\0", PROTOCOL_ERROR),
        case("reserved type 0 as the first packet", b"\0\0", PROTOCOL_ERROR),
    ]


_CONNECT_311 = [
    Case(
        "CONNECT with a password but no user name, v4",
        4,
        connect(4, flags=0x42, rest=text("secret")),
        MALFORMED_PACKET,
        "connect",
    ),
]


def _unsupported(name: str, level: int) -> Case:
    data = packet(0x10, text(name), bytes((level, 2)), b"\0\x3c", text("c"))
    return Case(f"CONNECT of {name} level {level}", level, data, UNSUPPORTED_PROTOCOL_VERSION, "connect")


_UNSUPPORTED = [
    _unsupported("MQTT", 6),
    _unsupported("MQTT", 3),
    _unsupported("MQTT", 0),
    _unsupported("MQTT", 0x84),
    _unsupported("MQIsdp", 4),
    _unsupported("mqtt", 4),
    _unsupported("HTTP", 5),
]


def _connect_property(name: str, raw: bytes, reason_code: int) -> Case:
    return Case(f"CONNECT with {name}, v5", 5, connect(5, properties=raw), reason_code, "connect")


_CONNECT_PROPERTIES = [
    _connect_property("Receive Maximum 0", b"\x21\0\0", PROTOCOL_ERROR),
    _connect_property("Maximum Packet Size 0", b"\x27\0\0\0\0", PROTOCOL_ERROR),
    _connect_property("Request Problem Information 2", b"\x17\2", PROTOCOL_ERROR),
    _connect_property("Request Response Information 2", b"\x19\2", PROTOCOL_ERROR),
    _connect_property("two Session Expiry Intervals", b"\x11\0\0\0\1" * 2, PROTOCOL_ERROR),
    _connect_property("Authentication Data but no method", b"\x16" + text("x"), PROTOCOL_ERROR),
    _connect_property("an unknown property", b"\x7f\0", MALFORMED_PACKET),
    _connect_property("a property of CONNACK", b"\x24\1", MALFORMED_PACKET),
    _connect_property("Will Delay Interval outside the will", b"\x18\0\0\0\1", MALFORMED_PACKET),
    _connect_property("a property cut short", b"\x11\0\0", MALFORMED_PACKET),
    Case(
        "CONNECT with Property Length behind its end, v5",
        5,
        packet(0x10, text("MQTT"), b"\5\2\0\x3c", b"\x7f", text("c")),
        MALFORMED_PACKET,
        "connect",
    ),
    Case(
        "CONNECT with Payload Format Indicator 2 in its will, v5",
        5,
        connect(5, flags=0x06, rest=props(b"\1\2") + text("will") + text("x")),
        PROTOCOL_ERROR,
        "connect",
    ),
    Case(
        "CONNECT with Session Expiry Interval in its will, v5",
        5,
        connect(5, flags=0x06, rest=props(b"\x11\0\0\0\1") + text("will") + text("x")),
        MALFORMED_PACKET,
        "connect",
    ),
]


def _connected_cases(version: int) -> list[Case]:
    p = b"\0" if version == 5 else b""  # an empty property list where there is one

    def case(name: str, data: bytes, reason_code: int = MALFORMED_PACKET) -> Case:
        return Case(f"{name}, v{version}", version, data, reason_code, "connected")

    return [
        case("a second CONNECT", connect(version), PROTOCOL_ERROR),
        case("reserved packet type 0", b"\0\0"),
        case("a Remaining Length of five bytes", b"\x30\x80\x80\x80\x80\x01"),
        case("PUBLISH with QoS 3", packet(0x36, text("a"), b"\0\1", p)),
        case("PUBLISH with DUP at QoS 0", packet(0x38, text("a"), p)),
        case("PUBLISH with packet identifier 0", packet(0x32, text("a"), b"\0\0", p), PROTOCOL_ERROR),
        case("PUBLISH without packet identifier", packet(0x32, text("a"))),
        case("PUBLISH with a topic behind its end", packet(0x30, b"\0\5a")),
        case("PUBLISH with an empty body", packet(0x30)),
        case("PUBLISH with + in its topic", packet(0x30, text("a/+"), p), TOPIC_NAME_INVALID),
        case("PUBLISH with # in its topic", packet(0x30, text("#"), p), TOPIC_NAME_INVALID),
        case("PUBLISH with U+0000 in its topic", packet(0x30, text("a\0"), p)),
        case("PUBLISH with a topic that is no UTF-8", packet(0x30, text(b"\xff"), p)),
        case("PUBLISH with a surrogate in its topic", packet(0x30, text(b"\xed\xbf\xbf"), p)),
        case(
            "PUBLISH with an empty topic",
            packet(0x30, text(""), p),
            PROTOCOL_ERROR if version == 5 else TOPIC_NAME_INVALID,
        ),
        case("PUBACK with reserved flags", packet(0x41, b"\0\1")),
        case("PUBACK with identifier 0", packet(0x40, b"\0\0"), PROTOCOL_ERROR),
        case("PUBACK with one byte", packet(0x40, b"\1")),
        case("PUBREC with reserved flags", packet(0x52, b"\0\1")),
        case("PUBREL without its flags", packet(0x60, b"\0\1")),
        case("PUBREL with identifier 0", packet(0x62, b"\0\0"), PROTOCOL_ERROR),
        case("PUBCOMP with reserved flags", packet(0x74, b"\0\1")),
        case("SUBSCRIBE without its flags", packet(0x80, b"\0\1", p, text("a"), b"\0")),
        case("SUBSCRIBE without topic filter", packet(0x82, b"\0\1", p), PROTOCOL_ERROR),
        case("SUBSCRIBE with identifier 0", packet(0x82, b"\0\0", p, text("a"), b"\0"), PROTOCOL_ERROR),
        case("SUBSCRIBE without options", packet(0x82, b"\0\1", p, text("a"))),
        case("SUBSCRIBE with reserved options", packet(0x82, b"\0\1", p, text("a"), b"\x80")),
        case("SUBSCRIBE with QoS 3", packet(0x82, b"\0\1", p, text("a"), b"\3"), PROTOCOL_ERROR),
        *(
            case(f"SUBSCRIBE to {bad!r}", packet(0x82, b"\0\1", p, text(bad), b"\0"), TOPIC_FILTER_INVALID)
            for bad in (
                "",
                "a#",
                "a/#/b",
                "#/",
                "a+",
                "+a/b",
                "$share/g",
                "$share//a",
                "$share/g/",
                "$share/+/a",
            )
        ),
        case("SUBSCRIBE with U+0000 in a filter", packet(0x82, b"\0\1", p, text("a\0"), b"\0")),
        case(
            "SUBSCRIBE with a second filter cut short", packet(0x82, b"\0\1", p, text("a"), b"\0", b"\0\3b")
        ),
        case("UNSUBSCRIBE without its flags", packet(0xA0, b"\0\1", p, text("a"))),
        case("UNSUBSCRIBE without topic filter", packet(0xA2, b"\0\1", p), PROTOCOL_ERROR),
        case("UNSUBSCRIBE with identifier 0", packet(0xA2, b"\0\0", p, text("a")), PROTOCOL_ERROR),
        case(
            "UNSUBSCRIBE from an invalid filter", packet(0xA2, b"\0\1", p, text("a#")), TOPIC_FILTER_INVALID
        ),
        case("UNSUBSCRIBE with an empty filter", packet(0xA2, b"\0\1", p, text("")), TOPIC_FILTER_INVALID),
        case("PINGREQ with reserved flags", b"\xc1\0"),
        case("PINGREQ with a body", packet(0xC0, b"x")),
        case("DISCONNECT with reserved flags", b"\xe1\0"),
    ]


_CONNECTED_311 = [
    Case(f"{name}, v4", 4, data, MALFORMED_PACKET, "connected")
    for name, data in [
        ("AUTH, which 3.1.1 reserves", b"\xf0\0"),
        ("PUBACK with a reason code", packet(0x40, b"\0\1\0")),
        ("DISCONNECT with a body", packet(0xE0, b"\0")),
        ("SUBSCRIBE with an option of MQTT 5", packet(0x82, b"\0\1", text("a"), b"\4")),
    ]
]


def _publish(name: str, raw: bytes, reason_code: int, topic: str = "a") -> Case:
    return Case(
        f"PUBLISH with {name}, v5", 5, packet(0x30, text(topic), props(raw)), reason_code, "connected"
    )


_CONNECTED_5 = [
    _publish("Topic Alias 0", b"\x23\0\0", TOPIC_ALIAS_INVALID),
    _publish("Topic Alias 0 and no topic", b"\x23\0\0", TOPIC_ALIAS_INVALID, topic=""),
    _publish("two Topic Aliases", b"\x23\0\1" * 2, PROTOCOL_ERROR),
    _publish("Payload Format Indicator 2", b"\1\2", PROTOCOL_ERROR),
    _publish("two Message Expiry Intervals", b"\2\0\0\0\1" * 2, PROTOCOL_ERROR),
    _publish("two Content Types", (b"\3" + text("x")) * 2, PROTOCOL_ERROR),
    _publish("a wildcard in Response Topic", b"\x08" + text("a/+"), PROTOCOL_ERROR),
    _publish("an empty Response Topic", b"\x08" + text(""), PROTOCOL_ERROR),
    _publish("U+0000 in a User Property", b"\x26" + text("a\0") + text("b"), MALFORMED_PACKET),
    _publish("a User Property without value", b"\x26" + text("a"), MALFORMED_PACKET),
    _publish("Subscription Identifier 0", b"\x0b\0", PROTOCOL_ERROR),
    _publish("Subscription Identifier of five bytes", b"\x0b\x80\x80\x80\x80\1", MALFORMED_PACKET),
    _publish("a property of CONNECT", b"\x21\0\1", MALFORMED_PACKET),
    _publish("property identifier 0", b"\0", MALFORMED_PACKET),
    *(
        Case(f"{name}, v5", 5, data, reason_code, "connected")
        for name, data, reason_code in [
            (
                "PUBLISH with Property Length behind its end",
                packet(0x30, text("a"), b"\x05"),
                MALFORMED_PACKET,
            ),
            (
                "PUBLISH with a value that crosses Property Length",
                packet(0x30, text("a"), b"\3\2\0\0\0\1"),
                0x81,
            ),
            ("PUBACK with an unknown reason code", packet(0x40, b"\0\1\x42"), PROTOCOL_ERROR),
            ("PUBREC with a reason code of SUBACK", packet(0x50, b"\0\1\x01"), PROTOCOL_ERROR),
            ("PUBREL with a reason code of PUBACK", packet(0x62, b"\0\1\x10"), PROTOCOL_ERROR),
            ("PUBCOMP with a reason code of PUBACK", packet(0x70, b"\0\1\x97"), PROTOCOL_ERROR),
            ("PUBACK with trailing bytes", packet(0x40, b"\0\1\0\0x"), MALFORMED_PACKET),
            ("PUBACK with a property of PUBLISH", packet(0x40, b"\0\1\0", props(b"\1\1")), MALFORMED_PACKET),
            ("SUBSCRIBE with Retain Handling 3", packet(0x82, b"\0\1\0", text("a"), b"\x30"), PROTOCOL_ERROR),
            (
                "SUBSCRIBE with No Local on a shared filter",
                packet(0x82, b"\0\1\0", text("$share/g/a"), b"\4"),
                0x82,
            ),
            (
                "SUBSCRIBE with Subscription Identifier 0",
                packet(0x82, b"\0\1\2\x0b\0", text("a"), b"\0"),
                0x82,
            ),
            ("SUBSCRIBE with two identifiers", packet(0x82, b"\0\1\4\x0b\1\x0b\2", text("a"), b"\0"), 0x82),
            ("UNSUBSCRIBE with a Subscription Identifier", packet(0xA2, b"\0\1\2\x0b\1", text("a")), 0x81),
            ("DISCONNECT with an unknown reason code", packet(0xE0, b"\x05"), PROTOCOL_ERROR),
            ("DISCONNECT with trailing bytes", packet(0xE0, b"\0\0x"), MALFORMED_PACKET),
            (
                "DISCONNECT with a property of CONNECT",
                packet(0xE0, b"\0", props(b"\x21\0\1")),
                MALFORMED_PACKET,
            ),
            ("AUTH with reserved flags", b"\xf1\0", MALFORMED_PACKET),
            ("AUTH without method", packet(0xF0, b"\x18\0"), PROTOCOL_ERROR),
            ("AUTH with an unknown reason code", packet(0xF0, b"\x80", props(b"\x15" + text("m"))), 0x82),
        ]
    ),
]

CASES: list[Case] = [
    *_connect_cases(4),
    *_connect_cases(5),
    *_CONNECT_311,
    *_UNSUPPORTED,
    *_CONNECT_PROPERTIES,
    *_connected_cases(4),
    *_connected_cases(5),
    *_CONNECTED_311,
    *_CONNECTED_5,
]
"""Everything above, for both stages and versions."""
