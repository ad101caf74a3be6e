"""A router process tells every second how much it took and what that cost it; see `scaler`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from tidegate.rpc.backends import make_queue
from tidegate.rpc.budget import Budget
from tidegate.rpc.errors import Unavailable
from tidegate.rpc.forward import ForwardRouter
from tidegate.rpc.options import Options, new_name
from tidegate.rpc.scaler import STATS


async def report(
    options: Options, routers: Sequence[ForwardRouter], budgets: Sequence[Budget] = (), every: float = 1.0
) -> None:
    """Until cancelled."""
    queue = make_queue(options, new_name("report"))
    await queue.open()
    try:
        before, busy = time.monotonic(), _busy(budgets)
        while True:
            await asyncio.sleep(every)
            readings = [router.meter.read() for router in routers]
            now, spent = time.monotonic(), _busy(budgets)
            content = {
                "taken": sum(each.taken for each in readings),
                "arrivals": sum(each.arrivals(now - before) for each in readings),
                "longest": max((each.longest_wait for each in readings), default=0.0),
                "busy": max(new - old for new, old in zip(spent, busy, strict=True)),
            }
            before, busy = now, spent
            try:
                await queue.announce(STATS, json.dumps(content).encode())
            except Unavailable:
                pass  # told again in a second
    finally:
        await queue.close()


def _busy(budgets: Sequence[Budget]) -> list[float]:
    """Seconds of processor by what may be short of it: each limited router, or the process as a whole."""
    return [each.spent for each in budgets] or [time.process_time()]
