"""E4.1: 1 000 tasks, 50 workers, one replica: both backbones, the thesis's and ours, must do all of it."""

from __future__ import annotations

from random import Random
from typing import Any

import uvloop

from tidegate.lab.experiment import Claim, Context, Experiment, Part, Presentation, Table, Verdict
from tidegate.lab.rpc.http import http_tasks
from tidegate.lab.rpc.load import calling, closed_loop
from tidegate.lab.rpc.world import BACKENDS, World
from tidegate.rpc import Backbone

WORKERS = 50
DEADLINE = 60.0
# Image legends of the repository (spec 4, c): mean, median, p90, p99 in milliseconds.
THESIS = {"http baseline": (41.86, 49.0, 58.0, 85.89), "rabbitmq+redis": (43.91, 49.0, 65.0, 100.01)}


def run(context: Context) -> dict[str, Any]:
    tasks = 200 if context.is_quick else 1000
    rows = []
    for name in context.follow("e4.1 functional", ("http baseline", *BACKENDS)):
        backend = "mqtt" if name == "http baseline" else name
        with World(backend) as world:
            if name == "http baseline":
                summary = uvloop.run(http_tasks(world, 1, tasks, WORKERS, timeout=DEADLINE))
            else:
                world.start(world.part("gateway"), world.part("router"))
                summary = uvloop.run(_backbone(world, tasks))
        rows.append({"backbone": name, **summary})
    return {"parameters": {"tasks": tasks, "workers": WORKERS, "replicas": 1}, "real": rows}


async def _backbone(world: World, tasks: int) -> dict[str, Any]:
    async with Backbone(world.options()) as backbone:
        return (await closed_loop(calling(backbone, DEADLINE), tasks, WORKERS, Random(1))).summary()


def present(report: dict[str, Any]) -> Presentation:
    rows = report.get("real", [])
    if not rows:
        return Presentation()
    complete = all(row["succeeded"] == row["tasks"] for row in rows)
    counts = ", ".join(f"{row['backbone']} {row['succeeded']} of {row['tasks']}" for row in rows)
    claim = Claim(
        text="With one replica every task succeeds, on every backbone",
        paper="all of 1 000",
        ours=counts,
        verdict=Verdict.HOLDS if complete else Verdict.FAILS,
    )
    table = Table(
        title="A task of two labels, ms",
        head=["backbone", "mean", "p50", "p90", "p99", "thesis mean", "thesis p50", "thesis p99"],
        rows=[
            [
                row["backbone"],
                *(f"{row[key]:.1f}" for key in ("mean", "p50", "p90", "p99")),
                *_thesis(row["backbone"]),
            ]
            for row in rows
        ],
        note="The thesis capped its router at 0.1 of a processor (hence its mode near 50 ms); ours has no cap here.",
    )
    return Presentation(claims=[claim], tables=[table])


def _thesis(name: str) -> list[str]:
    known = THESIS.get(name)
    return ["–", "–", "–"] if known is None else [f"{known[0]:.1f}", f"{known[1]:.0f}", f"{known[3]:.1f}"]


EXPERIMENT = Experiment(
    name="e4.1-functional",
    title="Does it work at all",
    question="Do 1 000 tasks of 50 workers succeed with one replica, over HTTP and over both backends?",
    run=run,
    present=present,
    parts=(Part.REAL,),
)
