"""While the node is behind, chunks wait in lanes: the most urgent first, each client's own in order, nothing lost."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker.gate_room import known, message, numbers, open_room
from tests.unit.broker.memory import Peer, Room, run
from tidegate.broker.flow_settings import (
    Backoff,
    BandName,
    FlowSettings,
    LoadLimits,
    Priority,
    PriorityClass,
)
from tidegate.broker.holding import TURN_BUDGET
from tidegate.broker.hooks import ConnectRequest, Hooks, Verdict
from tidegate.broker.listener import Listener
from tidegate.mqtt import (
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrel,
    ReasonCode,
    Subscribe,
    Subscription,
    encode_packet,
)

BEHIND = LoadLimits(high_wait=0.0, calm=3_600.0)  # any work is load, so lanes stay open
NOBODY_HELD = Backoff(policy="off")


class NameIsUser:
    """Everybody is who it says it is."""

    def authenticate(self, request: ConnectRequest) -> Verdict:
        return Verdict(user=request.username)


async def open_lanes(policy: str = "ageing", *classes: PriorityClass, hooks: Hooks | None = None) -> Room:
    """A broker that is behind, and `reader`, who sees everything in the order it was served."""
    flow = FlowSettings(backoff=NOBODY_HELD, priority=Priority(policy=policy), load=BEHIND, classes=classes)
    room = await open_room(flow, hooks)
    await room.connect("reader")
    room.peers[0].subscribe("#")
    await room.settle()
    room.core.lanes.is_open = True
    return room


async def order_of(room: Room, senders: Sequence[tuple[Peer, str]]) -> list[str]:
    """Each publishes two messages to its topic, in one turn of the loop; gives the topics as they were served."""
    watcher = room.peers[0]
    watcher.forget()
    for number, (peer, topic) in enumerate(senders):
        peer.send(message(2 * number, topic=topic), message(2 * number + 1, topic=topic))
    await room.settle()
    assert sorted(numbers(watcher)) == list(range(2 * len(senders)))
    topics = [packet.topic for packet in watcher.of(Publish)]
    assert topics[::2] == topics[1::2], "a chunk is served as a whole"
    return topics[::2]


async def senders(room: Room, **rates: float) -> list[tuple[Peer, str]]:
    """Clients that publish at these rates, to a topic of their name."""
    known(room, **rates)
    found = [(await room.connect(name), name) for name in rates]
    for each in found:  # a first chunk each, so that all of them have their place
        await order_of(room, [each])
    return found


def test_a_rare_sender_is_served_before_fast_ones_that_came_earlier() -> None:
    async def main() -> None:
        room = await open_lanes()
        found = await senders(room, fast=1_000.0, faster=5_000.0, often=10.0, rare=0.01)
        assert await order_of(room, found) == ["rare", "often", "fast", "faster"]
        assert await order_of(room, found[::-1]) == ["rare", "often", "fast", "faster"]
        await room.close()

    run(main())


def test_the_paper_serves_strictly_by_rate() -> None:
    async def main() -> None:
        room = await open_lanes("paper")
        found = await senders(room, fast=1_000.0, often=10.0, rare=0.01)
        assert await order_of(room, found) == ["rare", "often", "fast"]
        await room.close()

    run(main())


def test_without_priority_all_are_served_as_they_come() -> None:
    async def main() -> None:
        room = await open_lanes("off")
        found = [(await room.connect(name), name) for name in ("fast", "often", "rare")]
        for order in (found, found[::-1]):
            assert await order_of(room, order) == [name for _, name in order]
        await room.close()

    run(main())


def test_a_node_that_keeps_up_serves_in_the_order_of_arrival() -> None:
    async def main() -> None:
        room = await open_lanes()
        found = await senders(room, fast=1_000.0, often=10.0, rare=0.01)
        room.core.lanes.is_open = False
        assert await order_of(room, found) == ["fast", "often", "rare"]
        await room.close()

    run(main())


def test_a_rare_sender_is_known_by_what_it_sends_and_not_by_its_name_alone() -> None:
    """Nobody is served first because nothing is known of it."""

    async def main() -> None:
        room = await open_lanes()
        found = await senders(room, fast=1_000.0, often=10.0, rare=0.01)
        stranger = await room.connect("stranger")
        order = await order_of(room, [*found, (stranger, "stranger")])
        assert order[0] == "rare"
        await room.close()

    run(main())


def test_classes_by_topic_filter_user_and_listener_decide_before_rates() -> None:
    async def main() -> None:
        classes = (
            PriorityClass(name="alarms", band=BandName.URGENT, topic_filter="alarm/#"),
            PriorityClass(name="backup", band=BandName.BULK, user="backup"),
            PriorityClass(name="plant", band=BandName.URGENT, listener="mqtt://plant:1883"),
        )
        room = await open_lanes("ageing", *classes, hooks=Hooks(authenticator=NameIsUser()))
        known(room, rare=0.01, often=10.0, alarm=5_000.0, backup=0.001)
        rare = await room.connect("rare", username="someone")
        often = await room.connect("often", username="someone")
        alarm = await room.connect("alarm", username="someone")
        backup = await room.connect("backup", username="backup")
        room.listener = Listener(name="mqtt://plant:1883")
        plant = await room.connect("plant", username="someone")
        clients = [(backup, "b"), (often, "o"), (rare, "r"), (alarm, "alarm/1"), (plant, "p")]
        for each in clients:
            await order_of(room, [each])
        order = await order_of(room, clients)
        assert set(order[:3]) == {"alarm/1", "p", "r"}, "the rarest sender is as urgent as can be"
        assert order[3:] == ["o", "b"]
        # The class belongs to the topic, not to the client.
        assert (await order_of(room, [(alarm, "other"), (often, "o")]))[0] == "o"
        await room.close()

    run(main())


def test_acknowledgements_and_pingreq_do_not_wait_behind_what_others_publish() -> None:
    async def main() -> None:
        room = await open_lanes()
        client = await room.connect("client")
        client.subscribe("own", qos=1)
        await room.settle()
        room.broker.publish("own", b"7 ", qos=1)
        await room.settle()
        client.forget()
        fast = await room.connect("fast")
        fast.send(*(message(number) for number in range(10)))
        client.send(Puback(packet_identifier=1), Pingreq())
        await room.turn()
        assert len(room.core.lanes) == 1
        assert not room.session("client").inflight
        assert room.session("client").out == [b"\xd0\x00"]
        await room.settle()
        assert len(client.of(Pingresp)) == 1
        assert len(room.core.lanes) == 0
        await room.close()

    run(main())


def test_a_chunk_that_waits_is_the_only_one_that_is_read() -> None:
    async def main() -> None:
        room = await open_lanes()
        fast = await room.connect("fast")
        fast.send(*(message(number, 1, size=1_000) for number in range(1_000)))
        await room.turn()
        conn = room.connection("fast")
        assert conn.more is not None
        assert len(conn.more) <= 256 * 1_024
        assert not conn.is_reading
        await room.settle()
        assert conn.is_reading
        assert numbers(room.peers[0]) == list(range(1_000))
        await room.close()

    run(main())


@pytest.mark.parametrize("is_polite", [True, False])
def test_a_client_that_publishes_and_leaves_is_served(is_polite: bool) -> None:
    async def main() -> None:
        room = await open_lanes()
        client = await room.connect("client")
        client.send(*(message(number) for number in range(10)))
        if is_polite:
            client.send(Disconnect())
        client.transport.close()
        await room.settle()
        assert numbers(room.peers[0]) == list(range(10))
        assert "client" not in room.core.sessions
        assert len(room.core.lanes) == 0
        await room.close()

    run(main())


@pytest.mark.parametrize("before", [0, TURN_BUDGET // 5])
def test_a_fault_in_a_chunk_that_waits_ends_its_connection_and_nothing_else(before: int) -> None:
    """Also if a turn ends right before it, so that what is left begins with it."""

    async def main() -> None:
        rule = PriorityClass(name="alarms", band=BandName.URGENT, topic_filter="alarm/#")
        room = await open_lanes("ageing", rule)
        broken, other = await room.connect("broken"), await room.connect("other")
        prefix = b"".join(encode_packet(message(1, 1), 5) for _ in range(before))
        broken.transport.write(prefix + b"\x30\xff\xff\xff\xff\xff\x01\0\0\0")
        other.send(message(1, 1, "o"), message(2, 1, "o"))
        await room.settle()
        assert [packet.reason_code for packet in broken.of(Disconnect)] == [ReasonCode.MALFORMED_PACKET]
        assert [packet.packet_identifier for packet in other.of(Puback)] == [2, 3]
        assert len(room.core.lanes) == 0
        await room.close()

    run(main())


# -- nothing lost or doubled --------------------------------------------------------------------------------


@st.composite
def streams(draw: st.DrawFn, base: int) -> list[Packet]:
    """What one client may send: publishes of all kinds, numbered from `base` on, and other things between."""
    packets: list[Packet] = []
    unreleased: list[int] = []
    for number in range(base, base + draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["q0", "q0", "q1", "q2", "large", "ping", "subscribe", "release"]))
        if kind == "ping":
            packets.append(Pingreq())
        elif kind == "subscribe":
            packets.append(
                Subscribe(
                    packet_identifier=60_000 + number, subscriptions=[Subscription(topic_filter="none")]
                )
            )
        elif kind == "release" and unreleased:
            packets.append(Pubrel(packet_identifier=unreleased.pop(0)))
        else:
            qos = {"q1": 1, "q2": 2}.get(kind, 0)
            size = draw(st.sampled_from([0, 1, 100, 130, 20_000])) if kind == "large" else 5
            packet = message(number, qos, draw(st.sampled_from(["t", "t", "u/v"])), size)
            packets.append(packet)
            if qos == 2:
                unreleased.append(packet.packet_identifier or 0)
    return packets


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[int, int, bool | None]]:
    """Who writes how many bytes next, and whether lanes are opened or closed (None: left) before."""
    step = st.tuples(
        st.integers(0, 1),
        st.sampled_from([1, 2, 3, 7, 20, 50, 200, 1_000, 30_000]),
        st.sampled_from([True, False, None, None]),
    )
    return draw(st.lists(step, max_size=40))


async def play(
    sent: Sequence[list[Packet]], versions: Sequence[int], schedule: list[tuple[int, int, bool | None]] | None
) -> tuple[list[list[tuple[str, bytes, int]]], list[bytes]]:
    """What the reader got of each publisher, and the bytes each publisher got. No schedule: each at once, no lanes."""
    room = await open_lanes()
    lanes = room.core.lanes
    lanes.is_open = False
    peers = [await room.connect(f"p{number}", version) for number, version in enumerate(versions)]
    left = [
        b"".join(encode_packet(packet, version) for packet in packets)
        for packets, version in zip(sent, versions, strict=True)
    ]
    for peer in peers:
        peer.forget()
    for who, size, is_open in schedule or ():
        if is_open is not None:
            lanes.is_open = is_open
        peers[who].transport.write(left[who][:size])
        left[who] = left[who][size:]
        if size % 2:
            await room.turn()
    for peer, rest in zip(peers, left, strict=True):
        peer.transport.write(rest)
    await room.settle()
    seen = room.peers[0].messages()
    received = [bytes(peer.received) for peer in peers]
    await room.close()
    found = [[m for m in seen if int(m[1].split(b" ")[0]) // 1_000 == number] for number in range(2)]
    return found, received


@settings(max_examples=150)
@given(first=streams(0), second=streams(1_000), schedule=schedules(), version=st.sampled_from([4, 5]))
def test_chunks_cut_anywhere_and_lanes_opened_at_any_time_change_nothing_for_a_client(
    first: list[Packet], second: list[Packet], schedule: list[tuple[int, int, bool | None]], version: int
) -> None:
    sent, versions = (first, second), (5, version)
    assert run(play(sent, versions, schedule)) == run(play(sent, versions, None))
