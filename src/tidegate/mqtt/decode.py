"""Bytes to packets, both directions and all versions: every check that needs no state.

Any bytes give a packet or an `MQTTError`, nothing else. What depends on the connection (a second CONNECT,
who may send what, quotas, unknown Topic Aliases) is for the caller.
"""

from collections.abc import Callable, Iterator
from typing import Final

from tidegate.mqtt.codes import LEGAL, REASON_CODES, PacketType, ReasonCode
from tidegate.mqtt.decode_connect import decode_connack, decode_connect
from tidegate.mqtt.errors import Blame, MalformedPacket, ProtocolError
from tidegate.mqtt.packets import (
    Auth,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from tidegate.mqtt.primitives import read_string, read_uint16
from tidegate.mqtt.properties import UNLIMITED, Properties, Property, check_authentication, decode_properties
from tidegate.mqtt.topics import parse_shared, validate_topic_filter, validate_topic_name


def decode_packet(first_byte: int, body: bytes, version: int, max_user_properties: int = UNLIMITED) -> Packet:
    """Decode one packet from its first byte and what follows the Remaining Length.

    `version` is the protocol level 3, 4 or 5; a CONNECT names its own.
    """
    if first_byte & 0xF0 == 0x30:
        return _decode_publish(first_byte, body, version, max_user_properties)
    check_first_byte(first_byte, version)
    return _DECODERS[first_byte >> 4](body, version, max_user_properties)


def check_first_byte(first_byte: int, version: int) -> None:
    """Raise `MalformedPacket` if no packet of this version begins so [MQTT5-2.1.3-1]."""
    kind = first_byte >> 4
    if kind == 0 or (kind == PacketType.AUTH and version < 5):
        raise MalformedPacket(f"packet type {kind} is reserved")
    flags = first_byte & 0x0F
    if kind == PacketType.PUBLISH:
        if flags & 0x06 == 0x06:
            raise MalformedPacket("a PUBLISH has both QoS bits set [MQTT5-3.3.1-4]")
        if flags & 0x0E == 0x08:
            raise MalformedPacket("a PUBLISH of QoS 0 has DUP set [MQTT5-3.3.1-2]")
    elif flags != _FLAGS[kind]:
        raise MalformedPacket(f"{PacketType(kind).name} has reserved flags 0x{flags:X}")


# PUBREL, SUBSCRIBE and UNSUBSCRIBE carry 0b0010, a left-over from the QoS bits of MQTT 3.1.
_FLAGS: Final = (0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0)


def _decode_publish(first_byte: int, body: bytes, version: int, most: int) -> Publish:
    qos = first_byte >> 1 & 3
    dup = first_byte & 0x08 != 0
    if qos == 3 or (dup and not qos):
        check_first_byte(first_byte, version)
    topic, pos = read_string(body, 0)
    packet_identifier = None
    if qos:
        packet_identifier, pos = _read_packet_identifier(body, pos)
    properties: Properties
    if version >= 5:
        properties, pos = decode_properties(body, pos, PacketType.PUBLISH, most)
        if topic:
            validate_topic_name(topic)
        elif Property.TOPIC_ALIAS not in properties:
            raise ProtocolError("a PUBLISH has neither topic name nor Topic Alias (section 3.3.2.1)")
    else:
        properties = {}
        validate_topic_name(topic)
    return Publish(
        topic=topic,
        payload=body[pos:],
        qos=qos,
        retain=first_byte & 1 != 0,
        dup=dup,
        packet_identifier=packet_identifier,
        properties=properties,
    )


def _decode_puback(body: bytes, version: int, most: int) -> Puback:
    packet_identifier, reason_code, properties = _read_acknowledgement(body, version, PacketType.PUBACK, most)
    return Puback(packet_identifier=packet_identifier, reason_code=reason_code, properties=properties)


def _decode_pubrec(body: bytes, version: int, most: int) -> Pubrec:
    packet_identifier, reason_code, properties = _read_acknowledgement(body, version, PacketType.PUBREC, most)
    return Pubrec(packet_identifier=packet_identifier, reason_code=reason_code, properties=properties)


def _decode_pubrel(body: bytes, version: int, most: int) -> Pubrel:
    packet_identifier, reason_code, properties = _read_acknowledgement(body, version, PacketType.PUBREL, most)
    return Pubrel(packet_identifier=packet_identifier, reason_code=reason_code, properties=properties)


def _decode_pubcomp(body: bytes, version: int, most: int) -> Pubcomp:
    packet_identifier, reason_code, properties = _read_acknowledgement(body, version, PacketType.PUBCOMP, most)
    return Pubcomp(packet_identifier=packet_identifier, reason_code=reason_code, properties=properties)


def _decode_subscribe(body: bytes, version: int, most: int) -> Subscribe:
    packet_identifier, pos, properties = read_head(body, version, PacketType.SUBSCRIBE, most)
    subscriptions = list(read_subscriptions(body, pos, version))
    return Subscribe(packet_identifier=packet_identifier, subscriptions=subscriptions, properties=properties)


def read_subscriptions(body: bytes, pos: int, version: int) -> Iterator[Subscription]:
    """What a SUBSCRIBE asks for, from `body[pos:]`: one after the other, for who cannot take all at once."""
    if pos >= len(body):
        raise ProtocolError("a SUBSCRIBE has no topic filter [MQTT5-3.8.3-2]")
    while pos < len(body):
        topic_filter, pos = read_string(body, pos)
        if pos >= len(body):
            raise MalformedPacket("a topic filter has no subscription options")
        yield _subscription(topic_filter, body[pos], version)
        pos += 1


def _subscription(topic_filter: str, options: int, version: int) -> Subscription:
    if options & (0xC0 if version >= 5 else 0xFC):
        raise MalformedPacket("reserved bits of the subscription options are set [MQTT5-3.8.3-5]")
    qos = options & 3
    retain_handling = options >> 4
    if qos == 3:
        raise ProtocolError("a subscription asks for QoS 3 (section 3.8.3.1)")
    if retain_handling == 3:
        raise ProtocolError("a subscription has Retain Handling 3 (section 3.8.3.1)")
    validate_topic_filter(topic_filter)
    no_local = options & 4 != 0
    if no_local and parse_shared(topic_filter) is not None:
        raise ProtocolError("a shared subscription has No Local set [MQTT5-3.8.3-4]")
    return Subscription(
        topic_filter=topic_filter,
        qos=qos,
        no_local=no_local,
        retain_as_published=options & 8 != 0,
        retain_handling=retain_handling,
    )


def _decode_suback(body: bytes, version: int, most: int) -> Suback:
    packet_identifier, pos, properties = read_head(body, version, PacketType.SUBACK, most)
    codes = _read_reason_codes(body, pos, PacketType.SUBACK)
    if version < 5 and any(code > 2 and code != 0x80 for code in codes):
        raise ProtocolError("a SUBACK has a return code that is reserved [MQTT-3.9.3-2]")
    return Suback(packet_identifier=packet_identifier, reason_codes=codes, properties=properties)


def _decode_unsubscribe(body: bytes, version: int, most: int) -> Unsubscribe:
    packet_identifier, pos, properties = read_head(body, version, PacketType.UNSUBSCRIBE, most)
    topic_filters = list(read_filters(body, pos))
    return Unsubscribe(
        packet_identifier=packet_identifier, topic_filters=topic_filters, properties=properties
    )


def read_filters(body: bytes, pos: int) -> Iterator[str]:
    """What an UNSUBSCRIBE takes back, from `body[pos:]`."""
    if pos >= len(body):
        raise ProtocolError("an UNSUBSCRIBE has no topic filter [MQTT5-3.10.3-2]")
    while pos < len(body):
        topic_filter, pos = read_string(body, pos)
        validate_topic_filter(topic_filter)
        yield topic_filter


def _decode_unsuback(body: bytes, version: int, most: int) -> Unsuback:
    packet_identifier, pos, properties = read_head(body, version, PacketType.UNSUBACK, most)
    if version >= 5:
        codes = _read_reason_codes(body, pos, PacketType.UNSUBACK)
        return Unsuback(packet_identifier=packet_identifier, reason_codes=codes, properties=properties)
    if pos != len(body):
        raise MalformedPacket("an UNSUBACK of MQTT 3.1.1 has no payload")
    return Unsuback(packet_identifier=packet_identifier)


def _decode_pingreq(body: bytes, _version: int, _most: int) -> Pingreq:
    if body:
        raise MalformedPacket("a PINGREQ has no body")
    return Pingreq()


def _decode_pingresp(body: bytes, _version: int, _most: int) -> Pingresp:
    if body:
        raise MalformedPacket("a PINGRESP has no body")
    return Pingresp()


def _decode_disconnect(body: bytes, version: int, most: int) -> Disconnect:
    if version < 5:
        if body:
            raise MalformedPacket("a DISCONNECT of MQTT 3.1.1 has no body")
        return Disconnect()
    reason_code, properties = _read_reason_and_properties(body, 0, PacketType.DISCONNECT, most)
    return Disconnect(reason_code=reason_code, properties=properties)


def _decode_auth(body: bytes, _version: int, most: int) -> Auth:
    reason_code, properties = _read_reason_and_properties(body, 0, PacketType.AUTH, most)
    check_authentication(properties, Blame.PEER)
    # A bare success may be left out altogether (section 3.15.2.1), so only the other codes need a method.
    if reason_code and Property.AUTHENTICATION_METHOD not in properties:
        raise ProtocolError("an AUTH has no Authentication Method (section 3.15.2.2.2)")
    return Auth(reason_code=reason_code, properties=properties)


def _read_packet_identifier(body: bytes, pos: int) -> tuple[int, int]:
    packet_identifier, pos = read_uint16(body, pos)
    if not packet_identifier:
        raise ProtocolError("a packet identifier is zero [MQTT5-2.2.1-3]")
    return packet_identifier, pos


def read_head(body: bytes, version: int, packet: PacketType, most: int) -> tuple[int, int, Properties]:
    """Packet identifier, where the payload begins, and properties."""
    packet_identifier, pos = _read_packet_identifier(body, 0)
    if version < 5:
        return packet_identifier, pos, {}
    properties, pos = decode_properties(body, pos, packet, most)
    return packet_identifier, pos, properties


def _read_acknowledgement(body: bytes, version: int, packet: PacketType, most: int) -> tuple[int, int, Properties]:
    packet_identifier, pos = _read_packet_identifier(body, 0)
    if pos == len(body):
        return packet_identifier, ReasonCode.SUCCESS, {}
    if version < 5:
        raise MalformedPacket(f"{packet.name} of MQTT 3.1.1 has two bytes")
    reason_code, properties = _read_reason_and_properties(body, pos, packet, most)
    return packet_identifier, reason_code, properties


def _read_reason_and_properties(body: bytes, pos: int, packet: PacketType, most: int) -> tuple[ReasonCode, Properties]:
    """A reason code and properties to the end of the packet; either may be left out from the right."""
    if pos == len(body):
        return ReasonCode.SUCCESS, {}
    reason_code = _reason_code(body[pos], packet)
    pos += 1
    if pos == len(body):
        return reason_code, {}
    properties, pos = decode_properties(body, pos, packet, most)
    if pos != len(body):
        raise MalformedPacket(f"{packet.name} has bytes behind its properties")
    return reason_code, properties


def _read_reason_codes(body: bytes, pos: int, packet: PacketType) -> list[int]:
    if pos == len(body):
        raise ProtocolError(f"{packet.name} has no reason code")
    return [_reason_code(code, packet) for code in body[pos:]]


def _reason_code(code: int, packet: PacketType) -> ReasonCode:
    if code not in LEGAL[packet]:
        raise ProtocolError(f"{packet.name} cannot carry reason code 0x{code:02X}")
    return REASON_CODES[code]


def _unreachable(_body: bytes, _version: int, _most: int) -> Packet:
    raise MalformedPacket("this packet type is reserved")


_DECODERS: Final[tuple[Callable[[bytes, int, int], Packet], ...]] = (
    _unreachable,  # type 0: check_first_byte refuses it
    decode_connect,
    decode_connack,
    _unreachable,  # PUBLISH has its own path
    _decode_puback,
    _decode_pubrec,
    _decode_pubrel,
    _decode_pubcomp,
    _decode_subscribe,
    _decode_suback,
    _decode_unsubscribe,
    _decode_unsuback,
    _decode_pingreq,
    _decode_pingresp,
    _decode_disconnect,
    _decode_auth,
)
