"""Long work goes on here: a part of it in each turn of the loop, after others had theirs.

A job is an iterator: each step does a small part and gives what it cost, in units of about a microsecond. All jobs of
the node share one slice of a turn, one after the other, so that the long work of a hundred clients slows the others no
more than that of one.

A large packet takes several times its bytes while it is handled. So all that are have a bound together; the others wait
as they came, small ones and those that came long ago first.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tidegate.broker.core import Core

log = logging.getLogger("tidegate.broker")

SLICE = 0.001  # seconds of a turn for all jobs together
PATIENCE = 1e-5  # seconds that a packet waits longer for each byte that it takes
STEP = 200  # units that a step should not go over by much

Job: TypeAlias = Iterator[int]


class LongWork:
    """The jobs of a node."""

    __slots__ = ("_core", "_is_scheduled", "_jobs", "_order", "_sizes", "_waiting")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._jobs: deque[Job] = deque()
        self._sizes: dict[Job, int] = {}  # bytes that jobs take which were begun
        self._waiting: list[tuple[float, int, int, Job]] = []  # when it is due, order, bytes
        self._order = 0
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._jobs) + len(self._waiting)

    def add(self, job: Job, size: int = 0) -> None:
        """Do this from the next turn on. If it takes many bytes while it is done, it may have to wait for room."""
        if size:
            self._order += 1
            heapq.heappush(self._waiting, (self._core.now() + size * PATIENCE, self._order, size, job))
        else:
            self._jobs.append(job)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._core.loop.call_soon(self._go_on)

    def drop(self, job: Job) -> None:
        """Do not go on with this one, if it is not done."""
        self._sizes.pop(job, None)
        if job in self._jobs:
            self._jobs.remove(job)
        else:
            self._waiting = [each for each in self._waiting if each[3] is not job]
            heapq.heapify(self._waiting)

    def _admit(self) -> None:
        room = self._core.memory.part_bytes - sum(self._sizes.values())
        while self._waiting and (not self._sizes or self._waiting[0][2] <= room):
            _, _, size, job = heapq.heappop(self._waiting)
            self._sizes[job] = size
            self._jobs.append(job)
            room -= size

    def _go_on(self) -> None:
        self._is_scheduled = False
        core = self._core
        jobs = self._jobs
        if not core.turn_began:
            core.begin_turn()
        until = core.now() + SLICE
        if self._waiting:
            self._admit()
        while jobs:
            job = jobs.popleft()
            is_done = True
            try:
                is_done = next(job, None) is None
            except Exception:
                log.exception("unexpected error in long work")
            if not is_done:
                jobs.append(job)
            elif job in self._sizes:
                del self._sizes[job]
                self._admit()
            if core.now() >= until:
                break
        if (jobs or self._waiting) and not self._is_scheduled:
            self._is_scheduled = True
            core.loop.call_soon(self._go_on)
