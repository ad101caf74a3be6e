"""First come, first served."""

from __future__ import annotations

from collections.abc import Hashable


class NoPriority:
    """Everybody has rank 1."""

    __slots__ = ()

    def update(self, publisher: Hashable, rate: float) -> None:
        """Rates do not matter."""

    def remove(self, publisher: Hashable) -> None:
        """Nothing is kept."""

    def rank(self, publisher: Hashable) -> int:
        return 1

    def key(self, publisher: Hashable, arrival_time: float) -> float:
        return arrival_time
