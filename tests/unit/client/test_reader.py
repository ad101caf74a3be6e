"""The quick reader gives a session what the general one would, however the bytes are cut."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.client.message import Message
from tidegate.client.options import ClientOptions
from tidegate.client.reader import SessionReader
from tidegate.client.session import Session
from tidegate.mqtt import Connack, Packet, Property, Puback, Pubcomp, Publish, Pubrec, Pubrel, encode_packet
from tidegate.mqtt.errors import MQTTError
from tidegate.mqtt.packets import Pingresp
from tidegate.mqtt.reader import PacketReader


class Recorder(Session):
    """A session that keeps what it is given instead of acting on it."""

    def __init__(self, version: int) -> None:
        super().__init__(ClientOptions(protocol_version=version), lambda _message: None, lambda: None)
        self.seen: list[object] = []
        self.publisher.on_acknowledged = self.note_acknowledged  # type: ignore[method-assign]

    def note_acknowledged(self, identifier: int, reason_code: int, properties: Any) -> None:
        self.seen.append(("PUBACK", identifier, reason_code, properties))

    def on_message(self, topic: str, payload: bytes, qos: int, retain: bool, dup: bool, packet_identifier: int) -> None:
        self.seen.append((topic, payload, qos, retain, dup, packet_identifier or None, {}))

    def on_packet(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.seen.append(
                (
                    *(packet.topic, packet.payload, packet.qos, packet.retain, packet.dup),
                    *(packet.packet_identifier, packet.properties),
                )
            )
        elif isinstance(packet, Puback):
            self.note_acknowledged(packet.packet_identifier, packet.reason_code, packet.properties)
        else:
            self.seen.append(packet)


def read(version: int, chunks: list[bytes], max_packet_size: int = 100_000) -> tuple[list[object], type | None]:
    session = Recorder(version)
    reader = SessionReader(session, PacketReader(version, max_packet_size))
    try:
        for chunk in chunks:
            reader.feed(chunk)
    except MQTTError as error:
        return session.seen, type(error)
    return session.seen, None


def read_generally(version: int, data: bytes, max_packet_size: int = 100_000) -> tuple[list[object], type | None]:
    session = Recorder(version)
    reader = PacketReader(version, max_packet_size)
    try:
        for packet in reader.feed(data):
            session.on_packet(packet)
        reader.check()
    except MQTTError as error:
        return session.seen, type(error)
    return session.seen, None


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in pairwise(edges) if end > start]


identifiers = st.integers(1, 65_535)
publishes = st.builds(
    lambda topic, payload, qos, retain, dup, identifier, properties: Publish(
        topic=topic,
        payload=payload,
        qos=qos,
        retain=retain,
        dup=dup and qos > 0,
        packet_identifier=identifier if qos else None,
        properties=properties,
    ),
    st.sampled_from(["t", "a/b", "ä/ö", "x" * 200]),
    st.one_of(st.binary(max_size=5), st.integers(0, 20_000).map(bytes)),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    identifiers,
    st.sampled_from([{}, {}, {}, {Property.CONTENT_TYPE: "text"}]),
)
packets = st.one_of(
    publishes,
    identifiers.map(lambda number: Puback(packet_identifier=number)),
    st.builds(lambda number: Puback(packet_identifier=number, reason_code=0x10), identifiers),
    identifiers.map(lambda number: Pubrec(packet_identifier=number)),
    identifiers.map(lambda number: Pubrel(packet_identifier=number)),
    identifiers.map(lambda number: Pubcomp(packet_identifier=number)),
    st.just(Pingresp()),
)


@given(st.sampled_from([4, 5]), st.lists(packets, max_size=12), st.lists(st.integers(0, 100_000), max_size=8))
@settings(max_examples=200, deadline=None)
def test_any_packets_cut_anywhere_are_what_the_general_reader_reads(
    version: int, sent: list[Packet], places: list[int]
) -> None:
    data = b"".join(encode_packet(packet, version) for packet in sent)
    assert read(version, cut(data, places)) == read_generally(version, data)


@given(
    st.sampled_from([4, 5]),
    st.lists(packets, min_size=1, max_size=4),
    st.integers(0, 10_000),
    st.integers(0, 255),
    st.lists(st.integers(0, 100_000), max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_one_wrong_byte_is_refused_or_read_as_the_general_reader_does(
    version: int, sent: list[Packet], place: int, value: int, places: list[int]
) -> None:
    data = bytearray(b"".join(encode_packet(packet, version) for packet in sent))
    data[place % len(data)] = value
    assert read(version, cut(bytes(data), places), 30_000) == read_generally(version, bytes(data), 30_000)


def test_a_packet_above_our_maximum_is_refused_at_its_header() -> None:
    seen, error = read(5, [b"\x30\xff\x7f"], max_packet_size=1000)
    assert not seen
    assert error is not None
    assert read(5, [b"\x30\xe8\x07"], max_packet_size=1000)[1] is not None


def test_a_wrong_first_byte_is_refused_at_once() -> None:
    assert read(5, [b"\x00"])[1] is not None
    assert read(5, [b"\x36"])[1] is not None


def test_bytes_that_came_with_connack_are_read_first() -> None:
    data = encode_packet(Connack(), 5) + encode_packet(Publish(topic="t", payload=b"one"), 5)
    general = PacketReader(5)
    assert len(general.feed(data[:-2])) == 1
    session = Recorder(5)
    reader = SessionReader(session, general)
    reader.feed(data[-2:] + encode_packet(Publish(topic="t", payload=b"two"), 5))
    assert [each[1] for each in session.seen if isinstance(each, tuple)] == [b"one", b"two"]


@pytest.mark.parametrize("version", [4, 5])
def test_many_topics_do_not_fill_the_memory(version: int) -> None:
    session = Recorder(version)
    reader = SessionReader(session, PacketReader(version))
    for index in range(3000):
        reader.feed(encode_packet(Publish(topic=f"t/{index}"), version))
    assert len(session.seen) == 3000
    assert len(reader._topics) <= 1000


def test_a_message_of_the_quick_reader_has_everything_the_application_needs() -> None:
    messages: list[Message] = []
    session = Session(ClientOptions(), messages.append, lambda: None)
    session.connect_packet()
    session.on_connack(Connack(), lambda data: None)
    reader = SessionReader(session, PacketReader(5))
    packet = Publish(topic="t", payload=b"x", qos=1, retain=True, dup=True, packet_identifier=9)
    for _ in range(2):  # the second time the topic is known
        reader.feed(encode_packet(packet, 5))
    for message in messages:
        assert (message.topic, message.payload, message.qos, message.retain, message.dup) == ("t", b"x", 1, True, True)
        assert message.receipt is not None
        assert message.receipt.packet_identifier == 9
    assert len(messages) == 2
