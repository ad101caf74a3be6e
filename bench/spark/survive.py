"""QoS 1 into Spark while everything is killed: `python -m bench.spark.survive`.

A publisher sends numbered events through a broker with a data folder; a streaming job (`driver.py`) writes them to
Parquet. In the midst of it the driver (Python and JVM) is killed twice with SIGKILL, the second time together with the
spool process, and the broker once; each is started again with what is on disk. At the end every event that the broker
acknowledged must be in the rows that Spark committed, and exactly once after dropping doubles by event id. JSON goes to
standard output; the exit status says whether that is so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq
import uvloop

from bench.soak.broker import BrokerProcess
from tidegate.client import NEVER, Client

IN_FLIGHT = 500
PROGRESS_SECONDS: Final = 120.0  # without a single new row, that is: not a limit on the whole
TOPIC = "survive/{}"


@dataclass(kw_only=True, slots=True)
class Outcome:
    messages: int
    rows: int
    lost: int
    repeated: int
    after_dedupe: int
    driver_kills: int
    spool_kills: int
    broker_kills: int
    seconds: float

    @property
    def is_right(self) -> bool:
        return self.lost == 0 and self.after_dedupe == self.messages


class Driver:
    """The streaming job in a process group of its own, so that one signal reaches Python, JVM and workers."""

    def __init__(self, url: str, folder: str) -> None:
        self._command = [sys.executable, "-m", "bench.spark.driver", url, folder]
        self._folder = Path(folder)
        self._process: subprocess.Popen[str] | None = None
        self.rows = 0
        """Rows of batches that this and earlier drivers told of; the last of a killed one may be missing."""

    def start(self) -> None:
        log = (self._folder / "driver.log").open("a")
        with log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "started\n":
            raise RuntimeError(
                f"the driver did not start: {(self._folder / 'driver.log').read_text()[-3000:]}"
            )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def check(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the driver ended: {(self._folder / 'driver.log').read_text()[-3000:]}")

    def kill(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if process is self._process:
                self.rows = max(self.rows, int(line))


def committed(folder: Path) -> list[int]:
    """The event ids of all rows that Spark's file sink committed; files of batches that were cut off do not count."""
    files: set[str] = set()
    for log in (folder / "rows" / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            files.add(json.loads(line)["path"].removeprefix("file://"))
    found: list[int] = []
    for file in files:
        found += pq.read_table(file, columns=["event_id"]).column(0).to_pylist()
    return found


async def publish(url: str, messages: int, done: Callable[[], None]) -> None:
    """Every one is acknowledged when this returns."""
    room = asyncio.Semaphore(IN_FLIGHT)
    faults: list[BaseException] = []

    def on_done(future: asyncio.Future[Any]) -> None:
        room.release()
        done()
        if (fault := future.exception()) is not None:
            faults.append(fault)

    async with Client(
        url, client_id="publisher", clean_start=False, session_expiry_interval=NEVER, reconnect=True,
        reconnect_min_delay=0.05, reconnect_max_delay=0.5, operation_timeout=None, max_in_flight=IN_FLIGHT,
    ) as client:  # fmt: skip
        for number in range(messages):
            await room.acquire()
            future = client.publish_nowait(TOPIC.format(number % 50), f'{{"event_id":{number}}}', qos=1)
            future.add_done_callback(on_done)
        for _ in range(IN_FLIGHT):
            await room.acquire()
    if faults:
        raise faults[0]


async def survive(
    messages: int, driver_kills: int, broker_kills: int, folder: str, say: Callable[[str], None]
) -> Outcome:
    began = time.monotonic()
    acknowledged = 0
    spool_kills = 0

    def on_acknowledged() -> None:
        nonlocal acknowledged
        acknowledged += 1

    with BrokerProcess(f"data={folder}/broker") as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"
        driver = Driver(url, folder)
        try:
            await asyncio.to_thread(driver.start)
            await _wait(lambda: _state(folder) == "connected", driver)
            publishing = asyncio.create_task(publish(url, messages, on_acknowledged))
            # Kills at even distances; those of the broker behind the first of the driver's.
            plan = ["driver"] * driver_kills
            plan[1:1] = ["broker"] * broker_kills
            for number, what in enumerate(plan, 1):
                share = messages * number // (len(plan) + 1)
                await _wait(lambda share=share: driver.rows >= share, driver)  # type: ignore[misc]
                if what == "broker":
                    broker.kill()
                    await asyncio.to_thread(broker.start)
                else:
                    driver.kill()
                    if number == len(plan):
                        spool_kills += _kill_spool(folder)
                    await asyncio.to_thread(driver.start)
                say(f"killed the {what}; {acknowledged} messages published, {driver.rows} rows written")
            await publishing
            say(f"all {messages} messages published")
            await _wait_all(folder, messages, driver)
        finally:
            await asyncio.to_thread(driver.stop)
    ids = committed(Path(folder))
    distinct = len(pc.unique(pc.cast(ids, "int64"))) if ids else 0
    return Outcome(
        messages=messages,
        rows=len(ids),
        lost=messages - len(set(ids) & set(range(messages))),
        repeated=len(ids) - distinct,
        after_dedupe=distinct,
        driver_kills=driver_kills,
        spool_kills=spool_kills,
        broker_kills=broker_kills,
        seconds=round(time.monotonic() - began, 1),
    )


async def _wait(condition: Callable[[], bool], driver: Driver) -> None:
    last, until = driver.rows, time.monotonic() + PROGRESS_SECONDS
    while not condition():
        driver.check()
        if driver.rows != last:
            last, until = driver.rows, time.monotonic() + PROGRESS_SECONDS
        if time.monotonic() > until:
            raise TimeoutError(f"no progress within {PROGRESS_SECONDS:g} s, at {last} rows")
        await asyncio.sleep(0.05)


async def _wait_all(folder: str, messages: int, driver: Driver) -> None:
    """Until every event is there, or none came for a while: then some are lost, and counted as such."""
    found, until = -1, time.monotonic() + PROGRESS_SECONDS
    while time.monotonic() < until:
        driver.check()
        now = await asyncio.to_thread(lambda: len(set(committed(Path(folder)))))
        if now == messages:
            return
        if now != found:
            found, until = now, time.monotonic() + PROGRESS_SECONDS
        await asyncio.sleep(1.0)


def _state(folder: str) -> str | None:
    try:
        return str(json.loads(Path(folder, "spool", "status.json").read_text())["state"])
    except (FileNotFoundError, ValueError):
        return None


def _kill_spool(folder: str) -> int:
    """SIGKILL, unless it has noticed already that its reader is gone."""
    try:
        os.kill(json.loads(Path(folder, "spool", "status.json").read_text())["pid"], signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 1


def run(
    messages: int, driver_kills: int, broker_kills: int, say: Callable[[str], None] = lambda _: None
) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="tidesurvive-") as folder:
        return uvloop.run(survive(messages, driver_kills, broker_kills, folder, say))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=600_000)
    parser.add_argument("--driver-kills", type=int, default=2)
    parser.add_argument("--broker-kills", type=int, default=1)
    given = parser.parse_args()
    outcome = run(
        given.messages,
        given.driver_kills,
        given.broker_kills,
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(json.dumps(asdict(outcome), indent=1))
    return 0 if outcome.is_right else 1


if __name__ == "__main__":
    raise SystemExit(main())
