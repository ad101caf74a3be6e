"""A full queue holds back those who publish to it, and only them; nothing acknowledged is lost or waits for ever."""

from typing import Any

import pytest

from tests.unit.broker.memory import Peer, Room, run
from tidegate.broker.settings import Features, Limits, QueueFull
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
    Will,
    encode_packet,
)
from tidegate.mqtt.properties import Properties, Property

DAY: Properties = {Property.SESSION_EXPIRY_INTERVAL: 86_400}


async def open_room(policy: QueueFull = QueueFull.HOLD, **limits: Any) -> Room:
    defaults: dict[str, Any] = {"connection_rate": 0, "max_queued_messages": 10}
    return await Room.open(Limits(**(defaults | limits)), Features(sys_interval=0, queue_full=policy))


async def away(room: Room, client_id: str = "s", topic: str = "t") -> None:
    """A session that queues what comes, its client gone."""
    peer = await room.connect(client_id, 5, properties=DAY)
    peer.subscribe(topic, qos=2)
    await room.settle()
    peer.transport.abort()
    await room.settle()


async def back(room: Room, client_id: str = "s") -> Peer:
    return await room.connect(client_id, 5, clean_start=False, properties=DAY)


def message(number: int, qos: int = 1, size: int = 0, topic: str = "t") -> Publish:
    payload = b"%d " % number + bytes(size)
    return Publish(
        topic=topic, payload=payload, qos=qos, packet_identifier=number % 65_535 + 1 if qos else None
    )


def received(peer: Peer) -> list[int]:
    return [int(packet.payload.split(b" ")[0]) for packet in peer.of(Publish)]


def acknowledged(peer: Peer) -> int:
    return len(peer.of(Puback)) + len(peer.of(Pubrec))


async def read_all(room: Room, peer: Peer, count: int) -> None:
    """Acknowledge everything until `count` messages came."""
    done = 0
    while done < count:
        found = peer.of(Publish)[done:]
        assert found, f"only {done} of {count} messages came"
        done += len(found)
        peer.send(*(Puback(packet_identifier=p.packet_identifier or 0) for p in found if p.qos == 1))
        await room.settle()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_session_holds_the_publisher_and_nothing_is_lost_when_it_drains(
    version: int, qos: int
) -> None:
    async def main() -> None:
        room = await open_room()
        await away(room)
        publisher = await room.connect("p", version)
        publisher.send(*(message(i, qos) for i in range(40)))
        await room.settle()
        assert acknowledged(publisher) == 10
        assert room.connection("p").held is not None
        peer = await back(room)
        assert received(peer) == list(range(40)), "order is kept"
        assert acknowledged(publisher) == 40
        assert room.connection("p").held is None
        core = room.core
        assert (core.counters.dropped, len(core.full), core.counters.publish_received) == (0, 0, 40)
        await room.close()

    run(main())


def test_a_held_client_still_gets_answers_to_everything_but_publishes() -> None:
    async def main() -> None:
        room = await open_room()
        await away(room)
        publisher = await room.connect("p")
        publisher.send(*(message(i) for i in range(20)))
        await room.settle()
        publisher.forget()
        publisher.send(Pingreq())
        publisher.subscribe("other", qos=1)
        await room.settle()
        assert [type(packet) for packet in publisher.packets] == [Pingresp, Suback]
        stranger = await room.connect("x")
        stranger.send(message(1, topic="other"))
        await room.settle()
        assert received(publisher) == [1]
        publisher.send(Puback(packet_identifier=publisher.of(Publish)[0].packet_identifier or 0))
        await room.settle()
        assert not room.session("p").inflight
        await room.close()

    run(main())


def test_only_those_who_publish_to_the_full_session_are_held() -> None:
    async def main() -> None:
        room = await open_room()
        await away(room)
        held, free = await room.connect("held"), await room.connect("free")
        reader = await room.connect("r")
        reader.subscribe("other", qos=1)
        held.send(*(message(i) for i in range(20)))
        await room.settle()
        free.send(*(message(i, topic="other") for i in range(20)))
        free.send(message(1, qos=0))
        await room.settle()
        assert received(reader) == list(range(20))
        assert (acknowledged(free), acknowledged(held)) == (20, 10)
        await room.close()

    run(main())


