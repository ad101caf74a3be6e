"""The product's priority: rare senders first, and nobody starves.

A message gets a virtual deadline when it arrives: its arrival plus a patience that grows with the publisher's place
among all rates, from 0 for the rarest sender to `patience` for the fastest. The earliest deadline is served first.
So a message is overtaken only by those that arrive within its patience, whatever the load; two publishers whose
places differ little are served nearly in order of arrival; and the key never changes while a message waits, which a
heap needs.
"""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.flow.priority.classes import Band
from tidegate.flow.priority.ranks import Ranks


class AgeingPriority:
    """`patience`: seconds by which the rarest sender may overtake the fastest; the bound of what ranks can cost.

    An administrator's class pins a publisher to a band of places (`pin`), whatever its rate.
    """

    __slots__ = ("_bands", "_ranks", "patience")

    def __init__(self, *, patience: float = 1.0) -> None:
        if not 0.0 <= patience <= 3600.0:
            raise ValueError("patience must be between 0 and 3600 seconds")
        self.patience = patience
        self._ranks = Ranks()
        self._bands: dict[Hashable, Band] = {}

    def update(self, publisher: Hashable, rate: float) -> None:
        self._ranks.update(publisher, rate)

    def pin(self, publisher: Hashable, band: Band | None) -> None:
        """Put a publisher into the band of its class, or with None back among all."""
        if band is None:
            self._bands.pop(publisher, None)
        else:
            self._bands[publisher] = band

    def remove(self, publisher: Hashable) -> None:
        self._ranks.remove(publisher)
        self._bands.pop(publisher, None)

    def rank(self, publisher: Hashable) -> int:
        """Rank by rate; for a pinned one the rank that its place in the band corresponds to."""
        if publisher in self._bands:
            return round(self.place(publisher) * max(0, len(self._ranks) - 1)) + 1
        return self._ranks.below(publisher) + 1

    def place(self, publisher: Hashable) -> float:
        """From 0, served at once, to 1, the most patient."""
        share = self._ranks.share(publisher)
        band = self._bands.get(publisher)
        return share if band is None else band.place(share)

    def key(self, publisher: Hashable, arrival_time: float) -> float:
        return arrival_time + self.patience * self.place(publisher)

    def key_in(self, band: Band | None, publisher: Hashable, arrival_time: float) -> float:
        """The same for one message whose topic has a class of its own."""
        if band is None:
            return self.key(publisher, arrival_time)
        return arrival_time + self.patience * band.place(self._ranks.share(publisher))
