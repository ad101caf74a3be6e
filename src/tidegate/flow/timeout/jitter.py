"""Waits that drift apart: for reconnects, retries, and the product's back-off."""

from __future__ import annotations

from tidegate.flow.timeout.base import Random


class DecorrelatedJitter:
    """Each wait is drawn between the shortest and three times the one before, up to the longest.

    Clients that met the same trouble at the same moment drift apart quickly, so whoever caused it is not hit by all of
    them at once when it comes back; plain doubling keeps them in step.
    """

    __slots__ = ("_last", "_longest", "_random", "_shortest")

    def __init__(self, shortest: float, longest: float, random: Random) -> None:
        self._shortest = shortest
        self._longest = longest
        self._random = random
        self._last = shortest

    def next_delay(self) -> float:
        self._last = min(self._longest, self._random.uniform(self._shortest, self._last * 3))
        return self._last

    def on_lost(self, lived: float) -> None:
        """A connection ended after `lived` seconds; only one that lasted makes the waits short again.

        A server that accepts everybody and drops them at once is as much in need of rest as one that is down.
        """
        if lived > self._last:
            self.reset()

    def reset(self) -> None:
        """All is well: the next wait is a short one."""
        self._last = self._shortest
