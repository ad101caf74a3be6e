"""Messages per CPU second of our client and of aiomqtt: `python -m bench.client.compare`.

Both run the same program (`work.py`) on the same event loop against the same broker process, each run in a process of
its own and by turns, so that a change of the machine meets both. What is compared is the CPU time of the client
process per message, the median of the repeats: wall time on a shared machine tells more of its other guests. JSON goes
to standard output, progress to standard error; the exit status says whether the factor was reached everywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass

import uvloop

from bench.brokers import Broker
from bench.client.work import PAYLOAD, STEP, TOPIC
from tidegate.client import Client

LIBRARIES = ("tidegate", "aiomqtt")
FACTOR = 3.0
UNDER_WAY = 4 * STEP  # fed and not taken: enough to keep a receiver busy, few enough that no broker drops
RUN_SECONDS = 60.0


@dataclass(kw_only=True, slots=True)
class Row:
    """One case; microseconds of CPU per message, medians."""

    broker: str
    role: str
    qos: int
    tidegate_us: float
    aiomqtt_us: float
    runs: dict[str, list[float]]

    @property
    def factor(self) -> float:
        return self.aiomqtt_us / self.tidegate_us

    @property
    def line(self) -> str:
        return (
            f"{self.broker:9} {self.role:8} QoS {self.qos}: {self.tidegate_us:6.2f} µs, aiomqtt "
            f"{self.aiomqtt_us:6.2f} µs: {self.factor:.1f} times"
        )


async def feed(port: int, qos: int, process: asyncio.subprocess.Process, number: int) -> None:
    """Publish to a receiver, never more than `UNDER_WAY` ahead of what it says it has."""
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    taken = sent = 0
    async with Client(f"127.0.0.1:{port}") as client:
        while sent < number:
            for _ in range(STEP):
                if qos:
                    future = client.publish_nowait(TOPIC, PAYLOAD, qos=qos)
                else:
                    await client.publish(TOPIC, PAYLOAD)
            if qos:
                await future
            sent += STEP
            while sent - taken > UNDER_WAY:
                taken = int(await process.stdout.readline())


async def measure(library: str, role: str, qos: int, port: int, number: int) -> float:
    """Microseconds of CPU per message of one run."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.client.work", library, role, str(qos), str(port), str(number)),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(RUN_SECONDS):
            if role == "receive":
                await feed(port, qos, process, number + STEP)
            *_, last = (await process.stdout.read()).splitlines()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = json.loads(last)
    return float(found["cpu_seconds"] / found["messages"] * 1e6)


async def compare(broker: str, role: str, qos: int, port: int, number: int, repeats: int) -> Row:
    runs: dict[str, list[float]] = {library: [] for library in LIBRARIES}
    for _ in range(repeats):
        for library in LIBRARIES:
            runs[library].append(await measure(library, role, qos, port, number))
    ours, theirs = (statistics.median(runs[library]) for library in LIBRARIES)
    return Row(broker=broker, role=role, qos=qos, tidegate_us=ours, aiomqtt_us=theirs, runs=runs)


async def run(brokers: list[str], roles: list[str], qoses: list[int], number: int, repeats: int) -> list[Row]:
    rows = []
    for name in brokers:
        with Broker(name=name) as broker:
            for role in roles:
                for qos in qoses:
                    rows.append(await compare(name, role, qos, broker.port, number, repeats))
                    print(rows[-1].line, file=sys.stderr, flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--broker", action="append", choices=["tidegate", "mosquitto"])
    parser.add_argument("--role", action="append", choices=["receive", "publish"])
    parser.add_argument("--qos", action="append", type=int, choices=[0, 1, 2])
    given = parser.parse_args()
    rows = uvloop.run(
        run(
            given.broker or ["tidegate"],
            given.role or ["receive", "publish"],
            given.qos or [0, 1],
            given.messages - given.messages % STEP,
            given.repeats,
        )
    )
    print(json.dumps([asdict(row) | {"factor": round(row.factor, 2)} for row in rows], indent=1))
    return 0 if all(row.factor >= FACTOR for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
