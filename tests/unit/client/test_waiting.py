"""Waiting in line: first come, first served, and whoever gives up leaves nothing behind."""

import asyncio
from collections.abc import Hashable

from tidegate.client.inbox import Inbox, Messages
from tidegate.client.message import Message
from tidegate.client.room import Room
from tidegate.client.waiters import Waiters


def message(text: str) -> Message:
    return Message(topic="t", payload=text.encode())


def test_those_who_give_up_are_forgotten() -> None:
    async def main() -> None:
        waiters = Waiters()
        for _ in range(100):
            try:
                async with asyncio.timeout(0):
                    await waiters.wait()
            except TimeoutError:
                pass
        assert len(waiters) == 0
        assert not waiters.wake_one()

    asyncio.run(main())


def test_they_are_woken_in_order_and_a_word_to_one_who_left_is_passed_on() -> None:
    async def main() -> None:
        woken: list[str] = []
        waiters = Waiters(on_missed=lambda: waiters.wake_one() and None)

        async def wait(name: str) -> None:
            await waiters.wait()
            woken.append(name)

        tasks = [asyncio.create_task(wait(name)) for name in "abc"]
        await asyncio.sleep(0)
        assert waiters.wake_one()
        tasks[0].cancel()  # after it was woken, before it could act
        await asyncio.wait(tasks[:2])
        assert woken == ["b"]
        waiters.wake_all()
        await tasks[2]
        assert woken == ["b", "c"]

    asyncio.run(main())


def test_a_message_announced_to_one_who_left_goes_to_the_next() -> None:
    async def main() -> None:
        inbox = Inbox(lambda _message: None)
        first, second = asyncio.create_task(inbox.get()), asyncio.create_task(inbox.get())
        await asyncio.sleep(0)
        inbox.put_nowait(message("one"))
        first.cancel()
        assert (await second).text == "one"

    asyncio.run(main())


def test_a_place_promised_to_one_who_left_is_free_again() -> None:
    async def main() -> None:
        used = 1
        room = Room(1, lambda: used)
        waiting = asyncio.create_task(room.wait())
        await asyncio.sleep(0)
        assert not room.is_free
        used = 0
        room.wake()
        assert not room.is_free  # promised
        waiting.cancel()
        await asyncio.wait([waiting])
        assert room.is_free

    asyncio.run(main())


class Notes:
    """A meter that writes down who took what."""

    is_on = True

    def __init__(self) -> None:
        self.taken: list[tuple[str, Hashable]] = []
        self.ended: list[Hashable] = []

    def on_taken(self, message: Message, taker: Hashable) -> None:
        self.taken.append((message.text, taker))

    def on_ended(self, taker: Hashable) -> None:
        self.ended.append(taker)


def test_whoever_asks_has_the_message_even_if_a_task_of_its_own_awaits_it() -> None:
    async def main() -> None:
        inbox, notes = Inbox(lambda _message: None), Notes()
        messages = Messages(inbox, notes)
        me = asyncio.current_task()
        inbox.put_nowait(message("one"))
        await asyncio.wait_for(anext(messages), 5)
        inbox.put_nowait(message("two"))
        await asyncio.create_task(messages.__anext__())
        assert notes.taken == [("one", me), ("two", me)]
        assert notes.ended == [me, me]

    asyncio.run(main())
