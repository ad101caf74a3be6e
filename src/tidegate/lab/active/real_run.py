"""E3.6: the same with `tidegate space serve`, a broker, and up to 200 clients over sockets.

The space answers one query at a time, and each client's query costs it some 10 ms that no other client's answer can
save; so a crowd that reacts at once overloads it, as in the model. Clients are tasks of one process, each with its
own connection. They watch the space's notifications and have one check loop each. Time is compressed: an update
every few seconds, and timeouts in proportion.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
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
    NoTimeout,
    PaperTimeout,
    StrategySettings,
    TimeoutPolicy,
    parse_announcement,
)
from tidegate.lab.active.measures import jain
from tidegate.lab.active.variants import ACTIVE, LEVEL_0, LEVEL_1, LEVEL_2, LEVEL_3
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
WATCHED = "SELECT ?v WHERE { <urn:slide> <urn:version> ?v }"


@dataclass(slots=True, kw_only=True, frozen=True)
class Plan:
    """Times in seconds; timeouts are those of the model divided by `pace`."""

    sizes: tuple[int, ...] = (50, 200)
    every: float = 5.0
    updates: int = 5
    seeds: int = 3
    pace: float = 5.0

    def policies(self) -> dict[str, TimeoutPolicy]:
        strategy = StrategySettings(start=5.0 / self.pace, delta=0.5 / self.pace, high=60.0 / self.pace)
        return {
            LEVEL_0: NoTimeout(),
            LEVEL_1: FixedTimeout(5.0 / self.pace),
            LEVEL_2: AdaptiveTimeout(strategy),
            LEVEL_3: PaperTimeout(first=First.PAST_INTERVAL, strategy=strategy),
            ACTIVE: ActiveTimeout(ActiveSettings(strategy=strategy)),
        }


def plan(context: Context) -> Plan:
    return Plan(sizes=(20,), every=2.0, updates=2, seeds=1) if context.is_quick else Plan()


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


class Kp:
    """One client: a connection, a subscription to the notifications, a loop of queries of its own."""

    def __init__(self, number: int, client: Client, policy: TimeoutPolicy, ledger: Ledger, seed: int) -> None:
        self._space = Space(client, "lab")
        self._ledger = ledger
        # The number in it makes it a query of its own: no other client's answer will do.
        self._text = (
            f"SELECT (MAX(?v) AS ?version) (COUNT(?x) AS ?n) WHERE {{ <urn:slide> <urn:version> ?v . "
            f"?x <urn:p> ?y FILTER (?y != {number + 1_000_000}) }}"
        )
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
            reply = await self._space.request(Operation.QUERY, self._text, timeout=PATIENCE, qos=0)
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


async def _run_one(port: int, m: int, policy: TimeoutPolicy, chosen: Plan, seed: int) -> dict[str, Any]:
    url = f"mqtt://127.0.0.1:{port}"
    ledger = Ledger()
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(Client(url))
        space = Space(writer, "lab", timeout=10.0)
        await space.update(
            "DELETE WHERE { <urn:slide> <urn:version> ?v } ; INSERT DATA { <urn:slide> <urn:version> 0 }"
        )
        reply = await space.request(Operation.WATCH, WATCHED)
        topic = reply.json()["topic"]
        kps = []
        for number in range(m):
            client = await stack.enter_async_context(Client(url, client_id=f"kp{number}"))
            kp = Kp(number, client, policy, ledger, seed)
            await client.subscribe(topic, callback=kp.on_notification)
            kps.append(kp)
        # Everybody is a watcher that the space knows of.
        body = f'{{"watch": "{reply.json()["watch"]}", "number": 0}}'
        for kp in kps:
            await kp._space.request(Operation.CHECK, body, timeout=10.0)
        tasks = [asyncio.create_task(kp.repeating.run()) for kp in kps]
        began = time.monotonic()
        warm = chosen.every
        for number in range(1, chosen.updates + 1):
            await asyncio.sleep(max(0.0, began + warm + (number - 1) * chosen.every - time.monotonic()))
            ledger.updates[number] = time.monotonic()
            await space.update(
                f"DELETE {{ <urn:slide> <urn:version> ?v }} INSERT {{ <urn:slide> <urn:version> {number} }} "
                "WHERE { <urn:slide> <urn:version> ?v }"
            )
        await asyncio.sleep(max(0.0, began + warm + chosen.updates * chosen.every - time.monotonic()))
        ended = time.monotonic()
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for error in found:
            if isinstance(error, Exception):
                raise LabError(f"a client failed: {error!r}")
        return _measures(ledger, kps, m, began, ended)


def _measures(ledger: Ledger, kps: list[Kp], m: int, began: float, ended: float) -> dict[str, Any]:
    bins = [0] * max(1, ceil((ended - began) / 0.1))
    for moment in ledger.sent:
        at = int((moment - began) / 0.1)
        if 0 <= at < len(bins):
            bins[at] += 1
    mean = fmean(bins)
    missing = sum(len(ledger.updates) - kp.version for kp in kps)
    asked = [float(kp.repeating.checks + kp.repeating.reactions) for kp in kps]
    return {
        "rate": len(ledger.sent) / (ended - began),
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


async def _fill(port: int) -> None:
    async with Client(f"mqtt://127.0.0.1:{port}") as client:
        rows = "".join(f"<urn:x{number}> <urn:p> {number} .\n" for number in range(TRIPLES))
        await Space(client, "lab", timeout=60.0).insert(rows)


def run(context: Context) -> dict[str, Any]:
    chosen = plan(context)
    seeds = context.seeds or chosen.seeds
    data: dict[str, Any] = {
        "parameters": {
            "space": f"tidegate space serve, one worker, queue of {QUEUE}, {TRIPLES} triples",
            "clients": list(chosen.sizes),
            "updates": f"{chosen.updates}, one in {chosen.every:g} s",
            "timeouts": f"those of the model divided by {chosen.pace:g}",
            "patience": f"{PATIENCE:g} s",
            "seeds": seeds,
        },
        "summary": [],
        "seeds": [],
    }
    cases = [(m, name) for m in chosen.sizes for name in chosen.policies()]
    for m, name in context.follow("e3.6 over sockets", cases):
        values = []
        for seed in range(seeds):
            with BrokerProcess() as broker, space_process(broker.port):
                asyncio.run(_fill(broker.port))
                values.append(asyncio.run(_run_one(broker.port, m, chosen.policies()[name], chosen, seed)))
        row = {"m": m, "variant": name}
        data["summary"].append({**row, **summarise_all(values)})
        data["seeds"].append({**row, "values": values})
    return data
