"""A publisher that is too fast waits, all that it sent arrives, and nobody else notices."""

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker.gate_room import ALWAYS, known, message, numbers, open_room, reader, seconds_until
from tests.unit.broker.memory import Peer, Room, run
from tidegate.broker.flow_settings import Backoff, FlowSettings, LoadLimits, Priority, PriorityClass
from tidegate.broker.gate import SUSPECT_RECEIVE_MAXIMUM, Gate
from tidegate.broker.hooks import ConnectRequest, Hooks, Verdict
from tidegate.broker.settings import Limits
from tidegate.flow.backoff import Load, Mode
from tidegate.mqtt import (
    Connack,
    Disconnect,
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
    Will,
    encode_packet,
)
from tidegate.mqtt.properties import Properties, Property

NEVER_HIGH = LoadLimits(high_wait=3_600.0, overload_wait=3_600.0)
OFF = FlowSettings(backoff=Backoff(policy="off"), priority=Priority(policy="off"))
DAY: Properties = {Property.SESSION_EXPIRY_INTERVAL: 86_400}


class NameIsUser:
    """Everybody is who it says it is."""

    def authenticate(self, request: ConnectRequest) -> Verdict:
        return Verdict(user=request.username)


def always(d_max: float) -> FlowSettings:
    return FlowSettings(backoff=Backoff(always=True, floor_rate=0, d_max=d_max))


def gate_of(room: Room) -> Gate:
    assert room.core.gate is not None
    return room.core.gate


async def burst(room: Room, peer: Peer, count: int) -> None:
    """The first message begins the clock, the others come together."""
    peer.send(message(0))
    await room.settle()
    peer.send(*(message(number) for number in range(1, count)))
    await room.settle()


async def open_held(
    d_max: float, version: int = 5, count: int = 60, **options: Any
) -> tuple[Room, Peer, Peer]:
    """`p`, who usually sends 20 messages a second, has sent sixty at once; they are through, and it is held."""
    room = await open_room(always(d_max))
    known(room, p=20.0)
    listener = await reader(room, version=version)
    peer = await room.connect("p", version, **options)
    await burst(room, peer, count)
    assert numbers(listener) == list(range(count)), (
        "what was read together is judged together, and goes through"
    )
    assert list(gate_of(room).waiters or ()) == [room.connection("p")]
    return room, peer, listener


@pytest.mark.parametrize("version", [4, 5])
def test_everything_a_held_publisher_sends_arrives_in_order_exactly_once(version: int) -> None:
    async def main() -> None:
        room, peer, listener = await open_held(0.1, version)
        peer.send(*(message(number, number % 3) for number in range(60, 160)))
        await room.settle()
        assert len(numbers(listener)) == 60
        assert not peer.of(Puback)
        for start in range(160, 220, 20):
            peer.send(*(message(number, number % 3) for number in range(start, start + 20)))
            await asyncio.sleep(0.03)
        await seconds_until(lambda: len(numbers(listener)) >= 220)
        await room.settle()
        assert numbers(listener) == list(range(220))
        assert [p.packet_identifier for p in peer.of(Puback)] == [n + 1 for n in range(60, 220) if n % 3 == 1]
        assert [p.packet_identifier for p in peer.of(Pubrec)] == [n + 1 for n in range(60, 220) if n % 3 == 2]
        counters = room.core.counters
        assert (counters.publish_received, counters.dropped, gate_of(room).shed) == (220, 0, 0)
        await room.close()

    run(main())


def test_a_held_publisher_gets_answers_to_everything_but_publishes() -> None:
    async def main() -> None:
        room, peer, listener = await open_held(5.0)
        peer.forget()
        peer.send(message(60, 1), message(61, 2), Pingreq())
        peer.subscribe("own", qos=1)
        await room.settle()
        assert [type(packet) for packet in peer.packets] == [Pingresp, Suback]
        stranger = await room.connect("x")
        stranger.send(message(7, 1, "own"))
        await room.settle()
        assert numbers(peer) == [7]
        peer.send(Puback(packet_identifier=peer.of(Publish)[0].packet_identifier or 0))
        await room.settle()
        assert not room.session("p").inflight
        assert len(numbers(listener)) == 60
        assert gate_of(room).waiters
        await room.close()

    run(main())


def test_nobody_else_is_held() -> None:
    async def main() -> None:
        room, peer, listener = await open_held(5.0)
        peer.send(message(60, 1))
        for number in range(5):
            other = await room.connect(f"other{number}")
            other.send(*(message(100 + i, i % 3) for i in range(5)))
            await room.settle()
            assert len(other.of(Puback)) + len(other.of(Pubrec)) == 3
        assert len(numbers(listener)) == 60 + 25
        assert gate_of(room).holds == 1
        await room.close()

    run(main())


