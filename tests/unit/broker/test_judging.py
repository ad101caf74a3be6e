"""Back-off message by message: `paper`, and what its modes do with a message that is too fast."""

import asyncio
import time
from typing import Any

import pytest

from tests.unit.broker.gate_room import known, message, numbers, open_room, reader, seconds_until
from tests.unit.broker.memory import Peer, Room, run
from tidegate.broker.flow_settings import Backoff, FlowSettings
from tidegate.flow.backoff import Mode
from tidegate.mqtt import Disconnect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, ReasonCode
from tidegate.mqtt.properties import Property

D_MAX = 0.25
LATE = 0.15  # seconds that a busy machine may add
Answer = type[Puback] | type[Pubrec]


async def open_paper(
    mode: Mode, version: int = 5, rate: float = 0.5, **options: Any
) -> tuple[Room, Peer, Peer]:
    """A room, a publisher of whom more than `rate` messages a second are too many, and a reader of topic `t`.

    Messages were published to `t` before, as they were in any broker that runs: its recipients are cached.
    """
    backoff = Backoff(policy="paper", mode=mode, paper_d_max=D_MAX)
    room = await open_room(FlowSettings(backoff=backoff))
    known(room, p=rate)
    listener = await reader(room, version=version)
    stranger = await room.connect("stranger", version)
    stranger.send(message(900, 0), message(901, 1), message(902, 2))
    await room.settle()
    listener.forget()
    peer = await room.connect("p", version, **options)
    return room, peer, listener


async def finish(room: Room, listener: Peer, count: int, limit: float = 15.0) -> None:
    """Wait until so many messages came, all of them in order, and nothing waits any more."""
    await seconds_until(lambda: len(listener.of(Publish)) >= count, limit)
    await asyncio.sleep(0.02)
    assert numbers(listener) == list(range(count))
    assert not room.core.late
    assert room.core.statistics()["backoff_held"] == 0


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("mode", [Mode.BACKPRESSURE, Mode.HOLD])
def test_a_message_that_is_too_fast_is_handed_on_exactly_d_f_later(
    mode: Mode, qos: int, version: int
) -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(mode, version)
        peer.send(message(0, qos))
        await room.settle()
        assert numbers(listener) == [0]
        peer.send(message(1, qos))
        delay = await seconds_until(lambda: 1 in numbers(listener))
        assert D_MAX - 0.005 <= delay < D_MAX + LATE
        await finish(room, listener, 2)
        await room.close()

    run(main())


@pytest.mark.parametrize("mode", list(Mode))
def test_after_training_the_trained_pace_is_served_at_once_and_a_faster_one_is_not(mode: Mode) -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(mode)
        known(room)
        for number in range(4):  # the paper's training
            peer.send(message(number))
            await asyncio.sleep(0.1)
        peer.send(message(4))  # slower than trained, if anything: the last sleep and what the machine added
        await room.settle()
        publisher = room.connection("p").publisher
        assert publisher is not None
        assert 2.0 < publisher.trained_rate <= 10.1
        await asyncio.sleep(3.0 / publisher.trained_rate)
        peer.forget()
        peer.send(message(5))
        await room.settle()
        assert 5 in numbers(listener)
        peer.send(message(6))
        await room.settle()
        assert 6 not in numbers(listener)
        await asyncio.sleep(D_MAX + LATE)
        assert (6 in numbers(listener)) is (mode is not Mode.DROP)
        await room.close()

    run(main())


@pytest.mark.parametrize("mode", [Mode.BACKPRESSURE, Mode.HOLD])
def test_messages_behind_one_that_waits_keep_their_order(mode: Mode) -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(mode)
        began = time.monotonic()
        peer.send(message(0, 1), message(1, 2), message(2, 0), message(3, 1))
        await seconds_until(lambda: bool(numbers(listener)))
        await finish(room, listener, 4)
        took = time.monotonic() - began
        # Held messages wait together; with backpressure the next is looked at when the one before it has gone.
        least = D_MAX if mode is Mode.HOLD else 3 * D_MAX
        assert least - 0.01 <= took < least + 3 * LATE
        await room.close()

    run(main())


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
def test_hold_acknowledges_at_once_and_delivers_late(qos: int, answer: Answer, version: int) -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(Mode.HOLD, version)
        peer.send(message(0, qos), message(1, qos), message(2, qos))
        await room.settle()
        found = [(packet.packet_identifier, packet.reason_code) for packet in peer.of(answer)]
        assert found == [(1, 0), (2, 0), (3, 0)]
        assert numbers(listener) == [0]
        conn = room.connection("p")
        assert conn.session.late_bytes > 0
        await finish(room, listener, 3)
        assert conn.session.late_bytes == 0
        await room.close()

    run(main())


