"""What a session owes its client: the quota, re-sending, a change of version, the bounds of its queue."""

from typing import Any

import pytest

from tests.unit.broker.memory import Peer, Room, run
from tidegate.broker.message import Message
from tidegate.broker.settings import Features, Limits, QueueFull
from tidegate.mqtt import Connack, Puback, Pubcomp, Publish, Pubrec, Pubrel, ReasonCode, Will
from tidegate.mqtt.properties import Properties, Property

DAY: Properties = {Property.SESSION_EXPIRY_INTERVAL: 86_400}


async def subscriber(room: Room, version: int = 5, topic: str = "t/#", qos: int = 2, **props: Any) -> Peer:
    """A client with a session that lasts."""
    peer = await back(room, version, **props)
    peer.subscribe(topic, qos=qos)
    await room.settle()
    peer.forget()
    return peer


async def back(room: Room, version: int = 5, *, maximum: int | None = None, **more: Any) -> Peer:
    properties = dict(DAY) if version == 5 else {}
    if maximum is not None:
        properties[Property.RECEIVE_MAXIMUM] = maximum
    return await room.connect("s", version, clean_start=False, properties=properties | more)


async def leave(room: Room, peer: Peer) -> None:
    peer.transport.abort()
    await room.settle()


def give(room: Room, *numbers: int, qos: int = 1, topic: bytes = b"t/x", **fields: Any) -> None:
    for number in numbers:
        room.core.publish(Message(topic, b"%d" % number, qos, **fields))


def numbers(peer: Peer) -> list[int]:
    return [int(packet.payload) for packet in peer.of(Publish)]


def identifiers(packets: list[Publish]) -> list[int]:
    return [packet.packet_identifier or 0 for packet in packets]


def test_no_more_than_receive_maximum_is_under_way_and_each_acknowledgement_lets_one_go() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room, maximum=3)
        give(room, *range(10))
        await room.settle()
        assert numbers(peer) == [0, 1, 2]
        for done in range(10):
            peer.send(Puback(packet_identifier=identifiers(peer.of(Publish))[done]))
            await room.settle()
            assert numbers(peer) == list(range(min(10, done + 4)))
        assert not room.session("s").inflight
        assert (room.core.queued_bytes, room.core.counters.queued_messages) == (0, 0)
        await room.close()

    run(main())


def test_qos_2_occupies_the_quota_until_pubcomp() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room, maximum=1)
        give(room, 1, 2, qos=2)
        await room.settle()
        (first,) = peer.of(Publish)
        pid = first.packet_identifier or 0
        peer.send(Pubrec(packet_identifier=pid))
        await room.settle()
        assert peer.packets[-1] == Pubrel(packet_identifier=pid)
        assert numbers(peer) == [1]
        peer.send(Pubcomp(packet_identifier=pid))
        await room.settle()
        assert numbers(peer) == [1, 2]
        await room.close()

    run(main())


def test_a_pubrec_that_refuses_ends_the_exchange_without_pubrel_and_frees_the_quota() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room, maximum=1)
        give(room, 1, 2, qos=2)
        await room.settle()
        pid = identifiers(peer.of(Publish))[0]
        peer.send(Pubrec(packet_identifier=pid, reason_code=ReasonCode.QUOTA_EXCEEDED))
        await room.settle()
        assert numbers(peer) == [1, 2]
        assert peer.of(Pubrel) == []
        await room.close()

    run(main())


@pytest.mark.parametrize("version", [4, 5])
def test_what_was_under_way_comes_again_in_order_with_dup_and_its_identifiers(version: int) -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room, version)
        give(room, *range(6))
        await room.settle()
        sent = peer.of(Publish)
        assert not any(packet.dup for packet in sent)
        peer.send(Puback(packet_identifier=sent[2].packet_identifier or 0))
        await room.settle()
        await leave(room, peer)
        give(room, 6, 7)
        peer = await back(room, version)
        again = peer.of(Publish)
        assert peer.of(Connack)[0].session_present
        assert numbers(peer) == [0, 1, 3, 4, 5, 6, 7]
        assert identifiers(again)[:5] == [p for i, p in enumerate(identifiers(sent)) if i != 2]
        assert [packet.dup for packet in again] == [True] * 5 + [False] * 2
        await room.close()

    run(main())


