"""Policies to compare with: do nothing, or anything."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidegate.flow.balance.base import Selection
from tidegate.flow.balance.paper import PaperBalance
from tidegate.flow.balance.view import Edge, Head, Metric, Move


class NoBalance(PaperBalance):
    """Nothing is ever moved."""

    __slots__ = ()

    def trigger(self, edge: Edge, now: float) -> Metric | None:
        return None

    def trigger_head(self, head: Head, now: float) -> Metric | None:
        return None


class RandomBalance(PaperBalance):
    """Triggered as the paper says; any bundle goes to any candidate."""

    __slots__ = ()

    def may_help(self, edge: Edge, now: float) -> bool:
        return not edge.is_locked

    def select(
        self, edge: Edge, candidates: Sequence[Edge], metric: Metric, now: float, random: Random
    ) -> Selection:
        movable = sorted(topic for topic, bundle in edge.bundles.items() if bundle.subscribers)
        if not movable or not candidates:
            return Selection(is_enough=False)
        topic = random.choice(movable)
        target = random.choice(sorted(each.name for each in candidates))
        clients = edge.bundles[topic].subscribers
        return Selection(moves=[Move(topic=topic, clients=clients, source=edge.name, target=target)])
