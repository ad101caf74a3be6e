"""When no node has room (spec 2 (e) 7): who is admitted, and which messages are given up.

Decisions. `admitted` shares a capacity that is too small among topics: higher priority first, wholly as long as
it lasts, and max-min fair within the class for which it does not. `is_hopeless` gives up a message that would be late
anyway, so that it costs no other message its deadline. `has_room` says whether the budget of one more subscriber can be
kept, `rooms` how much there is for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.flow.balance.sharing import max_min
from tidegate.flow.balance.view import Edge

FILL = 0.98  # of an uplink that may be promised


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
    """Whether an edge can take a subscriber that asks for so many bits a second, each within `budget` seconds."""
    return bits <= rooms(edge, (budget,))[0]


def rooms(edge: Edge, budgets: Iterable[float]) -> list[float]:
    """Bits a second that an edge can promise within each of these budgets, which ascend; under 0: nothing at all.

    What may wait no longer than a budget goes before it, so all of it has to fit: bits a second, and what waits now.
    """
    bundles = sorted(edge.bundles.values(), key=lambda bundle: bundle.budget)
    found = []
    at, asked, waiting = 0, 0.0, 0.0
    for budget in budgets:
        while at < len(bundles) and bundles[at].budget <= budget:
            asked += bundles[at].uplink_bits
            waiting += bundles[at].depth_bits
            at += 1
        found.append(-1.0 if is_hopeless(0.0, budget, waiting, edge.uplink) else edge.uplink * FILL - asked)
    return found
