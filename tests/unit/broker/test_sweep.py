"""The sweep: QoS 0 messages of a held publisher are dropped and counted, everything else in its stream is honoured."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import cut
from tests.unit.broker.gate_room import ALWAYS, message, numbers, open_room, reader
from tests.unit.broker.memory import Peer, Room, run
from tidegate.broker.gate import Gate
from tidegate.broker.holding import SWEEP_ROOM, run_length, sweep
from tidegate.mqtt import (
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    ReasonCode,
    Suback,
    Subscribe,
    Subscription,
    encode_packet,
)
from tidegate.mqtt.properties import Property

CHUNK_BYTES = 256 * 1_024  # read at once


def slow_run_length(data: bytes, pos: int, head: int, step: int) -> int:
    count = 1
    first = data[pos : pos + head]
    while pos + (count + 1) * step <= len(data) and data[pos + count * step :][:head] == first:
        count += 1
    return count


@given(
    packets=st.lists(
        st.sampled_from([b"\x30\x05\0\x01a0x", b"\x30\x05\0\x01a1y", b"\x30\x05\0\x01b0x", b"\xc0\0"])
    ),
    before=st.binary(max_size=5),
    after=st.binary(max_size=6),
)
def test_a_run_is_as_long_as_looking_at_each_packet_tells(
    packets: list[bytes], before: bytes, after: bytes
) -> None:
    first = b"\x30\x05\0\x01a0x"
    data = before + first + b"".join(packets) + after
    for head in range(1, 8):
        assert run_length(data, len(before), head, 7) == slow_run_length(data, len(before), head, 7)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 255, 256, 257, 5_000])
def test_long_runs_are_found_whole_and_end_where_they_end(count: int) -> None:
    alike = b"\x30\x05\0\x01a0x" * count
    for behind in (b"", b"\x30\x05\0\x01b0x" * 20, b"\x30\x05"):
        assert run_length(alike + behind, 0, 5, 7) == count


async def open_swept(version: int = 5, **limits: Any) -> tuple[Room, Peer, Peer, Gate]:
    """`p` is held for long, and its backlog is being swept."""
    room = await open_room(ALWAYS, **limits)
    listener = await reader(room, version=version)
    peer = await room.connect("p", version)
    peer.forget()
    gate = room.core.gate
    assert gate is not None
    gate.hold(room.connection("p"), 3_600.0)
    sweep(room.connection("p"), 0)
    return room, peer, listener, gate


async def release(room: Room, gate: Gate) -> None:
    await room.settle()
    gate.release_all()
    await room.settle()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("size", [0, 1, 200, 20_000])
def test_published_is_delivered_and_shed(version: int, size: int) -> None:
    async def main() -> None:
        room, peer, listener, gate = await open_swept(version)
        peer.send(*(message(number, 0, size=size) for number in range(100, 300)), Pingreq())
        await room.settle()
        assert len(peer.of(Pingresp)) == 1
        await release(room, gate)
        room.connection("p").sweep_left = 0
        peer.send(*(message(number, 0, size=size) for number in range(300, 310)))
        await room.settle()
        assert numbers(listener) == list(range(300, 310))
        counters = room.core.counters
        assert (gate.shed, counters.dropped, counters.publish_received) == (200, 200, 210)
        await room.close()

    run(main())


@pytest.mark.parametrize("version", [4, 5])
def test_qos_1_and_2_in_the_swept_stream_are_kept_in_order(version: int) -> None:
    async def main() -> None:
        room, peer, listener, gate = await open_swept(version)
        peer.send(*(message(number, number % 4 % 3, size=number % 3) for number in range(200)))
        await room.settle()
        assert numbers(listener) == []
        assert peer.packets == [], "they are acknowledged when they are handed on"
        await release(room, gate)
        kept = [number for number in range(200) if number % 4 % 3]
        assert numbers(listener) == kept
        assert len(peer.of(Puback)) + len(peer.of(Pubrec)) == len(kept)
        assert gate.shed == 200 - len(kept)
        await room.close()

    run(main())


def test_topic_aliases_that_swept_packets_define_hold() -> None:
    async def main() -> None:
        room, peer, listener, gate = await open_swept()
        alias: dict[Any, Any] = {Property.TOPIC_ALIAS: 1}
        other: dict[Any, Any] = {Property.TOPIC_ALIAS: 2}
        peer.send(
            message(0, 0, properties=alias),  # t is 1
            message(1, 0, "x", properties=other),
            message(2, 1, "", properties=alias),
            message(3, 0, "", properties=alias),
            message(4, 0, "t", properties=other),  # and now 2 as well
            message(5, 1, "", properties=other),
        )
        await release(room, gate)
        assert numbers(listener) == [2, 5]
        peer.send(message(6, 1, "", properties=alias), message(7, 1, "", properties=other))
        await room.settle()
        assert numbers(listener) == [2, 5, 6, 7]
        assert (gate.shed, peer.is_lost) == (4, False)
        await room.close()

    run(main())


@pytest.mark.parametrize(
    "data",
    [
        b"\x30\x01\0",  # no topic
        b"\x30\x05\0\x09abc",  # a topic that is longer than the packet
        b"\x30\x03\0\x01t",  # no property length
        b"\x30\x07\0\x01t\x03\x23\0\0",  # topic alias 0
        b"\x30\xff\xff\xff\xff\x01",
    ],
)
def test_a_fault_in_the_swept_stream_ends_the_connection(data: bytes) -> None:
    async def main() -> None:
        room, peer, _, gate = await open_swept()
        peer.send(*(message(number) for number in range(10)))
        peer.transport.write(data)
        await room.settle()
        codes = [packet.reason_code for packet in peer.of(Disconnect)]
        assert codes[0] in (
            ReasonCode.MALFORMED_PACKET,
            ReasonCode.TOPIC_ALIAS_INVALID,
            ReasonCode.PROTOCOL_ERROR,
        )
        assert gate.shed == 10
        await room.close()

    run(main())


def test_a_sweep_does_not_add_to_a_chunk_that_waits_for_its_turn() -> None:
    async def main() -> None:
        room, peer, listener, gate = await open_swept(4)
        conn = room.connection("p")
        gate.release_all()
        conn.sweep_left = 0
        room.core.lanes.is_open = True
        count = 900
        peer.send(*(message(number, 1, size=1_000) for number in range(count)))
        await room.turn()
        assert conn.more is not None
        sweep(conn, 0)
        for _ in range(3):
            await room.turn()
            assert len(conn.more or b"") <= CHUNK_BYTES + 2_000, "one chunk, and what was left of a packet"
        await release(room, gate)
        assert numbers(listener) == list(range(count))
        await room.close()

    run(main())


def test_what_a_sweep_keeps_is_bounded() -> None:
    """A flood of QoS 1 cannot be shed: then its own PINGREQ has to wait, not the node's memory to grow."""

    async def main() -> None:
        room, peer, _, gate = await open_swept(4)
        most = room.core.limits.max_held_bytes
        conn = room.connection("p")
        number = 0
        for _ in range(40):
            for _ in range(200):
                peer.send(message(number, 1, size=1_000))
                number += 1
            await room.settle()
            sweep(conn, 0)  # due again and again
            await room.settle()
            assert conn.held_bytes <= most + SWEEP_ROOM + CHUNK_BYTES
        assert not conn.is_reading
        assert gate.waiters
        await room.close()

    run(main())


