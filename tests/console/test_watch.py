"""The console's connection: what is known of the node when it is lost."""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack

from tests.console.conftest import DEADLINE
from tidegate.client import Client
from tidegate.console.watch import NodeWatch
from tidegate.testing import BrokerThread


async def become(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_probe_that_was_out_when_the_connection_was_lost_is_no_latency() -> None:
    async def run() -> tuple[float | None, float | None]:
        with ExitStack() as stack:
            broker = stack.enter_context(BrokerThread())
            watch = NodeWatch(lambda: Client(f"127.0.0.1:{broker.port}"))
            watching = asyncio.create_task(watch.run())
            await become(lambda: not watch.problem)
            # One that nobody sends, so that no answer can come before the end.
            await become(lambda: watch.latency.next_probe(time.perf_counter()))
            await asyncio.to_thread(stack.close)
            await become(lambda: watch.client is None)
            watching.cancel()
            await asyncio.wait([watching])
            now = time.perf_counter()
            return watch.latency.current(now), watch.latency.current(now + 3_600.0)

    soon, late = asyncio.run(run())
    assert soon == late


def test_since_when_the_node_is_gone_is_not_later_with_each_attempt_that_fails() -> None:
    async def run() -> None:
        attempts = 0

        def make_client() -> Client:
            nonlocal attempts
            attempts += 1
            return Client(f"127.0.0.1:{port}")

        with ExitStack() as stack:
            broker = stack.enter_context(BrokerThread())
            port = broker.port
            watch = NodeWatch(make_client)
            assert watch.lost_at > 0
            watching = asyncio.create_task(watch.run())
            await become(lambda: not watch.problem)
            assert watch.lost_at == 0
            began = time.time()
            await asyncio.to_thread(stack.close)
            await become(lambda: watch.lost_at)
            lost_at, known = watch.lost_at, attempts
            await become(lambda: attempts >= known + 3)
            watching.cancel()
            await asyncio.wait([watching])
            assert began <= lost_at == watch.lost_at

    asyncio.run(run())
