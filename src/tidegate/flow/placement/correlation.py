"""How the rates of topics go together: Pearson's ρ over windows of one second, measured as they pass."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from math import sqrt

WINDOW = 120  # seconds of history
MAX_TOPICS = 10_000  # topics with a history; the longest unseen is forgotten first


class RateHistory:
    """Counts per second of every topic. `known` are values from a policy snapshot; what is measured wins."""

    __slots__ = ("_counts", "_known", "_window", "ticks")

    def __init__(self, *, window: int = WINDOW, known: Mapping[tuple[str, str], float] | None = None) -> None:
        self._window = window
        self._known: Mapping[tuple[str, str], float] = known or {}
        self._counts: OrderedDict[str, deque[float]] = OrderedDict()
        self.ticks = 0

    def learn(self, known: Mapping[tuple[str, str], float]) -> None:
        """A new policy snapshot: what the old one said is forgotten."""
        self._known = known

    def tick(self, counts: Mapping[str, float]) -> None:
        """Messages of each topic in the second that is over; topics that are missing had none."""
        self.ticks += 1
        for topic, count in counts.items():
            history = self._counts.pop(topic, None)
            if history is None:
                history = deque([0.0] * min(self.ticks - 1, self._window), maxlen=self._window)
            self._counts[topic] = history
            history.append(count)
        for topic, history in self._counts.items():
            if topic not in counts:
                history.append(0.0)
        while len(self._counts) > MAX_TOPICS:
            self._counts.popitem(last=False)

    def correlation(self, one: str, other: str) -> float:
        """ρ, -1 to 1; while one of them is not measured or does not vary, what is known, else 0."""
        a, b = self._counts.get(one), self._counts.get(other)
        if a is not None and b is not None:
            count = min(len(a), len(b))
            if count >= 3:
                measured = _pearson(list(a)[-count:], list(b)[-count:])
                if measured is not None:
                    return measured
        return self._known.get((one, other), self._known.get((other, one), 0.0))


def _pearson(a: list[float], b: list[float]) -> float | None:
    """None if one of them does not vary, which says nothing about the other."""
    count = len(a)
    mean_a, mean_b = sum(a) / count, sum(b) / count
    spread_a = sum((value - mean_a) ** 2 for value in a)
    spread_b = sum((value - mean_b) ** 2 for value in b)
    if spread_a <= 0.0 or spread_b <= 0.0:
        return None
    common = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return common / sqrt(spread_a * spread_b)
