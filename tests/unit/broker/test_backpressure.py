"""What waits for a client that does not read is bounded, whatever it asks for."""

import pytest

from tests.unit.broker.memory import Peer, Room, run
from tidegate.broker.connection import MAX_UNSENT
from tidegate.broker.message import Message
from tidegate.broker.settings import Limits
from tidegate.mqtt import Pingresp, Puback, Publish, encode_packet

CHUNK = 262_144
"""The largest chunk one read brings."""


async def deaf(room: Room, client_id: str = "deaf", version: int = 4) -> Peer:
    """A connected client that stops reading, its socket full."""
    peer = await room.connect(client_id, version)
    peer.subscribe("fill")
    await room.settle()
    peer.transport.pause_reading()
    while not room.session(client_id).paused:
        room.core.publish(Message(b"fill", bytes(50_000)))
        await room.settle()
    return peer


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"\xc0\x00", id="PINGREQ"),
        pytest.param(encode_packet(Publish(topic="x", qos=1, packet_identifier=1), 4), id="PUBLISH"),
        pytest.param(b"\x62\x02\x00\x01", id="PUBREL"),
    ],
)
@pytest.mark.parametrize(
    "piece",
    [
        2_000,
        pytest.param(CHUNK),
    ],
)
def test_a_client_that_asks_and_does_not_read_the_answers_is_soon_not_read(
    request_bytes: bytes, piece: int
) -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await deaf(room)
        count = piece // len(request_bytes)
        for _ in range(1_200_000 // piece):
            if room.connection("deaf").is_reading:
                peer.transport.write(request_bytes * count)
            await room.settle()
        assert not room.connection("deaf").is_reading
        assert len(room.session("deaf").out) <= MAX_UNSENT + CHUNK // 2
        await room.close()

    run(main())


def test_a_client_that_reads_again_gets_every_answer_and_is_read_again() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await deaf(room)
        asked = 0
        while room.connection("deaf").is_reading:
            peer.transport.write(b"\xc0\x00" * 1_000)
            asked += 1_000
            await room.settle()
        peer.transport.write(b"\xc0\x00" * 1_000)
        peer.transport.resume_reading()
        await room.settle()
        assert len(peer.of(Pingresp)) == asked + 1_000
        assert room.connection("deaf").is_reading
        await room.close()

    run(main())


def test_qos_0_for_a_full_socket_waits_up_to_the_bound_and_each_drop_is_counted() -> None:
    async def main() -> None:
        room = await Room.open(Limits(connection_rate=0, max_queued_bytes=100_000))
        peer = await deaf(room)
        before = len(peer.transport.peer._buffer)
        dropped = room.core.counters.dropped
        for _ in range(500):
            room.core.publish(Message(b"fill", bytes(1_000)))
        await room.settle()
        assert room.core.queued_bytes <= 100_000
        assert len(peer.transport.peer._buffer) == before, "nothing is added to a full socket"
        lost = room.core.counters.dropped - dropped
        peer.forget()
        peer.transport.resume_reading()
        await room.settle()
        small = [p for p in peer.of(Publish) if len(p.payload) == 1_000]
        assert len(small) + lost == 500 and lost > 0
        assert room.core.queued_bytes == 0
        await room.close()

    run(main())


def test_qos_1_for_a_full_socket_is_queued_and_sent_in_order_later() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await room.connect("s", 5)
        peer.subscribe("#", qos=1)
        await room.settle()
        peer.transport.pause_reading()
        for number in range(300):
            room.core.publish(Message(b"t", b"%04d" % number + bytes(1_000), 1))
            await room.settle()
        assert room.session("s").queued_messages > 100
        peer.transport.resume_reading()
        await room.settle()
        assert [int(p.payload[:4]) for p in peer.of(Publish)] == list(range(300))
        peer.send(*(Puback(packet_identifier=p.packet_identifier or 0) for p in peer.of(Publish)))
        await room.settle()
        assert room.core.queued_bytes == 0
        await room.close()

    run(main())


def test_what_waits_for_a_slow_client_goes_to_its_socket_a_part_at_a_time() -> None:
    """What the transport holds is not counted, so it must stay small."""

    async def main() -> None:
        room = await Room.open(Limits(connection_rate=0, max_queued_bytes=10_000_000))
        peer = await deaf(room)
        for _ in range(5_000):
            room.core.publish(Message(b"fill", bytes(1_000)))
        await room.settle()
        waiting = room.core.queued_bytes
        assert waiting > 4_000_000
        most = 0
        peer.transport.resume_reading()
        for _ in range(500):
            await room.turn()
            most = max(most, len(peer.transport.peer._buffer))
        assert most < 1_000_000
        await room.close()

    run(main())


def test_a_few_bytes_at_a_time_do_not_multiply_the_memory_of_a_packet() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await room.connect("c", 4)
        data = encode_packet(Publish(topic="t", payload=bytes(20_000)), 4)
        conn = room.connection("c")
        for position in range(len(data) - 1):
            conn.data_received(data[position : position + 1])
        assert conn.rest is not None and conn.rest.__sizeof__() < 2 * len(conn.rest), "one buffer, not one a chunk"
        assert not peer.is_lost
        await room.close()

    run(main())


@pytest.mark.parametrize("packet", [b"\xc0\x00", b"\x62\x02\x00\x01"], ids=["PINGREQ", "PUBREL"])
def test_a_turn_handles_a_bounded_number_of_packets_however_small_they_are(packet: bytes) -> None:
    """About 700 packets a millisecond: more than 7 000 would hold the loop for ten."""

    async def main() -> None:
        room = await Room.open()
        await room.connect("c", 4)
        before = room.core.counters.messages_received
        room.connection("c").data_received(packet * (65_536 // len(packet)))
        assert room.core.counters.messages_received - before <= 7_000
        await room.close()

    run(main())
