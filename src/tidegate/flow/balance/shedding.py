"""When no node has room (spec 2 (e) 7): who is admitted, and which messages are given up.

Three decisions. `admitted` shares a capacity that is too small among topics: higher priority first, wholly as long as
it lasts, and max-min fair within the class for which it does not. `is_hopeless` gives up a message that would be late
anyway, so that it costs no other message its deadline. `has_room` says whether the budget of one more subscriber can be
kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.flow.balance.sharing import max_min
from tidegate.flow.balance.view import Edge

FILL = 0.98  # of an uplink that may be promised
NEWCOMER = "\0"  # no topic


@dataclass(slots=True, kw_only=True, frozen=True)
class Demand:
    """What a topic asks for, in bits per second. `priority` 1 is served first; equal ones by shorter budget."""

    topic: str
    bits: float
    priority: int = 1
    budget: float = 0.0


def admitted(demands: Iterable[Demand], capacity: float) -> dict[str, float]:
    """Of each topic the share, 0 to 1, that is let in; all of it while the capacity is enough."""
    classes: dict[int, list[Demand]] = {}
    for demand in demands:
        classes.setdefault(demand.priority, []).append(demand)
    shares: dict[str, float] = {}
    left = max(0.0, capacity)
    for priority in sorted(classes):
        members = classes[priority]
        given = max_min({member.topic: member.bits for member in members}, left)
        left = max(0.0, left - sum(given.values()))
        for member in members:
            shares[member.topic] = given[member.topic] / member.bits if member.bits > 0.0 else 1.0
    return shares


def is_hopeless(waited: float, budget: float, ahead_bits: float, capacity: float) -> bool:
    """Whether a message that has waited so long, behind so much that must go before it, will be late."""
    if capacity <= 0.0:
        return True
    return waited + ahead_bits / capacity > budget


def has_room(edge: Edge, bits: float, budget: float) -> bool:
    """Whether an edge can take a subscriber that asks for so many bits a second, each within `budget` seconds.

    What may wait no longer than that goes before it, so all of it has to fit: bits a second, and what waits now.
    """
    urgent = [bundle for bundle in edge.bundles.values() if bundle.budget <= budget]
    demands = [Demand(topic=bundle.topic, bits=bundle.uplink_bits) for bundle in urgent]
    demands.append(Demand(topic=NEWCOMER, bits=bits))
    if min(admitted(demands, edge.uplink * FILL).values()) < 1.0:
        return False
    return not is_hopeless(0.0, budget, sum(bundle.depth_bits for bundle in urgent), edge.uplink)
