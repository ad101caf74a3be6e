"""Who may still subscribe when no node has room (spec 2 (e) 7).

The head knows what every edge carries. A new subscriber whose messages no edge could deliver within their budget is
refused with Quota exceeded; so nobody who was let in becomes late for its sake. Topics with a shorter budget go before
others, so they are let in for longer. An edge whose capacity is not known has room.

Edges take subscribers by themselves, too: their head tells them from which budget on no edge has room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from tidegate.cluster.agent import asked_budget
from tidegate.cluster.settings import Role, parse_budgets
from tidegate.flow.balance.shedding import has_room
from tidegate.mqtt.topics import matches

if TYPE_CHECKING:
    from tidegate.cluster.membership import ClusterNode, Peer
    from tidegate.flow.balance import Edge
    from tidegate.mqtt.packets import Subscribe


class Admission:
    """State of one node. `closed` is the budget from which on this cluster has no room; inf if it has."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        settings = node.settings
        self._is_on = settings.admission
        self._budget = settings.budget
        self._budgets = dict(parse_budgets(settings.budgets))
        self.closed = inf
        self.refused = 0

    def admits(self, topic_filter: str, packet: Subscribe) -> bool:
        """Whether one more subscriber of a filter may come; those that may not are counted."""
        is_let_in = self.has_room(topic_filter, packet)
        self.refused += not is_let_in
        return is_let_in

    def has_room(self, topic_filter: str, packet: Subscribe) -> bool:
        if not self._is_on or topic_filter.startswith("$"):
            return True  # $SYS is everywhere, and another member of a group adds nothing to it
        budget = self._required(topic_filter, packet)
        balancer = self._node.balancer
        if balancer is None:
            return budget < self.closed or not any(peer.is_connected for peer in self._node.peers.values())
        edges = balancer.open_edges()
        bits = _asked_bits(topic_filter, edges)
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
        before, self.closed = self.closed, closed_from(balancer.open_edges())
        if self.closed != before:
            for peer in self._node.peers.values():
                if peer.is_connected:
                    self.say(peer)

    def say(self, peer: Peer) -> None:
        if peer.role is Role.EDGE:
            self._node.send(peer, "room", {"closed": None if self.closed == inf else self.closed})

    def on_room(self, peer: Peer, value: dict[str, Any]) -> None:
        closed = value.get("closed")
        self.closed = inf if closed is None else float(closed)


def closed_from(edges: Sequence[Edge]) -> float:
    """The shortest budget of a topic that no edge could take one more subscriber of; inf if there is none."""
    budgets = sorted({bundle.budget for edge in edges for bundle in edge.bundles.values()})
    return next((each for each in budgets if not any(has_room(edge, 0.0, each) for edge in edges)), inf)


def _overlap(one: str, other: str) -> bool:
    return matches(one, other) or matches(other, one)


def _asked_bits(topic_filter: str, edges: Iterable[Edge]) -> float:
    """Bits a second for one subscriber, of the topics that are known."""
    found: dict[str, float] = {}
    for edge in edges:
        for bundle in edge.bundles.values():
            if bundle.subscribers and matches(topic_filter, bundle.topic):
                found[bundle.topic] = bundle.downlink_bits
    return sum(found.values())
