"""E4.3: 10 000 tasks, 50 workers, routers that may use a share of a processor each: how latency falls with R."""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import uvloop

from tidegate.lab.experiment import Claim, Context, Experiment, Figure, Part, Presentation, Table, Verdict
from tidegate.lab.rpc.load import DEVICES_A_TASK, calling, closed_loop
from tidegate.lab.rpc.world import BACKENDS, World
from tidegate.lab.statistics import percentile, summarise_all
from tidegate.rpc import Backbone
from tidegate.sim import Server, Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

REPLICAS = (1, 2, 5, 10, 20, 50, 200)
REAL_REPLICAS = (1, 2, 5, 10, 20, 50)
WORKERS = 50
CPU = 0.1  # the thesis's, and the simulator's
REAL_CPU = 0.02  # ours cost so much less that with a tenth of a processor one would do
# mean, p50, p90, p99 in ms by R, 10 000 tasks (legends of the repository's images, spec 4 c).
THESIS = {2: (2046.5, 2079, 2529, 3048.3), 20: (121.38, 122, 207, 378.98), 200: (5.9, 4, 6, 57.01)}
# Seconds of processor a request costs a forward and a back router, fitted to the thesis's 20 replicas.
COST = 0.0023
ELSEWHERE = 0.0015  # seconds for queue, broker and gateway, which have no cap


def simulate(replicas: int, tasks: int, seed: int) -> dict[str, float]:
    """50 workers in a closed loop; each router is a server that works at a tenth of its speed."""
    sim = Simulation(seed)
    random = sim.random("service")
    latencies: list[float] = []
    left = tasks

    def service(_: Any) -> float:
        return random.gammavariate(4.0, COST / 4.0) / CPU

    def to_back(item: list[Any]) -> None:
        sim.after(ELSEWHERE * random.uniform(0.5, 1.5), lambda: random.choice(back).submit(item))

    def finished(item: list[Any]) -> None:
        task = item[0]
        task[1] -= 1
        if task[1] == 0:
            latencies.append(sim.now - task[0])
            start()

    # The forward queue is shared: any idle router takes the next. Replies are handed out as they come.
    forward: Server[list[Any]] = Server(sim, service=service, done=to_back, workers=replicas)
    back: list[Server[list[Any]]] = [Server(sim, service=service, done=finished) for _ in range(replicas)]

    def start() -> None:
        nonlocal left
        if left <= 0:
            return
        left -= 1
        task = [sim.now, DEVICES_A_TASK]
        for _ in range(DEVICES_A_TASK):
            forward.submit([task])

    for _ in range(WORKERS):
        start()
    sim.run()
    ms = [each * 1e3 for each in latencies]
    found = {f"p{share}": percentile(ms, share / 100) for share in (50, 90, 95, 99)}
    return {"mean": sum(ms) / len(ms), **found, "tasks_per_second": len(ms) / sim.now}


def run(context: Context) -> dict[str, Any]:
    report: dict[str, Any] = {
        "parameters": {
            "workers": WORKERS,
            "devices a task": DEVICES_A_TASK,
            "processors a router": CPU,
            "over sockets": REAL_CPU,
        },
    }
    if context.wants(Part.SIM):
        tasks = 1000 if context.is_quick else 10_000
        seeds = range(context.number_of_seeds(5, 2))
        report["sim"] = [
            {"replicas": r, **summarise_all([simulate(r, tasks, seed) for seed in seeds])}
            for r in context.follow("e4.3 simulated", REPLICAS)
        ]
    if context.wants(Part.REAL):
        tasks = 300 if context.is_quick else 10_000
        replicas = (1, 4) if context.is_quick else REAL_REPLICAS
        cases = [(backend, r) for backend in BACKENDS for r in replicas]
        report["real"] = [
            {"backend": backend, "replicas": r, **measure(backend, r, tasks)}
            for backend, r in context.follow("e4.3 over sockets", cases)
        ]
    return report


def measure(backend: str, replicas: int, tasks: int) -> dict[str, Any]:
    """Two processes hold the routers, each router with a budget of its own."""
    with World(backend) as world:
        parts = [world.part("gateway")]
        for role in ("forward", "back"):
            parts.append(world.part("router", "--role", role, "--replicas", replicas, "--cpu", REAL_CPU))
        world.start(*parts)
        return uvloop.run(_tasks(world, tasks))


async def _tasks(world: World, tasks: int) -> dict[str, Any]:
    """Every worker has a backbone of its own, as workers of the thesis were processes: calls of two tasks never share
    a message."""
    async with AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(Backbone(world.options())) for _ in range(WORKERS)]

        async def do(devices: list[str]) -> list[str]:
            backbone = idle.pop()
            try:
                return await calling(backbone, 60.0)(devices)
            finally:
                idle.append(backbone)

        await closed_loop(do, WORKERS, WORKERS, Random(2))  # connections, caches and routes are warm
        return (await closed_loop(do, tasks, WORKERS, Random(1))).summary()


