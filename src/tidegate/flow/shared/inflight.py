"""Fewest messages outstanding, whatever their cost: what web balancers do."""

from __future__ import annotations

from random import Random

from tidegate.flow.shared.load import Member


class LeastInflight:
    """Fewest outstanding, then the one that waits longest. O(n)."""

    __slots__ = ()
    is_counting = True

    def choose(
        self, members: tuple[Member, ...], topic: bytes, publisher: str, now: float, random: Random
    ) -> int:
        best = 0
        fewest = members[0].load.outstanding
        for index in range(1, len(members)):
            member = members[index]
            outstanding = member.load.outstanding
            if outstanding < fewest or (
                outstanding == fewest and member.last_sent < members[best].last_sent
            ):
                best, fewest = index, outstanding
        return best
