"""What two cores can do without caps: calls a second, latency at half of that, and what each hop costs."""

from __future__ import annotations

import resource
from random import Random
from typing import Any

import uvloop

from tidegate.lab.experiment import Claim, Context, Experiment, Part, Presentation, Table, Verdict
from tidegate.lab.rpc.load import DEVICES_A_TASK, calling, closed_loop, open_loop
from tidegate.lab.rpc.world import BACKENDS, World
from tidegate.rpc import Backbone

AIMS = {"mqtt": 3000, "rabbitmq+redis": 1000}  # calls a second on two cores
P99_MS = 250.0
CALLERS = 100


def run(context: Context) -> dict[str, Any]:
    tasks, seconds = (500, 2.0) if context.is_quick else (10_000, 20.0)
    rows = []
    for backend in context.follow("throughput", BACKENDS):
        with World(backend) as world:
            parts = {"gateway": world.part("gateway"), "routers": world.part("router")}
            world.start(*parts.values())
            rows.append({"backend": backend, **uvloop.run(_measure(world, parts, tasks, seconds))})
    return {
        "parameters": {"callers": CALLERS, "tasks": tasks, "devices a task": DEVICES_A_TASK},
        "real": rows,
    }


async def _measure(world: World, parts: dict[str, Any], tasks: int, seconds: float) -> dict[str, Any]:
    processes = {"broker": world.broker, **parts}
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
        open_loops = {
            name: (await open_loop(do, rate, seconds, Random(3))).summary() for name, rate in rates.items()
        }
        return {"full": full, **open_loops, "cost_us": cost, "caller": backbone.statistics()}


def _own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def present(report: dict[str, Any]) -> Presentation:
    page = Presentation()
    rows = report.get("real", [])
    for row in rows:
        aim = AIMS[row["backend"]]
        rate, p99 = row["full"]["calls_per_second"], row["half"]["p99"]
        failed = (
            row["full"]["tasks"] - row["full"]["succeeded"] + row["half"]["tasks"] - row["half"]["succeeded"]
        )
        holds = rate >= aim and p99 < P99_MS and not failed
        page.claims.append(
            Claim(
                text=f"{row['backend']}: at least {aim} calls a second on two cores, p99 under {P99_MS:g} ms at half",
                paper="–",
                ours=f"{rate:,.0f}/s; p99 {p99:.0f} ms at {row['half']['calls_per_second']:,.0f}/s; {failed} failed",
                verdict=Verdict.HOLDS if holds else Verdict.FAILS,
                short=f"RPC on {row['backend']}, no caps, two cores",
            )
        )
    if rows:
        names = list(rows[0]["cost_us"])
        page.tables.append(
            Table(
                title="Processor time of a call by part, µs",
                head=["backend", *names, "calls/s", "p50 ms", "p99 ms", "p99 ms at half of that"],
                rows=[
                    [
                        row["backend"],
                        *(f"{row['cost_us'][name]:.0f}" for name in names),
                        f"{row['full']['calls_per_second']:,.0f}",
                        f"{row['full']['p50']:.1f}",
                        f"{row['full']['p99']:.1f}",
                        f"{row.get('half_of_most', row['half'])['p99']:.1f}",
                    ]
                    for row in rows
                ],
                note="Full load, 100 callers with two calls each. A call is three messages of the broker (routing, "
                "action, response) and a fourth, or RabbitMQ, for the reply; calls of one turn share one. RabbitMQ and "
                "Redis are processes of their own and not in this table.",
            )
        )
    return page


EXPERIMENT = Experiment(
    name="rpc-throughput",
    title="Calls a second on two cores",
    question="How many calls can it do, what is the latency at half of that, and what does each part cost?",
    run=run,
    present=present,
    parts=(Part.REAL,),
)
