"""No back-off: everything is admitted. For experiments and simulations, where it is one policy among others."""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.flow.backoff.base import Load, Mode, Prior, Publisher, State, Verdict


class NoBackoff:
    """A broker that runs without back-off leaves the whole gate out instead."""

    __slots__ = ("is_per_message", "load", "mode")

    def __init__(self, *, mode: Mode = Mode.BACKPRESSURE) -> None:
        self.mode = Mode(mode)
        self.load = Load.LOW
        self.is_per_message = False

    def publisher(self, key: Hashable, prior: Prior | None = None) -> FreePublisher:
        return FreePublisher(key)

    def join(self, publisher: Publisher) -> None:
        """Nothing is kept."""

    def leave(self, publisher: Publisher) -> None:
        """Nothing is kept."""


class FreePublisher:
    """Never too fast."""

    __slots__ = ("key",)

    def __init__(self, key: Hashable) -> None:
        self.key = key

    @property
    def trained_rate(self) -> float:
        return 0.0

    @property
    def likely_rate(self) -> float:
        return 0.0

    @property
    def is_suspicious(self) -> bool:
        return False

    @property
    def is_in_good_standing(self) -> bool:
        return True

    def observe(self, now: float, count: int = 1, size: int = 0) -> float:
        return 0.0

    def snapshot(self, now: float, rank: int = 0) -> Verdict:
        return Verdict(state=State.NORMAL, rate=0.0, trained_rate=0.0, dispersion=0.0, hold=0.0, rank=rank)