@pytest.mark.parametrize("size", [0, 37, 500])
@pytest.mark.parametrize("count", [3_000, 9_000])
def test_more_than_a_turn_of_held_bytes_comes_through_whole_and_in_order(size: int, count: int) -> None:
    """Held again and again at any place of a chunk, also in the middle of a packet at its end."""

    async def main() -> None:
        room = await open_room(max_queued_messages=100, max_queued_bytes=10_000_000)
        await away(room)
        publisher = await room.connect("p", 4)
        data = b"".join(encode_packet(message(i, size=size), 4) for i in range(count))
        publisher.transport.write(data)
        await room.settle()
        assert acknowledged(publisher) == 100
        peer = await back(room)
        await read_all(room, peer, count)
        assert received(peer) == list(range(count))
        assert acknowledged(publisher) == count
        await room.close()

    run(main())


def test_several_publishers_share_the_room_that_comes_free() -> None:
    async def main() -> None:
        room = await open_room()
        await away(room)
        publishers = [await room.connect(f"p{i}") for i in range(5)]
        for number, publisher in enumerate(publishers):
            publisher.send(*(message(number * 100 + i) for i in range(30)))
        await room.settle()
        peer = await back(room)
        await read_all(room, peer, 150)
        for number in range(5):
            own = [n for n in received(peer) if n // 100 == number]
            assert own == [number * 100 + i for i in range(30)]
        assert [acknowledged(publisher) for publisher in publishers] == [30] * 5
        await room.close()

    run(main())


def test_refuse_tells_a_v5_publisher_0x97_and_holds_one_of_3_1_1() -> None:
    async def main() -> None:
        room = await open_room(QueueFull.REFUSE)
        await away(room)
        new, old = await room.connect("new", 5), await room.connect("old", 4)
        new.send(*(message(i) for i in range(12)), message(12, qos=2))
        await room.settle()
        codes = [packet.reason_code for packet in new.of(Puback)]
        assert codes == [ReasonCode.SUCCESS] * 10 + [ReasonCode.QUOTA_EXCEEDED] * 2
        assert [packet.reason_code for packet in new.of(Pubrec)] == [ReasonCode.QUOTA_EXCEEDED]
        old.send(message(100))
        await room.settle()
        assert acknowledged(old) == 0
        assert room.core.counters.publish_refused == 3
        peer = await back(room)
        assert received(peer) == [*range(10), 100]
        assert acknowledged(old) == 1
        await room.close()

    run(main())


def test_drop_acknowledges_counts_and_keeps_what_was_queued() -> None:
    async def main() -> None:
        room = await open_room(QueueFull.DROP)
        await away(room)
        publisher = await room.connect("p", 5)
        publisher.send(*(message(i) for i in range(25)))
        await room.settle()
        assert acknowledged(publisher) == 25
        assert room.core.counters.dropped == room.session("s").dropped == 15
        assert received(await back(room)) == list(range(10))
        await room.close()

    run(main())


def test_a_held_client_does_not_run_out_of_its_keep_alive() -> None:
    async def main() -> None:
        room = await open_room()
        await away(room)
        publisher = await room.connect("p", 5, keep_alive=1)
        publisher.send(*(message(i) for i in range(20)))
        await room.settle()
        started = room.core.now()
        await room.until(lambda: room.core.now() > started + 2.2)
        assert not publisher.is_lost
        assert received(await back(room)) == list(range(20))
        assert acknowledged(publisher) == 20
        await room.close()

    run(main())


def test_reading_stops_when_the_held_bytes_reach_their_bound() -> None:
    async def main() -> None:
        room = await open_room(max_held_bytes=5_000)
        await away(room)
        publisher = await room.connect("p", 5)
        for number in range(400):
            publisher.send(message(number, size=1_000))
            await room.settle()
        held = room.connection("p")
        assert held.held_bytes < 10_000
        assert not held.is_reading
        peer = await back(room)
        await read_all(room, peer, 400)
        assert received(peer) == list(range(400))
        assert held.is_reading
        await room.close()

    run(main())


def test_the_end_of_the_full_session_lets_its_publishers_go() -> None:
    async def main() -> None:
        room = await open_room()
        await away(room)
        publisher = await room.connect("p", 5)
        publisher.send(*(message(i) for i in range(20)))
        await room.settle()
        await room.connect("s", 5, clean_start=True)
        assert acknowledged(publisher) == 20
        assert len(room.core.full) == 0
        await room.close()

    run(main())


def test_after_hold_timeout_a_publisher_that_is_held_already_goes_on_and_drops_are_counted() -> None:
    async def main() -> None:
        room = await open_room(hold_timeout=0.3)
        await away(room)
        publisher = await room.connect("p", 5)
        publisher.send(*(message(i) for i in range(15)))
        await room.settle()
        assert acknowledged(publisher) == 10
        await room.until(lambda: acknowledged(publisher) == 15, 3.0)
        assert room.core.counters.dropped == 5
        await room.close()

    run(main())


def test_a_new_publisher_is_not_held_by_a_session_that_was_full_for_longer_than_hold_timeout() -> None:
    async def main() -> None:
        room = await open_room(hold_timeout=0.05)
        await away(room)
        publisher = await room.connect("p", 5)
        publisher.send(*(message(i) for i in range(10)))
        await room.settle()
        full = room.core.now()
        await room.until(lambda: room.core.now() > full + 0.1)
        publisher.send(*(message(i) for i in range(10, 15)))
        await room.settle()
        assert acknowledged(publisher) == 15
        assert room.core.counters.dropped == 5
        await room.close()

    run(main())


def test_the_bound_over_all_sessions_holds_too_and_room_made_by_one_frees_the_others() -> None:
    async def main() -> None:
        room = await open_room(max_queued_messages=1_000, max_total_queued_bytes=10_000)
        await away(room, "a", "to/a")
        await away(room, "b", "to/b")
        publisher = await room.connect("p", 5)
        other = await room.connect("q", 5)
        publisher.send(*(message(i, size=1_000, topic="to/b") for i in range(20)))
        await room.settle()
        assert acknowledged(publisher) < 20
        assert room.core.queued_bytes < 12_000
        other.send(message(1, topic="to/a"), message(2, topic="to/a"))
        await room.settle()
        reader = await back(room, "b")
        await read_all(room, reader, 20)
        await room.settle()
        assert acknowledged(publisher) == 20
        assert acknowledged(other) == 2, "session a has room, though its own client is still away"
        await room.close()

    run(main())


def test_publishers_that_gave_up_leave_nothing_behind_in_the_full_session() -> None:
    async def main() -> None:
        room = await open_room()
        await away(room)
        first = await room.connect("first", 5)
        first.send(*(message(i) for i in range(20)))
        await room.settle()
        for number in range(10):
            publisher = await room.connect(f"p{number}", 5)
            publisher.send(*(message(i, size=1_000) for i in range(20)))
            await room.settle()
            publisher.transport.abort()
            await room.settle()
        waiting = room.session("s").waiters
        assert len(waiting or ()) == 1
        await room.close()

    run(main())


def test_a_disconnect_behind_held_publishes_still_takes_the_will_away() -> None:
    async def main() -> None:
        room = await open_room()
        await away(room)
        witness = await room.connect("w")
        witness.subscribe("will")
        publisher = await room.connect("p", 5, will=Will(topic="will", payload=b"1"))
        packets: list[Packet] = [message(i) for i in range(15)]
        publisher.send(*packets, Disconnect())
        await room.settle()
        publisher.transport.close()
        await room.settle()
        assert witness.of(Publish) == [], "[MQTT5-3.14.4-3]"
        await room.close()

    run(main())


def test_a_held_client_is_not_blamed_for_a_packet_that_we_do_not_read() -> None:
    async def main() -> None:
        room = await open_room(max_held_bytes=2_000, packet_timeout=0.3)
        await away(room)
        publisher = await room.connect("p", 5)
        data = b"".join(encode_packet(message(i, size=1_000), 5) for i in range(40))
        publisher.transport.write(data[:20_500])
        await room.settle()
        assert not room.connection("p").is_reading
        publisher.transport.write(data[20_500:])
        started = room.core.now()
        await room.until(lambda: room.core.now() > started + 1.0)
        assert not publisher.is_lost
        peer = await back(room)
        await read_all(room, peer, 40)
        assert acknowledged(publisher) == 40
        await room.close()

    run(main())


def test_a_held_client_is_answered_after_a_large_chunk_while_there_is_room_to_hold_more() -> None:
    async def main() -> None:
        room = await open_room(max_held_bytes=200_000)
        await away(room)
        publisher = await room.connect("p", 5)
        publisher.send(*(message(i, size=1_000) for i in range(80)))
        await room.settle()
        assert room.connection("p").held_bytes < 100_000
        publisher.send(Pingreq())
        await room.settle()
        assert len(publisher.of(Pingresp)) == 1
        await room.close()

    run(main())


def test_a_client_that_publishes_to_itself_does_not_wait_for_itself_for_ever() -> None:
    async def main() -> None:
        room = await open_room(max_held_bytes=2_000, hold_timeout=0.5, max_inflight=5)
        client = await room.connect("c", 5)
        client.subscribe("t", qos=1)
        await room.settle()
        client.send(*(message(i, size=100) for i in range(100)))
        await room.settle()
        acks = [Puback(packet_identifier=p.packet_identifier or 0) for p in client.of(Publish)]
        client.send(*acks, Pingreq())  # behind its own publishes, which we no longer read
        await room.until(lambda: len(client.of(Pingresp)) == 1, 3.0)
        await room.close()

    run(main())
