"""What clients make the node keep is counted, whatever they do: the sums are compared with what is there."""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.unit.broker.memory import Peer, Room, run
from tidegate.broker import memory
from tidegate.broker.connection import Connection
from tidegate.broker.core import Core
from tidegate.broker.hooks import ConnectRequest, Hooks, Verdict
from tidegate.broker.memory import Memory
from tidegate.broker.retained import kept_size
from tidegate.broker.session import SESSION_BYTES, subscription_bytes, will_bytes
from tidegate.broker.settings import Limits
from tidegate.mqtt import Connect, Property, Puback, Publish, Subscribe, Unsubscribe, Will, encode_packet
from tidegate.mqtt.packets import Disconnect, Subscription

USERS = ("ann", "bob")
CLIENTS = ("a1", "a2", "b1", "x1")  # of the user whose name begins alike, or of nobody
TOPICS = ("t", "t/1", "t/2/3")
FILTERS = ("t", "t/#", "t/+", "$share/g/t/#", "+/2/3")


class ByName:
    """Everybody is who they say."""

    def authenticate(self, request: ConnectRequest) -> Verdict:
        return Verdict(user=request.username)


def check(core: Core) -> None:
    sessions = list(core.sessions.values()) + list(core.estates)
    of_user: dict[str | None, int] = {}
    for session in sessions:
        kept = SESSION_BYTES + len(session.client_id) + will_bytes(session.will)
        kept += sum(map(subscription_bytes, session.subscriptions))
        assert session.kept_bytes == kept
        of_user[session.user] = of_user.get(session.user, 0) + kept + session.queued_bytes
    retained = [each for each in core.retained.match(b"#") if each is not None]
    for message in retained:
        if message.author is not None:
            of_user[message.author.user] = of_user.get(message.author.user, 0) + kept_size(message)
    assert {user: account.kept_bytes for user, account in core.accounts._accounts.items()} == of_user
    assert core.accounts.nobody.kept_bytes == 0
    assert core.retained.size_bytes == sum(map(kept_size, retained))
    assert core.memory.kept_bytes == sum(each.kept_bytes for each in sessions) + core.retained.size_bytes
    assert core.queued_bytes == sum(each.queued_bytes for each in sessions)


