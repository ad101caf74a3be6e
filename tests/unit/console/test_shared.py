"""One answer for all pages, and the share of time that is spent on finding it."""

import asyncio

import pytest

from tidegate.console.errors import RoomMissing
from tidegate.console.shared import FRESH, SharedAnswer


class Lake:
    """Something to look at: each look takes its time on a clock of its own."""

    def __init__(self, takes: float) -> None:
        self.takes = takes
        self.now = 0.0
        self.looks = 0
        self.is_there = True

    def clock(self) -> float:
        return self.now

    async def look(self) -> int:
        self.looks += 1
        await asyncio.sleep(0)
        self.now += self.takes
        if not self.is_there:
            raise RoomMissing("There is no lake.", "dig one")
        return self.looks


def test_pages_that_ask_together_get_one_answer_which_is_good_for_a_second() -> None:
    async def run() -> None:
        lake = Lake(takes=0.2)
        shared = SharedAnswer[int](clock=lake.clock)
        assert await asyncio.gather(*(shared.get(lake.look) for _ in range(5))) == [1] * 5
        lake.now += FRESH - 0.01
        assert await shared.get(lake.look) == 1
        lake.now += 0.01
        assert await shared.get(lake.look) == 2

    asyncio.run(run())


def test_what_takes_long_is_looked_at_so_rarely_that_it_keeps_to_its_share() -> None:
    async def run() -> None:
        lake = Lake(takes=1.3)
        shared = SharedAnswer[int](share=50.0, clock=lake.clock)
        while lake.now < 1_000.0:
            await shared.get(lake.look)
            lake.now += 2.0  # as a page does
        assert 14 <= lake.looks <= 16
        lake.takes = 0.001
        lake.now += 70.0
        assert [await shared.get(lake.look) for _ in range(2)] == [lake.looks] * 2
        lake.now += 1.0
        assert await shared.get(lake.look) == lake.looks

    asyncio.run(run())


def test_a_failure_is_an_answer_too_and_is_over_when_the_next_look_succeeds() -> None:
    async def run() -> None:
        lake = Lake(takes=3.0)
        lake.is_there = False
        shared = SharedAnswer[int](clock=lake.clock)
        found = await asyncio.gather(*(shared.get(lake.look) for _ in range(5)), return_exceptions=True)
        assert [str(each) for each in found] == ["There is no lake."] * 5
        with pytest.raises(RoomMissing):
            await shared.get(lake.look)
        assert lake.looks == 1
        lake.is_there = True
        lake.now += FRESH
        assert await shared.get(lake.look) == 2

    asyncio.run(run())
