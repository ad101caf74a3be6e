"""Hand-made bytes for each packet kind: they decode to the packet, and the packet encodes to them."""

import pytest

from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.decode import decode_packet
from tidegate.mqtt.encode import encode_packet
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
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from tidegate.mqtt.properties import Property
from tidegate.mqtt.reader import PacketReader

VECTORS: list[tuple[int, str, Packet]] = [
    (
        3,
        "10 11 0006 4d5149736470 03 02 003c 0003 616263",
        Connect(client_id="abc", keep_alive=60, protocol_level=3, protocol_name="MQIsdp"),
    ),
    (
        4,
        "10 0d 0004 4d515454 04 00 003c 0001 63",
        Connect(client_id="c", clean_start=False, keep_alive=60, protocol_level=4),
    ),
    (4, "10 0c 0004 4d515454 04 02 0000 0000", Connect(protocol_level=4)),
    (
        4,
        "10 1c 0004 4d515454 04 f6 000a 0001 63 0001 77 0002 6869 0001 75 0003 00ff70",
        Connect(
            client_id="c",
            keep_alive=10,
            username="u",
            password=b"\0\xffp",
            will=Will(topic="w", payload=b"hi", qos=2, retain=True),
            protocol_level=4,
        ),
    ),
    (
        5,
        "10 13 0004 4d515454 05 02 003c 05 11 0000000a 0001 63",
        Connect(client_id="c", keep_alive=60, properties={Property.SESSION_EXPIRY_INTERVAL: 10}),
    ),
    (
        5,
        "10 1d 0004 4d515454 05 4e 0000 00 0000 05 18 00000005 0001 77 0002 6869 0001 70",
        Connect(
            password=b"p",
            will=Will(topic="w", payload=b"hi", qos=1, properties={Property.WILL_DELAY_INTERVAL: 5}),
        ),
    ),
    (4, "20 02 01 00", Connack(session_present=True)),
    (4, "20 02 00 04", Connack(reason_code=ReasonCode.BAD_USER_NAME_OR_PASSWORD)),
    (5, "20 03 01 00 00", Connack(session_present=True)),
    (
        5,
        "20 08 00 00 05 21 000a 24 01",
        Connack(properties={Property.RECEIVE_MAXIMUM: 10, Property.MAXIMUM_QOS: 1}),
    ),
    (
        5,
        "20 07 00 9c 04 1c 0001 62",
        Connack(reason_code=ReasonCode.USE_ANOTHER_SERVER, properties={Property.SERVER_REFERENCE: "b"}),
    ),
    (4, "30 07 0003 612f62 6869", Publish(topic="a/b", payload=b"hi")),
    (4, "31 03 0001 61", Publish(topic="a", retain=True)),
    (
        4,
        "3d 06 0001 61 ffff 78",
        Publish(topic="a", payload=b"x", qos=2, dup=True, retain=True, packet_identifier=65_535),
    ),
    (5, "30 05 0001 61 00 78", Publish(topic="a", payload=b"x")),
    (
        5,
        "32 08 0000 000a 03 23 0001",
        Publish(topic="", qos=1, packet_identifier=10, properties={Property.TOPIC_ALIAS: 1}),
    ),
    (
        5,
        "30 0f 0001 61 09 01 01 26 0001 6b 0001 76 ff00",
        Publish(
            topic="a",
            payload=b"\xff\0",
            properties={Property.PAYLOAD_FORMAT_INDICATOR: 1, Property.USER_PROPERTY: [("k", "v")]},
        ),
    ),
    (4, "40 02 0001", Puback(packet_identifier=1)),
    (5, "40 02 0001", Puback(packet_identifier=1)),
    (5, "40 03 0001 10", Puback(packet_identifier=1, reason_code=ReasonCode.NO_MATCHING_SUBSCRIBERS)),
    (
        5,
        "40 08 0001 97 04 1f 0001 6e",
        Puback(
            packet_identifier=1,
            reason_code=ReasonCode.QUOTA_EXCEEDED,
            properties={Property.REASON_STRING: "n"},
        ),
    ),
    (4, "50 02 0102", Pubrec(packet_identifier=0x0102)),
    (5, "50 03 0102 91", Pubrec(packet_identifier=0x0102, reason_code=ReasonCode.PACKET_IDENTIFIER_IN_USE)),
    (4, "62 02 0102", Pubrel(packet_identifier=0x0102)),
    (5, "62 03 0102 92", Pubrel(packet_identifier=0x0102, reason_code=0x92)),
    (4, "70 02 0102", Pubcomp(packet_identifier=0x0102)),
    (5, "70 02 0102", Pubcomp(packet_identifier=0x0102)),
    (
        4,
        "82 0c 000a 0003 612f62 01 0001 23 02",
        Subscribe(
            packet_identifier=10,
            subscriptions=[Subscription(topic_filter="a/b", qos=1), Subscription(topic_filter="#", qos=2)],
        ),
    ),
    (
        5,
        "82 09 000a 02 0b 05 0001 61 2e",
        Subscribe(
            packet_identifier=10,
            subscriptions=[
                Subscription(
                    topic_filter="a", qos=2, no_local=True, retain_as_published=True, retain_handling=2
                )
            ],
            properties={Property.SUBSCRIPTION_IDENTIFIER: [5]},
        ),
    ),
    (4, "90 05 000a 00 02 80", Suback(packet_identifier=10, reason_codes=[0, 2, 0x80])),
    (5, "90 05 000a 00 01 87", Suback(packet_identifier=10, reason_codes=[1, ReasonCode.NOT_AUTHORIZED])),
    (4, "a2 08 000a 0001 61 0001 62", Unsubscribe(packet_identifier=10, topic_filters=["a", "b"])),
    (5, "a2 06 000a 00 0001 61", Unsubscribe(packet_identifier=10, topic_filters=["a"])),
    (4, "b0 02 000a", Unsuback(packet_identifier=10)),
    (5, "b0 05 000a 00 00 11", Unsuback(packet_identifier=10, reason_codes=[0, 0x11])),
    (4, "c0 00", Pingreq()),
    (5, "c0 00", Pingreq()),
    (4, "d0 00", Pingresp()),
    (5, "d0 00", Pingresp()),
    (4, "e0 00", Disconnect()),
    (5, "e0 00", Disconnect()),
    (5, "e0 01 04", Disconnect(reason_code=ReasonCode.DISCONNECT_WITH_WILL_MESSAGE)),
    (
        5,
        "e0 07 00 05 11 0000003c",
        Disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 60}),
    ),
    (5, "f0 00", Auth()),
    (
        5,
        "f0 0a 18 08 15 0001 6d 16 0001 78",
        Auth(
            reason_code=ReasonCode.CONTINUE_AUTHENTICATION,
            properties={Property.AUTHENTICATION_METHOD: "m", Property.AUTHENTICATION_DATA: b"x"},
        ),
    ),
]


