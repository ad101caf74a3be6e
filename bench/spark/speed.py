"""Messages a second from MQTT into Spark: `python -m bench.spark.speed`.

A broker, the feeder (`feed.py`), the spool process and Spark with a noop sink share this machine. Measured is the time
from the first message published until Spark has processed the last, and the CPU time of each process meanwhile. A
warm-up comes first, so that neither the JVM's start nor its compiler are part of it. JSON goes to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.brokers import Broker
from bench.spark.feed import PREFIX
from bench.spark.session import make_session

QUIET_SECONDS = 120.0


def processed(query: Any) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)


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
        time.sleep(0.02)


def cpu_seconds(pid: int, *, with_children: bool = False) -> float:
    process = psutil.Process(pid)
    total = sum(process.cpu_times()[: 2 if not with_children else 4])
    for each in process.children(recursive=True) if with_children else ():
        try:
            total += sum(each.cpu_times()[:4])  # with children that have ended
        except psutil.NoSuchProcess:
            pass
    return total


def run(
    messages: int,
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
        query = (
            spark.readStream.format("mqtt").options(**given).load()
            .writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(processingTime=trigger).start()
        )  # fmt: skip
        try:
            while (
                not (spool / "status.json").exists() or "connected" not in (spool / "status.json").read_text()
            ):
                if query.exception() is not None:
                    raise SystemExit(f"error: {query.exception()}")
                time.sleep(0.05)
            warm = max(messages // 5, 1000)
            _feed(broker.port, warm, window, rate)
            wait_for(query, warm)
            spool_pid = json.loads((spool / "status.json").read_text())["pid"]
            pids = {"broker": broker.pid, "spool": spool_pid}
            before = {name: cpu_seconds(pid) for name, pid in pids.items()}
            spark_before = cpu_seconds(os.getpid(), with_children=True)
            began = time.monotonic()
            fed = _feed(broker.port, messages, window, rate)
            wait_for(query, warm + messages)
            seconds = time.monotonic() - began
            cpu = {name: (cpu_seconds(pid) - before[name]) / messages * 1e6 for name, pid in pids.items()}
            # The spool and the broker are children of this process, too.
            own = (cpu_seconds(os.getpid(), with_children=True) - spark_before) / messages * 1e6
            cpu["spark"] = own - cpu["broker"] - (cpu["spool"] if _is_child(spool_pid) else 0.0)
            progress = [each for each in query.recentProgress if each["numInputRows"]]
        finally:
            query.stop()
            spark.stop()
    return {
        "messages": messages,
        "broker": broker_name,
        "durable": durable,
        "messages_per_second": round(messages / seconds),
        "seconds": round(seconds, 2),
        "feeder_seconds": round(fed, 2),
        "cpu_us_per_message": {name: round(value, 2) for name, value in cpu.items()},
        "rate_offered": rate or None,
        "batches": len(progress),
        "batch_seconds": [round(each["batchDuration"] / 1000, 2) for each in progress],
        "cores": len(os.sched_getaffinity(0)),
    }


def _is_child(pid: int) -> bool:
    return any(child.pid == pid for child in psutil.Process().children(recursive=True))


def _feed(port: int, messages: int, window: int, rate: int) -> float:
    command = [sys.executable, "-m", "bench.spark.feed", *map(str, (port, messages, window, rate))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--window", type=int, default=5_000, help="unacknowledged messages of the feeder")
    parser.add_argument(
        "--rate", type=int, default=0, help="messages a second offered; 0: as fast as acknowledged"
    )
    parser.add_argument("--trigger", default="1 second", help="interval of micro-batches")
    parser.add_argument("--broker", choices=["tidegate", "mosquitto"], default="tidegate")
    parser.add_argument("--durable", action="store_true", help="the broker keeps the session on disk")
    parser.add_argument("--least", type=float, default=60_000, help="fail below so many messages a second")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the source")
    given = parser.parse_args()
    options = dict(each.split("=", 1) for each in given.option)
    result = run(
        given.messages, given.window, given.rate, given.broker, given.durable, given.trigger, options
    )
    print(json.dumps(result, indent=1))
    return 0 if result["messages_per_second"] >= given.least else 1


if __name__ == "__main__":
    raise SystemExit(main())
