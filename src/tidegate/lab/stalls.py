"""Moments at which the machine stood still, because its host gave the processor to somebody else.

One process per processor comes before all others there (SCHED_FIFO), wakes every half millisecond and notes when it was
late. Nothing that an experiment does can delay it, so what was under way meanwhile says nothing about a broker and is
left out, whatever it took. Without the right to that priority (it needs root) nothing is noted and nothing left out.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from types import TracebackType
from typing import Self

from tidegate.lab.brokers import uninterrupted

PERIOD = 0.0005
LATE = 0.001  # seconds between two wakings
AFTERMATH = 0.002  # seconds in which what piled up is worked off
STOP_SECONDS = 10.0
FIRST, SECOND = 2, 1  # priorities of this watch, and of clients that stand for other machines
MAIN = "import sys; from tidegate.lab.stalls import watch; watch(int(sys.argv[1]))"


def come_first(priority: int = SECOND) -> bool:
    """Run before all ordinary processes; whether that was granted."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except PermissionError:
        return False
    return True


def watch(cpu: int) -> None:
    """Note stalls of one processor until SIGTERM, then print them."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    os.sched_setaffinity(0, {cpu})
    stalls: list[tuple[float, float]] = []
    if come_first(FIRST):
        before = time.monotonic()
        while not ended:
            time.sleep(PERIOD)
            now = time.monotonic()
            if now - before > LATE:
                stalls.append((before, now))
            before = now
    else:
        while not ended:
            signal.pause()
    print(json.dumps(stalls), flush=True)


class Stalls:
    """When the machine stood still."""

    def __init__(self, found: list[tuple[float, float]]) -> None:
        merged: list[tuple[float, float]] = []
        for begin, end in sorted(found):
            end += AFTERMATH
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        self._begins = [begin for begin, _ in merged]
        self._ends = [end for _, end in merged]

    def touch(self, begin: float, end: float) -> bool:
        """Whether the machine stood still at some moment in between."""
        at = bisect_right(self._begins, end) - 1
        return at >= 0 and self._ends[at] >= begin

    @property
    def seconds(self) -> float:
        return sum(self._ends) - sum(self._begins)


class StallWatch:
    """A context manager around what is measured; `stalls` is there after its end."""

    def __init__(self, cpus: list[int] | None = None) -> None:
        self._cpus = sorted(os.sched_getaffinity(0)) if cpus is None else cpus
        self._watchers: list[subprocess.Popen[str]] = []
        self.stalls = Stalls([])

    def __enter__(self) -> Self:
        for cpu in self._cpus:
            with uninterrupted():
                command = [sys.executable, "-c", MAIN, str(cpu)]
                self._watchers.append(
                    subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for watcher in self._watchers:
            watcher.terminate()
        found: list[tuple[float, float]] = []
        for watcher in self._watchers:
            try:
                said = watcher.communicate(timeout=STOP_SECONDS)[0]
            except subprocess.TimeoutExpired:
                watcher.kill()
                said = watcher.communicate()[0]
            # Nothing, if it was ended before it had begun.
            found += [(begin, end) for begin, end in json.loads(said or "[]")]
        self.stalls = Stalls(found)