def test_a_released_qos_2_message_comes_again_as_pubrel_in_its_place() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room)
        give(room, 0, 1, 2, qos=2)
        await room.settle()
        pids = identifiers(peer.of(Publish))
        peer.send(Pubrec(packet_identifier=pids[1]))
        await room.settle()
        await leave(room, peer)
        peer = await back(room)
        shapes = [
            (type(p), getattr(p, "packet_identifier", 0), getattr(p, "dup", None)) for p in peer.packets[1:]
        ]
        assert shapes == [(Publish, pids[0], True), (Pubrel, pids[1], None), (Publish, pids[2], True)]
        await room.close()

    run(main())


def test_a_smaller_receive_maximum_after_reconnecting_is_kept_while_re_sending() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room, maximum=8)
        give(room, *range(12))
        await room.settle()
        assert numbers(peer) == list(range(8))
        await leave(room, peer)
        peer = await back(room, maximum=2)
        assert numbers(peer) == [0, 1]
        for done in range(12):
            packet = peer.of(Publish)[done]
            assert packet.dup == (done < 8)
            peer.send(Puback(packet_identifier=packet.packet_identifier or 0))
            await room.settle()
            assert len(peer.of(Publish)) - done - 1 <= 2
        assert numbers(peer) == list(range(12))
        assert not room.session("s").inflight
        await room.close()

    run(main())


@pytest.mark.parametrize(("before", "after"), [(4, 5), (5, 4)])
@pytest.mark.parametrize("way", ["quick", "general"])
def test_a_session_goes_on_in_the_other_protocol_version(before: int, after: int, way: str) -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room, before)
        publisher = await room.connect("p", before if way == "quick" else after)
        publisher.send(
            *(Publish(topic="t/x", payload=b"%d" % i, qos=1, packet_identifier=i + 1) for i in range(3))
        )
        await room.settle()
        assert numbers(peer) == [0, 1, 2]
        await leave(room, peer)
        publisher.send(
            *(Publish(topic="t/x", payload=b"%d" % i, qos=2, packet_identifier=i + 1) for i in range(3, 6))
        )
        await room.settle()
        peer = await back(room, after)
        assert numbers(peer) == [0, 1, 2, 3, 4, 5]
        publisher.send(Publish(topic="t/x", payload=b"6"))
        await room.settle()
        assert numbers(peer) == [0, 1, 2, 3, 4, 5, 6]
        assert not peer.is_lost
        await room.close()

    run(main())


def test_packet_identifiers_wrap_past_65535_skip_those_in_use_and_never_are_zero() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room, version=4)
        session = room.session("s")
        give(room, 0, qos=2)
        await room.settle()
        kept = identifiers(peer.of(Publish))[0]
        assert kept == 1
        session.next_pid = 65_534
        publisher = await room.connect("p", 4)
        publisher.send(
            *(Publish(topic="t/x", payload=b"%d" % i, qos=1, packet_identifier=i) for i in range(1, 3))
        )
        give(room, 3, 4)
        await room.settle()
        assert identifiers(peer.of(Publish)) == [1, 65_534, 65_535, 2, 3]
        session.next_pid = 65_535
        give(room, 5, 6)
        await room.settle()
        # 65535, 1, 2 and 3 are taken; the search goes round past zero.
        assert identifiers(peer.of(Publish))[-2:] == [4, 5]
        await room.close()

    run(main())


def test_a_message_that_expired_in_the_queue_is_counted_and_never_sent() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room)
        await leave(room, peer)
        soon = room.core.now() + 0.05
        give(room, 1, 2, expires=soon)
        give(room, 3, expires=room.core.now() + 100)
        give(room, 4)
        await room.until(lambda: room.core.now() > soon)
        peer = await back(room)
        assert numbers(peer) == [3, 4]
        assert peer.of(Publish)[0].properties == {Property.MESSAGE_EXPIRY_INTERVAL: 100}
        assert room.core.counters.expired == 2
        assert room.core.queued_bytes == 0
        await room.close()

    run(main())


