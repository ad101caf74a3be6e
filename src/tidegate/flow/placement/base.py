"""What every placement policy offers: where the subscribers of a topic go when they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol, TypeAlias

from tidegate.flow.balance.view import Bundle, Edge

Correlation: TypeAlias = Callable[[str, str], float]
"""ρ of the rates of two topics, -1 to 1; 0 where nothing is known."""


def unrelated(_one: str, _other: str) -> float:
    return 0.0


class PlacementPolicy(Protocol):
    """`place` names the edge for a bundle; `edges` is not empty, and each is as it is now."""

    def place(
        self, bundle: Bundle, edges: Sequence[Edge], correlation: Correlation, random: Random
    ) -> str: ...
