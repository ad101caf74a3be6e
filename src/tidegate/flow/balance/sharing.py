"""How an uplink that is too small is shared among topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def max_min(demands: Mapping[K, float], capacity: float) -> dict[K, float]:
    """Max-min fair shares: who asks for less than an equal share gets it, the others share what is left equally."""
    total = sum(demands.values())
    if total <= capacity:
        return dict(demands)
    shares: dict[K, float] = {}
    left = capacity
    waiting = len(demands)
    for key, demand in sorted(demands.items(), key=lambda item: item[1]):
        share = min(demand, left / waiting)
        shares[key] = share
        left -= share
        waiting -= 1
    return shares


def earliest_first(
    demands: Mapping[K, float], deadlines: Mapping[K, float], capacity: float
) -> dict[K, float]:
    """All that the earliest deadline asks for, then the next, until nothing is left."""
    shares: dict[K, float] = {}
    left = capacity
    for key in sorted(demands, key=lambda each: deadlines[each]):
        share = min(demands[key], left)
        shares[key] = share
        left -= share
    return shares
