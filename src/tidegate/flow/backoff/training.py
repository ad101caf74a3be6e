"""The first messages of a publisher: its rate and how regular it is, robust against one odd interval."""

from __future__ import annotations

from math import sqrt

SHORTEST = 1e-9  # seconds a message; no clock tells less, and its reciprocal is finite
KEPT = 64  # intervals kept; a fast publisher has many more in its training time, and they add little
ODD = 8.0  # times the mean of the others: an interval that was sleep rather than rate
SHRINK = 8.0  # intervals that the assumption of a Poisson stream weighs


class Training:
    """Collects intervals until there are `n` messages over at least `least_time` seconds."""

    __slots__ = ("_first", "_intervals", "_last", "_least_time", "_n", "messages")

    def __init__(self, n: int, least_time: float) -> None:
        self._n = n
        self._least_time = least_time
        self._first = -1.0
        self._last = 0.0
        self._intervals: list[tuple[float, int]] = []
        self.messages = 0  # that ended an interval; those of the first instant did not

    def add(self, now: float, count: int) -> None:
        if self._first < 0.0:
            self._first = self._last = now
            return
        if len(self._intervals) < KEPT:
            self._intervals.append((now - self._last, count))
        self.messages += count
        self._last = now

    @property
    def is_complete(self) -> bool:
        time = self._last - self._first
        return self.messages >= self._n - 1 and time > 0.0 and time >= self._least_time

    def first_guess(self) -> float:
        """Messages per second after at least two intervals; 0 before."""
        time = self._last - self._first
        return (
            self.messages / max(time, SHORTEST * self.messages) if self.messages >= 2 and time > 0.0 else 0.0
        )

    def gap(self) -> float:
        """Seconds a message. The longest interval is left out if it is far longer than the others."""
        time = self._last - self._first
        longest, count = max(self._intervals)
        others = self.messages - count
        if others > 0 and 0.0 < ODD * (time - longest) / others * count < longest:
            return max(SHORTEST, (time - longest) / others)
        return max(SHORTEST, time / self.messages)

    def dispersion(self) -> float:
        """Variance over mean of the number of messages, from the median absolute deviation.

        1.4826 makes the median a standard deviation for a normal distribution; a Poisson stream gives 0.9, a clock 0.
        Few intervals are weak evidence, so the result is drawn towards 1.
        """
        gap = self.gap()
        deviations = sorted(abs(time / gap - count) / sqrt(count) for time, count in self._intervals)
        middle = 1.4826 * deviations[len(deviations) // 2]
        size = len(deviations)
        return (min(middle * middle, 100.0) * size + SHRINK) / (size + SHRINK)
