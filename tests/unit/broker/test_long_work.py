"""Long work in parts: others have their turn in between, and it stops when its client does."""

import pytest

from tests.unit.broker.memory import Peer, Room, run
from tidegate.broker.holding import TURN_BUDGET
from tidegate.broker.long_work import STEP, Job
from tidegate.broker.memory import Memory
from tidegate.mqtt.packets import Pingreq, Pingresp, Suback, Subscribe, Subscription
from tidegate.mqtt.primitives import write_variable_byte_integer

FILTERS = 2_000


def _subscribe(peer: Peer) -> None:
    peer.send(
        Subscribe(
            packet_identifier=1,
            subscriptions=[Subscription(topic_filter=f"a/{number}", qos=1) for number in range(FILTERS)],
        )
    )


async def _begun(room: Room) -> Peer:
    """Somebody whose SUBSCRIBE takes long has sent it, and a PINGREQ behind it."""
    peer = await room.connect("c")
    _subscribe(peer)
    peer.send(Pingreq())
    while not len(room.core.long_work):
        await room.turn()
    return peer


def test_jobs_take_turns_and_one_that_fails_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        room = await Room.open()
        steps: list[str] = []

        def job(name: str, count: int) -> Job:
            for _ in range(count):
                steps.append(name)
                yield STEP

        def broken() -> Job:
            yield STEP
            raise ValueError("broken")

        room.core.long_work.add(job("a", 3))
        room.core.long_work.add(broken())
        room.core.long_work.add(job("b", 2))
        await room.until(lambda: not room.core.long_work)
        assert steps == ["a", "b", "a", "b", "a"]
        await room.close()

    run(main())
    assert "unexpected error in long work" in caplog.text


def test_jobs_that_take_much_memory_wait_for_room_small_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "part_bytes", 1_000)

    async def main() -> None:
        room = await Room.open()
        begun: list[str] = []
        under_way: list[int] = [0]
        most: list[int] = [0]

        def job(name: str, size: int) -> Job:
            begun.append(name)
            under_way[0] += size
            most[0] = max(most[0], under_way[0])
            for _ in range(3):
                yield STEP
            under_way[0] -= size

        work = room.core.long_work
        work.add(job("huge", 5_000), 5_000)  # alone it may go on, whatever it takes
        work.add(job("large", 900), 900)
        dropped = job("dropped", 300)
        work.add(dropped, 300)
        work.add(job("small", 50), 50)
        work.add(job("free", 0))
        work.drop(dropped)
        await room.until(lambda: not len(work))
        assert begun == ["free", "small", "large", "huge"]
        assert most[0] == 5_000 and not work._sizes
        await room.close()

    run(main())


def test_what_is_behind_a_long_subscribe_is_answered_behind_it() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await _begun(room)
        assert not peer.of(Suback) and not peer.of(Pingresp)
        await room.until(lambda: bool(peer.of(Pingresp)))
        assert [type(packet) for packet in peer.packets[-2:]] == [Suback, Pingresp]
        assert room.core.index.count == FILTERS
        await room.close()

    run(main())


def test_a_hushed_client_gets_no_subscription_until_it_goes_on() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await _begun(room)
        conn = room.connection("c")
        conn.hush()
        assert not room.core.long_work
        before = room.core.index.count
        await room.settle()
        assert room.core.index.count == before < FILTERS
        conn.unhush()
        await room.until(lambda: bool(peer.of(Pingresp)))
        assert room.core.index.count == FILTERS
        await room.close()

    run(main())


def test_an_error_late_in_a_long_packet_leaves_no_subscription() -> None:
    async def main() -> None:
        room = await Room.open()
        peer = await room.connect("c")
        body = b"\0\1\0" + b"\0\1a\0" * FILTERS + b"\0\0\0"  # the last filter is empty
        peer.transport.write(b"\x82" + write_variable_byte_integer(len(body)) + body)
        await room.until(lambda: peer.is_lost)
        assert room.core.index.count == 0 and not room.core.long_work
        await room.close()

    run(main())


def test_a_turn_is_charged_for_the_recipients_of_each_short_run() -> None:
    async def main() -> None:
        room = await Room.open()
        recipients = 100
        for number in range(recipients):
            (await room.connect(f"r{number}")).subscribe("a")
        await room.settle()
        await room.connect("c")
        room.connection("c")._take(b"\x30\x04\0\1a\0\xc0\0" * 2_000)
        assert room.core.counters.publish_sent <= 4 * TURN_BUDGET + recipients
        await room.close()

    run(main())
