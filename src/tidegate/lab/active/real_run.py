"""E3.6: the same with `tidegate space serve`, a broker, and up to 200 clients over sockets.

The space answers one query at a time, and each client's query costs it some milliseconds that no other client's answer
can save; so a crowd that reacts at once overloads it, as in the model. Clients are tasks of one process, each with its
own connection. They watch the space's notifications and have one check loop each. Time is compressed: an update
every few seconds, and timeouts in proportion. For workload C the space is stopped and continued ten times a second,
so that it works half of the time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from math import ceil
from random import Random
from statistics import fmean, pvariance
from typing import Any

from tidegate.client import Client, ClientError, Message
from tidegate.client.repeating import Answered, Repeating
from tidegate.flow.timeout import (
    ActiveSettings,
    ActiveTimeout,
    AdaptiveTimeout,
    First,
    FixedTimeout,
    Light,
    Mediate,
    NoTimeout,
    PaperTimeout,
    Requirement,
    Rigorous,
    StrategySettings,
    TimeoutPolicy,
    parse_announcement,
)
from tidegate.lab.active.levels import RATE
from tidegate.lab.active.measures import jain
from tidegate.lab.active.variants import ACTIVE, LEVEL_0, LEVEL_1, LEVEL_2, LEVEL_3, VARIANTS, Variant
from tidegate.lab.brokers import ENVIRONMENT, START_SECONDS, BrokerProcess, uninterrupted
from tidegate.lab.errors import LabError
from tidegate.lab.experiment import Context
from tidegate.lab.statistics import percentile, summarise_all
from tidegate.space.errors import SpaceError
from tidegate.space.knowledge import Space
from tidegate.space.requests import Operation

TRIPLES = 4000
PATIENCE = 1.0
QUEUE = 60
T_NET = 0.002
# The space sends what others ask for, which the broker's gate takes for a flood on a machine this busy (docs/space.md).
SETTINGS = ("backoff.floor_rate=5000",)
STOPPED = 0.05  # seconds stopped, then as long at work, while the capacity is halved
JOINING = 10  # clients that begin at once
WATCHED = "SELECT ?v WHERE { <urn:slide> <urn:version> ?v }"
FEW = (LEVEL_0, LEVEL_1, LEVEL_2, LEVEL_3, ACTIVE)


@dataclass(slots=True, kw_only=True, frozen=True)
class Plan:
    """Times in seconds; timeouts are those of the model divided by `pace`. `slow` is within the run."""

    cases: tuple[tuple[str, int, str], ...]
    every: float = 4.0
    updates: int = 3
    seeds: int = 3
    pace: float = 6.0
    slow: tuple[float, float] = (6.0, 14.0)

    @property
    def seconds(self) -> float:
        return self.every * (self.updates + 1)

    def times(self, workload: str, seed: int) -> list[float]:
        """When updates come; the first interval is there to warm up."""
        if workload == "A":
            return [self.every * number for number in range(1, self.updates + 1)]
        random, now, found = Random(f"{seed}/updates"), self.every, []
        while (now := now + random.expovariate(RATE * self.pace)) < self.seconds - 1.0:
            found.append(now)
        return found

    def policy(self, variant: Variant, t_proc: float) -> TimeoutPolicy:
        """As in the model, at this pace; `t_proc` is what the rigorous requirement knows."""
        strategy = StrategySettings(start=5.0 / self.pace, delta=0.5 / self.pace, high=60.0 / self.pace)
        requirements: dict[str, Callable[[], Requirement]] = {
            "rigorous": lambda: Rigorous(t_proc, T_NET),
            "mediate": lambda: Mediate(T_NET),
            "light": Light,
        }
        match variant.level:
            case "0":
                return NoTimeout()
            case "1":
                return FixedTimeout(5.0 / self.pace)
            case "2":
                return AdaptiveTimeout(strategy)
            case "3":
                requirement, first = requirements[variant.requirement], First(variant.first)
                return PaperTimeout(requirement=requirement, first=first, strategy=strategy)
        return ActiveTimeout(ActiveSettings(strategy=strategy))


def plan(context: Context) -> Plan:
    if context.is_quick:
        cases = tuple((workload, 20, name) for workload in "AC" for name in (LEVEL_2, ACTIVE))
        return Plan(cases=cases, every=1.5, updates=2, seeds=1, slow=(1.5, 3.0))
    few = [("A", 50), ("B", 200), ("C", 200)]
    everybody = [("A", 200, name) for name in VARIANTS]
    return Plan(cases=(*everybody, *((workload, m, name) for workload, m in few for name in FEW)))


@contextmanager
def space_process(port: int) -> Iterator[int]:
    """`tidegate space serve` with one worker; gives its process number."""
    command = [
        sys.executable, "-m", "tidegate", "space", "serve", "--space", "lab", "--workers", "1",
        "--queue", str(QUEUE), "--url", f"mqtt://127.0.0.1:{port}", "--log-level", "warning",
    ]  # fmt: skip
    with tempfile.TemporaryFile() as log:
        with uninterrupted():
            process = subprocess.Popen(
                command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if b"ready" not in line:
                log.seek(0)
                raise LabError(f"the space does not start: {log.read().decode(errors='replace').strip()}")
            yield process.pid
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGTERM)
            try:
                process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


@dataclass(slots=True)
class Ledger:
    """What all clients of a run did."""

    sent: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    dropped: int = 0
    updates: dict[int, float] = field(default_factory=dict)  # when each version was acknowledged
    known: list[float] = field(default_factory=list)


def query(number: int) -> str:
    """The number makes it a query of its own: no other client's answer will do."""
    return (
        "SELECT (MAX(?v) AS ?version) (COUNT(?x) AS ?n) WHERE { <urn:slide> <urn:version> ?v . "
        f"?x <urn:p> ?y FILTER (?y != {number + 1_000_000}) }}"
    )


