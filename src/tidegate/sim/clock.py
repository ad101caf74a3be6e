"""The virtual clock: a heap of what happens when."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from random import Random


class Timer:
    """Something that will happen; `cancel` is harmless when it has."""

    __slots__ = ("_action", "time")

    def __init__(self, time: float, action: Callable[[], None]) -> None:
        self.time = time
        self._action: Callable[[], None] | None = action

    @property
    def is_pending(self) -> bool:
        return self._action is not None

    def cancel(self) -> None:
        self._action = None


class Simulation:
    """Virtual time in seconds from 0, and the seed that everything random is derived from."""

    __slots__ = ("_heap", "_number", "now", "seed")

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.now = 0.0
        self._number = 0  # what is planned for the same moment happens in the order it was planned in
        self._heap: list[tuple[float, int, Timer]] = []

    def random(self, name: str) -> Random:
        """The generator of one source: the same for the same seed and name, whatever else is simulated."""
        return Random(f"{self.seed}/{name}")

    def at(self, time: float, action: Callable[[], None]) -> Timer:
        """Plan for a moment that is not over; raises ValueError if it is."""
        if not time >= self.now:
            raise ValueError(f"{time} is over: it is {self.now}")
        timer = Timer(time, action)
        self._number += 1
        heappush(self._heap, (time, self._number, timer))
        return timer

    def after(self, delay: float, action: Callable[[], None]) -> Timer:
        time = self.now + delay
        if not delay >= 0.0:
            raise ValueError(f"{time} is over: it is {self.now}")
        timer = Timer(time, action)
        self._number += 1
        heappush(self._heap, (time, self._number, timer))
        return timer

    def run(self, until: float = inf) -> None:
        """Let happen all that is planned before `until`, then stand there; without it, until nothing is left."""
        heap = self._heap
        while heap and heap[0][0] < until:
            # No call but the action's own: an experiment has a hundred million of these.
            time, _, timer = heappop(heap)
            action = timer._action
            if action is not None:
                timer._action = None
                self.now = time
                action()
        if until < inf:
            self.now = max(self.now, until)
