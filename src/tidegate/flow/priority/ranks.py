"""Ranks by trained rate, kept up to date in O(log n): the rarest sender is first."""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.flow.priority.order import SortedRates


class Ranks:
    """Rank of a publisher: one more than the number of trained ones with a lower rate, so equals share it.

    Untrained publishers have the median rank (spec 1, ambiguity 9): first place would make a reconnect under a new
    name the way to the front.
    """

    __slots__ = ("_order", "_rates")

    def __init__(self) -> None:
        self._rates: dict[Hashable, float] = {}
        self._order = SortedRates()

    def __len__(self) -> int:
        """Trained publishers."""
        return len(self._order)

    def update(self, publisher: Hashable, rate: float) -> None:
        if not rate >= 0.0:
            raise ValueError(f"a rate is not negative: {rate}")
        old = self._rates.get(publisher, 0.0)
        if rate == old:
            return
        if old > 0.0:
            self._order.remove(old)
        if rate > 0.0:
            self._rates[publisher] = rate
            self._order.add(rate)
        else:
            del self._rates[publisher]

    def remove(self, publisher: Hashable) -> None:
        rate = self._rates.pop(publisher, 0.0)
        if rate > 0.0:
            self._order.remove(rate)

    def below(self, publisher: Hashable) -> int:
        """Trained publishers with a lower rate; half of all for an untrained one."""
        rate = self._rates.get(publisher)
        return len(self._order) // 2 if rate is None else self._order.below(rate)

    def not_above(self, publisher: Hashable) -> int:
        """Trained publishers with a rate that is not higher, itself included."""
        rate = self._rates.get(publisher)
        return len(self._order) // 2 + 1 if rate is None else self._order.not_above(rate)

    def share(self, publisher: Hashable) -> float:
        """Place among all, from 0 (the rarest sender) to 1 (the fastest); 0.5 if untrained or alone."""
        others = len(self._order) - 1
        rate = self._rates.get(publisher)
        if rate is None or others < 1:
            return 0.5
        return self._order.below(rate) / others
