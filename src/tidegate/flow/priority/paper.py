"""The published priority (Al Enany, Harb, Attiya 2022; spec 1 (b) B2): strict, rare senders first."""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.flow.priority.ranks import Ranks


class PaperPriority:
    """Publishers sorted by trained rate, ascending; waiting messages in the order of ranks, FIFO within one.

    `is_inverted` serves the fastest first, as eq (5) and (6) are printed against the paper's own text and Algorithm 2
    (ambiguity 4); it is there to document the error. Strict priority lets the last rank starve.
    """

    __slots__ = ("_is_inverted", "_ranks")

    def __init__(self, *, is_inverted: bool = False) -> None:
        self._ranks = Ranks()
        self._is_inverted = is_inverted

    def update(self, publisher: Hashable, rate: float) -> None:
        self._ranks.update(publisher, rate)

    def remove(self, publisher: Hashable) -> None:
        self._ranks.remove(publisher)

    def rank(self, publisher: Hashable) -> int:
        if self._is_inverted:
            return max(1, len(self._ranks) - self._ranks.not_above(publisher) + 1)
        return self._ranks.below(publisher) + 1

    def key(self, publisher: Hashable, arrival_time: float) -> float:
        return float(self.rank(publisher))