@pytest.mark.parametrize("seed", range(20))
def test_the_sums_are_right_after_whatever_clients_do(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        room = await Room.open(Limits(connection_rate=0, max_queued_messages=5), hooks=Hooks(authenticator=ByName()))
        here: dict[str, Peer] = {}

        async def come(client: str) -> None:
            will = Will(topic="t", payload=bytes(random.randrange(50)), retain=random.random() < 0.5)
            here[client] = await room.connect(
                client,
                username={"a": "ann", "b": "bob"}.get(client[0]),
                clean_start=random.random() < 0.2,
                properties={Property.SESSION_EXPIRY_INTERVAL: random.choice((0, 100))},
                will=random.choice((None, will)),
            )

        for step in range(60):
            client = random.choice(CLIENTS)
            peer = here.get(client)
            if peer is None or peer.is_lost:
                await come(client)
                continue
            message = Publish(
                topic=random.choice(TOPICS),
                payload=bytes(random.randrange(40)),
                qos=1,
                packet_identifier=step + 1,
                retain=random.random() < 0.5,
            )
            wanted = [Subscription(topic_filter=each, qos=1) for each in random.sample(FILTERS, 3)]
            action: Any = random.choice((
                message,
                message,
                message,
                Subscribe(packet_identifier=1, subscriptions=wanted),
                Unsubscribe(packet_identifier=1, topic_filters=random.sample(FILTERS, 2)),
                Disconnect(reason_code=random.choice((0, 4))),
                None,
            ))  # fmt: skip
            if action is None:
                peer.transport.abort()
            elif random.random() < 0.3 and (got := peer.of(Publish)):
                peer.send(*(Puback(packet_identifier=each.packet_identifier) for each in got if each.qos == 1))
                peer.forget()
            else:
                peer.send(action)
            await room.settle()
            check(room.core)
        for session in list(room.core.sessions.values()):
            room.core.end_by_order(session)
        await room.settle()
        check(room.core)
        for topic in TOPICS:
            room.core.retained.remove(topic.encode())
        assert room.core.memory.kept_bytes == room.core.queued_bytes == 0 and not room.core.accounts._accounts
        await room.close()

    run(main())


def test_a_connection_that_ended_in_the_midst_of_long_work_leaves_nothing_behind() -> None:
    """Without the collector of cycles: there may be long between two of its runs."""

    async def main() -> None:
        room = await Room.open()
        gc.collect()
        gc.disable()
        try:
            before = _connections()
            for number in range(3):
                peer = await room.connect(f"c{number}")
                wanted = [Subscription(topic_filter=f"{number}/{each}", qos=1) for each in range(3_000)]
                peer.send(Subscribe(packet_identifier=1, subscriptions=wanted))
                peer.transport.write(b"\x30\xff\x7f\0\1a")  # and half a packet behind it
                while not len(room.core.long_work):
                    await room.turn()
                peer.transport.abort()
                room.peers.clear()
                del peer
                await room.settle()
            assert not len(room.core.long_work) and not len(room.core.unfinished)
            assert _connections() == before
        finally:
            gc.enable()
        await room.close()

    run(main())


def _connections() -> int:
    return sum(isinstance(each, Connection) for each in gc.get_objects())


def test_who_publishes_and_leaves_in_one_go_is_known_and_not_counted_among_those_who_are_there() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await room.connect("c")
        peer.send(Publish(topic="t", payload=b"x"), Publish(topic="t", payload=b"y"), Disconnect())
        await room.settle()
        gate = room.core.gate
        assert gate is not None and len(gate._table) == 1
        assert not gate._table.is_connected("c", "")
        await room.close()

    run(main())


def test_the_connection_of_the_user_with_most_unfinished_bytes_gives_way_the_longest_unfinished_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Memory, "part_bytes", 310_000)

    async def main() -> None:
        limits = Limits(connection_rate=0, max_packet_size=260_000)
        room = await Room.open(limits, hooks=Hooks(authenticator=ByName()))
        head = b"\x30\x90\xa1\x0f\0\1a"  # of 250 000 bytes
        slow = await room.connect("slow", username="ann")
        slow.transport.write(head + bytes(60_000))
        await room.settle()
        others = [await room.connect(f"b{number}", username="bob") for number in range(4)]
        for number, peer in enumerate(others):
            room.connection(f"b{number}").address = f"192.0.2.{number}"  # one user, whatever the addresses
            peer.transport.write(head + bytes(60_000))
            await room.settle()
        assert not any(each.is_lost for each in (slow, *others))
        others[1].transport.write(bytes(20_000))
        await room.settle()
        assert [each.is_lost for each in (slow, *others)] == [False, True, False, False, False]
        assert room.core.unfinished.size_bytes == sum(len(each.rest or b"") for each in room.core.connections)
        for peer in (slow, *others):
            peer.transport.abort()
        await room.settle()
        assert room.core.unfinished.size_bytes == len(room.core.unfinished) == 0
        assert room.core.statistics()["memory_gave_way"] == 1
        await room.close()

    run(main())


def test_a_packet_as_large_as_it_may_be_is_taken_whatever_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "part_bytes", 10_000)

    async def main() -> None:
        room = await Room.open()
        peer = await room.connect("c")
        peer.subscribe("t")
        peer.send(Publish(topic="t", payload=bytes(900_000)))
        await room.settle()
        assert len(peer.messages()) == 1
        await room.close()

    run(main())


def _is_over(monkeypatch: pytest.MonkeyPatch, is_over: Callable[[], bool]) -> None:
    """Whether the process has more than its bound is the test's to say."""
    monkeypatch.setattr(memory, "process_memory_bytes", lambda: 110_000_000 if is_over() else 50_000_000)


