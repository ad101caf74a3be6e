"""What two cores can do without caps: calls a second, latency at half of that, and what each hop costs."""

from __future__ import annotations

import resource
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import uvloop

from tidegate.lab.experiment import Claim, Context, Experiment, Figure, Part, Presentation, Table, Verdict
from tidegate.lab.rpc.load import DEVICES_A_TASK, calling, closed_loop, open_loop
from tidegate.lab.rpc.world import BACKENDS, World
from tidegate.lab.stalls import StallWatch
from tidegate.lab.statistics import percentile
from tidegate.rpc import Backbone
from tidegate.rpc.telemetry import Step
from tidegate.rpc.trace import TraceFile, assemble, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

AIMS = {"mqtt": 3000, "rabbitmq+redis": 1000}  # calls a second on two cores
P99_MS = 250.0
CALLERS = 100
WAY = (Step.CALL, Step.FORWARD, Step.GATEWAY, Step.BACK, Step.REPLY)
HOPS = ("caller to forward router", "to gateway", "to back router", "to caller")
"""PUBACK comes back to the forward router beside the way of a request, so it is no hop of it."""


def run(context: Context) -> dict[str, Any]:
    tasks, seconds = (500, 2.0) if context.is_quick else (10_000, 20.0)
    rows = []
    for backend in context.follow("throughput", BACKENDS):
        with World(backend) as world:
            parts = {"gateway": world.part("gateway"), "routers": world.part("router")}
            world.start(*parts.values())
            row = {"backend": backend, **uvloop.run(_measure(world, parts, tasks, seconds))}
            for part in parts.values():
                part.stop()
            traces = world.folder / "traces"
            world.start(world.part("gateway", trace=traces), world.part("router", trace=traces))
            row["hops_ms"] = uvloop.run(_hops(world, traces, min(seconds, 5.0)))
            rows.append(row)
    return {
        "parameters": {"callers": CALLERS, "tasks": tasks, "devices a task": DEVICES_A_TASK},
        "real": rows,
    }


