"""What following an update will take, guessed from what it took when the store was smaller."""

from __future__ import annotations

from math import exp, inf, log

_MOST = 700.0  # exp() of more is no number


class Cost:
    """`seconds` were measured with `size` triples; the work grows with a power of the size, `degree`, at most."""

    __slots__ = ("_degree", "_size", "seconds")

    def __init__(self, degree: int, size: int, seconds: float) -> None:
        self._degree = degree
        self._size = max(1, size)
        self.seconds = seconds

    def learn(self, size: int, seconds: float) -> None:
        self._size = max(1, size)
        self.seconds = seconds

    def at(self, size: int) -> float:
        if size <= self._size:
            return self.seconds
        power = self._degree * log(size / self._size)
        return self.seconds * exp(power) if power < _MOST else inf
