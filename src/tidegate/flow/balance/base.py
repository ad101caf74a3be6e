"""What every balancing policy offers. A policy decides; the overlay manager sees to it that one acts at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Protocol

from tidegate.flow.balance.view import Edge, Head, Metric, Move


class Sharing(StrEnum):
    """How an edge shares an uplink that is too small."""

    FAIR = "fair"  # max-min among topics
    DEADLINE = "deadline"  # who must be there first is sent first; what is too late is given up


@dataclass(slots=True, kw_only=True)
class Selection:
    """What to move. `is_enough`: the source is then predicted to be rid of its trouble."""

    moves: list[Move] = field(default_factory=list)
    is_enough: bool = True


class BalancePolicy(Protocol):
    """Rules for one cluster. `now` in seconds on any monotonic clock."""

    sharing: Sharing
    is_serialised: bool
    """Whether a head sees to it that one phase is over before the next; else pairs of brokers act by themselves."""

    def trigger(self, edge: Edge, now: float) -> Metric | None:
        """By which metric the edge asks for help now, if it does."""

    def may_help(self, edge: Edge, now: float) -> bool:
        """Whether an edge is a candidate to take something."""

    def select(
        self, edge: Edge, candidates: Sequence[Edge], metric: Metric, now: float, random: Random
    ) -> Selection:
        """What goes from an edge in trouble to which of the candidates."""

    def even_out(self, edges: Sequence[Edge], now: float) -> tuple[str, str] | None:
        """Source and target of a move for evenness' sake; None for policies that see no value in it."""

    def trigger_head(self, head: Head, now: float) -> Metric | None: ...

    def select_publishers(self, head: Head, candidates: Sequence[Head], metric: Metric) -> Selection: ...

    def on_moved(self, moves: Sequence[Move], now: float) -> None:
        """These moves are made."""
