"""E1.3 over sockets: what a rare sender's messages wait in real brokers whose processor is busy for most of the time.

Each broker has one processor, the clients the other. The load is raised until the broker's CPU time is 0.9 to 0.95 of
the time it could have: each broker gets its own rate, because the question is what happens at that utilisation, not who
is faster. Back-off is off, and the lanes are always open (load.high_wait=0), so that only the order of service differs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tidegate.lab.backoff.latency_clients import Load
from tidegate.lab.brokers import MOSQUITTO, BrokerProcess
from tidegate.lab.errors import LabError
from tidegate.lab.experiment import Context
from tidegate.lab.statistics import percentile, summarise_all
from tidegate.load.usage import cpu_seconds, waited_seconds

FAST = 30
SUBSCRIBERS = 20
RARE_RATE = 50.0
TARGET = 0.925
LOW, HIGH = 0.88, 0.965  # utilisation that is taken for 0.9 to 0.95 on a noisy machine
OPEN_LANES = ("backoff.policy=off", "load.high_wait=0")
BROKERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Mosquitto": (MOSQUITTO, ()),
    "off": ("tidegate", (*OPEN_LANES, "priority.policy=off")),
    "paper": ("tidegate", (*OPEN_LANES, "priority.policy=paper")),
    "ageing": ("tidegate", (*OPEN_LANES, "priority.policy=ageing")),
}


@contextmanager
def _pinned(cpu: int | None) -> Iterator[None]:
    own = os.sched_getaffinity(0)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@contextmanager
def _reader(port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tidegate.lab.backoff.latency_clients", str(port), str(SUBSCRIBERS)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise LabError("the subscribers could not connect")
            yield
        finally:
            process.terminate()
            process.wait(5)


class Bench:
    """One broker with its clients, and the rate that makes it as busy as it should be."""

    def __init__(self, stack: ExitStack, name: str, cpu: int | None, seed: int) -> None:
        program, settings = BROKERS[name]
        self.broker = stack.enter_context(BrokerProcess(name=program, settings=settings, cpu=cpu))
        stack.enter_context(_reader(self.broker.port))
        self._load = stack.enter_context(Load(self.broker.port, FAST, seed))
        self.rate = 2000.0

    def measure(self, seconds: float) -> dict[str, Any]:
        pid = self.broker.pid
        busy, waited = cpu_seconds(pid), waited_seconds(pid)
        latencies = self._load.run(seconds, self.rate, RARE_RATE)
        busy, waited = cpu_seconds(pid) - busy, waited_seconds(pid) - waited
        return {
            # Of the time that the processor was there for it: others run on this machine, too.
            "utilisation": min(1.0, busy / max(busy, seconds - waited)),
            "others": waited / seconds,
            "lost": self._load.rare_sent - len(latencies),
            "rate": self._load.sent / seconds,
            "late": self._load.late / max(1, self._load.sent),
            "blocked": self._load.blocked,
            "count": len(latencies),
            "min": min(latencies, default=None),
            "p50": percentile(latencies, 0.5) if latencies else None,
            "p99": percentile(latencies, 0.99) if latencies else None,
            "max": max(latencies, default=None),
        }

    def calibrate(self, probes: int, seconds: float) -> None:
        """Find the rate; batching makes a message cheaper the busier a broker is, so it takes several steps."""
        for _ in range(probes):
            found = self.measure(seconds)["utilisation"]
            if 0.91 <= found <= 0.94:
                return
            self.rate *= min(2.0, max(0.5, TARGET / max(0.05, found)))


def run(context: Context) -> list[dict[str, Any]]:
    cpus = sorted(os.sched_getaffinity(0))
    broker_cpu, own_cpu = (cpus[0], cpus[1]) if len(cpus) > 1 else (None, None)
    repeats = 1 if context.is_quick else 6
    seconds = 1.0 if context.is_quick else 5.0
    values: dict[str, list[dict[str, Any]]] = {name: [] for name in BROKERS}
    with ExitStack() as stack, _pinned(own_cpu):
        benches = {name: Bench(stack, name, broker_cpu, seed) for seed, name in enumerate(BROKERS)}
        for _, bench in context.follow("e1.3 finding rates", benches.items()):
            bench.calibrate(4 if context.is_quick else 8, 0.7 if context.is_quick else 2.0)
        turns = [(turn, name) for turn in range(repeats) for name in benches]
        # In turns, so that a bad minute of the machine hits all alike.
        for turn, name in context.follow("e1.3 over sockets", turns):
            bench = benches[name]
            found = bench.measure(seconds)
            values[name].append({"turn": turn, **found})
            bench.rate *= min(1.2, max(0.8, TARGET / max(0.05, found["utilisation"])))
    rows = []
    for name, measured in values.items():
        kept = [each for each in measured if LOW <= each["utilisation"] <= HIGH]
        rows.append(
            {
                "broker": name,
                "kept": len(kept),
                "measured": len(measured),
                **summarise_all(kept or measured, without=("turn",)),
                "values": measured,
            }
        )
    return rows


def describe() -> dict[str, Any]:
    return {
        "fast publishers": FAST,
        "subscribers of each fast message": SUBSCRIBERS,
        "rare messages": f"{RARE_RATE:g} a second",
        "utilisation": f"broker's CPU time over the time that it was not kept waiting; kept if {LOW} to {HIGH}",
        "brokers": {name: " ".join(settings) or "defaults" for name, (_, settings) in BROKERS.items()},
    }
