"""Long work goes on here: a part of it in each turn of the loop, after others had theirs.

A job is an iterator: each step does a small part and gives what it cost, in units of about a microsecond. All jobs of
the node share one slice of a turn, one after the other, so that the long work of a hundred clients slows the others no
more than that of one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tidegate.broker.core import Core

log = logging.getLogger("tidegate.broker")

SLICE = 0.001  # seconds of a turn for all jobs together
STEP = 200  # units that a step should not go over by much

Job: TypeAlias = Iterator[int]


class LongWork:
    """The jobs of a node."""

    __slots__ = ("_core", "_is_scheduled", "_jobs")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._jobs: deque[Job] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        """Do this from the next turn on."""
        self._jobs.append(job)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._core.loop.call_soon(self._go_on)

    def drop(self, job: Job) -> None:
        """Do not go on with this one."""
        self._jobs.remove(job)

    def _go_on(self) -> None:
        self._is_scheduled = False
        core = self._core
        jobs = self._jobs
        if not core.turn_began:
            core.begin_turn()
        until = core.now() + SLICE
        while jobs:
            job = jobs.popleft()
            try:
                if next(job, None) is not None:
                    jobs.append(job)
            except Exception:
                log.exception("unexpected error in long work")
            if core.now() >= until:
                break
        if jobs and not self._is_scheduled:
            self._is_scheduled = True
            core.loop.call_soon(self._go_on)