@pytest.mark.parametrize("bound", [{"max_queued_messages": 5}, {"max_queued_bytes": 5 * 68}])
def test_with_drop_a_full_queue_keeps_the_oldest_and_counts_the_rest(bound: dict[str, int]) -> None:
    async def main() -> None:
        room = await Room.open(
            Limits(connection_rate=0, **bound), Features(sys_interval=0, queue_full=QueueFull.DROP)
        )
        peer = await subscriber(room)
        await leave(room, peer)
        give(room, *range(9))
        session = room.session("s")
        assert (session.queued_messages, session.dropped, room.core.counters.dropped) == (5, 4, 4)
        peer = await back(room)
        assert numbers(peer) == [0, 1, 2, 3, 4]
        assert len(room.core.full) == 0
        give(room, 9)
        await room.settle()
        assert numbers(peer)[-1] == 9
        await room.close()

    run(main())


def test_a_long_queue_is_sent_over_several_turns_in_order() -> None:
    async def main() -> None:
        room = await Room.open(Limits(connection_rate=0, max_inflight=65_535))
        peer = await subscriber(room)
        await leave(room, peer)
        give(room, *range(3_500))
        peer = await back(room)
        await room.settle()
        assert numbers(peer) == list(range(3_500))
        await room.close()

    run(main())


def test_an_ended_session_gives_back_what_it_held() -> None:
    async def main() -> None:
        room = await Room.open(Limits(connection_rate=0, max_queued_messages=5))
        peer = await subscriber(room)
        await leave(room, peer)
        give(room, *range(5))
        assert len(room.core.full) == 1
        fresh = await room.connect("s", 5, clean_start=True)
        assert not fresh.of(Connack)[0].session_present
        core = room.core
        assert (len(core.full), core.queued_bytes, core.counters.queued_messages) == (0, 0, 0)
        assert (core.index.count, len(core.sessions)) == (0, 1)
        await room.close()

    run(main())


def test_unknown_acknowledgements_do_no_harm() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room)
        peer.send(Puback(packet_identifier=7), Pubcomp(packet_identifier=8), Pubrec(packet_identifier=9))
        peer.send(Pubrel(packet_identifier=10))
        await room.settle()
        missing = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        assert peer.packets == [
            Pubrel(packet_identifier=9, reason_code=missing),
            Pubcomp(packet_identifier=10, reason_code=missing),
        ]
        await room.close()

    run(main())


def test_a_repeated_qos_2_publish_is_answered_and_not_delivered_again_also_after_reconnecting() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await subscriber(room)
        packet = Publish(topic="t/x", payload=b"1", qos=2, packet_identifier=5)
        publisher = await room.connect("p", 5, clean_start=False, properties=DAY)
        publisher.send(packet)
        await room.settle()
        publisher.transport.abort()
        await room.settle()
        publisher = await room.connect("p", 5, clean_start=False, properties=DAY)
        publisher.send(Publish(topic="t/x", payload=b"1", qos=2, packet_identifier=5, dup=True))
        await room.settle()
        assert publisher.packets[-1] == Pubrec(packet_identifier=5)
        assert numbers(peer) == [1]
        publisher.send(Pubrel(packet_identifier=5), packet)
        await room.settle()
        assert numbers(peer) == [1, 1]
        await room.close()

    run(main())


def test_qos_0_queued_for_a_session_that_was_away_is_not_overtaken_by_newer_qos_0() -> None:
    async def main() -> None:
        room = await Room.open(features=Features(sys_interval=0, queue_qos0=True))
        peer = await subscriber(room, maximum=1)
        await leave(room, peer)
        give(room, 1, 2)
        give(room, 3, qos=0)
        peer = await back(room, maximum=1)
        give(room, 4, qos=0)
        await room.settle()
        for _ in range(2):
            last = [packet for packet in peer.of(Publish) if packet.qos][-1]
            peer.send(Puback(packet_identifier=last.packet_identifier or 0))
            await room.settle()
        assert [int(packet.payload) for packet in peer.of(Publish) if not packet.qos] == [3, 4]
        await room.close()

    run(main())


def test_wills_at_qos_1_do_not_grow_a_full_queue_without_bound() -> None:
    async def main() -> None:
        room = await Room.open(Limits(connection_rate=0, max_queued_messages=5))
        peer = await subscriber(room)
        await leave(room, peer)
        for number in range(30):
            dying = await room.connect(f"d{number}", 5, will=Will(topic="t/will", payload=b"1", qos=1))
            await leave(room, dying)
        assert room.session("s").queued_messages <= 10
        await room.close()

    run(main())
