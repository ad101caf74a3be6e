"""`tidegate rpc autoscale` itself on a step of load: real router processes, each held to a share of a processor."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import uvloop

from tidegate.lab.rpc.load import calling
from tidegate.lab.rpc.world import Part, World
from tidegate.rpc import Backbone

CPU = 0.02  # processors of one router: some hundred requests a second
BASE = 20.0  # tasks a second at 1x, of two calls
FACTOR = 20
MAXIMUM = 20
COOL_DOWN = 10.0
TARGET = 1.0  # seconds a task may take
_EVERY = 0.2


def measure(is_scaled: bool, phase: float) -> dict[str, float]:
    """Three phases of `phase` seconds, with the autoscaler or with as many routers as it may start at most."""
    with World("mqtt") as world:
        if is_scaled:
            options = ("--max", MAXIMUM, "--cool-down", COOL_DOWN, "--cpu", CPU)
            routers = world.part("autoscale", *options)
        else:
            routers = world.part("router", "--replicas", MAXIMUM, "--cpu", CPU)
        world.start(world.part("gateway"), routers)
        try:
            return uvloop.run(_load(world, routers if is_scaled else None, phase))
        finally:
            routers.stop()  # an autoscaler ends its routers


async def _load(world: World, scaler: Part | None, phase: float) -> dict[str, float]:
    latencies: list[tuple[float, float]] = []  # when a task was due, and what it took
    failed = 0
    replicas: list[int] = []
    random = Random(1)

    async def one(devices: list[str], due: float) -> None:
        nonlocal failed
        outcomes = await do(devices)
        failed += any(outcome != "ack" for outcome in outcomes)
        latencies.append((due - began, time.monotonic() - due))

    async def count() -> None:
        while True:
            replicas.append(MAXIMUM if scaler is None else _children(scaler.pid))
            await asyncio.sleep(_EVERY)

    async with Backbone(world.options()) as backbone:
        do = calling(backbone, 60.0)
        await do(["0" * 12])  # an autoscaler is up before its first router is
        began = time.monotonic()
        counting = asyncio.create_task(count())
        async with asyncio.TaskGroup() as group:
            for moment in arrivals(phase):
                due = began + moment
                pause = due - time.monotonic()
                if pause > 0.0:
                    await asyncio.sleep(pause)
                devices = [f"{random.randrange(50_000):012x}" for _ in range(2)]
                group.create_task(one(devices, due))
        lasted = time.monotonic() - began
        counting.cancel()
        await asyncio.wait([counting])
    late = [due for due, seconds in latencies if seconds > TARGET]
    return {
        "tasks": len(latencies),
        "failed": failed,
        "seconds_over": len({int(due) for due in late}),
        "late": len(late) / len(latencies),
        "replica_seconds": sum(replicas) / len(replicas) * lasted,
        "most": max(replicas),
        "last": replicas[-1],
    }


def arrivals(phase: float) -> list[float]:
    """When tasks begin: 1x, 20x and 1x, evenly spaced."""
    moments = []
    at = 0.0
    while at < 3 * phase:
        moments.append(at)
        at += 1.0 / (BASE * FACTOR if phase <= at < 2 * phase else BASE)
    return moments


def _children(pid: int) -> int:
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
