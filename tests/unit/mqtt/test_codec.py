"""The codec against itself: round trips, arbitrary bytes, limits."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import packets, versioned_packets, versions
from tidegate.mqtt.codes import LEGAL, ConnectReturnCode, PacketType, ReasonCode, connect_return_code
from tidegate.mqtt.decode import decode_packet
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.errors import Blame, MQTTError, PacketTooLarge
from tidegate.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Publish,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from tidegate.mqtt.primitives import read_variable_byte_integer, write_variable_byte_integer
from tidegate.mqtt.properties import Property
from tidegate.mqtt.reader import PacketReader


def decode(data: bytes, version: int) -> Packet:
    length, start = read_variable_byte_integer(data, 1)
    assert start + length == len(data)
    return decode_packet(data[0], data[start:], version)


@given(versioned_packets)
def test_decoding_what_was_encoded_gives_the_same_packet(case: tuple[int, Packet]) -> None:
    version, packet = case
    assert decode(encode_packet(packet, version), version) == packet


@given(versioned_packets)
def test_encoding_is_stable(case: tuple[int, Packet]) -> None:
    version, packet = case
    data = encode_packet(packet, version)
    assert encode_packet(decode(data, version), version) == data


@given(st.integers(0, 255), st.binary(max_size=60), versions)
@example(0x10, b"\0\4MQTT\5\2\0\0", 5)
@example(0x30, b"\0", 5)
@example(0x82, b"\0\1\0\0\1", 5)
def test_any_bytes_give_a_packet_or_an_mqtt_error(first_byte: int, body: bytes, version: int) -> None:
    try:
        packet = decode_packet(first_byte, body, version)
    except MQTTError as refusal:
        assert refusal.blame is Blame.PEER  # noqa: PT017 - being refused is one of two right outcomes
    else:
        # What we accept we can also say.
        level = packet.protocol_level if isinstance(packet, Connect) else version
        assert decode(encode_packet(packet, level), level) == packet


@st.composite
def mutated(draw: st.DrawFn) -> tuple[int, bytes]:
    """A valid packet with a few bytes changed, cut out or put in."""
    version, packet = draw(versioned_packets)
    data = bytearray(encode_packet(packet, version))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return version, bytes(data)


@given(mutated())
def test_mutated_packets_give_packets_or_an_mqtt_error(case: tuple[int, bytes]) -> None:
    version, data = case
    reader = PacketReader(version)
    try:
        reader.feed(data)
    except MQTTError as refusal:
        assert reader.error is refusal  # noqa: PT017 - being refused is one of two right outcomes
    assert reader.error is None or reader.error.blame is Blame.PEER


@given(packets(5), st.integers(2, 60))
def test_the_encoder_never_exceeds_the_maximum_of_the_peer(packet: Packet, maximum: int) -> None:
    whole = encode_packet(packet, 5)
    if len(whole) <= maximum:
        assert encode_packet(packet, 5, max_packet_size=maximum) == whole
        return
    try:
        data = encode_packet(packet, 5, max_packet_size=maximum)
    except PacketTooLarge as refusal:
        assert refusal.blame is Blame.LOCAL  # noqa: PT017 - being refused is one of two right outcomes
    else:
        assert len(data) <= maximum


def test_explanations_are_left_out_of_a_packet_that_would_be_too_large() -> None:
    packet = Puback(
        packet_identifier=1,
        reason_code=ReasonCode.QUOTA_EXCEEDED,
        properties={Property.REASON_STRING: "x" * 50, Property.USER_PROPERTY: [("a", "b")]},
    )
    data = encode_packet(packet, 5, max_packet_size=10)
    assert decode(data, 5) == Puback(packet_identifier=1, reason_code=ReasonCode.QUOTA_EXCEEDED)


def test_user_properties_of_a_message_are_never_left_out() -> None:
    packet = Publish(topic="a", properties={Property.USER_PROPERTY: [("key", "value")]})
    with pytest.raises(PacketTooLarge):
        encode_packet(packet, 5, max_packet_size=8)


@pytest.mark.parametrize(
    ("packet", "version", "reason_code"),
    [
        (Publish(topic=""), 4, 0x90),
        (Publish(topic=""), 5, 0x82),
        (Publish(topic="a/#"), 5, 0x90),
        (Publish(topic="a", qos=3, packet_identifier=1), 5, 0x81),
        (Publish(topic="a", qos=1), 5, 0x82),
        (Publish(topic="a", qos=1, packet_identifier=0), 5, 0x82),
        (Publish(topic="a", qos=1, packet_identifier=65_536), 5, 0x81),
        (Publish(topic="a", packet_identifier=1), 5, 0x82),
        (Publish(topic="a", dup=True), 4, 0x81),
        (Publish(topic="a\0"), 4, 0x90),
        (Publish(topic="\ud800"), 4, 0x81),
        (Publish(topic="a" * 65_536), 4, 0x90),
        (Publish(topic="a", properties={Property.TOPIC_ALIAS: 0}), 5, 0x94),
        (Publish(topic="a", properties={Property.TOPIC_ALIAS: 65_536}), 5, 0x81),
        (Publish(topic="a", properties={Property.RECEIVE_MAXIMUM: 1}), 5, 0x81),
        (Publish(topic="a", properties={Property.RESPONSE_TOPIC: "+"}), 5, 0x82),
        (Publish(topic="a", properties={Property.SUBSCRIPTION_IDENTIFIER: [0]}), 5, 0x82),
        (Subscribe(packet_identifier=1, subscriptions=[]), 5, 0x82),
        (Subscribe(packet_identifier=0, subscriptions=[Subscription(topic_filter="a")]), 4, 0x82),
        (Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter="a#")]), 4, 0x8F),
        (
            Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter="a", retain_handling=3)]),
            5,
            0x82,
        ),
        (
            Subscribe(
                packet_identifier=1, subscriptions=[Subscription(topic_filter="$share/g/a", no_local=True)]
            ),
            5,
            0x82,
        ),
        (
            Subscribe(
                packet_identifier=1,
                subscriptions=[Subscription(topic_filter="a")],
                properties={Property.SUBSCRIPTION_IDENTIFIER: [1, 2]},
            ),
            5,
            0x82,
        ),
        (Unsubscribe(packet_identifier=1, topic_filters=[]), 4, 0x82),
        (Unsubscribe(packet_identifier=1, topic_filters=[""]), 4, 0x8F),
        (Suback(packet_identifier=1, reason_codes=[]), 4, 0x82),
        (Suback(packet_identifier=1, reason_codes=[3]), 5, 0x82),
        (Unsuback(packet_identifier=1), 5, 0x82),
        (Puback(packet_identifier=1, reason_code=ReasonCode.BANNED), 5, 0x82),
        (Connack(session_present=True, reason_code=ReasonCode.BANNED), 5, 0x82),
        (Connect(protocol_level=6), 5, 0x84),
        (Connect(protocol_level=4, password=b"x"), 4, 0x81),
        (Connect(keep_alive=65_536), 5, 0x81),
        (Connect(username="x" * 65_536), 5, 0x81),
        (Connect(will=Will(topic="+", payload=b"")), 5, 0x90),
        (Connect(will=Will(topic="a", payload=b"x" * 65_536)), 5, 0x81),
        (Connect(properties={Property.AUTHENTICATION_DATA: b"x"}), 5, 0x82),
        (Auth(), 4, 0x82),
        (Auth(reason_code=ReasonCode.RE_AUTHENTICATE), 5, 0x82),
        (Disconnect(reason_code=ReasonCode.BANNED), 5, 0x82),
    ],
)
def test_the_encoder_refuses_what_we_must_not_send(packet: Packet, version: int, reason_code: int) -> None:
    with pytest.raises(MQTTError) as caught:
        encode_packet(packet, version)
    assert caught.value.reason_code == reason_code
    assert caught.value.blame is Blame.LOCAL


def test_mqtt_3_1_1_leaves_out_what_it_cannot_say() -> None:
    connack = Connack(
        reason_code=ReasonCode.SERVER_BUSY, properties={Property.REASON_STRING: "come back later"}
    )
    assert encode_packet(connack, 4) == b"\x20\2\0\3"
    suback = Suback(packet_identifier=1, reason_codes=[1, ReasonCode.NOT_AUTHORIZED])
    assert encode_packet(suback, 4) == b"\x90\4\0\1\1\x80"
    unsuback = Unsuback(packet_identifier=1, reason_codes=[ReasonCode.NO_SUBSCRIPTION_EXISTED])
    assert encode_packet(unsuback, 4) == b"\xb0\2\0\1"
    pubrel = Pubrel(packet_identifier=1, reason_code=ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    assert encode_packet(pubrel, 4) == b"\x62\2\0\1"
    assert encode_packet(Disconnect(reason_code=ReasonCode.SERVER_BUSY), 4) == b"\xe0\0"
    subscription = Subscription(topic_filter="a", qos=1, no_local=True, retain_handling=2)
    subscribe = Subscribe(packet_identifier=1, subscriptions=[subscription])
    assert encode_packet(subscribe, 4) == b"\x82\6\0\1\0\1a\1"


@pytest.mark.parametrize("reason", sorted(LEGAL[PacketType.CONNACK]))
def test_every_connack_reason_has_a_return_code_and_only_success_accepts(reason: int) -> None:
    code = connect_return_code(reason)
    assert code in set(ConnectReturnCode)
    assert (code == 0) == (reason == 0)


@given(st.integers(0, 268_435_455))
@example(127)
@example(128)
@example(16_383)
@example(16_384)
@example(2_097_151)
@example(2_097_152)
@example(268_435_455)
def test_variable_byte_integers_round_trip_in_the_fewest_bytes(value: int) -> None:
    data = write_variable_byte_integer(value)
    assert read_variable_byte_integer(data, 0) == (value, len(data))
    assert len(data) == max(1, -(-value.bit_length() // 7))


def test_an_integer_with_spare_bytes_is_accepted() -> None:
    assert read_variable_byte_integer(b"\x81\x80\x00", 0) == (1, 3)


@pytest.mark.parametrize("value", [-1, 268_435_456])
def test_an_integer_out_of_range_is_refused_with_local_blame(value: int) -> None:
    with pytest.raises(MQTTError) as caught:
        write_variable_byte_integer(value)
    assert caught.value.blame is Blame.LOCAL