@pytest.mark.parametrize("qos", [1, 2])
def test_backpressure_acknowledges_when_it_delivers(qos: int) -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(Mode.BACKPRESSURE)
        peer.send(message(0, qos), message(1, qos))
        await room.settle()
        assert len(peer.of(Puback)) + len(peer.of(Pubrec)) == 1
        await finish(room, listener, 2)
        assert len(peer.of(Puback)) + len(peer.of(Pubrec)) == 2
        await room.close()

    run(main())


@pytest.mark.parametrize("is_polite", [True, False])
def test_what_hold_took_is_delivered_though_the_publisher_leaves(is_polite: bool) -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(Mode.HOLD)
        peer.send(*(message(number, number % 3) for number in range(6)))
        await room.settle()
        assert numbers(listener) == [0]
        if is_polite:
            peer.send(Disconnect())
        else:
            peer.transport.abort()
        await room.settle()
        assert "p" not in room.core.sessions
        await finish(room, listener, 6)
        await room.close()

    run(main())


def test_what_hold_took_is_delivered_before_the_broker_stops() -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(Mode.HOLD)
        peer.send(*(message(number, number % 3) for number in range(6)))
        await room.settle()
        assert numbers(listener) == [0]
        began = time.monotonic()
        await room.broker.stop(timeout=1)
        assert time.monotonic() - began < D_MAX, "nobody waited for it"
        assert numbers(listener) == list(range(6))

    run(main())


def test_a_message_that_arrives_when_held_ones_are_due_does_not_overtake_them() -> None:
    async def main() -> None:
        count = 2_500  # more than one turn hands on
        for _ in range(10):
            room, peer, listener = await open_paper(Mode.HOLD, rate=50.0)
            peer.send(*(message(number) for number in range(count)))
            await room.settle()
            if len(room.core.late) == count - 1:
                break
            await room.close()  # this machine stood still until some of them were due
        else:
            pytest.fail("messages are not held")
        conn = room.connection("p")
        while room.core.now() <= conn.session.late_until:
            time.sleep(0.01)  # noqa: ASYNC251 - the loop must not run: the alarm and the message are due together
        peer.send(message(count))
        for number in range(count + 1, count + 4):
            await room.turn()
            peer.send(message(number))
        await finish(room, listener, count + 4)
        await room.close()

    run(main())


@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
def test_drop_refuses_with_0x97_and_forgets_the_message(qos: int, answer: Answer) -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(Mode.DROP, rate=4.0)
        peer.send(message(0, qos), message(7, qos), message(8, qos))
        await room.settle()
        found = [(packet.packet_identifier, packet.reason_code) for packet in peer.of(answer)]
        assert found == [(1, 0), (8, ReasonCode.QUOTA_EXCEEDED), (9, ReasonCode.QUOTA_EXCEEDED)]
        await asyncio.sleep(0.5)
        assert numbers(listener) == [0]
        assert room.core.statistics()["backoff_refused"] == 2
        peer.send(message(7, qos))  # slow enough, and its identifier is free
        await room.settle()
        assert numbers(listener) == [0, 7]
        await room.close()

    run(main())


@pytest.mark.parametrize("version", [4, 5])
def test_drop_discards_and_counts_qos_0(version: int) -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(Mode.DROP, version)
        peer.send(*(message(number) for number in range(20)))
        await asyncio.sleep(D_MAX * 2)
        assert numbers(listener) == [0]
        statistics = room.core.statistics()
        assert (statistics["backoff_refused"], statistics["backoff_holds"]) == (19, 0)
        assert room.connection("p").held_bytes == 0
        await room.close()

    run(main())


