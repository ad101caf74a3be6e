"""Which queries may be asked where nobody can stop them, once they were quick.

What was quick may have been so because one predicate did not occur, and be endless with the next triple. So it matters
what a query can take at worst: each pattern multiplies the solutions by the size of the store at most. One pattern is
always fine; several are if the store is small. Whatever can multiply rows or texts by itself is not.
"""

from __future__ import annotations

from typing import Final

from tidegate.space.outline import Outline

WORST: Final = 5e7  # solutions: about a minute
GROWTH: Final = 1.5  # of the store, after which nobody knows whether a query is still quick
MULTIPLYING: Final = ("VALUES", "UNION", "CONCAT", "REPLACE", "GROUP_CONCAT")


def is_bounded(found: Outline, size: int) -> bool:
    """Whether the work stays within bounds, whatever arrives until the store has grown by half."""
    if found.is_wild or found.predicates or found.mentions(MULTIPLYING):
        return False
    degree = len(found.patterns)
    return degree <= 1 or (GROWTH * max(size, 2)) ** min(degree, 30) <= WORST
