"""How near the process is to its memory bound, and what is given up at each step.

Order of shedding: new connections first, then QoS 0 for clients that read too slowly and whatever else can be refused,
then QoS 1 and 2 publishers wait. Whoever is connected, reads in time and asks for nothing new notices nothing until
then. Only when memory is over its bound, connections give way (`memory.py`).
"""

from __future__ import annotations

import ctypes
import os
import resource
from enum import IntEnum
from pathlib import Path

STATM = Path("/proc/self/statm")
CGROUP = Path("/sys/fs/cgroup/memory.max")
SHARE = 0.75  # of the machine's memory, when no bound is set


class Pressure(IntEnum):
    """Each step includes those before it."""

    NONE = 0
    NO_NEW_CLIENTS = 1
    DROP_QOS0 = 2
    HOLD = 3
    GIVE_WAY = 4


HOLD_SHARE = 0.95
DROP_SHARE = 0.90
STEPS = (
    (1.0, Pressure.GIVE_WAY),
    (HOLD_SHARE, Pressure.HOLD),
    (DROP_SHARE, Pressure.DROP_QOS0),
    (0.80, Pressure.NO_NEW_CLIENTS),
)


def process_memory_bytes() -> int:
    """Resident memory of this process."""
    try:
        return int(STATM.read_bytes().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the peak is the best there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def default_bound_bytes() -> int:
    """Three quarters of what the machine, or the control group, has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        total = min(total, int(CGROUP.read_text()))
    except (OSError, ValueError):  # no control group, or "max"
        pass
    return int(total * SHARE)


def give_back_memory() -> None:
    """Ask the C library to return freed memory to the system: without it the process never looks smaller."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # not glibc
        pass


def pressure_of(share: float) -> Pressure:
    """The step for a used share of a bound."""
    for least, step in STEPS:
        if share >= least:
            return step
    return Pressure.NONE