async def _measure(world: World, parts: dict[str, Any], tasks: int, seconds: float) -> dict[str, Any]:
    processes: dict[str, Any] = {"broker": world.broker, **parts}
    if world.rabbit is not None and world.redis is not None:
        processes |= {"RabbitMQ": world.rabbit, "Redis": world.redis}
    async with Backbone(world.options(), name="lab") as backbone:
        do = calling(backbone, 30.0)
        await closed_loop(do, max(200, tasks // 20), CALLERS, Random(2))
        before = {name: part.cpu_seconds() for name, part in processes.items()}
        own = _own_cpu()
        full = (await closed_loop(do, tasks, CALLERS, Random(1))).summary()
        calls = tasks * DEVICES_A_TASK
        cost = {name: (part.cpu_seconds() - before[name]) / calls * 1e6 for name, part in processes.items()}
        cost["caller"] = (_own_cpu() - own) / calls * 1e6
        # At half of the aim, which is judged, and at half of what it can do with full bundles.
        rates = {
            "half": AIMS[world.backend] / DEVICES_A_TASK / 2,
            "half_of_most": full["tasks_per_second"] / 2,
        }
        open_loops = {}
        for name, rate in rates.items():
            with StallWatch() as watch:
                run = await open_loop(do, rate, seconds, Random(3))
            calm = [each * 1e3 for each in run.undisturbed(watch.stalls)]
            open_loops[name] = run.summary() | {
                "calm_p99": percentile(calm, 0.99) if calm else None,
                "disturbed": 1.0 - len(calm) / run.tasks,
            }
        return {"full": full, **open_loops, "cost_us": cost, "caller": backbone.statistics()}


async def _hops(world: World, traces: Path, seconds: float) -> dict[str, float]:
    """Mean milliseconds between two hops of a call, at half of the aim."""
    with TraceFile(traces, "caller") as file:
        async with Backbone(world.options(), name="traced", observer=file) as backbone:
            rate = AIMS[world.backend] / DEVICES_A_TASK / 2
            await open_loop(calling(backbone, 30.0), rate, seconds, Random(4))
    for part in world.parts:
        part.stop()  # so that all they know is written
    sums: dict[str, float] = dict.fromkeys(HOPS, 0.0)
    count = 0
    for trace in assemble(read(traces)).values():
        times = trace.times()
        if all(step in times for step in WAY):
            count += 1
            moments = [times[step] for step in WAY]
            for name, (earlier, later) in zip(HOPS, pairwise(moments), strict=True):
                sums[name] += (later - earlier) * 1e3
    return {name: each / max(1, count) for name, each in sums.items()}


def _own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def present(report: dict[str, Any]) -> Presentation:
    page = Presentation()
    rows = report.get("real", [])
    for row in rows:
        aim = AIMS[row["backend"]]
        rate, half = row["full"]["calls_per_second"], row["half"]
        p99 = half.get("calm_p99") or half["p99"]
        failed = (
            row["full"]["tasks"] - row["full"]["succeeded"] + row["half"]["tasks"] - row["half"]["succeeded"]
        )
        holds = rate >= aim and p99 < P99_MS and not failed
        page.claims.append(
            Claim(
                text=f"{row['backend']}: at least {aim} calls a second on two cores, p99 under {P99_MS:g} ms at half",
                paper="–",
                ours=f"{rate:,.0f}/s; p99 {p99:.0f} ms at {half['calls_per_second']:,.0f}/s; {failed} failed",
                note=f"{row['backend']}: {half.get('disturbed', 0.0):.1%} of the tasks at half load met a moment at "
                f"which the host gave the processors to others, and are left out; p99 of all is {half['p99']:.0f} ms.",
                verdict=Verdict.HOLDS if holds else Verdict.FAILS,
                short=f"RPC on {row['backend']}, no caps, two cores",
            )
        )
    if rows:
        names = list(rows[-1]["cost_us"])
        page.tables.append(
            Table(
                title="Processor time of a call by part, µs",
                head=["backend", *names, "calls/s", "p50 ms", "p99 ms", "p99 ms at half of that"],
                rows=[
                    [
                        row["backend"],
                        *(f"{row['cost_us'][name]:.0f}" if name in row["cost_us"] else "–" for name in names),
                        f"{row['full']['calls_per_second']:,.0f}",
                        f"{row['full']['p50']:.1f}",
                        f"{row['full']['p99']:.1f}",
                        f"{row.get('half_of_most', row['half'])['p99']:.1f}",
                    ]
                    for row in rows
                ],
                note="Full load, 100 callers with two calls each. A call is three messages of the broker (routing, "
                "action, response) and a fourth, or RabbitMQ, for the reply; calls of one turn share one.",
            )
        )
        if "hops_ms" in rows[0]:
            page.tables.append(
                Table(
                    title="Mean time of a call by hop at half of the aim, ms",
                    head=["backend", *HOPS],
                    rows=[
                        [row["backend"], *(f"{row['hops_ms'][name]:.2f}" for name in HOPS)] for row in rows
                    ],
                    note="From traces of every call, which cost some time of their own. With RabbitMQ, bundles leave "
                    "at most every 5 ms, since each costs the same whatever is in it.",
                )
            )
        page.figures.append(
            Figure(
                name="cost",
                text="Processor time of a call by part, both backends",
                draw=lambda canvas: _draw(canvas, rows),
            )
        )
    return page


def _draw(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    axes = canvas.subplots()
    backends = [row["backend"] for row in rows]
    before = [0.0] * len(rows)
    for name in rows[-1]["cost_us"]:
        values = [row["cost_us"].get(name, 0.0) for row in rows]
        axes.barh(backends, values, left=before, label=name)
        before = [old + new for old, new in zip(before, values, strict=True)]
    axes.set_xlabel("processor time of a call, µs")
    axes.legend()


EXPERIMENT = Experiment(
    name="rpc-throughput",
    title="Calls a second on two cores",
    question="How many calls can it do, what is the latency at half of that, and what does each part cost?",
    run=run,
    present=present,
    parts=(Part.REAL,),
)
