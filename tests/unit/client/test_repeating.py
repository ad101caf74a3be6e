"""Request loops: when they ask, and what a nudge does."""

import asyncio
from random import Random

import pytest

from tidegate.client.repeating import Answered, Repeating
from tidegate.flow import TIMEOUT, timeout_policy
from tidegate.flow.timeout import (
    ActiveTimeout,
    AdaptiveTimeout,
    Announcement,
    FixedTimeout,
    NoTimeout,
    PaperTimeout,
    StrategySettings,
)


async def until(condition: object, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)


async def running(repeating: Repeating, condition: object) -> None:
    task = asyncio.create_task(repeating.run())
    try:
        await until(lambda: condition() or task.done())  # type: ignore[operator]
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_it_asks_again_and_again() -> None:
    async def body() -> None:
        async def ask() -> Answered:
            return Answered(losses=1)

        repeating = Repeating(ask, FixedTimeout(0.01).loop(), Random(1))
        await running(repeating, lambda: repeating.checks >= 5)
        assert repeating.losses == repeating.checks
        assert repeating.statistics()["dropped"] == 0

    asyncio.run(body())


def test_waiting_longer_than_the_threshold_is_known_before_the_answer() -> None:
    async def body() -> None:
        release, waiting = asyncio.Event(), asyncio.Event()

        async def ask() -> Answered:
            if repeating.checks > 3:
                waiting.set()
                await release.wait()
            else:
                await asyncio.sleep(0.002)
            return Answered()

        strategy = StrategySettings(start=0.001, delta=0.001, low=0.001)
        repeating = Repeating(ask, PaperTimeout(strategy=strategy).loop(), Random(1))
        await running(repeating, lambda: waiting.is_set() and repeating.is_late)
        assert not release.is_set()
        assert repeating.statistics()["late"] >= 1

    asyncio.run(body())


def test_statistics_tell_what_the_losses_look_like() -> None:
    async def body() -> None:
        async def ask() -> Answered:
            return Answered(losses=2 * (repeating.checks % 2))

        strategy = StrategySettings(start=0.004, delta=0.002, low=0.001)
        repeating = Repeating(ask, AdaptiveTimeout(strategy).loop(), Random(1))
        await running(repeating, lambda: repeating.checks >= 8)
        found = repeating.statistics()
        assert found["kind"] == 2.0
        assert found["nu"] > 0.0
        assert found["end"] > found["tau"] > 0.0

    asyncio.run(body())


def test_a_nudge_is_answered_by_a_reaction_even_without_a_loop() -> None:
    async def body() -> None:
        async def ask() -> Answered:
            return Answered()

        repeating = Repeating(ask, NoTimeout().loop(), Random(1))
        repeating.nudge()
        await running(repeating, lambda: repeating.reactions >= 1)
        assert repeating.checks == 0

    asyncio.run(body())


def test_a_dropped_reaction_is_tried_again_by_the_product_and_left_by_the_paper() -> None:
    async def body() -> None:
        async def ask() -> Answered:
            return Answered(is_dropped=True)

        active = Repeating(ask, ActiveTimeout().loop(), Random(1))
        active.nudge(Announcement(watchers=2.0, capacity=100.0))
        await running(active, lambda: active.reactions >= 3)
        adaptive = Repeating(ask, AdaptiveTimeout().loop(), Random(1))
        adaptive.nudge()
        await running(adaptive, lambda: adaptive.reactions >= 1)
        assert adaptive.reactions == 1

    asyncio.run(body())


def test_an_answered_reaction_is_a_check_for_the_product() -> None:
    async def body() -> None:
        async def ask() -> Answered:
            return Answered(losses=1)

        repeating = Repeating(ask, ActiveTimeout().loop(), Random(1))
        repeating.nudge()
        await running(repeating, lambda: repeating.reactions == 1)
        assert repeating.loop.t_ast == 2.5

    asyncio.run(body())


def test_what_the_request_raises_ends_the_loop() -> None:
    async def body() -> None:
        async def ask() -> Answered:
            raise RuntimeError("broken")

        repeating = Repeating(ask, FixedTimeout(0.01).loop(), Random(1))
        with pytest.raises(RuntimeError):
            await running(repeating, lambda: False)

    asyncio.run(body())


@pytest.mark.parametrize("name", sorted(TIMEOUT))
def test_every_policy_can_drive_it(name: str) -> None:
    async def body() -> None:
        async def ask() -> Answered:
            return Answered(load=Announcement(rate=1000.0, capacity=1000.0, watchers=1.0))

        repeating = Repeating(ask, timeout_policy(name)().loop(), Random(1))
        repeating.nudge()
        await running(repeating, lambda: repeating.reactions == 1)

    asyncio.run(body())
