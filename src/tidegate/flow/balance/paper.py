"""The published policy (spec 2): queue depth against a threshold from the latency budget, bundles by Table IV."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidegate.flow.balance.analyser import (
    accepts,
    edge_order,
    head_accepts,
    head_order,
    predicted,
)
from tidegate.flow.balance.analyser import (
    candidates as sorted_candidates,
)
from tidegate.flow.balance.base import Selection, Sharing
from tidegate.flow.balance.thresholds import Thresholds
from tidegate.flow.balance.view import Edge, Head, Metric, Move, State


class PaperBalance:
    """Moves the first bundles in order that a LOW edge can take, until the source is predicted not overloaded."""

    __slots__ = ("thresholds",)
    sharing = Sharing.FAIR
    is_serialised = True

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or Thresholds()

    def trigger(self, edge: Edge, now: float) -> Metric | None:
        return self.thresholds.edge_overload(edge)

    def may_help(self, edge: Edge, now: float) -> bool:
        return not edge.is_locked and self.thresholds.edge_state(edge) is State.LOW

    def select(
        self, edge: Edge, candidates: Sequence[Edge], metric: Metric, now: float, random: Random
    ) -> Selection:
        thresholds = self.thresholds
        targets = sorted_candidates(candidates, metric)
        source = edge
        moves: list[Move] = []
        # Whole bundles first; they are split only if none fits (second round, one subscriber at a time).
        for is_split in (False, True):
            if is_split and moves:
                break
            for bundle in edge_order(edge, metric, thresholds):
                clients = 1 if is_split else bundle.subscribers
                part = bundle.part(clients)
                for at, target in enumerate(targets):
                    if accepts(target, part, thresholds):
                        targets[at] = target.with_bundle(part)
                        source = source.without(bundle.topic, clients)
                        moves.append(
                            Move(topic=bundle.topic, clients=clients, source=edge.name, target=target.name)
                        )
                        break
                if moves and self._is_relieved(source):
                    return Selection(moves=moves)
        return Selection(moves=moves, is_enough=False)

    def _is_relieved(self, source: Edge) -> bool:
        return self.thresholds.edge_overload(predicted(source, self.thresholds.interval)) is None

    def even_out(self, edges: Sequence[Edge], now: float) -> tuple[str, str] | None:
        return None

    def trigger_head(self, head: Head, now: float) -> Metric | None:
        return self.thresholds.head_overload(head)

    def select_publishers(self, head: Head, candidates: Sequence[Head], metric: Metric) -> Selection:
        thresholds = self.thresholds
        targets = sorted(candidates, key=lambda each: (each.utilisation(metric), -each.uplink, each.name))
        source = head
        moves: list[Move] = []
        for bundle in head_order(head, metric):
            for at, target in enumerate(targets):
                if head_accepts(target, bundle, thresholds):
                    targets[at] = target.with_bundle(bundle)
                    source = source.without(bundle.topic)
                    moves.append(
                        Move(
                            topic=bundle.topic,
                            clients=bundle.publishers,
                            source=head.name,
                            target=target.name,
                        )
                    )
                    break
            if moves and thresholds.head_overload(source) is None:
                return Selection(moves=moves)
        return Selection(moves=moves, is_enough=False)

    def on_moved(self, moves: Sequence[Move], now: float) -> None:
        """Nothing is remembered."""
