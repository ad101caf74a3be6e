"""How an uplink that is too small is shared among topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")
FOREVER = 1e12  # seconds


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


@dataclass(slots=True, kw_only=True)
class Waiting(Generic[K]):
    """What waits for one subscriber: which bundle it is of, how much, and when its first message must be there."""

    key: K
    bundle: str
    size: float
    deadline: float


def fair_shares(waiting: Sequence[Waiting[K]], capacity: float) -> dict[K, float]:
    """Max-min among bundles, and within each among its subscribers."""
    bundles: dict[str, dict[K, float]] = {}
    for each in waiting:
        bundles.setdefault(each.bundle, {})[each.key] = each.size
    given = max_min({name: sum(sizes.values()) for name, sizes in bundles.items()}, capacity)
    shares: dict[K, float] = {}
    for name, sizes in bundles.items():
        shares |= max_min(sizes, given[name])
    return shares


def urgent_shares(waiting: Sequence[Waiting[K]], capacity: float, now: float) -> dict[K, float]:
    """Who must be there first is sent first; what is late already costs nobody else a deadline: it comes last."""
    late = {each.key for each in waiting if each.deadline < now}
    return earliest_first(
        {each.key: each.size for each in waiting},
        {each.key: each.deadline + (FOREVER if each.key in late else 0.0) for each in waiting},
        capacity,
    )
