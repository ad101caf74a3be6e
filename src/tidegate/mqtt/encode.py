"""Packets to bytes, both directions and all versions.

What the decoder would refuse is refused here too, with `Blame.LOCAL`. What MQTT 3.1.1 cannot say (properties,
reason codes, subscription options but QoS) is left out.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tidegate.mqtt.codes import LEGAL, PacketType, connect_return_code
from tidegate.mqtt.decode_connect import PROTOCOLS
from tidegate.mqtt.errors import (
    Blame,
    MalformedPacket,
    PacketTooLarge,
    ProtocolError,
    UnsupportedProtocolVersion,
)
from tidegate.mqtt.packets import (
    Auth,
    Connack,
    Connect,
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
    Unsuback,
    Unsubscribe,
)
from tidegate.mqtt.primitives import (
    VARIABLE_BYTE_INTEGER_MAX,
    write_binary,
    write_string,
    write_uint,
    write_variable_byte_integer,
)
from tidegate.mqtt.properties import (
    WILL,
    Properties,
    Property,
    check_authentication,
    encode_properties,
)
from tidegate.mqtt.topics import parse_shared, validate_topic_filter, validate_topic_name


def encode_packet(packet: Packet, version: int, *, max_packet_size: int | None = None) -> bytes:
    """Encode one packet for protocol level 3, 4 or 5; a CONNECT is encoded for the level it names.

    A packet larger than the peer's `max_packet_size` loses Reason String and User Properties if these are
    only there to explain [MQTT5-3.2.2-19, MQTT5-3.4.2-2 and so on]; if that is not enough `PacketTooLarge` is
    raised.
    """
    encoded = _ENCODERS[type(packet)](packet, version)
    if max_packet_size is None or len(encoded) <= max_packet_size:
        return encoded
    if isinstance(packet, _EXPLAINING) and version >= 5 and packet.properties:
        kept = {key: value for key, value in packet.properties.items() if key not in _EXPLANATIONS}
        encoded = _ENCODERS[type(packet)](replace(packet, properties=kept), version)
        if len(encoded) <= max_packet_size:
            return encoded
    raise PacketTooLarge(
        f"{type(packet).__name__} has {len(encoded)} bytes, the peer takes {max_packet_size}",
        blame=Blame.LOCAL,
    )


_EXPLAINING: Final = (Connack, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Disconnect, Auth)
_EXPLANATIONS: Final = frozenset({Property.REASON_STRING, Property.USER_PROPERTY})


def _frame(first_byte: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    if len(body) > VARIABLE_BYTE_INTEGER_MAX:
        raise PacketTooLarge(f"{len(body)} bytes do not fit a Remaining Length", blame=Blame.LOCAL)
    return b"%c%b%b" % (first_byte, write_variable_byte_integer(len(body)), body)


def _encode_connect(packet: Connect, _version: int) -> bytes:
    level = packet.protocol_level
    if (packet.protocol_name, level) not in PROTOCOLS:
        raise UnsupportedProtocolVersion(packet.protocol_name, level, blame=Blame.LOCAL)
    if level < 5 and packet.password is not None and packet.username is None:
        raise MalformedPacket("MQTT 3.1.1 has no password without a user name", blame=Blame.LOCAL)
    flags = packet.clean_start << 1
    parts = [write_string(packet.client_id)]
    if packet.will is not None:
        will = packet.will
        validate_topic_name(will.topic, blame=Blame.LOCAL)
        flags |= 4 | _qos(will.qos) << 3 | will.retain << 5
        if level == 5:
            parts.append(encode_properties(will.properties, WILL))
        parts += write_string(will.topic), write_binary(will.payload)
    if packet.username is not None:
        flags |= 0x80
        parts.append(write_string(packet.username))
    if packet.password is not None:
        flags |= 0x40
        parts.append(write_binary(packet.password))
    head = write_string(packet.protocol_name) + bytes((level, flags)) + write_uint(packet.keep_alive, 2)
    if level == 5:
        check_authentication(packet.properties, Blame.LOCAL)
        head += encode_properties(packet.properties, PacketType.CONNECT)
    return _frame(0x10, head, *parts)


def _encode_connack(packet: Connack, version: int) -> bytes:
    if packet.session_present and packet.reason_code:
        raise ProtocolError("a refusal has no Session Present [MQTT5-3.2.2-6]", blame=Blame.LOCAL)
    code = _legal(packet.reason_code, PacketType.CONNACK)
    if version < 5:
        return bytes((0x20, 2, packet.session_present, connect_return_code(code)))
    check_authentication(packet.properties, Blame.LOCAL)
    properties = encode_properties(packet.properties, PacketType.CONNACK)
    return _frame(0x20, bytes((packet.session_present, code)), properties)


def _encode_publish(packet: Publish, version: int) -> bytes:
    qos = _qos(packet.qos)
    if packet.dup and not qos:
        raise MalformedPacket("DUP is never set with QoS 0 [MQTT5-3.3.1-2]", blame=Blame.LOCAL)
    if packet.topic or version < 5:
        validate_topic_name(packet.topic, blame=Blame.LOCAL)
    elif Property.TOPIC_ALIAS not in packet.properties:
        raise ProtocolError("a PUBLISH has neither topic name nor Topic Alias", blame=Blame.LOCAL)
    first_byte = 0x30 | packet.dup << 3 | qos << 1 | packet.retain
    parts = [write_string(packet.topic)]
    if qos:
        parts.append(_packet_identifier(packet.packet_identifier))
    elif packet.packet_identifier is not None:
        # [MQTT5-2.2.1-2]
        raise ProtocolError("a PUBLISH of QoS 0 has no packet identifier", blame=Blame.LOCAL)
    if version >= 5:
        parts.append(encode_properties(packet.properties, PacketType.PUBLISH))
    return _frame(first_byte, *parts, packet.payload)


def _acknowledgement(first_byte: int) -> Callable[[Any, int], bytes]:
    kind = PacketType(first_byte >> 4)

    def encode(packet: Puback | Pubrec | Pubrel | Pubcomp, version: int) -> bytes:
        identifier = _packet_identifier(packet.packet_identifier)
        if version < 5:
            return bytes((first_byte, 2)) + identifier
        return _frame(first_byte, identifier, _reason(packet.reason_code, packet.properties, kind))

    return encode


def _encode_subscribe(packet: Subscribe, version: int) -> bytes:
    if not packet.subscriptions:
        raise ProtocolError("a SUBSCRIBE needs a topic filter [MQTT5-3.8.3-2]", blame=Blame.LOCAL)
    parts = [_head(packet.packet_identifier, packet.properties, version, PacketType.SUBSCRIBE)]
    for subscription in packet.subscriptions:
        validate_topic_filter(subscription.topic_filter, blame=Blame.LOCAL)
        options = _qos(subscription.qos)
        if version >= 5:
            if subscription.retain_handling not in (0, 1, 2):
                raise ProtocolError("Retain Handling is 0, 1 or 2", blame=Blame.LOCAL)
            if subscription.no_local and parse_shared(subscription.topic_filter) is not None:
                raise ProtocolError("a shared subscription has No Local", blame=Blame.LOCAL)
            options |= subscription.no_local << 2 | subscription.retain_as_published << 3
            options |= subscription.retain_handling << 4
        parts.append(write_string(subscription.topic_filter) + bytes((options,)))
    return _frame(0x82, *parts)


def _encode_suback(packet: Suback, version: int) -> bytes:
    if not packet.reason_codes:
        raise ProtocolError("a SUBACK needs a reason code", blame=Blame.LOCAL)
    codes = bytes(_legal(code, PacketType.SUBACK) for code in packet.reason_codes)
    if version < 5:
        codes = bytes(min(code, 0x80) for code in codes)
    head = _head(packet.packet_identifier, packet.properties, version, PacketType.SUBACK)
    return _frame(0x90, head, codes)


def _encode_unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    if not packet.topic_filters:
        raise ProtocolError("an UNSUBSCRIBE needs a topic filter [MQTT5-3.10.3-2]", blame=Blame.LOCAL)
    for topic_filter in packet.topic_filters:
        validate_topic_filter(topic_filter, blame=Blame.LOCAL)
    head = _head(packet.packet_identifier, packet.properties, version, PacketType.UNSUBSCRIBE)
    return _frame(0xA2, head, *map(write_string, packet.topic_filters))


def _encode_unsuback(packet: Unsuback, version: int) -> bytes:
    head = _head(packet.packet_identifier, packet.properties, version, PacketType.UNSUBACK)
    if version < 5:
        return _frame(0xB0, head)
    if not packet.reason_codes:
        raise ProtocolError("an UNSUBACK needs a reason code", blame=Blame.LOCAL)
    return _frame(0xB0, head, bytes(_legal(code, PacketType.UNSUBACK) for code in packet.reason_codes))


def _encode_pingreq(_packet: Pingreq, _version: int) -> bytes:
    return b"\xc0\0"


def _encode_pingresp(_packet: Pingresp, _version: int) -> bytes:
    return b"\xd0\0"


def _encode_disconnect(packet: Disconnect, version: int) -> bytes:
    if version < 5:
        return b"\xe0\0"
    return _frame(0xE0, _reason(packet.reason_code, packet.properties, PacketType.DISCONNECT))


def _encode_auth(packet: Auth, version: int) -> bytes:
    if version < 5:
        raise ProtocolError("MQTT 3.1.1 has no AUTH", blame=Blame.LOCAL)
    check_authentication(packet.properties, Blame.LOCAL)
    if packet.reason_code and Property.AUTHENTICATION_METHOD not in packet.properties:
        raise ProtocolError("an AUTH needs an Authentication Method", blame=Blame.LOCAL)
    return _frame(0xF0, _reason(packet.reason_code, packet.properties, PacketType.AUTH))


def _head(identifier: int, properties: Properties, version: int, packet: PacketType) -> bytes:
    if version < 5:
        return _packet_identifier(identifier)
    return _packet_identifier(identifier) + encode_properties(properties, packet)


def _reason(reason_code: int, properties: Properties, packet: PacketType) -> bytes:
    """Reason code and properties, each left out if nothing needs it."""
    code = _legal(reason_code, packet)
    if properties:
        return bytes((code,)) + encode_properties(properties, packet)
    return bytes((code,)) if code else b""


def _packet_identifier(identifier: int | None) -> bytes:
    if not identifier:
        raise ProtocolError("a packet identifier is missing or zero [MQTT5-2.2.1-3]", blame=Blame.LOCAL)
    return write_uint(identifier, 2)


def _qos(qos: int) -> int:
    if qos not in (0, 1, 2):
        raise MalformedPacket(f"QoS {qos} does not exist", blame=Blame.LOCAL)
    return qos


def _legal(code: int, packet: PacketType) -> int:
    if code not in LEGAL[packet]:
        raise ProtocolError(f"{packet.name} cannot carry reason code 0x{code:02X}", blame=Blame.LOCAL)
    return code


_ENCODERS: Final[dict[type[Any], Callable[[Any, int], bytes]]] = {
    Connect: _encode_connect,
    Connack: _encode_connack,
    Publish: _encode_publish,
    Puback: _acknowledgement(0x40),
    Pubrec: _acknowledgement(0x50),
    Pubrel: _acknowledgement(0x62),
    Pubcomp: _acknowledgement(0x70),
    Subscribe: _encode_subscribe,
    Suback: _encode_suback,
    Unsubscribe: _encode_unsubscribe,
    Unsuback: _encode_unsuback,
    Pingreq: _encode_pingreq,
    Pingresp: _encode_pingresp,
    Disconnect: _encode_disconnect,
    Auth: _encode_auth,
}
