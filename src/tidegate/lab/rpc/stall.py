"""One gateway of ten stalls: what the callers of the other nine notice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import uvloop

from tidegate.lab.experiment import Claim, Context, Experiment, Part, Presentation, Table, Verdict
from tidegate.lab.rpc.world import World
from tidegate.lab.statistics import percentile
from tidegate.rpc import Backbone, Behaviour, Emulator, Retry
from tidegate.rpc.backends import make_store

GATEWAYS = [f"gw{number}" for number in range(10)]
STALLED = "gw0"
LATENCY = 0.25
WINDOW = 200  # twice what is usually open at one: 1 000 callers, ten gateways
DEVICES = 5000


def run(context: Context) -> dict[str, Any]:
    callers, calm, stall = (100, 2.0, 3.0) if context.is_quick else (1000, 15.0, 30.0)
    with World("mqtt", window=WINDOW) as world:
        world.start(world.part("router", gateway=""))
        real = uvloop.run(_measure(world, callers, calm, stall))
    return {
        "parameters": {
            "callers": callers,
            "gateways": 10,
            "stall s": stall,
            "window": WINDOW,
            "latency s": LATENCY,
        },
        "real": real,
    }


async def _measure(world: World, callers: int, calm: float, stall: float) -> dict[str, Any]:
    options = world.options("")
    routes = {f"{number:012x}": GATEWAYS[number % 10] for number in range(DEVICES)}
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    outcomes: Counter[str] = Counter()
    phase, is_over = "warm", False
    random = Random(1)
    async with AsyncExitStack() as stack:
        store = make_store(options, "setup")
        await store.open()
        await store.set_routes(dict(routes))
        await store.close()
        emulator = await stack.enter_async_context(
            Emulator(options, GATEWAYS, behaviour=Behaviour(latency=LATENCY, jitter=0.2))
        )
        # Callers that are told "busy" do something else; they do not wait in line for a gateway that is ill.
        backbone = await stack.enter_async_context(Backbone(options, retry=Retry(attempts=1)))

        async def caller() -> None:
            while not is_over:
                device = f"{random.randrange(DEVICES):012x}"
                at = phase
                result = await backbone.call(device, "image", deadline=stall + 10.0)
                name = STALLED if routes[device] == STALLED else "others"
                if result.is_ok or result.reason == "superseded":
                    seconds[at, name].append(result.seconds)
                outcomes[f"{at}, {name}: {result.reason or result.outcome}"] += 1
                if result.reason == "gateway busy":
                    await asyncio.sleep(LATENCY)

        tasks = [asyncio.create_task(caller()) for _ in range(callers)]
        await asyncio.sleep(1.0)
        phase = "calm"
        await asyncio.sleep(calm)
        phase, began = "stall", time.monotonic()
        emulator.gateways[STALLED].is_stalled = True
        await asyncio.sleep(stall)
        emulator.gateways[STALLED].go_on()
        phase = "after"
        lasted = time.monotonic() - began
        await asyncio.sleep(calm / 3)
        is_over = True
        await asyncio.gather(*tasks)
    shown = {f"{at}, {name}": _percentiles(values) for (at, name), values in sorted(seconds.items())}
    return {"phases": shown, "outcomes": dict(outcomes), "stalled_seconds": lasted}


def _percentiles(values: list[float]) -> dict[str, Any]:
    ms = [each * 1e3 for each in values]
    return {"calls": len(ms), "p50": percentile(ms, 0.5), "p99": percentile(ms, 0.99)}


def present(report: dict[str, Any]) -> Presentation:
    real = report.get("real")
    if not real:
        return Presentation()
    phases = real["phases"]
    calm, stall = phases["calm, others"]["p99"], phases["stall, others"]["p99"]
    ratio = stall / calm
    claim = Claim(
        text=f"One gateway of ten stalls {real['stalled_seconds']:.0f} s: p99 of the others at most 1.5 times normal",
        paper="–",
        ours=f"{ratio:.2f} times ({calm:.0f} to {stall:.0f} ms)",
        verdict=Verdict.HOLDS if ratio <= 1.5 else Verdict.FAILS,
        short="A stalled gateway of ten: p99 of calls to the other nine",
    )
    table = Table(
        title="Calls by phase, ms",
        head=["phase, gateways", "calls", "p50", "p99"],
        rows=[
            [name, f"{row['calls']:,}", f"{row['p50']:.0f}", f"{row['p99']:.0f}"]
            for name, row in phases.items()
        ],
        note=", ".join(f"{name} {count}" for name, count in sorted(real["outcomes"].items())),
    )
    return Presentation(claims=[claim], tables=[table])


EXPERIMENT = Experiment(
    name="rpc-stall",
    title="One slow gateway",
    question="What do the callers of nine gateways notice when the tenth stops answering?",
    run=run,
    present=present,
    parts=(Part.REAL,),
)
