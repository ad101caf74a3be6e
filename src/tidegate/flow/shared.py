"""Which member of a shared subscription gets a message: pure policies, chosen by name.

A policy holds the state of one group. `choose` answers with the index of the member to try first; the caller
walks on from there if that member cannot take the message.
"""

from random import Random
from typing import Protocol


class SharedPolicy(Protocol):
    """State and rule of one group. `now` in seconds, on any monotonic clock."""

    def choose(self, members: int, topic: bytes, publisher: str, now: float, random: Random) -> int: ...


class RoundRobin:
    """Each member in turn."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def choose(self, members: int, topic: bytes, publisher: str, now: float, random: Random) -> int:
        chosen = self._next
        if chosen >= members:
            chosen = 0
        self._next = chosen + 1
        return chosen


class RandomMember:
    """Uniformly at random."""

    __slots__ = ()

    def choose(self, members: int, topic: bytes, publisher: str, now: float, random: Random) -> int:
        return int(random.random() * members)
