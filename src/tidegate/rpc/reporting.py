"""A router process tells every second how much it took and what that cost it; see `scaler`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from tidegate.rpc.backends import make_queue
from tidegate.rpc.errors import Unavailable
from tidegate.rpc.forward import ForwardRouter
from tidegate.rpc.options import Options, new_name
from tidegate.rpc.scaler import STATS


async def report(options: Options, routers: Sequence[ForwardRouter], every: float = 1.0) -> None:
    """Until cancelled."""
    queue = make_queue(options, new_name("report"))
    await queue.open()
    try:
        busy = time.process_time()
        while True:
            await asyncio.sleep(every)
            readings = [router.meter.read() for router in routers]
            before, busy = busy, time.process_time()
            content = {
                "taken": sum(each.taken for each in readings),
                "longest": max((each.longest_wait for each in readings), default=0.0),
                "busy": busy - before,
            }
            try:
                await queue.announce(STATS, json.dumps(content).encode())
            except Unavailable:
                pass  # told again in a second
    finally:
        await queue.close()
