"""E4.5: every part is killed in turn under load. Every task must end acked or among the dead letters with its reason,
no label may obey a request twice, and each time things go on within ten seconds."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import uvloop

from tidegate.lab.experiment import Claim, Context, Experiment, Figure, Part, Presentation, Table, Verdict
from tidegate.lab.rpc.world import BACKENDS, World
from tidegate.lab.rpc.world import Part as Process
from tidegate.rpc import Dispatcher, Unavailable
from tidegate.testing.servers import Server

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

GATEWAY = "g"
DEADLINE = 60.0  # seconds a task has
RECOVERY = 10.0


@dataclass
class Ledger:
    """What became of every task, and when."""

    submitted: dict[str, float] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    completions: list[float] = field(default_factory=list)

    def note(self, task_id: str, outcome: str) -> None:
        self.ended[task_id] = outcome
        self.completions.append(time.monotonic())

    def recovery(self, since: float, until: float) -> float:
        """The longest time in which nothing was completed, from the moment of a kill."""
        moments = [since, *(moment for moment in self.completions if since <= moment <= until), until]
        return max(later - earlier for earlier, later in pairwise(moments))


def run(context: Context) -> dict[str, Any]:
    rate, settle = (20.0, 6.0) if context.is_quick else (50.0, 10.0)
    rows = []
    for backend in context.follow("e4.5 kills", BACKENDS):
        rows += uvloop.run(soak(backend, rate=rate, settle=settle))
    return {
        "parameters": {"tasks/s": rate, "seconds after a kill": settle, "deadline s": DEADLINE},
        "real": rows,
    }


async def soak(
    backend: str, *, rate: float, settle: float, victims: tuple[str, ...] | None = None, seed: int = 1
) -> list[dict[str, Any]]:
    """Kill one after another; a row for each kill, and one for the whole of the run."""
    with World(backend, is_durable=True) as world:
        state = world.folder / "labels.txt"
        routers = ["router", "--role"]
        parts = {
            "gateway": world.part("gateway", GATEWAY, "--state", state, "--latency", 0.02, gateway=GATEWAY),
            "forward router": world.part(*routers, "forward", gateway=GATEWAY),
            "second forward router": world.part(*routers, "forward", gateway=GATEWAY),
            "back router": world.part(*routers, "back", gateway=GATEWAY),
            "second back router": world.part(*routers, "back", gateway=GATEWAY),
            "worker": world.part("worker", "--silence", 1, gateway=GATEWAY),
            "second worker": world.part("worker", "--silence", 1, gateway=GATEWAY),
        }
        world.start(*parts.values())
        killable: dict[str, Process | Server] = {
            name: part for name, part in parts.items() if not name.startswith("second")
        }
        killable["broker"] = world.broker
        if world.redis is not None and world.rabbit is not None:
            killable["Redis"] = world.redis
            killable["RabbitMQ"] = world.rabbit
        if victims is not None:
            killable = {name: killable[name] for name in victims if name in killable}
        ledger = Ledger()
        rows: list[dict[str, Any]] = []
        async with Dispatcher(world.options(GATEWAY), name="soak") as dispatcher:
            async with asyncio.TaskGroup() as group:
                loading = group.create_task(_load(dispatcher, ledger, rate, Random(seed), group))
                await _until(lambda: len(ledger.ended) >= rate, 30.0)
                for name, victim in killable.items():
                    began = time.monotonic()
                    await asyncio.to_thread(_kill_and_start, victim)
                    restarted = time.monotonic() - began
                    await asyncio.sleep(settle)
                    recovery = ledger.recovery(began, time.monotonic())
                    rows.append(
                        {"backend": backend, "killed": name, "recovery": recovery, "restart": restarted}
                    )
                loading.cancel()
                # What is under way ends by itself, at its deadline at the latest.
                await _until(lambda: len(ledger.ended) == len(ledger.submitted), DEADLINE + 20.0)
            dead = {task.id: task.reason for task in await dispatcher.dead()}
        for part in parts.values():
            part.stop()
        rows.append({"backend": backend, "killed": "", **_count(ledger, dead, state)})
        return rows


def _kill_and_start(victim: Process | Server) -> None:
    victim.kill()
    victim.start()


async def _load(
    dispatcher: Dispatcher, ledger: Ledger, rate: float, random: Random, group: asyncio.TaskGroup
) -> None:
    began = time.monotonic()
    for number in count():
        pause = began + number / rate - time.monotonic()
        if pause > 0.0:
            await asyncio.sleep(pause)
        devices = [f"{random.randrange(50_000):012x}" for _ in range(2)]
        ledger.submitted[f"task-{number}"] = time.monotonic()
        group.create_task(_one(dispatcher, ledger, f"task-{number}", devices))


async def _one(dispatcher: Dispatcher, ledger: Ledger, task_id: str, devices: list[str]) -> None:
    body = {
        "calls": [{"device": device, "method": "image", "fields": {"price": task_id}} for device in devices]
    }
    try:
        tracked = await dispatcher.submit("calls", body, deadline=DEADLINE, id=task_id, patience=DEADLINE)
    except Unavailable:
        ledger.note(task_id, "not accepted")
        return
    result = await tracked
    ledger.note(task_id, str(result.outcome))


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


def _count(ledger: Ledger, dead: dict[str, str], state: Path) -> dict[str, Any]:
    """Every task by its end; a task whose answer got lost is where the labels or the dead letters say."""
    obeyed: Counter[str] = Counter()
    for line in state.read_text().splitlines():
        obeyed[line.split(" ", 2)[2]] += 1
    done = Counter(key.split("/")[0] for key in obeyed)
    outcomes = Counter(ledger.ended.values())
    unaccounted = [
        task
        for task in ledger.submitted
        if ledger.ended.get(task) != "ack" and task not in dead and done[task] < 2
    ]
    return {
        "tasks": len(ledger.submitted),
        "acked": outcomes["ack"],
        "dead": len(dead),
        "reasons": dict(Counter(dead.values()).most_common(3)),
        "answer_lost": len([t for t in ledger.submitted if ledger.ended.get(t) != "ack" and t not in dead]),
        "unaccounted": len(unaccounted),
        "obeyed_twice": sum(times > 1 for times in obeyed.values()),
        "obeyed": len(obeyed),
    }


def present(report: dict[str, Any]) -> Presentation:
    rows = report.get("real", [])
    totals = [row for row in rows if not row["killed"]]
    kills = [row for row in rows if row["killed"]]
    if not totals:
        return Presentation()
    lost = sum(row["unaccounted"] for row in totals)
    twice = sum(row["obeyed_twice"] for row in totals)
    slowest = max(kills, key=lambda row: row["recovery"])
    text = "; ".join(
        f"{row['backend']}: {row['acked']} of {row['tasks']} acked, {row['dead']} dead" for row in totals
    )
    claims = [
        Claim(
            text="Every part killed in turn under load: every task ends acked or dead with a reason",
            paper="at-least-once is intended; rejected tasks vanish (hazard 5)",
            ours=f"{text}; {lost} unaccounted for",
            verdict=Verdict.HOLDS if not lost else Verdict.FAILS,
            short="Every part of the RPC backbone killed in turn: tasks unaccounted for",
            is_headline=True,
        ),
        Claim(
            text="No label obeys a request twice",
            paper="not handled (hazard 12)",
            ours=f"{twice} of {sum(row['obeyed'] for row in totals)} requests",
            verdict=Verdict.HOLDS if not twice else Verdict.FAILS,
        ),
        Claim(
            text=f"Tasks are completed again within {RECOVERY:g} s of each kill",
            paper="–",
            ours=f"at most {slowest['recovery']:.1f} s ({slowest['killed']}, {slowest['backend']})",
            verdict=Verdict.HOLDS if slowest["recovery"] <= RECOVERY else Verdict.FAILS,
        ),
    ]
    table = Table(
        title="The longest time without a completed task, s",
        head=["backend", "killed", "recovery", "of which its restart"],
        rows=[[r["backend"], r["killed"], f"{r['recovery']:.2f}", f"{r['restart']:.2f}"] for r in kills],
        note="Routers and workers have a second one beside them that goes on; gateway, broker, Redis and RabbitMQ are "
        "alone, so their restart is part of the time.",
    )
    figure = Figure(
        name="recovery",
        text="The longest time without a completed task after each kill",
        draw=lambda canvas: _draw(canvas, kills),
    )
    return Presentation(claims=claims, tables=[table], figures=[figure])


def _draw(canvas: Canvas, kills: list[dict[str, Any]]) -> None:
    axes = canvas.subplots()
    names = [f"{row['killed']}, {row['backend']}" for row in kills]
    axes.barh(names, [row["recovery"] for row in kills])
    axes.axvline(RECOVERY, linestyle=":", color="black")
    axes.invert_yaxis()
    axes.set_xlabel("seconds without a completed task")


EXPERIMENT = Experiment(
    name="e4.5-faults",
    title="Kills",
    question="What is lost, doubled or delayed when routers, workers, gateway, broker, Redis and RabbitMQ die?",
    run=run,
    present=present,
    parts=(Part.REAL,),
)
