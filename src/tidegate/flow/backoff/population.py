"""What is usual among the publishers of a node: the yardstick for one that nobody knows yet."""

from __future__ import annotations

from tidegate.flow.priority.order import SortedRates


class Population:
    """Trained rates of all publishers; O(log n) to change one, O(log n) for the median."""

    __slots__ = ("_least", "_rates")

    def __init__(self, least: int) -> None:
        self._least = least
        self._rates = SortedRates()

    def __len__(self) -> int:
        return len(self._rates)

    def replace(self, old: float, new: float) -> None:
        """A publisher's rate changed; 0 stands for none, so it also adds and removes."""
        if old > 0.0:
            self._rates.remove(old)
        if new > 0.0:
            self._rates.add(new)

    def median(self) -> float:
        """Messages per second in the middle; 0 while there are too few to speak of a middle."""
        size = len(self._rates)
        return self._rates.select(size // 2) if size >= self._least else 0.0
