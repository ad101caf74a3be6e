"""Placing many bundles at once so that the fullest edge is as empty as can be (spec 2 (e) 4).

`pack` is largest-first followed by local search: while it helps, the fullest edge gives a bundle away or swaps one.
`pack_exactly` tries everything that can be better, for a dozen bundles; it says how far `pack` is from the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tidegate.flow.balance.view import Bundle, Edge
from tidegate.flow.placement.base import Correlation, unrelated
from tidegate.flow.placement.rules import CORRELATED

Layout = dict[str, str]
ROUNDS = 1_000


class _Loads:
    """Utilisation of every edge, uplink and downlink, as bundles come and go; correlated neighbours weigh double."""

    def __init__(self, bundles: Sequence[Bundle], edges: Sequence[Edge], correlation: Correlation) -> None:
        self.bundles = {bundle.topic: bundle for bundle in bundles}
        self.edges = {edge.name: edge for edge in edges}
        self.up = {edge.name: edge.uplink_bits for edge in edges}
        self.down = {edge.name: edge.downlink_bits for edge in edges}
        self.on: dict[str, set[str]] = {edge.name: set() for edge in edges}
        # Bits that come on top if two topics burst together.
        self.extra = {
            (a.topic, b.topic): max(0.0, correlation(a.topic, b.topic)) * min(a.uplink_bits, b.uplink_bits)
            for a in bundles
            for b in bundles
            if a.topic != b.topic and correlation(a.topic, b.topic) > CORRELATED
        }
        self.penalty = dict.fromkeys(self.edges, 0.0)

    def add(self, topic: str, edge: str, sign: int = 1) -> None:
        bundle = self.bundles[topic]
        if sign < 0:
            self.on[edge].discard(topic)
        self.up[edge] += sign * bundle.uplink_bits
        self.down[edge] += sign * bundle.downlink_bits
        if self.extra:
            self.penalty[edge] += sign * sum(self.extra.get((topic, other), 0.0) for other in self.on[edge])
        if sign > 0:
            self.on[edge].add(topic)

    def of(self, edge: str) -> float:
        node = self.edges[edge]
        return max((self.up[edge] + self.penalty[edge]) / node.uplink, self.down[edge] / node.downlink)

    def worst(self) -> tuple[float, float]:
        """The fullest edge, and the squares of all: with the first equal, evenness decides."""
        values = [self.of(edge) for edge in self.edges]
        return max(values), sum(value * value for value in values)


def pack(bundles: Sequence[Bundle], edges: Sequence[Edge], correlation: Correlation = unrelated) -> Layout:
    """Edge of each topic. Cost: bundles × edges for the first layout, and as much for each improvement."""
    loads = _Loads(bundles, edges, correlation)
    layout: Layout = {}
    for bundle in sorted(bundles, key=lambda each: (-each.uplink_bits, each.topic)):
        best = inf
        for edge in loads.edges:
            loads.add(bundle.topic, edge)
            value = loads.of(edge)
            loads.add(bundle.topic, edge, -1)
            if value < best:
                best, chosen = value, edge
        loads.add(bundle.topic, chosen)
        layout[bundle.topic] = chosen
    for _ in range(ROUNDS):
        if not _improve(loads, layout):
            break
    return layout


def _improve(loads: _Loads, layout: Layout) -> bool:
    """One move from, or swap with, the fullest edge that makes it better."""
    before = loads.worst()
    full = max(loads.edges, key=loads.of)
    for topic in sorted(loads.on[full]):
        for edge in loads.edges:
            if edge == full:
                continue
            for other in (None, *sorted(loads.on[edge])):
                changes = [(topic, full, edge)] + ([(other, edge, full)] if other else [])
                for name, source, _ in changes:
                    loads.add(name, source, -1)
                for name, _, target in changes:
                    loads.add(name, target)
                if loads.worst() < (before[0] - 1e-12, before[1]):
                    for name, _, target in changes:
                        layout[name] = target
                    return True
                for name, _, target in changes:
                    loads.add(name, target, -1)
                for name, source, _ in changes:
                    loads.add(name, source)
    return False


def pack_exactly(
    bundles: Sequence[Bundle], edges: Sequence[Edge], correlation: Correlation = unrelated
) -> Layout:
    """The best layout by branch and bound; exponential, for small cases."""
    loads = _Loads(bundles, edges, correlation)
    order = sorted(bundles, key=lambda each: (-each.uplink_bits, each.topic))
    best_layout = pack(bundles, edges, correlation)
    best = worst_of(best_layout, bundles, edges, correlation)
    layout: Layout = {}

    def visit(depth: int) -> None:
        nonlocal best, best_layout
        value = loads.worst()[0]
        if value >= best - 1e-12:
            return
        if depth == len(order):
            best, best_layout = value, dict(layout)
            return
        topic = order[depth].topic
        for edge in loads.edges:
            loads.add(topic, edge)
            layout[topic] = edge
            visit(depth + 1)
            loads.add(topic, edge, -1)

    visit(0)
    return best_layout


def worst_of(
    layout: Layout, bundles: Sequence[Bundle], edges: Sequence[Edge], correlation: Correlation = unrelated
) -> float:
    """Utilisation of the fullest edge of a layout."""
    loads = _Loads(bundles, edges, correlation)
    for topic, edge in layout.items():
        loads.add(topic, edge)
    return loads.worst()[0]
