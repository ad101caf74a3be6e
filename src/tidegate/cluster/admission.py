"""Who may still subscribe when no node has room (spec 2 (e) 7).

The head knows what every edge carries. A new subscriber whose messages no edge could deliver within their budget is
refused with Quota exceeded; so nobody who was let in becomes late for its sake. Topics with a shorter budget go before
others, so they are let in for longer. An edge whose capacity is not known has room.

Edges take subscribers by themselves, too: when not all that is known would fit once more, their head tells them how
much room there is for which budget, and what a subscriber of each topic asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.cluster.agent import asked_budget
from tidegate.cluster.settings import Role, parse_budgets
from tidegate.flow.balance.shedding import has_room, rooms
from tidegate.mqtt.topics import matches

if TYPE_CHECKING:
    from tidegate.cluster.membership import ClusterNode, Peer
    from tidegate.flow.balance import Edge
    from tidegate.mqtt.packets import Subscribe


Rooms: TypeAlias = list[tuple[float, float]]
"""Budgets that ascend, and the bits a second that some edge can promise from each on; under 0: nothing."""


class Admission:
    """State of one node. `rates`: bits a second for one subscriber, by topic. It and `rooms` are empty if all fits."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        settings = node.settings
        self._is_on = settings.admission
        self._budget = settings.budget
        self._budgets = dict(parse_budgets(settings.budgets))
        self.rooms: Rooms = []
        self.rates: dict[str, float] = {}
        self.refused = 0

    @property
    def closed(self) -> float:
        """The budget from which on this cluster takes nobody, however little is asked for; inf if it does."""
        return next((budget for budget, bits in self.rooms if bits < 0.0), inf)

    def admits(self, topic_filter: str, packet: Subscribe) -> bool:
        """Whether one more subscriber of a filter may come; those that may not are counted."""
        is_let_in = self.has_room(topic_filter, packet)
        self.refused += not is_let_in
        if is_let_in and self._node.balancer is None and not topic_filter.startswith("$"):
            self._promise(topic_filter, self._required(topic_filter, packet))
        return is_let_in

    def _promise(self, topic_filter: str, budget: float) -> None:
        """Until the head has counted them, those that were let in take room as well."""
        bits = asked_bits(topic_filter, self.rates)
        if bits:
            before = [(each, room) for each, room in self.rooms if each < budget]
            after = [(each, room - bits) for each, room in self.rooms if each > budget]
            self.rooms = [*before, (budget, room_within(self.rooms, budget) - bits), *after]

    def has_room(self, topic_filter: str, packet: Subscribe) -> bool:
        if not self._is_on or topic_filter.startswith("$"):
            return True  # $SYS is everywhere, and another member of a group adds nothing to it
        budget = self._required(topic_filter, packet)
        balancer = self._node.balancer
        if balancer is None:
            is_linked = any(peer.is_connected for peer in self._node.peers.values())
            bits = asked_bits(topic_filter, self.rates)
            return bits <= room_within(self.rooms, budget) or not is_linked
        edges = balancer.open_edges()
        bits = asked_bits(topic_filter, rates_of(edges))
        return not edges or any(has_room(edge, bits, budget) for edge in edges)

    def _required(self, topic_filter: str, packet: Subscribe) -> float:
        """Seconds that a message may take to a subscriber of this filter."""
        asked = asked_budget(packet)
        if asked is not None:
            return asked
        known = (seconds for each, seconds in self._budgets.items() if _overlap(each, topic_filter))
        return next(known, self._budget)

    # -- what head and edges tell each other ----------------------------------------------------------------

    def look(self) -> None:
        """At the head, once an interval: edges learn whether there is room when that changes."""
        balancer = self._node.balancer
        if balancer is None or not self._is_on:
            return
        before = self.rooms, self.rates
        edges = balancer.open_edges()
        self.rates = rates_of(edges)
        self.rooms = rooms_of(edges)
        if sum(self.rates.values()) <= min((bits for _, bits in self.rooms), default=inf):
            self.rooms, self.rates = [], {}
        if (self.rooms, self.rates) != before:
            for peer in self._node.peers.values():
                if peer.is_connected:
                    self.say(peer)

    def say(self, peer: Peer) -> None:
        if peer.role is Role.EDGE:
            self._node.send(peer, "room", {"rooms": self.rooms, "rates": self.rates})

    def on_room(self, peer: Peer, value: dict[str, Any]) -> None:
        self.rooms = [(float(budget), float(bits)) for budget, bits in value.get("rooms", ())]
        self.rates = value.get("rates", {})


def rooms_of(edges: Sequence[Edge]) -> Rooms:
    """For every budget that some topic has, and for shorter ones."""
    budgets = [0.0, *sorted({bundle.budget for edge in edges for bundle in edge.bundles.values()})]
    by_edge = [rooms(edge, budgets) for edge in edges]
    return [(budget, max(found[at] for found in by_edge)) for at, budget in enumerate(budgets) if by_edge]


def room_within(known: Rooms, budget: float) -> float:
    """For messages that may take so long; inf if nobody said how much there is."""
    return min((bits for each, bits in known if each <= budget), default=inf)


def rates_of(edges: Iterable[Edge]) -> dict[str, float]:
    """Bits a second for one subscriber, of the topics that are known."""
    found: dict[str, float] = {}
    for edge in edges:
        for bundle in edge.bundles.values():
            if bundle.subscribers:
                found[bundle.topic] = max(found.get(bundle.topic, 0.0), bundle.downlink_bits)
    return found


def asked_bits(topic_filter: str, rates: Mapping[str, float]) -> float:
    """Bits a second for one subscriber of a filter."""
    return sum(bits for topic, bits in rates.items() if matches(topic_filter, topic))


def _overlap(one: str, other: str) -> bool:
    return matches(one, other) or matches(other, one)