@pytest.mark.parametrize(("version", "wire", "packet"), VECTORS)
def test_bytes_and_packet_are_the_same_thing(version: int, wire: str, packet: Packet) -> None:
    data = bytes.fromhex(wire)
    assert PacketReader(version).feed(data) == [packet]
    assert encode_packet(packet, version) == data


@pytest.mark.parametrize(
    ("wire", "packet"),
    [
        ("40 03 0001 00", Puback(packet_identifier=1)),
        ("40 04 0001 00 00", Puback(packet_identifier=1)),
        ("62 04 0001 00 00", Pubrel(packet_identifier=1)),
        ("e0 01 00", Disconnect()),
        ("e0 02 00 00", Disconnect()),
        ("f0 02 00 00", Auth()),
        ("c0 80 00", Pingreq()),
        ("30 06 0001 61 80 00 78", Publish(topic="a", payload=b"x")),
    ],
)
def test_longer_forms_of_the_same_packet_are_accepted(wire: str, packet: Packet) -> None:
    assert PacketReader(5).feed(bytes.fromhex(wire)) == [packet]


def test_a_connect_is_decoded_by_the_version_it_names() -> None:
    body = bytes.fromhex("0004 4d515454 04 02 0000 0001 63")
    for version in (3, 4, 5):
        assert decode_packet(0x10, body, version) == Connect(client_id="c", protocol_level=4)


def test_a_byte_order_mark_is_kept() -> None:
    packet = decode_packet(0x30, b"\0\4\xef\xbb\xbfa", 4)
    assert packet == Publish(topic="\ufeffa")


def test_reason_codes_are_members_of_the_enumeration() -> None:
    packet = decode_packet(0x40, b"\0\1\x97", 5)
    assert isinstance(packet, Puback)
    assert packet.reason_code is ReasonCode.QUOTA_EXCEEDED
