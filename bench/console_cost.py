"""What a console costs its node: CPU of the broker without one, with one nobody looks at, and with open pages.

`python bench/console_cost.py [--publishers 1000] [--seconds 10] [--rounds 3] [--out FILE]`. Publishers send once a
second each. The cases take turns, so that what else the machine does falls on all of them; a number is the median of
rounds, in per cent of one core. Writes JSON with the machine it was measured on.

`python bench/console_cost.py --render` puts the numbers of bench/results/console-cost.json into docs/design/console.md,
so that none is typed by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil

from tidegate.lab.provenance import provenance
from tidegate.mqtt import Connect, Publish, encode_packet

CASES = ("no console", "nobody looks", "overview", "publishers")
ROOT = Path(__file__).resolve().parents[1]
RESULT, PAGE = ROOT / "bench" / "results" / "console-cost.json", ROOT / "docs" / "design" / "console.md"
BEGIN, END = "<!-- console-cost: rendered, do not edit -->", "<!-- /console-cost -->"
SETTLE = 7.0  # seconds: what a page asked for before is given up by then


async def publish(port: int, count: int) -> None:
    """So many publishers, one message a second each, spread evenly."""
    writers = []
    for number in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(encode_packet(Connect(client_id=f"meter-{number:05d}", keep_alive=0, protocol_level=4), 4))
        await reader.readexactly(4)
        writers.append((writer, encode_packet(Publish(topic=f"plant/{number}", payload=b"3.14"), 4)))
    Random(7).shuffle(writers)
    loop = asyncio.get_running_loop()
    began, sent = loop.time(), 0
    while True:
        due = int((loop.time() - began) * count)
        while sent < due:
            writer, packet = writers[sent % count]
            writer.write(packet)
            sent += 1
        await asyncio.sleep(0.005)


def run_publishers(port: int, count: int) -> None:
    asyncio.run(publish(port, count))


@contextmanager
def program(*arguments: str, wanted: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", *arguments], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert wanted in line, line
    try:
        yield process, line
    finally:
        process.terminate()
        process.wait()


class Page:
    """As a browser with one page open: its stream, and for the table the rows in sight whenever there are new ones."""

    def __init__(self, port: int, channel: str) -> None:
        self._port = port
        self._channel = channel
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Page:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(10)

    def _ask(self, path: str, cookie: str = "") -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        return connection.getresponse(), connection

    def _read(self) -> None:
        answer, connection = self._ask("/api/session")
        cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        connection.close()
        stream, connection = self._ask(f"/api/live?channels={self._channel}", cookie)
        while not self._is_over.is_set():
            line = stream.readline()
            if line.startswith(b"event: publishers"):
                rows, other = self._ask("/api/publishers?count=40", cookie)
                rows.read()
                other.close()
        connection.close()


def measure(process: psutil.Process, seconds: float) -> float:
    """Per cent of one core."""
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, passed = process.cpu_times(), time.monotonic() - began
    return (after.user + after.system - before.user - before.system) / passed * 100.0


def run(count: int, seconds: float, rounds: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {case: [] for case in CASES}
    with program("serve", "--port", "0", "--log-level", "error", wanted="ready") as (node, line):
        port = int(line.split("mqtt://127.0.0.1:")[1].split(" ")[0])
        crowd = multiprocessing.get_context("spawn").Process(target=run_publishers, args=(port, count), daemon=True)
        crowd.start()
        process = psutil.Process(node.pid)
        time.sleep(5 + count / 500)
        for number in range(rounds):
            found["no console"].append(measure(process, seconds))
            with program(
                "console", "--port", str(port), "--http-port", "0", "--log-level", "error", wanted="console on"
            ) as (_, words):
                http_port = int(words.rsplit(":", 1)[1].strip("/\n"))
                time.sleep(SETTLE)
                found["nobody looks"].append(measure(process, seconds))
                for channel in ("overview", "publishers"):
                    with Page(http_port, channel):
                        time.sleep(3)
                        found[channel].append(measure(process, seconds))
            print(f"round {number + 1}:", {case: round(values[-1], 2) for case, values in found.items()}, flush=True)
        crowd.terminate()
    base = statistics.median(found["no console"])
    return {
        "publishers": count,
        "seconds": seconds,
        "rounds": rounds,
        "cpu_percent": {case: round(statistics.median(values), 2) for case, values in found.items()},
        "more_than_without": {
            case: round(statistics.median(values) - base, 2) for case, values in found.items() if case != CASES[0]
        },
    }


def render(result: dict[str, Any], page: str) -> str:
    """The page with this result between its marks; who reads it must be able to measure again."""
    if not result["command"]:
        raise ValueError("the result does not say by which command it was measured")
    more = result["more_than_without"]
    rows = [
        f"| {case} | {percent:.2f} % | {f'{more[case]:+.2f}' if case in more else '–'} |"
        for case, percent in result["cpu_percent"].items()
    ]
    machine, versions = result["machine"], result["versions"]
    text = f"""\
CPU of the node with {result["publishers"]:,} publishers that send once a second each, in per cent of one core, median
of {result["rounds"]} rounds of {result["seconds"]:g} s:

| case | CPU | points more |
|---|---:|---:|
{chr(10).join(rows)}

Measured {result["date"][:10]} at commit {result["commit"][:10]} on {machine["cores"]} cores of {machine["cpu"]}, Linux
{machine["kernel"]}, Python {versions["python"]}: `{result["command"]}`."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publishers", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--render", action="store_true", help="measure nothing, write docs/design/console.md")
    arguments = parser.parse_args()
    if arguments.render:
        PAGE.write_text(render(json.loads(RESULT.read_text()), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    command = " ".join(["python bench/console_cost.py", *sys.argv[1:]])
    result = provenance() | {"command": command} | run(arguments.publishers, arguments.seconds, arguments.rounds)
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
