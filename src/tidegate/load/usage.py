"""CPU time and memory of a process, from /proc (Linux)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tidegate.load.errors import LoadError

_GONE = "check the pid, and whether the broker stopped"
_TICK = os.sysconf("SC_CLK_TCK")


def _scheduled(pid: int, column: int) -> float | None:
    """Return a column of the scheduler's counters in seconds, over all threads; None if there is none."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[column]) for task in tasks) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return None  # or a thread ended while we looked


def waited_seconds(pid: int) -> float:
    """Return how long the threads of `pid` were ready to run and had to wait for a processor."""
    return _scheduled(pid, 1) or 0.0


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of all threads of `pid`.

    The scheduler's nanosecond counters are used where the kernel has them; clock ticks (10 ms) where not.
    """
    scheduled = _scheduled(pid, 0)
    if scheduled:
        return scheduled
    try:
        # The name of the program may hold blanks and brackets: fields are counted from the last bracket on.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        raise LoadError(f"there is no process {pid}", hint=_GONE) from None
    return (int(fields[11]) + int(fields[12])) / _TICK


def steal_seconds() -> float:
    """Return how long a processor of this machine, on average, had to wait for its host."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()
    return int(fields[8]) / _TICK / (os.cpu_count() or 1)


@dataclass(kw_only=True, slots=True, frozen=True)
class Memory:
    """Resident set, and its proportional part (pages shared with other processes divided among them)."""

    rss_bytes: int
    pss_bytes: int


def memory(pid: int) -> Memory:
    """Return what `pid` holds now; costs the kernel a walk of its page tables."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except FileNotFoundError:
        raise LoadError(f"there is no process {pid}", hint=_GONE) from None
    except PermissionError:
        raise LoadError(f"the memory of process {pid} is not ours to read", hint="run as its user") from None
    sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return Memory(rss_bytes=sizes["Rss"], pss_bytes=sizes["Pss"])