def test_a_topic_alias_that_a_refused_message_defines_holds() -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(Mode.DROP, rate=4.0)
        alias: dict[Any, Any] = {Property.TOPIC_ALIAS: 3}
        peer.send(message(0), message(1, properties=alias))
        await asyncio.sleep(0.4)
        peer.send(message(2, topic="", properties=alias))
        await room.settle()
        assert numbers(listener) == [0, 2]
        assert not peer.is_lost
        await room.close()

    run(main())


@pytest.mark.parametrize("qos", [1, 2])
def test_drop_lets_mqtt_3_1_1_wait_because_it_cannot_be_refused(qos: int) -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(Mode.DROP, 4, keep_alive=1)
        peer.send(*(message(number, qos) for number in range(3)), Pingreq())
        await room.settle()
        assert (numbers(listener), len(peer.of(Pingresp))) == ([0], 1)
        await finish(room, listener, 3)
        assert len(peer.of(Puback)) + len(peer.of(Pubrec)) == 3
        statistics = room.core.statistics()
        assert (statistics["backoff_refused"], statistics["backoff_holds"]) == (0, 2)
        assert statistics["backoff_held_seconds"] <= 2 * 0.5, "half the keep-alive each"
        await room.close()

    run(main())


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_repeated_qos_2_message_is_answered_and_not_delivered_again(mode: Mode, version: int) -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(mode, version, keep_alive=1)
        peer.send(message(0, 2), message(0, 2, dup=True), message(0, 2, dup=True))
        await seconds_until(lambda: len(peer.of(Pubrec)) == 3)
        assert {(packet.packet_identifier, packet.reason_code) for packet in peer.of(Pubrec)} == {(1, 0)}
        peer.send(Pubrel(packet_identifier=1))
        await room.settle()
        assert [packet.reason_code for packet in peer.of(Pubcomp)] == [0]
        await finish(room, listener, 1)
        await room.close()

    run(main())


def test_paper_waits_no_longer_than_half_the_keep_alive() -> None:
    async def main() -> None:
        backoff = Backoff(policy="paper", paper_d_max=30.0)
        room = await open_room(FlowSettings(backoff=backoff))
        known(room, p=0.5)
        listener = await reader(room)
        peer = await room.connect("p", keep_alive=1)
        peer.send(*(message(number) for number in range(3)), Pingreq())
        await room.settle()
        assert len(peer.of(Pingresp)) == 1
        assert await seconds_until(lambda: len(numbers(listener)) == 3) < 1.0 + LATE
        assert room.core.statistics()["backoff_held_seconds"] == pytest.approx(1.0)
        await room.close()

    run(main())


def test_a_fault_behind_messages_that_wait_ends_the_connection_with_its_reason() -> None:
    async def main() -> None:
        for mode in Mode:
            room, peer, listener = await open_paper(mode)
            peer.send(message(0, 1), message(1, 1), message(2, 1))
            peer.transport.write(b"\x30\xff\xff\xff\xff\x01")
            await room.settle()
            assert [packet.reason_code for packet in peer.of(Disconnect)] == [ReasonCode.MALFORMED_PACKET]
            await asyncio.sleep(D_MAX + 0.1)
            done = {packet.packet_identifier - 1 for packet in peer.of(Puback) if packet.reason_code < 0x80}
            assert done == set(numbers(listener)), "what was acknowledged is delivered, and nothing else"
            await room.close()

    run(main())


def test_retained_messages_are_kept_when_they_are_handed_on() -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(Mode.HOLD)
        peer.send(message(0), message(1, 1, retain=True))
        await room.settle()
        assert len(room.core.retained) == 0
        await finish(room, listener, 2)
        late = await room.connect("late")
        late.subscribe("t", qos=1)
        await room.settle()
        assert [(packet.payload, packet.retain) for packet in late.of(Publish)] == [(b"1 ", True)]
        await room.close()

    run(main())


def test_hold_reads_no_more_than_its_bound_ahead() -> None:
    async def main() -> None:
        room, peer, listener = await open_paper(Mode.HOLD, rate=0.5)
        most = room.core.limits.max_held_bytes
        count = 4 * most // 1_000
        for number in range(count):
            peer.send(message(number, 1, size=1_000))
        await room.settle()
        conn = room.connection("p")
        assert not conn.is_reading
        assert conn.session.late_bytes <= most + 256 * 1024, "the bound, and one chunk that was read already"
        await finish(room, listener, count)
        assert len(peer.of(Puback)) == count
        await room.close()

    run(main())