class Kp:
    """One client: a connection, a subscription to the notifications, a loop of queries of its own."""

    def __init__(self, number: int, client: Client, policy: TimeoutPolicy, ledger: Ledger, seed: int) -> None:
        self.space = Space(client, "lab")
        self._ledger = ledger
        self._text = query(number)
        self.version = 0
        self._seen = 0
        self._notified = 0
        self.repeating = Repeating(self._ask, policy.loop(), Random(f"{seed}/{number}"))

    def on_notification(self, message: Message) -> None:
        try:
            load = parse_announcement(message.json().get("load", ""))
        except ValueError:
            return
        self._notified += 1
        self.repeating.nudge(load)

    async def _ask(self) -> Answered:
        ledger = self._ledger
        began = time.monotonic()
        ledger.sent.append(began)
        try:
            reply = await self.space.request(Operation.QUERY, self._text, timeout=PATIENCE, qos=0)
        except SpaceError as error:
            ledger.dropped += 1
            return Answered(is_dropped=True, load=error.load)
        except ClientError:
            ledger.dropped += 1
            return Answered(is_dropped=True)
        now = time.monotonic()
        ledger.durations.append(now - began)
        bindings = reply.json()["results"]["bindings"]
        version = int(bindings[0]["version"]["value"])
        for number in range(self.version + 1, version + 1):
            if number in ledger.updates:
                ledger.known.append(now - ledger.updates[number])
        self.version = max(self.version, version)
        losses = max(0, version - self._seen - self._notified)
        self._seen, self._notified = version, 0
        return Answered(losses=losses, load=reply.load)


async def _run_one(
    port: int, pid: int, workload: str, m: int, variant: Variant, chosen: Plan, seed: int
) -> dict[str, Any]:
    url = f"mqtt://127.0.0.1:{port}"
    ledger = Ledger()
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(Client(url))
        space = Space(writer, "lab", timeout=10.0)
        t_proc = await _fill(space)
        reply = await space.request(Operation.WATCH, WATCHED)
        topic = reply.json()["topic"]
        policy = chosen.policy(variant, t_proc)
        body = f'{{"watch": "{reply.json()["watch"]}", "number": 0}}'

        async def join(number: int) -> Kp:
            """Everybody is a watcher that the space knows of, and has asked once: the first time is dearer."""
            client = await stack.enter_async_context(Client(url, client_id=f"kp{number}"))
            kp = Kp(number, client, policy, ledger, seed)
            await client.subscribe(topic, callback=kp.on_notification)
            await kp.space.request(Operation.CHECK, body, timeout=10.0)
            await kp.space.request(Operation.QUERY, query(number), timeout=10.0)
            return kp

        kps: list[Kp] = []
        for first in range(0, m, JOINING):
            kps += await asyncio.gather(*map(join, range(first, min(m, first + JOINING))))
        tasks = [asyncio.create_task(kp.repeating.run()) for kp in kps]
        began = time.monotonic()
        if workload == "C":
            tasks.append(asyncio.create_task(_halve(pid, *(began + each for each in chosen.slow))))
        for number, moment in enumerate(chosen.times(workload, seed), 1):
            await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
            ledger.updates[number] = time.monotonic()
            await space.update(_version(number))
        await asyncio.sleep(max(0.0, began + chosen.seconds - time.monotonic()))
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                raise LabError(f"a client failed: {error!r}")
        return {**_measures(ledger, kps, m, began, chosen), "t_proc": t_proc}


