"""The baseline (PEER, as far as spec 2 knows it): utilisation against fixed thresholds, no matter who may wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from random import Random

from tidegate.flow.balance.base import Selection, Sharing
from tidegate.flow.balance.paper import PaperBalance
from tidegate.flow.balance.thresholds import Thresholds
from tidegate.flow.balance.view import Edge, Metric, Move

DIFFERENCE = 0.1  # utilisation by which two edges must differ to be evened out; spec 2 asks for 0.05 to 0.2


class Unit(StrEnum):
    """What the baseline moves as one."""

    BUNDLE = "bundle"  # as spec 2 defines bundles: all subscribers of a topic; split only if no bundle fits
    TOPIC = "topic"  # never split
    SUBSCRIPTION = "subscription"  # always split: PEER knows no bundles


def _load(edge: Edge) -> float:
    return max(edge.utilisation(metric) for metric in (Metric.UPLINK, Metric.DOWNLINK, Metric.MATCHING))


class PeerBalance(PaperBalance):
    """Largest rate first; no head puts the brokers in order, so two may choose one target.

    `unit` is what goes together. Heads are balanced as in the paper: PEER knows none.
    """

    __slots__ = ("difference", "unit")
    sharing = Sharing.FAIR
    is_serialised = False

    def __init__(
        self, thresholds: Thresholds | None = None, *, difference: float = DIFFERENCE, unit: Unit = Unit.BUNDLE
    ) -> None:
        super().__init__(thresholds)
        self.unit = unit
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
        goal = self.thresholds.low
        return _subscriptions(
            edge, target, self.thresholds.high, lambda left, _: left.utilisation(metric) < goal, self.unit
        )

    def even_out(self, edges: Sequence[Edge], now: float) -> tuple[str, str] | None:
        free = [edge for edge in edges if not edge.is_locked]
        if len(free) < 2:
            return None
        source, target = max(free, key=_load), min(free, key=_load)
        if _load(source) - _load(target) <= self.difference or not self._level(source, target).moves:
            return None
        return source.name, target.name

    def _level(self, source: Edge, target: Edge) -> Selection:
        """As many subscriptions as make the two alike."""
        return _subscriptions(
            source,
            target,
            min(self.thresholds.high, (_load(source) + _load(target)) / 2),
            lambda left, after: _load(left) - _load(after) <= self.difference,
            self.unit,
        )


def _subscriptions(
    source: Edge, target: Edge, limit: float, is_done: Callable[[Edge, Edge], bool], unit: Unit
) -> Selection:
    """Largest first, what the target can take below `limit`, until it is enough."""
    if unit is Unit.BUNDLE:
        found = _fitting(source, target, limit, is_done, is_whole=True)
        return found if found.moves else _fitting(source, target, limit, is_done, is_whole=False)
    return _fitting(source, target, limit, is_done, is_whole=unit is Unit.TOPIC)


def _fitting(
    source: Edge, target: Edge, limit: float, is_done: Callable[[Edge, Edge], bool], *, is_whole: bool
) -> Selection:
    left, after = source, target
    moves: list[Move] = []
    bundles = [bundle for bundle in source.bundles.values() if bundle.subscribers]
    for bundle in sorted(bundles, key=lambda each: (-each.part(1).uplink_bits, each.topic)):
        clients = 0
        size = bundle.subscribers if is_whole else 1
        one = bundle.part(size)
        while clients < bundle.subscribers and not is_done(left, after):
            grown = after.with_bundle(one)
            if _load(grown) > limit:
                break
            after = grown
            left = left.without(bundle.topic, size)
            clients += size
        if clients:
            moves.append(Move(topic=bundle.topic, clients=clients, source=source.name, target=target.name))
        if is_done(left, after):
            return Selection(moves=moves)
    return Selection(moves=moves, is_enough=False)
