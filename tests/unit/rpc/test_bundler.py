"""Bundles: what is added together leaves together, a lone thing leaves at once, and nothing is lost."""

import asyncio

from tidegate.rpc.budget import Budget, Overhead
from tidegate.rpc.bundler import Bundler
from tidegate.rpc.stats import Meter


def test_what_is_added_in_one_turn_leaves_together() -> None:
    async def scenario() -> None:
        sent: list[list[int]] = []

        async def send(bundle: list[int]) -> None:
            sent.append(bundle)

        bundler = Bundler(send, limit=10)
        for number in range(25):
            bundler.add(number)
        assert len(bundler) == 25
        await bundler.drain()
        assert [len(bundle) for bundle in sent] == [10, 10, 5]
        assert [number for bundle in sent for number in bundle] == list(range(25))
        assert bundler.is_idle

    asyncio.run(scenario())


def test_a_bundle_is_bounded_by_its_size_too() -> None:
    async def scenario() -> None:
        sent: list[list[int]] = []

        async def send(bundle: list[int]) -> None:
            sent.append(bundle)

        bundler = Bundler(send, limit=3, size=lambda number: number, max_size=10)
        for number in (4, 5, 6, 40, 1, 1, 1, 1, 10):
            bundler.add(number)
        await bundler.drain()
        assert sent == [[4, 5], [6], [40], [1, 1, 1], [1], [10]]

    asyncio.run(scenario())


def test_while_sends_are_under_way_bundles_grow() -> None:
    async def scenario() -> None:
        sent: list[list[int]] = []
        gate = asyncio.Event()

        async def send(bundle: list[int]) -> None:
            sent.append(bundle)
            await gate.wait()

        bundler = Bundler(send, limit=100, at_once=1)
        bundler.add(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for number in range(1, 50):
            bundler.add(number)
            await asyncio.sleep(0)
        gate.set()
        await bundler.drain()
        assert [len(bundle) for bundle in sent] == [1, 49]

    asyncio.run(scenario())


def test_a_send_that_fails_stops_no_other() -> None:
    async def scenario() -> None:
        sent: list[int] = []

        async def send(bundle: list[int]) -> None:
            if 3 in bundle:
                raise ValueError("three")
            sent.extend(bundle)

        bundler = Bundler(send, limit=1, at_once=1)
        for number in range(6):
            bundler.add(number)
        await bundler.drain()
        assert sent == [0, 1, 2, 4, 5]

    asyncio.run(scenario())


def test_closing_drops_what_waits() -> None:
    async def scenario() -> None:
        async def send(bundle: list[int]) -> None:
            await asyncio.Event().wait()

        bundler = Bundler(send, limit=1, at_once=1)
        for number in range(3):
            bundler.add(number)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await bundler.close()
        assert len(bundler) == 0

    asyncio.run(scenario())


def test_a_pause_gathers_what_comes_between_two_sends() -> None:
    async def scenario() -> None:
        sent: list[list[int]] = []
        began: list[float] = []

        async def send(bundle: list[int]) -> None:
            began.append(asyncio.get_running_loop().time())
            sent.append(bundle)

        bundler = Bundler(send, limit=10, at_once=1, pause=0.05)
        bundler.add(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sent == [[0]]  # the first waits for nothing
        for number in range(1, 5):
            bundler.add(number)
            await asyncio.sleep(0)
        await bundler.drain()
        assert sent == [[0], [1, 2, 3, 4]] and began[1] - began[0] >= 0.049

    asyncio.run(scenario())


def test_a_budget_makes_wait_who_overdraws_it() -> None:
    async def scenario() -> None:
        budget = Budget(0.1, Overhead(), period=0.05)
        await budget.wait()
        assert budget.waited == 0.0
        budget.spend(0.0151)  # three periods' worth
        await budget.wait()
        assert budget.waited > 0.05 and budget.spent >= 0.0151

    asyncio.run(scenario())


def test_a_meter_tells_of_the_time_since_it_was_read() -> None:
    meter = Meter()
    for waited in (0.1, 0.3, -0.2):
        meter.arrived(waited)
    assert meter.read() == (3, 0.3, -0.1)
    assert meter.read() == (0, 0.0, 0.0)
