"""E4.4: what happens when two callers call one label at once: the thesis's design and ours."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import uvloop

from tidegate.lab.experiment import Claim, Context, Experiment, Figure, Part, Presentation, Table, Verdict
from tidegate.lab.rpc.world import BACKENDS, World
from tidegate.lab.statistics import percentile, show, summarise
from tidegate.rpc import Backbone, BackRouter, Behaviour, Emulator, ForwardRouter, Outcome, Result
from tidegate.rpc.protocols import Address, Entry
from tidegate.sim import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SHARES = (0.0, 0.01, 0.1, 0.5)
WORKERS = 50
HOT = "ffffffffffff"


class ThesisMemory:
    """The thesis's shared memory: one return address for a device, the latest, and reading leaves it (hazards 1, 2)."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._addresses: dict[str, Address] = {}

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def send_off(self, entries: Sequence[Entry], silent: Sequence[Entry]) -> list[str | None]:
        for each in (*entries, *silent):
            self._addresses[each.device] = Address(each.reply_to, each.correlation)
        return [self._gateway] * (len(entries) + len(silent))

    async def take(self, keys: Sequence[tuple[str, str]]) -> list[Address | None]:
        return [self._addresses.get(device) for device, _ in keys]

    async def lease(self, device: str, holder: str, seconds: float) -> int | None:
        return 1

    async def release(self, device: str, holder: str) -> None: ...
    async def set_routes(self, routes: dict[str, str | None]) -> None: ...

    async def routes(self) -> dict[str, str]:
        return {}


def simulate(share: float, design: str, tasks: int, seed: int) -> dict[str, int]:
    """Calls on the virtual clock, matched by device (`thesis`) or by request: wrong and lost replies."""
    sim = Simulation(seed)
    random = sim.random("calls")
    address: dict[str, int] = {}
    got: dict[int, int] = {}
    made = 0

    def start() -> None:
        nonlocal made
        number = made
        made += 1
        device = "hot" if random.random() < share else f"cold{number}"
        sim.after(random.uniform(0.0005, 0.002), lambda: forward(device, number))

    def forward(device: str, number: int) -> None:
        address[device if design == "thesis" else f"{device}/{number}"] = number
        sim.after(random.uniform(0.002, 0.02), lambda: back(device, number))

    def back(device: str, number: int) -> None:
        key = device if design == "thesis" else f"{device}/{number}"
        caller = address.get(key)
        if design != "thesis":
            address.pop(key, None)
        if caller is not None:
            got.setdefault(caller, number)
        if made < tasks:
            start()

    for _ in range(WORKERS):
        start()
    sim.run()
    wrong = sum(caller != number for caller, number in got.items())
    return {"calls": made, "wrong": wrong, "lost": made - len(got)}


def run(context: Context) -> dict[str, Any]:
    report: dict[str, Any] = {"parameters": {"shares": SHARES, "workers": WORKERS}}
    if context.wants(Part.SIM):
        seeds = range(context.number_of_seeds(20, 3))
        cases = [(design, share) for design in ("thesis", "resolved") for share in SHARES]
        report["sim"] = []
        for design, share in context.follow("e4.4 simulated", cases):
            runs = [simulate(share, design, 2000, seed) for seed in seeds]
            wrong, lost = (
                summarise(each[name] / each["calls"] for each in runs) for name in ("wrong", "lost")
            )
            report["sim"].append({"design": design, "share": share, "wrong": wrong, "lost": lost})
    if context.wants(Part.REAL):
        calls = 300 if context.is_quick else 2000
        shares, backends = ((0.0, 0.5), BACKENDS[:1]) if context.is_quick else (SHARES, BACKENDS)
        real = [("thesis", "mqtt", share) for share in shares]
        real += [("resolved", backend, share) for backend in backends for share in shares]
        report["real"] = []
        worlds: dict[str, World] = {}
        with Stopping(worlds):
            for design, backend, share in context.follow("e4.4 over sockets", real):
                if backend not in worlds:
                    worlds[backend] = World(backend).__enter__()
                row = uvloop.run(_measure(worlds[backend], design, share, calls))
                report["real"].append({"design": design, "backend": backend, "share": share, **row})
    return report


class Stopping:
    """Stops the worlds that were started, whatever happens."""

    def __init__(self, worlds: dict[str, World]) -> None:
        self._worlds = worlds

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        for world in self._worlds.values():
            world.stop()