@st.composite
def streams(draw: st.DrawFn) -> list[Packet]:
    packets: list[Packet] = []
    for number in range(draw(st.integers(1, 40))):
        kind = draw(st.sampled_from(["0", "0", "0", "1", "2", "ping", "subscribe"]))
        if kind == "ping":
            packets.append(Pingreq())
        elif kind == "subscribe":
            one = Subscription(topic_filter="none")
            packets.append(Subscribe(packet_identifier=number + 1, subscriptions=[one]))
        else:
            packets.append(message(number, int(kind), draw(st.sampled_from(["t", "tt"])), number // 10 * 70))
    return packets


@given(packets=streams(), data=st.data(), version=st.sampled_from([4, 5]))
def test_a_swept_stream_cut_anywhere_sheds_qos_0_and_nothing_else(
    packets: list[Packet], data: st.DataObject, version: int
) -> None:
    raw = b"".join(encode_packet(packet, version) for packet in packets)
    pieces = data.draw(cut(raw))

    async def main() -> None:
        room, peer, listener, gate = await open_swept(version)
        conn = room.connection("p")
        for piece in pieces:
            peer.transport.write(piece)
            await room.turn()
            await room.until(lambda: conn.is_reading)  # a sweep pauses between two reads
        await release(room, gate)
        publishes = [packet for packet in packets if isinstance(packet, Publish)]
        assert numbers(listener) == [
            int(p.payload.split(b" ")[0]) for p in publishes if p.qos and p.topic == "t"
        ]
        assert gate.shed == sum(1 for p in publishes if not p.qos)
        assert len(peer.of(Pingresp)) == sum(1 for packet in packets if isinstance(packet, Pingreq))
        assert len(peer.of(Suback)) == sum(1 for packet in packets if isinstance(packet, Subscribe))
        assert len(peer.of(Puback)) + len(peer.of(Pubrec)) == sum(1 for p in publishes if p.qos)
        assert room.core.counters.publish_received == len(publishes)
        await room.close()

    run(main())
