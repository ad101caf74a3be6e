"""The table of properties against the specification, and each identifier on the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import properties
from tidegate.mqtt.codes import PacketType
from tidegate.mqtt.errors import Blame, MalformedPacket, MQTTError, ProtocolError
from tidegate.mqtt.properties import (
    TABLE,
    WILL,
    Kind,
    Properties,
    Property,
    decode_properties,
    encode_properties,
)

PLACES = [WILL, *PacketType]

# MQTT 5 table 2-4, typed off the document once more: identifier, type, packets ("W" is the will).
SPECIFICATION = """
01 BYTE PUBLISH W
02 FOUR_BYTE_INTEGER PUBLISH W
03 UTF8_STRING PUBLISH W
08 UTF8_STRING PUBLISH W
09 BINARY_DATA PUBLISH W
0B VARIABLE_BYTE_INTEGER PUBLISH SUBSCRIBE
11 FOUR_BYTE_INTEGER CONNECT CONNACK DISCONNECT
12 UTF8_STRING CONNACK
13 TWO_BYTE_INTEGER CONNACK
15 UTF8_STRING CONNECT CONNACK AUTH
16 BINARY_DATA CONNECT CONNACK AUTH
17 BYTE CONNECT
18 FOUR_BYTE_INTEGER W
19 BYTE CONNECT
1A UTF8_STRING CONNACK
1C UTF8_STRING CONNACK DISCONNECT
1F UTF8_STRING CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH
21 TWO_BYTE_INTEGER CONNECT CONNACK
22 TWO_BYTE_INTEGER CONNECT CONNACK
23 TWO_BYTE_INTEGER PUBLISH
24 BYTE CONNACK
25 BYTE CONNACK
26 UTF8_STRING_PAIR CONNECT CONNACK PUBLISH W PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK \
UNSUBSCRIBE UNSUBACK DISCONNECT AUTH
27 FOUR_BYTE_INTEGER CONNECT CONNACK
28 BYTE CONNACK
29 BYTE CONNACK
2A BYTE CONNACK
"""

SAMPLES: dict[Kind, tuple[bytes, object]] = {
    Kind.BYTE: (b"\1", 1),
    Kind.TWO_BYTE_INTEGER: (b"\x12\x34", 0x1234),
    Kind.FOUR_BYTE_INTEGER: (b"\x12\x34\x56\x78", 0x12345678),
    Kind.VARIABLE_BYTE_INTEGER: (b"\x81\x01", [129]),
    Kind.UTF8_STRING: (b"\0\3h\xc3\xa9", "hé"),
    Kind.BINARY_DATA: (b"\0\2\0\xff", b"\0\xff"),
    Kind.UTF8_STRING_PAIR: (b"\0\1k\0\1v", [("k", "v")]),
}


def test_the_table_says_what_the_specification_says() -> None:
    expected = {}
    for line in SPECIFICATION.strip().splitlines():
        identifier, kind, *places = line.split()
        where = {WILL if place == "W" else PacketType[place].value for place in places}
        expected[int(identifier, 16)] = (kind, where)
    assert {int(p): (kind.name, set(map(int, where))) for p, (kind, where) in TABLE.items()} == expected


@pytest.mark.parametrize("packet", PLACES)
@pytest.mark.parametrize("prop", Property)
def test_a_property_is_read_where_it_is_allowed_and_malformed_elsewhere(prop: Property, packet: int) -> None:
    kind, where = TABLE[prop]
    raw, value = SAMPLES[kind]
    data = bytes((len(raw) + 1, prop)) + raw
    if packet in where:
        assert decode_properties(b"head" + data + b"tail", 4, packet) == ({prop: value}, 4 + len(data))
        assert encode_properties({prop: value}, packet) == data
        return
    with pytest.raises(MalformedPacket) as caught:
        decode_properties(data, 0, packet)
    assert caught.value.blame is Blame.PEER
    with pytest.raises(MalformedPacket) as caught:
        encode_properties({prop: value}, packet)
    assert caught.value.blame is Blame.LOCAL


@pytest.mark.parametrize("prop", Property)
def test_a_property_that_ends_early_is_malformed(prop: Property) -> None:
    kind, where = TABLE[prop]
    raw = bytes((prop,)) + SAMPLES[kind][0]
    for size in range(1, len(raw)):
        with pytest.raises(MalformedPacket):
            decode_properties(bytes((size,)) + raw[:size], 0, min(where))
        # The bytes are there but belong to what follows the property list.
        with pytest.raises(MalformedPacket):
            decode_properties(bytes((size,)) + raw, 0, min(where))


@pytest.mark.parametrize("prop", sorted(set(Property) - {Property.USER_PROPERTY}))
def test_a_property_given_twice_is_a_protocol_error(prop: Property) -> None:
    kind, where = TABLE[prop]
    raw = (bytes((prop,)) + SAMPLES[kind][0]) * 2
    packet = PacketType.SUBSCRIBE if prop is Property.SUBSCRIPTION_IDENTIFIER else min(where)
    with pytest.raises(ProtocolError):
        decode_properties(bytes((len(raw),)) + raw, 0, packet)


def test_user_properties_keep_order_and_duplicates() -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "1")]
    data = encode_properties({Property.USER_PROPERTY: pairs})
    assert decode_properties(data, 0, PacketType.PUBLISH)[0] == {Property.USER_PROPERTY: pairs}


def test_a_publish_may_carry_several_subscription_identifiers() -> None:
    data = b"\x05\x0b\x01\x0b\x80\x01"
    props, _ = decode_properties(data, 0, PacketType.PUBLISH)
    assert props == {Property.SUBSCRIPTION_IDENTIFIER: [1, 128]}


@given(st.sampled_from(PLACES).flatmap(lambda packet: st.tuples(st.just(packet), properties(packet))))
def test_property_lists_round_trip(case: tuple[int, Properties]) -> None:
    packet, props = case
    data = encode_properties(props, packet)
    assert decode_properties(data, 0, packet) == (props, len(data))


@given(st.sampled_from(PLACES), st.binary(max_size=40))
def test_any_bytes_give_a_property_list_or_an_mqtt_error(packet: int, body: bytes) -> None:
    try:
        _, end = decode_properties(bytes((len(body),)) + body, 0, packet)
    except MQTTError:
        return
    assert end == len(body) + 1
