"""The baseline (PEER, as far as spec 2 knows it): utilisation against fixed thresholds, no matter who may wait."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidegate.flow.balance.base import Selection, Sharing
from tidegate.flow.balance.paper import PaperBalance
from tidegate.flow.balance.thresholds import Thresholds
from tidegate.flow.balance.view import Bundle, Edge, Metric, Move

DIFFERENCE = 0.1  # utilisation by which two edges must differ to be evened out; spec 2 asks for 0.05 to 0.2


def _load(edge: Edge) -> float:
    return max(edge.utilisation(metric) for metric in (Metric.UPLINK, Metric.DOWNLINK, Metric.MATCHING))


class PeerBalance(PaperBalance):
    """Largest rate first. Heads are balanced as in the paper: PEER knows none."""

    __slots__ = ("difference",)
    sharing = Sharing.FAIR

    def __init__(self, thresholds: Thresholds | None = None, *, difference: float = DIFFERENCE) -> None:
        super().__init__(thresholds)
        self.difference = difference

    def trigger(self, edge: Edge, now: float) -> Metric | None:
        for metric in (Metric.UPLINK, Metric.MATCHING, Metric.DOWNLINK):
            if edge.utilisation(metric) > self.thresholds.high:
                return metric
        return None

    def may_help(self, edge: Edge, now: float) -> bool:
        return not edge.is_locked and _load(edge) < self.thresholds.low

    def select(
        self, edge: Edge, candidates: Sequence[Edge], metric: Metric, now: float, random: Random
    ) -> Selection:
        if not candidates:
            return Selection(is_enough=False)
        target = min(candidates, key=lambda each: (each.utilisation(metric), each.name))
        if self.trigger(edge, now) is None:
            return self._level(edge, target)
        source = edge
        moves: list[Move] = []
        for bundle in _largest_first(edge):
            after = target.with_bundle(bundle)
            if _load(after) > self.thresholds.high:
                continue
            target = after
            source = source.without(bundle.topic, bundle.subscribers)
            moves.append(_move(bundle, edge, target))
            if source.utilisation(metric) < self.thresholds.low:
                return Selection(moves=moves)
        return Selection(moves=moves, is_enough=False)

    def even_out(self, edges: Sequence[Edge], now: float) -> tuple[str, str] | None:
        free = [edge for edge in edges if not edge.is_locked]
        if len(free) < 2:
            return None
        source, target = max(free, key=_load), min(free, key=_load)
        if _load(source) - _load(target) <= self.difference or not self._level(source, target).moves:
            return None
        return source.name, target.name

    def _level(self, source: Edge, target: Edge) -> Selection:
        """The largest bundle that makes the two more alike, and not each the other."""
        before = _load(source) - _load(target)
        for bundle in _largest_first(source):
            after = target.with_bundle(bundle)
            left = source.without(bundle.topic, bundle.subscribers)
            if abs(_load(left) - _load(after)) < before and _load(after) <= self.thresholds.high:
                return Selection(moves=[_move(bundle, source, target)])
        return Selection(is_enough=False)


def _largest_first(edge: Edge) -> list[Bundle]:
    return sorted(
        (bundle for bundle in edge.bundles.values() if bundle.subscribers),
        key=lambda bundle: (-bundle.uplink_bits, bundle.topic),
    )


def _move(bundle: Bundle, source: Edge, target: Edge) -> Move:
    return Move(topic=bundle.topic, clients=bundle.subscribers, source=source.name, target=target.name)
