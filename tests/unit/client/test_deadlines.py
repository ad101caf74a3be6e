"""Deadlines that share a timer."""

import asyncio

import pytest
import uvloop

from tidegate.client.deadlines import Deadlines, not_acknowledged
from tidegate.client.errors import OperationTimeout


def test_each_waiter_gets_its_own_deadline() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        deadlines = Deadlines()
        early, answered, late = (loop.create_future() for _ in range(3))
        deadlines.add(early, 0.02, not_acknowledged, "early")
        deadlines.add(answered, 0.02, not_acknowledged, "a")
        deadlines.add(late, 30, not_acknowledged, "a")
        answered.set_result(1)
        with pytest.raises(OperationTimeout, match=r"0\.02 s to acknowledge a message to 'early'"):
            await early
        assert not late.done()
        second: asyncio.Future[None] = loop.create_future()
        deadlines.add(second, 0.02, not_acknowledged, "a")
        with pytest.raises(OperationTimeout):
            await second
        deadlines.close()
        assert not late.done()

    uvloop.run(main())


def test_answered_waiters_are_not_kept_behind_one_that_is_not() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        deadlines = Deadlines()
        deadlines.add(loop.create_future(), 30, not_acknowledged, "a")
        for _ in range(20_000):
            waiter = loop.create_future()
            deadlines.add(waiter, 30, not_acknowledged, "a")
            waiter.set_result(None)
        assert len(deadlines._queues[30]) < 3000
        deadlines.close()

    uvloop.run(main())
