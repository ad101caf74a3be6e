"""What a router knows about its load: enough for an autoscaler on any backend."""

from __future__ import annotations

from typing import NamedTuple

_LEAST_SPAN = 0.02  # of an interval: how much faster than service arrivals may be believed to be


class Reading(NamedTuple):
    """Of one interval: requests taken, the longest any had waited, and by how much more the last had waited than the
    first; seconds."""

    taken: int
    longest_wait: float
    drift: float

    def arrivals(self, seconds: float) -> float:
        """Requests a second as they were made, not as they were taken: if the last had waited longer than the first,
        those taken in this interval were made in a shorter one."""
        return self.taken / max(seconds - self.drift, _LEAST_SPAN * seconds)


class Meter:
    """Counts between two readings."""

    def __init__(self) -> None:
        self._taken = 0
        self._longest = self._first = self._last = 0.0

    def arrived(self, waited: float) -> None:
        """A request was taken that was made so many seconds ago."""
        waited = max(0.0, waited)  # two clocks
        if not self._taken:
            self._first = waited
        self._taken += 1
        self._last = waited
        self._longest = max(self._longest, waited)

    def read(self) -> Reading:
        """Since the last time."""
        reading = Reading(self._taken, self._longest, self._last - self._first)
        self._taken = 0
        self._longest = self._first = self._last = 0.0
        return reading
