"""Something that takes time for each thing and does not interrupt itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

from tidegate.sim.clock import Simulation

T = TypeVar("T")


class Server(Generic[T]):
    """Serves what waits, the smallest key first and equals in order of arrival, without preemption.

    `service` gives the seconds one thing takes, `key` its place in the queue (default: first come, first served) when
    it is submitted, `done` is called when it was served. `workers` serve at once.
    """

    __slots__ = (
        "_done",
        "_idle",
        "_key",
        "_number",
        "_service",
        "_sim",
        "_waiting",
        "busy_seconds",
        "served",
        "started",
    )

    def __init__(
        self,
        sim: Simulation,
        *,
        service: Callable[[T], float],
        done: Callable[[T], None],
        key: Callable[[T], float] | None = None,
        started: Callable[[T], None] | None = None,
        workers: int = 1,
    ) -> None:
        self._sim = sim
        self._service = service
        self._done = done
        self._key = key
        self.started = started
        self._idle = workers
        self._number = 0
        self._waiting: list[tuple[float, int, T]] = []
        self.busy_seconds = 0.0
        self.served = 0

    def __len__(self) -> int:
        """How many wait, without those in service."""
        return len(self._waiting)

    def waiting(self) -> Iterator[T]:
        """What waits, in no particular order."""
        return (item for _, _, item in self._waiting)

    def submit(self, item: T) -> None:
        self._number += 1
        heappush(self._waiting, (self._key(item) if self._key else 0.0, self._number, item))
        # Not at once: what arrives at the same moment is chosen from together.
        if self._idle:
            self._sim.after(0.0, self._start)

    def _start(self) -> None:
        if not self._idle or not self._waiting:
            return
        self._idle -= 1
        item = heappop(self._waiting)[2]
        if self.started is not None:
            self.started(item)
        seconds = self._service(item)
        self.busy_seconds += seconds
        self._sim.after(seconds, lambda: self._finish(item))

    def _finish(self, item: T) -> None:
        self._idle += 1
        self.served += 1
        self._done(item)
        # What `done` brings about at this very moment is still taken into account.
        self._sim.after(0.0, self._start)
