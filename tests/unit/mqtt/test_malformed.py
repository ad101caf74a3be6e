"""Every entry of the table of refused bytes gives its reason code, whole or byte by byte."""

import pytest

from tests.malformed import CASES, Case, connect
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.decode import decode_packet
from tidegate.mqtt.errors import (
    Blame,
    MalformedPacket,
    MQTTError,
    PacketTooLarge,
    ProtocolError,
    TopicAliasInvalid,
    TopicFilterInvalid,
    TopicNameInvalid,
    UnsupportedProtocolVersion,
)
from tidegate.mqtt.reader import PacketReader

CLASSES = {
    error.reason_code: error
    for error in (
        MalformedPacket,
        ProtocolError,
        TopicAliasInvalid,
        TopicFilterInvalid,
        TopicNameInvalid,
        UnsupportedProtocolVersion,
        PacketTooLarge,
    )
}


def reader_for(case: Case) -> PacketReader:
    reader = PacketReader()
    if case.stage == "connected":
        assert len(reader.feed(connect(case.version))) == 1
    return reader


def feed_one_at_a_time(reader: PacketReader, data: bytes) -> None:
    for index in range(len(data)):
        reader.feed(data[index : index + 1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refused_bytes_give_their_reason_code(case: Case) -> None:
    with pytest.raises(MQTTError) as caught:
        reader_for(case).feed(case.data)
    assert caught.value.reason_code == case.reason_code
    assert type(caught.value) is CLASSES[ReasonCode(case.reason_code)]
    assert caught.value.blame is Blame.PEER


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refused_bytes_give_the_same_reason_code_one_at_a_time(case: Case) -> None:
    reader = reader_for(case)
    with pytest.raises(MQTTError) as caught:
        feed_one_at_a_time(reader, case.data)
    assert caught.value.reason_code == case.reason_code


def test_names_in_the_table_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_an_unsupported_version_carries_its_name_and_level() -> None:
    with pytest.raises(UnsupportedProtocolVersion) as caught:
        PacketReader().feed(b"\x10\x0b\0\4MQTT\x06\2\0\0\0")
    assert (caught.value.name, caught.value.level) == ("MQTT", 6)


@pytest.mark.parametrize(
    ("name", "version", "first_byte", "body", "reason_code"),
    [
        ("CONNACK with reserved flags", 5, 0x20, b"\2\0\0", 0x81),
        ("CONNACK without properties", 5, 0x20, b"\0\0", 0x81),
        ("CONNACK that refuses with a session", 5, 0x20, b"\1\x87\0", 0x82),
        ("CONNACK with an unknown code", 5, 0x20, b"\0\x01\0", 0x82),
        ("CONNACK with Maximum QoS 2", 5, 0x20, b"\0\0\2\x24\2", 0x82),
        ("CONNACK with Retain Available 2", 5, 0x20, b"\0\0\2\x25\2", 0x82),
        ("CONNACK with trailing bytes", 5, 0x20, b"\0\0\0x", 0x81),
        ("CONNACK with a reserved return code", 4, 0x20, b"\0\6", 0x82),
        ("CONNACK with three bytes", 4, 0x20, b"\0\0\0", 0x81),
        ("CONNACK with one byte", 4, 0x20, b"\0", 0x81),
        ("SUBACK without codes", 4, 0x90, b"\0\1", 0x82),
        ("SUBACK with a code of MQTT 5", 4, 0x90, b"\0\1\x87", 0x82),
        ("SUBACK with an unknown code", 5, 0x90, b"\0\1\0\3", 0x82),
        ("UNSUBACK with a payload", 4, 0xB0, b"\0\1\0", 0x81),
        ("UNSUBACK without codes", 5, 0xB0, b"\0\1\0", 0x82),
        ("UNSUBACK with an unknown code", 5, 0xB0, b"\0\1\0\1", 0x82),
        ("PINGRESP with a body", 5, 0xD0, b"\0", 0x81),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_packets_of_a_server_give_their_reason_code(
    name: str, version: int, first_byte: int, body: bytes, reason_code: int
) -> None:
    with pytest.raises(MQTTError) as caught:
        decode_packet(first_byte, body, version)
    assert caught.value.reason_code == reason_code
