"""Decoding of CONNECT and CONNACK, the two packets that open a connection."""

from typing import Final

from tidegate.mqtt.codes import LEGAL, REASON_CODES, REASON_OF_RETURN_CODE, PacketType
from tidegate.mqtt.errors import Blame, MalformedPacket, ProtocolError, UnsupportedProtocolVersion
from tidegate.mqtt.packets import Connack, Connect, Will
from tidegate.mqtt.primitives import read_binary, read_byte, read_string, read_uint16
from tidegate.mqtt.properties import WILL, Properties, check_authentication, decode_properties
from tidegate.mqtt.topics import validate_topic_name

PROTOCOLS: Final = frozenset({("MQIsdp", 3), ("MQTT", 4), ("MQTT", 5)})

# Connect Flags (MQTT 5 figure 3-4).
_CLEAN_START: Final = 0x02
_WILL_FLAG: Final = 0x04
_WILL_QOS: Final = 0x18
_WILL_RETAIN: Final = 0x20
_PASSWORD: Final = 0x40
_USER_NAME: Final = 0x80


def decode_connect(body: bytes, _version: int, most: int) -> Connect:
    """Decode a CONNECT; the version argument is ignored, the packet names its own."""
    name, pos = read_string(body, 0)
    level, pos = read_byte(body, pos)
    if (name, level) not in PROTOCOLS:
        raise UnsupportedProtocolVersion(name[:80], level)
    flags, pos = read_byte(body, pos)
    _check_flags(flags, level)
    keep_alive, pos = read_uint16(body, pos)
    properties: Properties = {}
    if level == 5:
        properties, pos = decode_properties(body, pos, PacketType.CONNECT, most)
        check_authentication(properties, Blame.PEER)
    client_id, pos = read_string(body, pos)
    will = None
    if flags & _WILL_FLAG:
        will, pos = _read_will(body, pos, flags, level, most)
    username = password = None
    if flags & _USER_NAME:
        username, pos = read_string(body, pos)
    if flags & _PASSWORD:
        password, pos = read_binary(body, pos)
    if pos != len(body):
        raise MalformedPacket("CONNECT has bytes behind its payload")
    return Connect(
        client_id=client_id,
        clean_start=flags & _CLEAN_START != 0,
        keep_alive=keep_alive,
        username=username,
        password=password,
        will=will,
        properties=properties,
        protocol_level=level,
        protocol_name=name,
    )


def _check_flags(flags: int, level: int) -> None:
    if flags & 1:
        raise MalformedPacket("the reserved Connect Flag is set [MQTT5-3.1.2-3]")
    if flags & _WILL_QOS == _WILL_QOS:
        raise MalformedPacket("Will QoS is 3 [MQTT5-3.1.2-12]")
    if not flags & _WILL_FLAG and flags & (_WILL_QOS | _WILL_RETAIN):
        raise MalformedPacket("Will QoS or Will Retain is set without a will [MQTT5-3.1.2-11]")
    if level < 5 and flags & (_PASSWORD | _USER_NAME) == _PASSWORD:
        raise MalformedPacket("a password comes without a user name [MQTT-3.1.2-22]")


def _read_will(body: bytes, pos: int, flags: int, level: int, most: int) -> tuple[Will, int]:
    properties: Properties = {}
    if level == 5:
        properties, pos = decode_properties(body, pos, WILL, most)
    topic, pos = read_string(body, pos)
    validate_topic_name(topic)
    payload, pos = read_binary(body, pos)
    will = Will(
        topic=topic,
        payload=payload,
        qos=flags >> 3 & 3,
        retain=flags & _WILL_RETAIN != 0,
        properties=properties,
    )
    return will, pos


def decode_connack(body: bytes, version: int, most: int) -> Connack:
    """Decode a CONNACK; 3.1.1 return codes become the reason codes that mean the same."""
    if len(body) < 2:
        raise MalformedPacket("CONNACK is too short")
    flags, code = body[0], body[1]
    if flags > 1:
        raise MalformedPacket("reserved Connect Acknowledge Flags are set [MQTT5-3.2.2-1]")
    if flags and code:
        raise ProtocolError("CONNACK refuses and has Session Present set [MQTT5-3.2.2-6]")
    if version < 5:
        if len(body) > 2:
            raise MalformedPacket("CONNACK of MQTT 3.1.1 has two bytes")
        reason = REASON_OF_RETURN_CODE.get(code)
        if reason is None:
            raise ProtocolError(f"CONNACK has reserved return code {code}")
        return Connack(session_present=flags == 1, reason_code=reason)
    if code not in LEGAL[PacketType.CONNACK]:
        raise ProtocolError(f"CONNACK cannot carry reason code 0x{code:02X}")
    properties, pos = decode_properties(body, 2, PacketType.CONNACK, most)
    if pos != len(body):
        raise MalformedPacket("CONNACK has bytes behind its properties")
    check_authentication(properties, Blame.PEER)
    return Connack(session_present=flags == 1, reason_code=REASON_CODES[code], properties=properties)
