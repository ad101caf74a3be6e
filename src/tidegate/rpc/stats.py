"""What a router knows about its load: enough for an autoscaler on any backend."""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """Of one interval: requests taken, the longest any had waited, and the sum of waits; seconds."""

    taken: int
    longest_wait: float
    total_wait: float


class Meter:
    """Counts between two readings."""

    def __init__(self) -> None:
        self._taken = 0
        self._longest = 0.0
        self._total = 0.0

    def arrived(self, waited: float) -> None:
        """A request was taken that was sent so many seconds ago."""
        waited = max(0.0, waited)  # two clocks
        self._taken += 1
        self._total += waited
        self._longest = max(self._longest, waited)

    def read(self) -> Reading:
        """Since the last time."""
        reading = Reading(self._taken, self._longest, self._total)
        self._taken = 0
        self._longest = self._total = 0.0
        return reading