def _version(number: int) -> str:
    return (
        f"DELETE {{ <urn:slide> <urn:version> ?v }} INSERT {{ <urn:slide> <urn:version> {number} }} "
        "WHERE { <urn:slide> <urn:version> ?v }"
    )


async def _halve(pid: int, start: float, end: float) -> None:
    """Half the capacity: the process is stopped half of the time."""
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    try:
        while time.monotonic() < end:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(STOPPED)
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(STOPPED)
    finally:
        os.kill(pid, signal.SIGCONT)


async def _fill(space: Space) -> float:
    """Something to ask about; gives the seconds that a query takes when nobody else asks."""
    rows = "".join(f"<urn:x{number}> <urn:p> {number} .\n" for number in range(TRIPLES))
    await space.insert(f"<urn:slide> <urn:version> 0 .\n{rows}")
    times = []
    for number in range(20):
        began = time.monotonic()
        await space.request(Operation.QUERY, query(-1 - number % 2))
        times.append(time.monotonic() - began)
        await space.update(
            f"INSERT DATA {{ <urn:probe> <urn:q> {number} }}"
        )  # so that no answer is remembered
    return fmean(times[-10:])


def _measures(ledger: Ledger, kps: list[Kp], m: int, began: float, chosen: Plan) -> dict[str, Any]:
    bins = [0] * max(1, ceil(chosen.seconds / 0.1))
    for moment in ledger.sent:
        at = int((moment - began) / 0.1)
        if 0 <= at < len(bins):
            bins[at] += 1
    mean = fmean(bins)
    missing = sum(len(ledger.updates) - kp.version for kp in kps)
    asked = [float(kp.repeating.checks + kp.repeating.reactions) for kp in kps]
    return {
        "rate": len(ledger.sent) / chosen.seconds,
        "rate_slow": sum(bins[round(10 * chosen.slow[0]) : round(10 * chosen.slow[1])])
        / (chosen.slow[1] - chosen.slow[0]),
        "drop_rate": ledger.dropped / len(ledger.sent) if ledger.sent else 0.0,
        "drops": ledger.dropped,
        "p50": percentile(ledger.durations, 0.5) if ledger.durations else None,
        "p99": percentile(ledger.durations, 0.99) if ledger.durations else None,
        "peak_to_mean": max(bins) / mean if mean else None,
        "dispersion": pvariance(bins) / mean if mean else None,
        "staleness": fmean(ledger.known) if ledger.known else None,
        "missed": missing / (len(ledger.updates) * m),
        "fairness": jain(asked),
    }


def run(context: Context, chosen: Plan | None = None) -> dict[str, Any]:
    chosen = chosen or plan(context)
    seeds = context.seeds or chosen.seeds
    data: dict[str, Any] = {
        "parameters": {
            "space": f"tidegate space serve, one worker, queue of {QUEUE}, {TRIPLES} triples",
            "MQTT broker": f"Tidegate, {SETTINGS[0]}",
            "updates": f"A: one in {chosen.every:g} s, {chosen.updates} in all; B and C: Poisson, "
            f"{RATE * chosen.pace:g} a second",
            "C": f"stopped half of the time from {chosen.slow[0]:g} to {chosen.slow[1]:g} s",
            "timeouts": f"those of the model divided by {chosen.pace:g}",
            "patience": f"{PATIENCE:g} s",
            "seconds": chosen.seconds,
            "seeds": seeds,
        },
        "summary": [],
        "seeds": [],
    }
    for workload, m, name in context.follow("e3.6 over sockets", chosen.cases):
        values = []
        for seed in range(seeds):
            with BrokerProcess(settings=SETTINGS) as broker, space_process(broker.port) as pid:
                values.append(
                    asyncio.run(_run_one(broker.port, pid, workload, m, VARIANTS[name], chosen, seed))
                )
        row = {"workload": workload, "m": m, "variant": name}
        data["summary"].append({**row, **summarise_all(values)})
        data["seeds"].append({**row, "values": values})
    return data