def test_a_connection_may_give_way_in_the_midst_of_its_own_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        room = await Room.open(Limits(connection_rate=0, max_memory=100_000_000))
        half = await room.connect("half")
        half.transport.write(b"\x30\x80\x80\x3e\0\1a" + bytes(60_000))
        await room.settle()
        states.append(True)
        room.core.memory.look_at_received = 0
        half.transport.write(bytes(60_000))
        await room.settle()
        assert half.is_lost and not len(room.core.unfinished)
        states.clear()
        await room.until(lambda: not room.core.memory._is_relieving)
        wanted = [Subscription(topic_filter=f"{each}/{'x' * 60}", qos=1) for each in range(9_000)]
        many = await room.connect("many")
        conn = room.connection("many")
        many.send(Subscribe(packet_identifier=1, subscriptions=wanted))
        while len(conn.session.subscriptions) < 1_000:
            await room.turn()
        states.append(True)
        await room.until(lambda: many.is_lost)
        states.clear()
        assert not room.core.sessions and room.core.index.count == room.core.memory.kept_bytes == 0
        await room.close()

    states: list[bool] = []
    _is_over(monkeypatch, lambda: bool(states))
    run(main())


def test_what_is_sent_again_goes_before_what_is_new_and_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast the client reads, and whatever it acknowledges meanwhile."""
    monkeypatch.setattr("tidegate.net.memory.DEFAULT_HIGH_WATER_BYTES", 8_000_000)
    forever = {Property.SESSION_EXPIRY_INTERVAL: 100, Property.RECEIVE_MAXIMUM: 65_535}

    async def main() -> None:
        room = await Room.open()
        first = await room.connect("s", properties=forever)
        first.subscribe("t", 1)
        publisher = await room.connect("p")
        await room.settle()
        for number in range(50):
            body = number.to_bytes(4) + bytes(60_000)
            publisher.send(Publish(topic="t", payload=body, qos=1, packet_identifier=number + 1))
            await room.settle()
        first.transport.abort()
        await room.settle()
        again = room.dial()
        again.send(
            Connect(client_id="s", clean_start=False, properties=forever),
            *(Puback(packet_identifier=each) for each in range(50, 40, -1)),
        )
        number = 50
        while number < 53:
            await room.turn()
            conn = room.session("s").conn
            if conn is not None and room.session("s").unsent is not None:
                assert sum(map(len, room.session("s").out)) < 700_000
                body = number.to_bytes(4) + b"x"
                publisher.send(Publish(topic="t", payload=body, qos=1, packet_identifier=number + 1))
                number += 1
        await room.settle()
        found = [int.from_bytes(each.payload[:4]) for each in again.of(Publish)]
        assert found == sorted(found) and found[-3:] == [50, 51, 52] and set(found) >= set(range(40))
        await room.close()

    run(main())


def test_half_a_packet_of_a_hushed_client_is_kept() -> None:
    async def main() -> None:
        room = await Room.open()
        reader = await room.connect("r")
        reader.subscribe("t")
        peer = await room.connect("p")
        await room.settle()
        data = encode_packet(Publish(topic="t", payload=bytes(30_000)), 5)
        peer.transport.write(data[:20_000])
        await room.settle()
        conn = room.connection("p")
        conn.hush()
        conn.data_received(data[20_000:25_000])  # what the transport had read already
        conn.unhush()
        await room.settle()
        peer.transport.write(data[25_000:])
        await room.settle()
        assert len(reader.messages()) == 1 and not len(room.core.unfinished)
        await room.close()

    run(main())


def test_a_retained_message_keeps_nothing_that_was_made_for_those_who_got_it() -> None:
    async def main() -> None:
        room = await Room.open()
        for version in (4, 5):
            (await room.connect(f"r{version}", version)).subscribe("t/#", 1)
        publisher = await room.connect("p")
        await room.settle()
        for qos in (0, 1):
            identifier = 1 if qos else None
            publisher.send(
                Publish(topic=f"t/{qos}", payload=b"x", qos=qos, packet_identifier=identifier, retain=True)
            )
        await room.settle()
        for message in room.core.retained.match(b"t/#"):
            assert [message.q0v4, message.q0v5, message.head4, message.head5, message.tail5] == [None] * 5
        await room.close()

    run(main())


def test_the_work_of_a_client_that_left_is_told() -> None:
    async def main() -> None:
        room = await Room.open(Limits(connection_rate=0), hooks=Hooks(authenticator=ByName()))
        peer = await room.connect("c", username="ann", properties={Property.SESSION_EXPIRY_INTERVAL: 100})
        peer.send(*(Publish(topic=f"t/{number}", payload=b"x") for number in range(500)))
        await room.settle()
        peer.transport.abort()
        await room.settle()
        assert room.core.accounts.find("ann").work == room.core.counters.work > 500
        await room.close()

    run(main())
