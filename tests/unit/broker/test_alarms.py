"""Deadlines: the heap of alarms and the wheel of keep-alive."""

import asyncio
from dataclasses import dataclass
from typing import cast

from tests.unit.broker.memory import Room, run
from tidegate.broker.alarms import TICK, Alarms, KeepAlive
from tidegate.broker.connection import Connection
from tidegate.mqtt import Disconnect
from tidegate.mqtt.properties import Property


@dataclass(eq=False)
class Client:
    """All the wheel asks of a connection."""

    keep_alive: int
    last_seen: float = 0.0
    is_closing: bool = False
    is_reading: bool = True
    held: object | None = None


def watch(wheel: KeepAlive, client: Client) -> None:
    wheel.watch(cast(Connection, client), client.last_seen + client.keep_alive * 1.5)


def expired(wheel: KeepAlive, now: float) -> list[Client]:
    return cast(list[Client], list(wheel.expired(now)))


def test_alarms_fire_in_the_order_of_their_times_and_an_earlier_one_moves_the_timer() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        alarms, fired = Alarms(loop), list[str]()
        done = asyncio.Event()
        now = loop.time()
        alarms.at(now + 0.06, lambda: fired.append("late"))
        alarms.at(now + 0.06, done.set)
        alarms.at(now + 0.02, lambda: fired.append("early"))
        alarms.at(now - 1.0, lambda: fired.append("overdue"))
        async with asyncio.timeout(5):
            await done.wait()
        assert len(alarms) == 0
        alarms.close()
        return fired

    assert run(main()) == ["overdue", "early", "late"]


def test_a_thousand_alarms_of_one_moment_all_fire() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        alarms, fired = Alarms(loop), list[int]()
        for number in range(2_500):
            alarms.at(loop.time(), lambda number=number: fired.append(number))  # type: ignore[misc]
        async with asyncio.timeout(5):
            while len(fired) < 2_500:
                await asyncio.sleep(0)
        assert fired == sorted(fired)
        return len(alarms)

    assert run(main()) == 0


def test_a_client_expires_after_one_and_a_half_intervals_of_silence_and_not_before() -> None:
    wheel, client = KeepAlive(0.0), Client(10)
    watch(wheel, client)
    assert expired(wheel, 14.9) == []
    assert expired(wheel, 15.0 + 2 * TICK) == [client]


def test_a_sign_of_life_moves_the_deadline() -> None:
    wheel, client = KeepAlive(0.0), Client(10)
    watch(wheel, client)
    client.last_seen = 14.0
    assert expired(wheel, 28.9) == []
    assert len(wheel) == 1
    assert expired(wheel, 29.0 + 2 * TICK) == [client]


def test_a_client_that_is_held_or_not_read_does_not_expire() -> None:
    wheel = KeepAlive(0.0)
    held, unread = Client(1, held=object()), Client(1, is_reading=False)
    watch(wheel, held)
    watch(wheel, unread)
    assert expired(wheel, 100.0) == []
    held.held, unread.is_reading = None, True
    assert set(expired(wheel, 103.0)) == {held, unread}


def test_a_late_sweep_misses_nobody() -> None:
    wheel = KeepAlive(0.0)
    clients = [Client(seconds) for seconds in range(1, 50)]
    for client in clients:
        watch(wheel, client)
    assert set(expired(wheel, 1_000.0)) == set(clients)
    assert len(wheel) == 0


def test_clients_that_left_leave_nothing_on_the_wheel_of_keep_alive() -> None:
    async def main() -> int:
        room = await Room.open()
        for number in range(20):
            peer = await room.connect(f"c{number}", 5, keep_alive=65_535)
            peer.send(Disconnect())
            await room.settle()
        left = len(room.core.keep_alive)
        await room.close()
        return left

    assert run(main()) == 0


def test_a_client_that_comes_and_goes_has_one_alarm_for_its_session() -> None:
    async def main() -> int:
        room = await Room.open()
        for _ in range(20):
            peer = await room.connect(
                "c", 5, clean_start=False, properties={Property.SESSION_EXPIRY_INTERVAL: 86_400}
            )
            peer.send(Disconnect())
            await room.settle()
        left = len(room.core.alarms)
        await room.close()
        return left

    assert run(main()) <= 2
