"""Checks of passwords wait in turns: no address makes the others wait for all of its own."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tidegate.accounts.passwords import TooManyLoginsError, Turns


async def _asked(turns: Turns, addresses: list[str]) -> tuple[list[str], list[asyncio.Task[None]]]:
    """They wait behind a check that is under way; the list fills in the order of their turns."""
    await turns.wait("first")
    order: list[str] = []

    async def ask(address: str) -> None:
        await turns.wait(address)
        order.append(address)

    tasks = [asyncio.create_task(ask(address)) for address in addresses]
    await asyncio.sleep(0)
    return order, tasks


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_addresses_take_turns(addresses: list[str]) -> None:
    async def work() -> None:
        turns = Turns(1)
        order, tasks = await _asked(turns, addresses)
        for _ in addresses:
            turns.next()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        rounds = [(addresses[:at].count(each), addresses.index(each), each) for at, each in enumerate(addresses)]
        assert order == [each for _, _, each in sorted(rounds)]

    asyncio.run(work())


def test_when_all_places_are_taken_the_address_with_most_gives_one_up() -> None:
    async def work() -> None:
        turns = Turns(1)
        order, tasks = await _asked(turns, ["a", "a", "a", "b"])
        assert not turns.make_room("a")
        assert turns.make_room("b")
        await asyncio.sleep(0)
        assert [isinstance(each.exception(), TooManyLoginsError) for each in tasks if each.done()] == [True]
        assert not turns.make_room("b"), "now they have as many"
        for _ in range(3):
            turns.next()
            await asyncio.sleep(0)
        assert order == ["a", "b", "a"]

    asyncio.run(work())


def test_who_left_while_it_waited_takes_no_turn() -> None:
    async def work() -> None:
        turns = Turns(1)
        order, tasks = await _asked(turns, ["a", "b"])
        tasks[0].cancel()
        await asyncio.sleep(0)
        turns.next()
        await asyncio.sleep(0)
        assert order == ["b"]
        turns.next()
        await asyncio.wait_for(turns.wait("c"), 1.0)  # the place is free

    asyncio.run(work())


def test_without_anybody_waiting_there_is_nobody_to_send_away() -> None:
    assert not Turns(1).make_room("a")
