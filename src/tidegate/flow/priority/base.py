"""What every priority policy offers: ranks of publishers, and the order in which waiting messages are served.

A rank comes from what the node measured, never from what a client claims. The caller keeps waiting messages in a heap
of `(policy.key(...), sequence number, ...)` and serves the smallest; the sequence number makes equal keys first come,
first served, which also keeps the messages of one publisher in order as long as its key does not fall.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol


class PriorityPolicy(Protocol):
    """Ranks of all publishers of a node; 1 is served first."""

    def update(self, publisher: Hashable, rate: float) -> None:
        """Its trained rate in messages per second is new or changed; 0: untrained. O(log n)."""

    def remove(self, publisher: Hashable) -> None:
        """It is gone; unknown ones are ignored. O(log n)."""

    def rank(self, publisher: Hashable) -> int:
        """Its rank at this moment. O(log n)."""

    def key(self, publisher: Hashable, arrival_time: float) -> float:
        """Order of a message that arrived at this time (seconds, any monotonic clock): the smallest is next."""
