"""Messages a second from MQTT into Spark: `python -m bench.spark.speed`.

A broker, the feeder (`feed.py`), the spool process and Spark with a noop sink share this machine. Measured is the time
from the first message published until Spark has processed the last, and the CPU time of each process meanwhile. A
warm-up comes first, so that neither the JVM's start nor most of its compiler are part of it. JSON goes to standard
output.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.brokers import Broker
from bench.spark.feed import PREFIX
from bench.spark.session import make_session

QUIET_SECONDS = 120.0
WARM_UP_RATE = 15_000


def processed(query: Any) -> int:
    """Rows of all batches that are done: where the latest ended."""
    # Not from `recentProgress`, which makes text of every batch there was at each look.
    progress = query.lastProgress
    end = None if progress is None else progress["sources"][0]["endOffset"]
    return 0 if end is None else int((json.loads(end) if isinstance(end, str) else end)["seq"])


def wait_for(query: Any, rows: int) -> None:
    until = time.monotonic() + QUIET_SECONDS
    last = -1
    while (now := processed(query)) < rows:
        if query.exception() is not None:
            raise SystemExit(f"error: {query.exception()}")
        if now != last:
            last, until = now, time.monotonic() + QUIET_SECONDS
        if time.monotonic() > until:
            raise SystemExit(f"error: {rows - now} of {rows} rows did not come")
        time.sleep(0.05)


def start(spark: SparkSession, given: dict[str, str], folder: str, trigger: str) -> StreamingQuery:
    """A query into nothing; returns when it is subscribed. With the same folder it goes on where the last ended."""
    spool = Path(given["spool"])
    (spool / "status.json").unlink(missing_ok=True)
    query = (
        spark.readStream.format("mqtt").options(**given).load()
        .writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(processingTime=trigger).start()
    )  # fmt: skip
    until = time.monotonic() + QUIET_SECONDS
    while not (status := spool / "status.json").exists() or "connected" not in status.read_text():
        if query.exception() is not None or time.monotonic() > until:
            raise SystemExit(f"error: {query.exception() or 'the source did not connect'}")
        time.sleep(0.05)
    return query


def cpu_seconds(broker: int, spool: int) -> Counter[str]:
    """CPU time so far of everything that takes part, by what it does."""
    found: Counter[str] = Counter()
    own = psutil.Process()
    for process in {own, psutil.Process(spool), *own.children(recursive=True)}:
        try:
            times = process.cpu_times()
            words = " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue
        if process.pid in (broker, spool):
            role = "broker" if process.pid == broker else "spool"
        elif "java" in words.partition(" ")[0]:
            role = "spark, jvm"
        elif "source_runner" in words:
            role = "spark, planning"
        else:
            role = "this program" if process.pid == own.pid else "spark, tasks"
        found[role] += times.user + times.system
    return found


def run(
    messages: int,
    warm_up: int,
    window: int,
    rate: int,
    broker_name: str,
    durable: bool,
    trigger: str,
    options: dict[str, str],
) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="tidespark-") as folder,
        Broker(name=broker_name, durable=durable) as broker,
    ):
        spark = make_session(folder, "bench.spark.speed")
        spool = Path(folder, "spool")
        given = {
            "url": f"mqtt://127.0.0.1:{broker.port}",
            "topics": f"{PREFIX}/#",
            "spool": str(spool),
            **options,
        }
        # Batch upon batch, so that the JVM has compiled what a batch needs; it takes some dozens of them.
        query = start(spark, given, folder, "0 seconds")
        try:
            _feed(broker.port, warm_up, window, WARM_UP_RATE)
            wait_for(query, warm_up)
        finally:
            query.stop()
        query = start(spark, given, folder, trigger)
        try:
            pids = broker.pid, json.loads((spool / "status.json").read_text())["pid"]
            before = cpu_seconds(*pids)
            began, fed, feeder_cpu = _feed(broker.port, messages, window, rate)
            wait_for(query, warm_up + messages)
            seconds = time.monotonic() - began
            cpu = cpu_seconds(*pids)
            cpu.subtract(before)
            cpu["feeder"] = feeder_cpu
            progress = [each for each in query.recentProgress if each["numInputRows"]]
        finally:
            query.stop()
            spark.stop()
    return {
        "messages": messages,
        "warm_up": warm_up,
        "broker": broker_name,
        "durable": durable,
        "messages_per_second": round(messages / seconds),
        "seconds": round(seconds, 2),
        "feeder_seconds": round(fed, 2),
        "cpu_us_per_message": {name: round(value / messages * 1e6, 2) for name, value in sorted(cpu.items())},
        "rate_offered": rate or None,
        "trigger": trigger,
        "batches": len(progress),
        "batch_seconds": [round(each["batchDuration"] / 1000, 2) for each in progress],
        "cores": len(os.sched_getaffinity(0)),
    }


def _feed(port: int, messages: int, window: int, rate: int) -> tuple[float, float, float]:
    """When it began, the seconds until all was acknowledged, and those of CPU."""
    command = [sys.executable, "-m", "bench.spark.feed", *map(str, (port, messages, window, rate))]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    began, seconds, cpu = map(float, said)
    return began, seconds, cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=3_000_000)
    parser.add_argument(
        "--warm-up", type=int, default=400_000, help="messages before those that are measured"
    )
    parser.add_argument("--window", type=int, default=20_000, help="unacknowledged messages of the feeder")
    parser.add_argument(
        "--rate", type=int, default=0, help="messages a second offered; 0: as fast as acknowledged"
    )
    parser.add_argument("--trigger", default="5 seconds", help="interval of micro-batches: each has a price")
    parser.add_argument("--broker", choices=["tidegate", "mosquitto"], default="tidegate")
    parser.add_argument("--durable", action="store_true", help="the broker keeps the session on disk")
    parser.add_argument("--least", type=float, default=60_000, help="fail below so many messages a second")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the source")
    given = parser.parse_args()
    options = dict(each.split("=", 1) for each in given.option)
    result = run(
        given.messages,
        given.warm_up,
        given.window,
        given.rate,
        given.broker,
        given.durable,
        given.trigger,
        options,
    )
    print(json.dumps(result, indent=1))
    return 0 if result["messages_per_second"] >= given.least else 1


if __name__ == "__main__":
    raise SystemExit(main())
