"""Tasks as the thesis made them: some workers, each with one task at a time, each task some devices at once.

Latency is that of a task, measured around its calls, also if it fails.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tidegate.lab.stalls import Stalls
from tidegate.lab.statistics import percentile
from tidegate.rpc import Backbone, Call, Result

DEVICES_A_TASK = 2  # [C] of the thesis


@dataclass(slots=True)
class Run:
    """What came out; times in seconds."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    succeeded: int = 0

    @property
    def tasks(self) -> int:
        return len(self.latencies)

    def undisturbed(self, stalls: Stalls) -> list[float]:
        """Latencies of tasks during which the machine did not stand still."""
        spans = zip(self.latencies, self.ends, strict=True)
        return [latency for latency, end in spans if not stalls.touch(end - latency, end)]

    def summary(self, calls_a_task: int = DEVICES_A_TASK) -> dict[str, Any]:
        """Milliseconds, and tasks and calls a second."""
        ms = [each * 1e3 for each in self.latencies]
        return {
            "tasks": self.tasks,
            "succeeded": self.succeeded,
            "outcomes": dict(self.outcomes),
            "mean": sum(ms) / len(ms) if ms else None,
            **{f"p{share}": percentile(ms, share / 100) if ms else None for share in (50, 90, 95, 99)},
            "tasks_per_second": self.tasks / self.seconds if self.seconds else 0.0,
            "calls_per_second": self.tasks * calls_a_task / self.seconds if self.seconds else 0.0,
        }


Do = Callable[[list[str]], Awaitable[list[str]]]
"""Calls these devices and gives an outcome each; all "ack" is success."""


async def closed_loop(
    do: Do, tasks: int, workers: int, random: Random, *, devices: int = 50_000, calls: int = DEVICES_A_TASK
) -> Run:
    """`workers` take `tasks` tasks, one at a time, as fast as they go."""
    run = Run()
    left = tasks

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await one_task(do, [f"{random.randrange(devices):012x}" for _ in range(calls)], run)

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(workers, tasks)):
            group.create_task(worker())
    run.seconds = time.monotonic() - began
    return run


async def open_loop(
    do: Do, rate: float, seconds: float, random: Random, *, devices: int = 50_000, calls: int = DEVICES_A_TASK
) -> Run:
    """Tasks at a fixed rate, whatever becomes of them; a late start counts as waiting."""
    run = Run()
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(round(rate * seconds)):
            due = began + number / rate
            pause = due - time.monotonic()
            if pause > 0.0:
                await asyncio.sleep(pause)
            chosen = [f"{random.randrange(devices):012x}" for _ in range(calls)]
            group.create_task(one_task(do, chosen, run, due))
    run.seconds = time.monotonic() - began
    return run


async def one_task(do: Do, devices: list[str], run: Run, due: float | None = None) -> None:
    began = time.monotonic() if due is None else due
    outcomes = await do(devices)
    ended = time.monotonic()
    run.latencies.append(ended - began)
    run.ends.append(ended)
    run.outcomes.update(outcomes)
    run.succeeded += all(outcome == "ack" for outcome in outcomes)


def calling(backbone: Backbone, deadline: float, on_result: Callable[[Result], None] | None = None) -> Do:
    """Tasks that use a backbone."""

    async def do(devices: list[str]) -> list[str]:
        calls = [Call(device=device, method="image", fields={"price": "1.99"}) for device in devices]
        results = await backbone.call_many(calls, deadline=deadline)
        if on_result is not None:
            for result in results:
                on_result(result)
        # That something newer was shown first is no failure of the way there and back.
        return ["ack" if each.reason == "superseded" else str(each.outcome) for each in results]

    return do