def present(report: dict[str, Any]) -> Presentation:
    page = Presentation()
    sim, real = report.get("sim", []), report.get("real", [])
    if sim:
        means = [row["mean"]["mean"] for row in sim]
        falls = all(later <= earlier * 1.02 for earlier, later in pairwise(means))
        page.claims.append(
            Claim(
                text="Simulated, R = 1 to 200: more replicas, less latency",
                paper="mean 2 046 ms (R = 2), 121 ms (20), 5.9 ms (200)",
                ours=", ".join(f"{row['mean']['mean']:.0f} ms ({row['replicas']})" for row in sim),
                verdict=Verdict.HOLDS if falls else Verdict.FAILS,
                note="One cost a request, fitted at R = 20, cannot give the thesis's other rows: by it, two replicas "
                "would take ten times as long as twenty, not seventeen, and beyond 50 nothing is left to gain, since "
                "50 workers with two requests each keep 100 routers busy at most. Its runs do not follow one model.",
            )
        )
    for backend in dict.fromkeys(row["backend"] for row in real):
        page.claims.append(_real_claim(backend, [row for row in real if row["backend"] == backend]))
    page.tables.append(_table(sim, real))
    if sim:
        page.figures.append(
            Figure(
                name="replicas",
                text="Mean and p99 of a task against replicas",
                draw=lambda canvas: _draw(canvas, sim, real),
            )
        )
    return page


def _real_claim(backend: str, rows: list[dict[str, Any]]) -> Claim:
    # As long as routers are the bottleneck: after that, near the least there is, the machine is, whose two cores all
    # replicas share.
    means = [row["mean"] for row in rows]
    floor = 1.5 * min(means)
    falls = all(later <= max(earlier * 1.15, floor) for earlier, later in pairwise(means))
    timeouts = sum(row["outcomes"].get("timeout", 0) for row in rows)
    return Claim(
        text=f"Over sockets, {backend}: more capped replicas never make it slower, and nothing times out",
        paper="mean 2 046 ms (R = 2), 121 ms (20)",
        ours=", ".join(f"{row['mean']:.0f} ms ({row['replicas']})" for row in rows)
        + f"; {timeouts} timeouts",
        verdict=Verdict.HOLDS if falls and not timeouts else Verdict.FAILS,
        short=f"10 000 tasks, R capped routers, {backend}: mean of a task",
    )


def _table(sim: list[dict[str, Any]], real: list[dict[str, Any]]) -> Table:
    rows = []
    for row in real:
        values = [f"{row[key]:.1f}" for key in ("mean", "p50", "p90", "p95", "p99", "tasks_per_second")]
        rows.append([row["backend"], str(row["replicas"]), *values])
    for row in sim:
        values = [
            f"{row[key]['mean']:.1f}" for key in ("mean", "p50", "p90", "p95", "p99", "tasks_per_second")
        ]
        rows.append(["simulated", str(row["replicas"]), *values])
    for replicas, (mean, p50, p90, p99) in THESIS.items():
        rows.append(
            ["thesis", str(replicas), f"{mean}", f"{p50}", f"{p90}", "–", f"{p99}", f"{50e3 / mean:.0f}"]
        )
    return Table(
        title=f"10 000 tasks, 50 workers; a router may use {CPU:g} processors, over sockets {REAL_CPU:g}; ms",
        head=["", "R", "mean", "p50", "p90", "p95", "p99", "tasks/s"],
        rows=rows,
        note="R means R forward and R back routers. Ours are charged with all processor time of their process, in "
        "proportion to what each did, and share two cores with everything else: from where R does not help any more, "
        "broker, caller and gateway are what is slow.",
    )


def _draw(canvas: Canvas, sim: list[dict[str, Any]], real: list[dict[str, Any]]) -> None:
    axes = canvas.subplots()
    axes.plot([r["replicas"] for r in sim], [r["mean"]["mean"] for r in sim], "o-", label="simulated, mean")
    axes.plot([r["replicas"] for r in sim], [r["p99"]["mean"] for r in sim], "o:", label="simulated, p99")
    for backend in dict.fromkeys(row["backend"] for row in real):
        rows = [row for row in real if row["backend"] == backend]
        axes.plot([r["replicas"] for r in rows], [r["mean"] for r in rows], "s-", label=f"{backend}, mean")
    axes.plot(list(THESIS), [values[0] for values in THESIS.values()], "x--", label="thesis, mean")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("replicas of each router")
    axes.set_ylabel("ms a task")
    axes.legend()


EXPERIMENT = Experiment(
    name="e4.3-scaling",
    title="Replicas under a processor quota",
    question="How does the latency of a task fall with the number of routers, and where does the bottleneck move?",
    run=run,
    present=present,
)
