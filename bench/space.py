"""Measure the space broker: loading, standing queries, updates a second.

`python bench/space.py` takes about three minutes, writes bench/results/space.json and prints a Markdown table.
`--quick` uses a tenth of the triples and writes nothing. Engine figures are of one process without a network; the
service figures are of `tidegate space serve` with a broker, durable and in memory, clients in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyoxigraph import Literal, NamedNode, Triple

from tidegate.client import Client
from tidegate.lab.brokers import BrokerProcess
from tidegate.lab.provenance import provenance
from tidegate.space import SpaceEngine
from tidegate.space.knowledge import Space
from tidegate.space.requests import Operation

RESULTS = Path(__file__).resolve().parent / "results" / "space.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "design" / "space.md"
BEGIN, END = "<!-- space: rendered, do not edit -->", "<!-- /space -->"
SENSORS = 1000
REPEATS = 3
# A few clients that send all they can are what the broker's back-off is there for; here the space is measured.
OFF = ("backoff.policy=off",)
P = "http://e/"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def data(count: int) -> Iterator[Triple]:
    """Readings of many sensors, and which room each is in."""
    value, at = NamedNode(f"{P}value"), NamedNode(f"{P}at")
    for number in range(count):
        sensor = NamedNode(f"{P}s{number % (count // 10)}")
        yield Triple(sensor, at if number % 10 == 0 else value, Literal(number))


def query(number: int, is_join: bool) -> str:
    """Watches one room; every tenth asks for more than one pattern."""
    if is_join:
        return f"SELECT ?s ?v WHERE {{ ?s <{P}room> <{P}r{number}> . ?s <{P}level> ?v }}"
    return f"SELECT ?s WHERE {{ ?s <{P}room> <{P}r{number}> }}"


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def touching_ten(engine: SpaceEngine, rounds: int) -> float:
    """Median seconds of an update that touches exactly ten standing queries; undone after each."""
    room = NamedNode(f"{P}room")
    triples = [Triple(NamedNode(f"{P}new"), room, NamedNode(f"{P}r{number}")) for number in range(10)]
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        outcome = engine.insert(triples)
        found.append(time.perf_counter() - began)
        assert len(outcome.changes) == 10, len(outcome.changes)
        engine.remove(triples)
    return statistics.median(found)


def engine_figures(triples: int) -> dict[str, Any]:
    engine = SpaceEngine("bench")
    found: dict[str, Any] = {"triples": triples}
    say(f"loading {triples} triples through the update path")
    chunk, batch = 10_000, []
    began = time.perf_counter()
    for triple in data(triples):
        batch.append(triple)
        if len(batch) == chunk:
            engine.insert(batch)
            batch = []
    engine.insert(batch)
    seconds = time.perf_counter() - began
    assert len(engine.store) == triples, len(engine.store)
    found["load_seconds"] = seconds
    found["load_per_second"] = triples / seconds
    found["memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for number in range(10):
        engine.watch(query(number, False))
    found["touch_10_of_10"] = touching_ten(engine, 300)
    say("1000 standing queries")
    found["watch_seconds"] = timed(
        lambda: [engine.watch(query(number, number % 10 == 5 and number >= 10)) for number in range(SENSORS)]
    )
    assert len(engine.standing) == SENSORS
    found["touch_10_of_1000"] = touching_ten(engine, 300)
    found["touch_ratio"] = found["touch_10_of_1000"] / found["touch_10_of_10"]
    level, room = NamedNode(f"{P}level"), NamedNode(f"{P}room")
    sensors = [NamedNode(f"{P}s{number}") for number in range(100)]
    engine.insert(
        [Triple(each, room, NamedNode(f"{P}r{15 + 10 * (n % 90)}")) for n, each in enumerate(sensors)]
    )
    found["join_update"] = statistics.median(
        timed(lambda n=n: engine.insert([Triple(sensors[n % 100], level, Literal(n))])) for n in range(300)
    )
    return found


def engine_rate(seconds: float) -> float:
    """Updates a second with 100 standing queries, each update touching one."""
    engine = SpaceEngine("bench")
    for number in range(100):
        engine.watch(query(number, number % 10 == 5))
    room = NamedNode(f"{P}room")
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        lap, number = divmod(count, 5000)
        sensor = NamedNode(f"{P}s{number}")
        old, new = NamedNode(f"{P}r{(number + lap) % 100}"), NamedNode(f"{P}r{(number + lap + 1) % 100}")
        engine.apply([Triple(sensor, room, old)], [Triple(sensor, room, new)])
        count += 1
    rate = count / (time.perf_counter() - began)
    assert engine.version == count, (engine.version, count)  # every one changed something
    return rate


def disk_seconds(folder: str) -> float:
    """Median of a small write that is waited for: what a durable update cannot be quicker than."""
    found = []
    with Path(folder, "probe").open("wb") as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            file.flush()
            found.append(timed(lambda: os.fdatasync(file.fileno())))
    return statistics.median(found)


@contextmanager
def serving(port: int, *arguments: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tidegate", "space", "serve", "-s", "bench", "--log-level", "warning"]
    command += ["--url", f"mqtt://127.0.0.1:{port}", "--queue", "4096", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert b"ready" in process.stdout.readline()
            yield
        finally:
            process.terminate()
            process.wait(20)


async def _service_rate(port: int, seconds: float, clients: int, depth: int) -> tuple[float, int]:
    """Acknowledged updates a second with 100 standing queries; and the notifications that reached a watcher."""
    url = f"mqtt://127.0.0.1:{port}"
    notified = 0

    def count_notification(_message: object) -> None:
        nonlocal notified
        notified += 1

    async with Client(url) as watcher:
        space = Space(watcher, "bench", timeout=30.0)
        await watcher.subscribe("tide/space/bench/changes/#", callback=count_notification)
        for number in range(100):
            await space.request(Operation.WATCH, query(number, number % 10 == 5))
        stop = time.perf_counter() + seconds
        done = 0

        async def work(client: Client, lane: int) -> None:
            nonlocal done
            own, count = Space(client, "bench", timeout=30.0), 0
            while time.perf_counter() < stop:
                text = f"INSERT DATA {{ <{P}s{lane}-{count}> <{P}room> <{P}r{count % 10 * 10}> }}"
                await own.update(text)
                count += 1
                done += 1

        connected = [Client(url) for _ in range(clients)]
        for client in connected:
            await client.connect()
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number, client in enumerate(connected):
                for lane in range(depth):
                    tasks.create_task(work(client, number * depth + lane))
        rate = done / (time.perf_counter() - began)
        deadline = time.perf_counter() + 20
        while notified < done and time.perf_counter() < deadline:
            await asyncio.sleep(0.05)
        for client in connected:
            await client.disconnect()
        return rate, done - notified


def service_figures(seconds: float) -> dict[str, Any]:
    """Medians of `REPEATS` runs, each with a broker and a space of its own."""
    found: dict[str, Any] = {}
    for name in ("memory", "durable"):
        say(f"service, {name}")
        rates, missing, disk = [], 0, []
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as folder, BrokerProcess(settings=OFF) as broker:
                arguments = ("--data", folder) if name == "durable" else ()
                disk.append(disk_seconds(folder))
                with serving(broker.port, *arguments):
                    rate, lost = asyncio.run(_service_rate(broker.port, seconds, clients=4, depth=32))
                    rates.append(rate)
                    missing += lost
        found[f"{name}_updates_per_second"] = statistics.median(rates)
        found[f"{name}_runs"] = rates
        found[f"{name}_notifications_missing"] = missing
        found["disk_seconds"] = statistics.median(disk)
    return found


def table(report: dict[str, Any]) -> str:
    engine, service = report["engine"], report["service"]
    rows = [
        ("triples loaded through the update path", f"{engine['triples']:,}", "1,000,000"),
        ("loading, triples/s", f"{engine['load_per_second']:,.0f}", ""),
        ("memory, bytes a triple", f"{engine['memory_bytes'] / engine['triples']:,.0f}", ""),
        ("update that touches 10 of 10 standing queries, µs", f"{engine['touch_10_of_10'] * 1e6:,.0f}", ""),
        ("update that touches 10 of 1000, µs", f"{engine['touch_10_of_1000'] * 1e6:,.0f}", ""),
        ("ratio", f"{engine['touch_ratio']:.2f}", "at most 3"),
        ("update that touches a join, µs", f"{engine['join_update'] * 1e6:,.0f}", ""),
        ("engine: updates/s with 100 standing queries", f"{report['engine_rate']:,.0f}", "at least 2,000"),
        (f"service in memory: updates/s, median of {_all(service['memory_runs'])}",
         f"{service['memory_updates_per_second']:,.0f}", "at least 2,000"),
        (f"service durable: updates/s, median of {_all(service['durable_runs'])}",
         f"{service['durable_updates_per_second']:,.0f}", "at least 2,000"),
        ("notifications that did not arrive",
         f"{service['memory_notifications_missing'] + service['durable_notifications_missing']}", "0"),
        ("one write to this disk, waited for, ms", f"{service['disk_seconds'] * 1e3:.1f}", ""),
    ]
    lines = ["| figure | measured | wanted |", "| --- | ---: | ---: |"]
    return "\n".join([*lines, *(f"| {name} | {value} | {wanted} |" for name, value, wanted in rows)])


def _all(rates: list[float]) -> str:
    return ", ".join(f"{rate:,.0f}" for rate in rates)


def render(report: dict[str, Any], page: str) -> str:
    """The page with this result between its marks."""
    machine = report["machine"]
    text = f"""{table(report)}

Measured {report["date"][:10]} at commit {report["commit"][:10]} on {machine["cores"]} cores of {machine["cpu"]},
which clients, MQTT broker and space share: `python bench/space.py`."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    report: dict[str, Any] = provenance()
    report["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    report["engine"] = engine_figures(100_000 if arguments.quick else 1_000_000)
    report["engine_rate"] = engine_rate(2.0 if arguments.quick else 10.0)
    report["service"] = service_figures(2.0 if arguments.quick else 4.0)
    print(table(report))
    out = arguments.out or (None if arguments.quick else RESULTS)
    if out is not None:
        out.write_text(json.dumps(report, indent=1) + "\n")
    if out == RESULTS:
        PAGE.write_text(render(report, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
