"""How long the event loop stands still while a node takes a policy snapshot of a million publishers.

`python bench/policy_pause.py [PUBLISHERS]` writes a snapshot, runs a loop that notes how late it is every millisecond,
first alone and then while the snapshot is loaded and swapped in several times, and prints both as JSON. Exit status 1
if the longest pause with the load is over 10 ms and more than twice what it was without.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import uvloop

from tidegate.broker import Broker
from tidegate.policy import PolicySettings, PolicyStore
from tidegate.policy.snapshot import Snapshot
from tidegate.policy.watch import PolicyWatcher

TICK = 0.001
LOADS = 5
LIMIT_MS = 10.0


def snapshot(folder: Path, publishers: int) -> PolicyStore:
    """Two versions, so that each look finds a new one."""
    random = np.random.default_rng(1)
    store = PolicyStore(folder)
    now = datetime.now(UTC)
    for version in ("a", "b"):
        table = pa.table(
            {
                "client_id": pa.array([f"device-{n:012x}" for n in random.permutation(publishers).tolist()]),
                "rate": random.lognormal(0.0, 2.0, publishers),
                "dispersion": random.random(publishers),
                "limit": np.zeros(publishers),
                "rank": np.arange(publishers),
                "messages": np.full(publishers, 1000),
            }
        )
        store.write({"baselines": table}, input_from=now, input_to=now, version=version)
    return store


async def watch_loop(pauses: list[float]) -> None:
    while True:
        due = time.monotonic() + TICK
        await asyncio.sleep(TICK)
        pauses.append(max(0.0, time.monotonic() - due))


def figures(pauses: list[float]) -> dict[str, float]:
    values = np.array(pauses) * 1e3
    return {
        "p50_ms": round(float(np.percentile(values, 50)), 3),
        "p99_ms": round(float(np.percentile(values, 99)), 3),
        "max_ms": round(float(values.max()), 3),
    }


async def measure(publishers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        store = snapshot(Path(folder), publishers)
        async with Broker(port=0) as broker:

            def take(found: Snapshot) -> None:
                broker.learn(found.priors, found.speeds, found.version)

            watcher = PolicyWatcher(PolicySettings(path=folder), take)
            pauses: list[float] = []
            task = asyncio.create_task(watch_loop(pauses))
            await asyncio.sleep(5.0)
            alone = figures(pauses)
            pauses.clear()
            began = time.monotonic()
            for number in range(LOADS):
                await asyncio.to_thread(store.activate, "ab"[number % 2])
                await watcher.look()
            seconds = (time.monotonic() - began) / LOADS
            loading = figures(pauses)
            task.cancel()
            gate = broker.core.gate
            assert gate is not None
            began = time.perf_counter()
            found = sum(gate.priors.get(f"device-{n:012x}") is not None for n in range(10_000))
            return {
                "publishers": publishers,
                "load_seconds": round(seconds, 2),
                "alone": alone,
                "loading": loading,
                "lookup_us": round((time.perf_counter() - began) / 10_000 * 1e6, 2),
                "found": found,
            }


def main() -> int:
    result = uvloop.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
    print(json.dumps(result, indent=1))
    longest = result["loading"]["max_ms"]
    return 1 if longest > max(LIMIT_MS, 2 * result["alone"]["max_ms"]) else 0


if __name__ == "__main__":
    sys.exit(main())
