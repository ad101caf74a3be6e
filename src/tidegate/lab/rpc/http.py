"""The thesis's baseline under load: workers that POST, spread over replicas in turn."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import cycle
from random import Random
from typing import Any

from tidegate.lab.rpc.load import DEVICES_A_TASK, closed_loop
from tidegate.lab.rpc.world import World
from tidegate.rpc import SHELF_LABEL, Emulator
from tidegate.rpc.baseline import HttpCaller, HttpRouter

STATUS = {200: "ack", 502: "nack", 504: "timeout"}


async def http_tasks(
    world: World,
    replicas: int,
    tasks: int,
    workers: int,
    *,
    timeout: float,
    calls: int = DEVICES_A_TASK,
    seed: int = 1,
) -> dict[str, Any]:
    """Run tasks against so many replicas; a connection of its own for each call that is open, as an HTTP pool has."""
    async with AsyncExitStack() as stack:
        # One answer a message, as the thesis's: answers in bundles would be misrouted together.
        kind = replace(SHELF_LABEL, bundle=1)
        await stack.enter_async_context(Emulator(world.options(), ["000000000000"], kind))
        routers = [
            await stack.enter_async_context(HttpRouter(world.options(), timeout=timeout))
            for _ in range(replicas)
        ]
        idle: dict[int, list[HttpCaller]] = {router.port: [] for router in routers}
        turn = cycle(router.port for router in routers)

        async def one(device: str) -> str:
            port = next(turn)
            caller = idle[port].pop() if idle[port] else HttpCaller(port)
            status = await caller.call({"deviceMac": device, "type": 0, "fields": {"price": "1.99"}})
            idle[port].append(caller)
            return STATUS.get(status, "refused")

        async def do(devices: list[str]) -> list[str]:
            return list(await asyncio.gather(*map(one, devices)))

        run = await closed_loop(do, tasks, workers, Random(seed), devices=10_000_000, calls=calls)
        for callers in idle.values():
            for caller in callers:
                await caller.close()
        misrouted = sum(router.counters["misrouted"] for router in routers)
        return {**run.summary(calls), "misrouted": misrouted}
