"""What every policy for shared subscriptions offers."""

from __future__ import annotations

from random import Random
from typing import Protocol

from tidegate.flow.shared.load import Member


class SharedPolicy(Protocol):
    """State and rule of one group. `now` in seconds, on any monotonic clock that does not go back.

    `choose` answers with the index of the member to try first; the caller walks on from there if that member cannot
    take the message, and tells `Member.on_sent` of the one that got it: always at QoS 1 and 2, and at QoS 0 while
    `is_counting`. `members` is not empty and never changes: a group that changes has a new tuple.
    """

    is_counting: bool
    """Whether messages at QoS 0 must be told, too; may change with every choice."""

    def choose(
        self, members: tuple[Member, ...], topic: bytes, publisher: str, now: float, random: Random
    ) -> int: ...
