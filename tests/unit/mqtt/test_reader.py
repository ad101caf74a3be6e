"""The incremental reader: any split of the bytes gives the same packets, faults come at their place."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import cut, streams
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.errors import MalformedPacket, MQTTError, PacketTooLarge, ProtocolError
from tidegate.mqtt.packets import Connect, Packet, Pingreq, Publish
from tidegate.mqtt.reader import PacketReader

CONNECT = encode_packet(Connect(client_id="c"), 5)


@given(st.data(), streams())
def test_any_split_of_a_stream_gives_the_same_packets(
    data: st.DataObject, stream: tuple[int, list[Packet]]
) -> None:
    version, packets = stream
    reader = PacketReader()
    received: list[Packet] = []
    for piece in data.draw(cut(b"".join(encode_packet(packet, version) for packet in packets))):
        received += reader.feed(piece)
    assert received == packets
    assert reader.version == version
    assert reader.buffered_bytes == 0


@given(streams())
def test_one_byte_at_a_time_gives_the_same_packets(stream: tuple[int, list[Packet]]) -> None:
    version, packets = stream
    reader = PacketReader()
    received: list[Packet] = []
    for byte in b"".join(encode_packet(packet, version) for packet in packets):
        received += reader.feed(bytes((byte,)))
    assert received == packets


def outcome(pieces: list[bytes]) -> tuple[list[Packet], type[MQTTError] | None]:
    reader = PacketReader()
    packets: list[Packet] = []
    try:
        for piece in pieces:
            packets += reader.feed(piece)
        reader.check()
    except MQTTError as error:
        return packets, type(error)
    return packets, None


@given(st.data(), st.binary(max_size=80))
def test_any_split_of_any_bytes_gives_the_same_packets_and_fault(data: st.DataObject, noise: bytes) -> None:
    everything = CONNECT + b"\xc0\0" + noise
    assert outcome(data.draw(cut(everything))) == outcome([everything])


def test_packets_in_front_of_a_fault_are_returned_and_the_fault_comes_after() -> None:
    reader = PacketReader()
    packets = reader.feed(CONNECT + b"\xc0\0" + b"\xc1\0" + b"\xc0\0")
    assert [type(packet) for packet in packets] == [Connect, Pingreq]
    assert isinstance(reader.error, MalformedPacket)
    with pytest.raises(MalformedPacket):
        reader.check()
    with pytest.raises(MalformedPacket):
        reader.feed(b"\xc0\0")


def test_a_fault_with_nothing_in_front_is_raised_at_once() -> None:
    reader = PacketReader(version=4)
    with pytest.raises(MalformedPacket):
        reader.feed(b"\xc1\0")
    assert reader.buffered_bytes == 0


def test_the_first_packet_must_be_a_connect() -> None:
    with pytest.raises(ProtocolError):
        PacketReader().feed(b"\xc0")


def test_a_second_connect_is_refused() -> None:
    reader = PacketReader()
    reader.feed(CONNECT)
    with pytest.raises(ProtocolError):
        reader.feed(CONNECT)


def test_a_packet_of_exactly_the_maximum_size_is_accepted() -> None:
    data = encode_packet(Publish(topic="a", payload=bytes(300)), 4)
    assert len(PacketReader(version=4, max_packet_size=len(data)).feed(data)) == 1
    with pytest.raises(PacketTooLarge):
        PacketReader(version=4, max_packet_size=len(data) - 1).feed(data)


def test_a_too_large_packet_is_refused_by_its_fixed_header_alone() -> None:
    reader = PacketReader(version=4, max_packet_size=1000)
    with pytest.raises(PacketTooLarge):
        reader.feed(b"\x30\xff\xff\xff\x7f")


def test_a_wrong_first_byte_is_refused_before_its_length_is_known() -> None:
    reader = PacketReader(version=4)
    with pytest.raises(MalformedPacket):
        reader.feed(b"\xf0")


def test_the_reader_keeps_no_reference_to_what_it_was_fed() -> None:
    piece = bytearray(encode_packet(Publish(topic="topic", payload=b"payload"), 4))
    (packet,) = PacketReader(version=4).feed(bytes(piece))
    piece[:] = bytes(len(piece))
    assert packet == Publish(topic="topic", payload=b"payload")


def seconds_for_dribble(size: int) -> float:
    data = encode_packet(Publish(topic="a", payload=bytes(size)), 4)
    reader = PacketReader(version=4)
    received: list[Packet] = []
    started = time.process_time()
    for pos in range(0, len(data), 64):
        received += reader.feed(data[pos : pos + 64])
    spent = time.process_time() - started
    assert len(received) == 1
    return spent


def test_a_large_packet_that_dribbles_in_costs_linear_time() -> None:
    small = min(seconds_for_dribble(500_000) for _ in range(3))
    large = min(seconds_for_dribble(4_000_000) for _ in range(3))
    # Eight times the bytes: a quadratic reader would need sixty-four times as long.
    assert large < 24 * small + 0.01