def test_a_hold_is_never_longer_than_half_the_keep_alive_and_never_ends_by_it() -> None:
    async def main() -> None:
        room, peer, listener = await open_held(60.0, keep_alive=1, count=1_000)
        gate = gate_of(room)
        assert gate.held_seconds == 0.5
        # More than a turn's worth each, so that it is held again and again while the client says nothing.
        count = 4_000
        peer.send(*(message(number, size=60) for number in range(1_000, 1_000 + count)))
        began = time.monotonic()
        await seconds_until(lambda: len(numbers(listener)) == 1_000 + count, 20.0)
        assert numbers(listener) == list(range(1_000 + count))
        assert gate.holds > 3
        assert gate.held_seconds == pytest.approx(0.5 * gate.holds)
        assert time.monotonic() - began > 1.5, "longer than a silent client may live"
        assert not peer.is_lost
        await room.close()

    run(main())


def test_a_client_that_is_silent_after_its_hold_is_cut_off_as_any_other() -> None:
    async def main() -> None:
        room, peer, _ = await open_held(60.0, keep_alive=1)
        await seconds_until(lambda: peer.is_lost, 6.0)
        await room.close()

    run(main())


@pytest.mark.parametrize("closes", [True, False])
def test_disconnect_behind_held_messages_is_honoured_after_them(closes: bool) -> None:
    async def main() -> None:
        will = Will(topic="t", payload=b"666 ", qos=0, retain=False)
        room, peer, listener = await open_held(0.3, will=will)
        peer.send(*(message(number, number % 3) for number in range(60, 70)), Disconnect())
        if closes:
            peer.transport.close()  # as clients do, once they have said goodbye
        await room.settle()
        assert "p" in room.core.sessions
        await seconds_until(lambda: "p" not in room.core.sessions)
        await room.settle()
        assert numbers(listener) == list(range(70))
        await room.close()

    run(main())


def test_held_messages_of_a_connection_that_is_lost_were_never_acknowledged() -> None:
    async def main() -> None:
        room, peer, listener = await open_held(0.3, properties=DAY)
        sent = [message(60, 1), message(61, 2), message(62, 1)]
        peer.send(*sent)
        await room.settle()
        assert not peer.of(Puback)
        assert not peer.of(Pubrec)
        alarms = len(room.core.alarms)
        peer.transport.abort()
        await room.settle()
        assert not gate_of(room).waiters
        assert len(room.core.alarms) <= alarms, "one for the session's expiry, and none for the hold"
        again = await room.connect("p", clean_start=False, properties=DAY)
        for packet in sent:
            packet.dup = True
        again.send(*sent)
        await seconds_until(lambda: len(again.of(Puback)) + len(again.of(Pubrec)) == 3)
        again.send(Pubrel(packet_identifier=62))
        await room.settle()
        assert len(again.of(Pubcomp)) == 1
        assert numbers(listener) == list(range(63))
        await room.close()

    run(main())


def test_nobody_is_held_while_the_load_is_low() -> None:
    async def main() -> None:
        room = await open_room(FlowSettings(load=NEVER_HIGH, backoff=Backoff(floor_rate=0)))
        known(room, p=1.0)
        listener = await reader(room, qos=0)
        peer = await room.connect("p")
        for start in range(0, 5_000, 500):
            peer.send(*(message(number, number % 2) for number in range(start, start + 500)))
            await room.settle()
        publisher = room.connection("p").publisher
        assert publisher is not None
        assert publisher.is_suspicious, "it is noticed, and that is all"
        assert numbers(listener) == list(range(5_000))
        assert len(peer.of(Puback)) == 2_500
        gate = gate_of(room)
        assert (gate.holds, gate.held_seconds, gate.refused, gate.shed) == (0, 0.0, 0, 0)
        await room.close()

    run(main())


def test_a_calm_that_holding_achieved_does_not_let_go_until_the_probe() -> None:
    async def main() -> None:
        probe = LoadLimits(high_wait=3_600.0, overload_wait=3_600.0, probe=1.0)
        room = await open_room(FlowSettings(load=probe, backoff=Backoff(floor_rate=0, d_max=30.0)))
        known(room, p=1.0)
        gate = gate_of(room)
        gate.follow(Load.HIGH, room.core.now())
        peer = await room.connect("p")
        await burst(room, peer, 60)
        conn = room.connection("p")
        assert gate.waiters == {conn: None}
        seconds = await seconds_until(lambda: not gate.waiters)
        assert 0.9 <= seconds < 2.0
        assert gate.policy.load is Load.LOW
        assert conn.held is None
        await room.close()

    run(main())


