"""The paper's three rules (spec 2, placement of new subscribers), and what they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidegate.flow.balance.thresholds import LOW
from tidegate.flow.balance.view import Bundle, Edge, Metric
from tidegate.flow.placement.base import Correlation

CORRELATED = 0.7  # ρ over which two topics count as bursting together
METRICS = (Metric.UPLINK, Metric.DOWNLINK, Metric.MATCHING)


def projected(edge: Edge, bundle: Bundle) -> float:
    """The largest utilisation of an edge, of all metrics, with these subscribers as well."""
    after = edge.with_bundle(bundle)
    return max(after.utilisation(metric) for metric in METRICS)


class Spread:
    """Same topic together, correlated topics apart, otherwise where there is most room.

    The order is ours: a topic that is placed stays together while its edge stays below `low`; else the largest
    projected utilisation plus every correlation over `correlated` with a topic that is there; ties go to the
    larger uplink, then the smaller name.
    """

    __slots__ = ("correlated", "low")

    def __init__(self, *, low: float = LOW, correlated: float = CORRELATED) -> None:
        self.low = low
        self.correlated = correlated

    def place(self, bundle: Bundle, edges: Sequence[Edge], correlation: Correlation, random: Random) -> str:
        free = [edge for edge in edges if not edge.is_locked] or list(edges)
        for edge in free:
            known = edge.bundles.get(bundle.topic)
            if known is not None and known.subscribers and projected(edge, bundle) < self.low:
                return edge.name

        def key(edge: Edge) -> tuple[float, float, str]:
            related = (correlation(bundle.topic, topic) for topic in edge.bundles if topic != bundle.topic)
            penalty = sum(value for value in related if value > self.correlated)
            return projected(edge, bundle) + penalty, -edge.uplink, edge.name

        return min(free, key=key).name


class OneNode:
    """Everything on one edge: the baseline knows no placement. The first by name unless another is named."""

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name

    def place(self, bundle: Bundle, edges: Sequence[Edge], correlation: Correlation, random: Random) -> str:
        names = sorted(edge.name for edge in edges)
        return self.name if self.name in names else names[0]


class AnyNode:
    """Any edge, at random."""

    __slots__ = ()

    def place(self, bundle: Bundle, edges: Sequence[Edge], correlation: Correlation, random: Random) -> str:
        return random.choice(sorted(edge.name for edge in edges))