async def _measure(world: World, design: str, share: float, calls: int) -> dict[str, Any]:
    options = replace(world.options("g"), namespace=f"{design}{round(share * 100)}")
    behaviour = Behaviour(latency=0.02, jitter=0.9, tells_key=True)
    store = ThesisMemory("g") if design == "thesis" else None
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Emulator(options, ["g"], behaviour=behaviour))
        for _ in range(2):
            await stack.enter_async_context(BackRouter(options, store=store))
            await stack.enter_async_context(ForwardRouter(options, store=store))
        callers = [await stack.enter_async_context(Backbone(options)) for _ in range(5)]
        return await _call(callers, share, calls)


async def _call(callers: list[Backbone], share: float, calls: int) -> dict[str, Any]:
    random = Random(1)
    counted: Counter[str] = Counter()
    seconds: list[float] = []
    left = calls

    def judge(result: Result) -> None:
        if result.outcome is Outcome.TIMEOUT:
            counted["lost"] += 1
        elif result.data.get("key") != result.request_id:
            counted["wrong"] += 1
        else:
            counted["right"] += 1
            seconds.append(result.seconds)

    async def worker(caller: Backbone) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            device = HOT if random.random() < share else f"{random.randrange(10**9):012x}"
            judge(await caller.call(device, "image", deadline=1.0))

    async with asyncio.TaskGroup() as group:
        for number in range(WORKERS):
            group.create_task(worker(callers[number % len(callers)]))
    median = percentile(seconds, 0.5) * 1e3 if seconds else None
    return {"calls": calls, "wrong": counted["wrong"], "lost": counted["lost"], "p50": median}


def present(report: dict[str, Any]) -> Presentation:
    page = Presentation()
    if sim := report.get("sim"):
        page.tables.append(
            Table(
                title="Simulated: share of calls",
                head=["design", "q", "wrong recipient", "lost"],
                rows=[
                    [
                        row["design"],
                        f"{row['share']:g}",
                        show(row["wrong"], "{:.4f}"),
                        show(row["lost"], "{:.4f}"),
                    ]
                    for row in sim
                ],
            )
        )
        bad = sum(row["wrong"]["mean"] + row["lost"]["mean"] for row in sim if row["design"] == "resolved")
        page.claims.append(_claim("Simulated", bad, [row for row in sim if row["design"] == "thesis"], _mean))
    if real := report.get("real"):
        page.tables.append(
            Table(
                title="Over sockets",
                head=["design", "backend", "q", "calls", "wrong recipient", "lost", "p50 ms"],
                rows=[
                    [
                        *(row["design"], row["backend"], f"{row['share']:g}"),
                        *(str(row[name]) for name in ("calls", "wrong", "lost")),
                        "–" if row["p50"] is None else f"{row['p50']:.1f}",
                    ]
                    for row in real
                ],
                note="Labels take 2 to 38 ms, so that answers overtake each other. The thesis's experiments drew two "
                "labels at random for each task, so two calls to one label practically never met.",
            )
        )
        bad = sum(row["wrong"] + row["lost"] for row in real if row["design"] == "resolved")
        claim = _claim("Over sockets", bad, [row for row in real if row["design"] == "thesis"], _share)
        claim.short = "Two callers of one label: replies that were lost or reached the wrong one, q = 0.5"
        claim.is_headline = True
        page.claims.append(claim)
        page.figures.append(
            Figure(
                name="wrong",
                text="Replies lost or to the wrong caller against the share of calls that go to one label",
                draw=lambda canvas: _draw(canvas, real),
            )
        )
    return page


def _draw(canvas: Canvas, real: list[dict[str, Any]]) -> None:
    axes = canvas.subplots()
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in real:
        bad = (row["wrong"] + row["lost"]) / row["calls"]
        lines.setdefault(f"{row['design']}, {row['backend']}", []).append((row["share"], bad))
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), "o-", label=name)
    axes.set_xlabel("share of calls that go to one label")
    axes.set_ylabel("share of calls with a lost or wrong reply")
    axes.legend()


def _mean(row: dict[str, Any], name: str) -> float:
    return float(row[name]["mean"])


def _share(row: dict[str, Any], name: str) -> float:
    return float(row[name] / row["calls"])


def _claim(where: str, bad: float, thesis: list[dict[str, Any]], read: Any) -> Claim:
    worst = max(thesis, key=lambda row: row["share"])
    return Claim(
        text=f"{where}: no reply is lost or reaches the wrong caller, however many calls meet at one label",
        paper=f"its design: {read(worst, 'wrong'):.1%} wrong, {read(worst, 'lost'):.1%} lost, q = {worst['share']:g}",
        ours=f"{bad:g} wrong or lost at every q",
        verdict=Verdict.HOLDS if bad == 0 else Verdict.FAILS,
    )


EXPERIMENT = Experiment(
    name="e4.4-overlap",
    title="Two callers of one label",
    question="Replies to the wrong caller and lost replies when a share q of calls goes to the same label.",
    run=run,
    present=present,
)