def test_an_earlier_hold_that_was_ended_does_not_shorten_the_next() -> None:
    async def main() -> None:
        room = await open_room(ALWAYS)
        await room.connect("p")
        gate, conn = gate_of(room), room.connection("p")
        gate.hold(conn, 0.2)
        gate.release_all()
        await room.settle()
        assert conn.held is None
        gate.hold(conn, 0.6)
        assert 0.55 <= await seconds_until(lambda: not gate.waiters) < 0.9
        await room.close()

    run(main())


def test_a_publisher_that_is_too_fast_for_a_full_queue_waits_for_both() -> None:
    async def main() -> None:
        room = await open_room(always(0.1), max_queued_messages=10)
        known(room, p=20.0)
        away = await room.connect("away", properties=DAY)
        away.subscribe("t", qos=1)
        await room.settle()
        away.transport.abort()
        await room.settle()
        peer = await room.connect("p")
        for start in range(0, 90, 30):
            peer.send(*(message(number, 1) for number in range(start, start + 30)))
            await room.settle()
        assert len(peer.of(Puback)) == 10
        await asyncio.sleep(0.3)
        assert len(peer.of(Puback)) == 10
        back = await room.connect("away", clean_start=False, properties=DAY)
        acknowledged: set[int] = set()
        while len(numbers(back)) < 90:
            for packet in back.of(Publish):
                pid = packet.packet_identifier or 0
                if len(acknowledged) < 90 and (pid not in acknowledged):
                    acknowledged.add(pid)
                    back.send(Puback(packet_identifier=pid))
            await asyncio.sleep(0.01)
        assert numbers(back) == list(range(90))
        assert len(peer.of(Puback)) == 90
        await room.close()

    run(main())


# -- quotas, new settings, what stays -----------------------------------------------------------------------


def test_a_limit_for_a_user_holds_its_publishers_and_nobody_else() -> None:
    async def main() -> None:
        rule = PriorityClass(name="guests", user="guest", limit=10.0)
        flow = FlowSettings(backoff=Backoff(always=True, floor_rate=0, d_max=0.2), classes=(rule,))
        room = await open_room(flow, Hooks(authenticator=NameIsUser()))
        listener = await reader(room)
        guest = await room.connect("g", username="guest")
        staff = await room.connect("s", username="staff")
        for start in range(0, 100, 10):
            guest.send(*(message(number) for number in range(start, start + 10)))
            staff.send(*(message(number) for number in range(1_000 + start, 1_010 + start)))
            await room.settle()
        assert gate_of(room).waiters == {room.connection("g"): None}
        assert [n for n in numbers(listener) if n >= 1_000] == list(range(1_000, 1_100))
        assert len(numbers(listener)) < 200
        await seconds_until(lambda: len(numbers(listener)) == 200)
        assert [n for n in numbers(listener) if n < 1_000] == list(range(100))
        await room.close()

    run(main())


NEW_SETTINGS = [
    OFF,
    ALWAYS,
    FlowSettings(load=NEVER_HIGH),
    FlowSettings(backoff=Backoff(policy="paper", paper_d_max=0.05)),
    FlowSettings(backoff=Backoff(policy="paper", paper_d_max=0.05, mode=Mode.HOLD)),
]


@pytest.mark.parametrize("new", NEW_SETTINGS)
def test_new_settings_release_who_is_held_and_nothing_is_lost(new: FlowSettings) -> None:
    async def main() -> None:
        room, peer, listener = await open_held(3_600.0)
        peer.send(*(message(number, number % 3) for number in range(60, 70)))
        await room.settle()
        assert len(numbers(listener)) == 60
        room.broker.apply(Limits(connection_rate=0), room.core.features, new)
        peer.send(*(message(number, number % 3) for number in range(70, 75)))
        await seconds_until(lambda: len(numbers(listener)) >= 75)
        await room.settle()
        assert numbers(listener) == list(range(75))
        assert len(peer.of(Puback)) + len(peer.of(Pubrec)) == 10
        await room.close()

    run(main())


@pytest.mark.parametrize("new", NEW_SETTINGS)
@pytest.mark.parametrize("mode", [Mode.HOLD, Mode.BACKPRESSURE])
def test_new_settings_lose_nothing_that_waits_message_by_message(mode: Mode, new: FlowSettings) -> None:
    async def main() -> None:
        old = FlowSettings(backoff=Backoff(policy="paper", paper_d_max=0.4, mode=mode))
        room = await open_room(old)
        known(room, p=0.5)
        listener = await reader(room)
        peer = await room.connect("p")
        peer.send(*(message(number, number % 3) for number in range(10)))
        await room.settle()
        assert numbers(listener) == [0]
        room.broker.apply(Limits(connection_rate=0), room.core.features, new)
        peer.send(message(10))
        await room.settle()
        peer.send(*(message(number, number % 3) for number in range(11, 15)))
        await seconds_until(lambda: len(numbers(listener)) >= 15)
        await room.settle()
        assert numbers(listener) == list(range(15))
        assert not room.core.late
        assert not room.session("p").late_until
        await room.close()

    run(main())


def test_the_same_settings_again_change_nothing() -> None:
    async def main() -> None:
        room, _, _ = await open_held(3_600.0)
        before = gate_of(room)
        room.broker.apply(Limits(connection_rate=0), room.core.features, always(3_600.0))
        room.broker.apply(Limits(connection_rate=0), room.core.features)
        assert gate_of(room) is before
        assert before.waiters
        await room.close()

    run(main())


def test_who_left_under_suspicion_is_granted_a_small_receive_maximum() -> None:
    async def main() -> None:
        room, peer, _ = await open_held(0.2)
        granted = [packet.properties[Property.RECEIVE_MAXIMUM] for packet in peer.of(Connack)]
        assert granted == [room.core.limits.receive_maximum]
        peer.transport.abort()
        await room.settle()
        again, other = await room.connect("p"), await room.connect("q")
        assert again.of(Connack)[0].properties[Property.RECEIVE_MAXIMUM] == SUSPECT_RECEIVE_MAXIMUM == 16
        assert other.of(Connack)[0].properties[Property.RECEIVE_MAXIMUM] == room.core.limits.receive_maximum
        assert room.connection("p").receive_maximum == 16
        await room.close()

    run(main())


def test_known_publishers_are_forgotten_by_nobody_who_reconnects() -> None:
    """A new connection does not reset what was learnt, and the table does not grow with connections."""

    async def main() -> None:
        room, peer, _ = await open_held(0.2)
        for _ in range(20):
            peer.transport.abort()
            await room.settle()
            peer = await room.connect("p")
            await burst(room, peer, 60)
        assert len(gate_of(room).waiters or ()) == 1
        assert room.core.statistics()["backoff_known"] == 1
        await room.close()

    run(main())


# -- nothing lost or doubled --------------------------------------------------------------------------------

Step = tuple[int, bool, bool]
STEPS = st.lists(
    st.tuples(st.sampled_from([1, 2, 5, 30, 100, 1_000, 30_000]), st.booleans(), st.booleans()), max_size=30
)


@settings(max_examples=100)
@given(
    kinds=st.lists(st.sampled_from("0012ps"), min_size=1, max_size=40),
    steps=STEPS,
    version=st.sampled_from([4, 5]),
)
def test_holds_at_any_moment_lose_and_double_nothing(
    kinds: list[str], steps: list[Step], version: int
) -> None:
    """A stream cut anywhere, with holds begun and ended anywhere between."""

    async def main() -> None:
        room = await open_room(ALWAYS)
        listener = await reader(room, version=version)
        peer = await room.connect("p", version)
        peer.forget()
        gate, conn = gate_of(room), room.connection("p")
        data = b""
        for number, kind in enumerate(kinds):
            if kind == "p":
                data += encode_packet(Pingreq(), version)
            elif kind == "s":
                one = Subscription(topic_filter="none")
                data += encode_packet(Subscribe(packet_identifier=number + 1, subscriptions=[one]), version)
            else:
                data += encode_packet(message(number, int(kind), size=number % 4 * 50), version)
        for size, is_held, is_lane in steps:
            room.core.lanes.is_open = is_lane
            peer.transport.write(data[:size])
            data = data[size:]
            await room.turn()
            if is_held:
                gate.hold(conn, 0.001)
            elif size % 2:
                gate.release_all()
            await room.turn()
        peer.transport.write(data)
        await room.settle()
        gate.release_all()
        await room.settle()
        expected = [number for number, kind in enumerate(kinds) if kind in "012"]
        assert numbers(listener) == expected
        answers = {
            "1": [packet.packet_identifier for packet in peer.of(Puback)],
            "2": [packet.packet_identifier for packet in peer.of(Pubrec)],
            "s": [packet.packet_identifier for packet in peer.of(Suback)],
        }
        for kind, identifiers in answers.items():
            assert identifiers == [number + 1 for number, each in enumerate(kinds) if each == kind]
        assert len(peer.of(Pingresp)) == kinds.count("p")
        assert (conn.held, conn.held_bytes, conn.more, conn.is_reading) == (None, 0, None, True)
        await room.close()

    run(main())
