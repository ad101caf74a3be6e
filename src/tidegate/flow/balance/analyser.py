"""Load analysers (ELA, HLA): who is moved first (Table IV), what a move does to the other node, and to this one.

Inside each group of Table IV, who may wait longer is moved first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidegate.flow.balance.sharing import max_min
from tidegate.flow.balance.thresholds import Thresholds
from tidegate.flow.balance.view import BITS, Bundle, Edge, Head, Metric, PublisherBundle, Reach

# Smaller numbers are moved first.
PUBLISHERS: Mapping[Metric, Mapping[Reach, int]] = {
    Metric.DOWNLINK: {Reach.NONE: 0, Reach.REMOTE: 1, Reach.BOTH: 2, Reach.LOCAL: 3},
    Metric.UPLINK: {Reach.REMOTE: 0, Reach.BOTH: 1, Reach.LOCAL: 2, Reach.NONE: 3},
}
_LINK = {Reach.REMOTE: 0, Reach.BOTH: 1, Reach.LOCAL: 2, Reach.NONE: 3}
SUBSCRIBERS: Mapping[Metric, Mapping[Reach, int]] = {
    Metric.DOWNLINK: _LINK,
    Metric.UPLINK: _LINK,
    Metric.MATCHING: {Reach.NONE: 0, Reach.REMOTE: 1, Reach.BOTH: 1, Reach.LOCAL: 1},
}
EMPTY, WAITING, DEEP = range(3)  # S_empty, S_wno, S_overload


def queue_group(bundle: Bundle, thresholds: Thresholds) -> int:
    if bundle.depth <= 0.0:
        return EMPTY
    return DEEP if thresholds.is_deep(bundle) else WAITING


def edge_order(edge: Edge, metric: Metric, thresholds: Thresholds) -> list[Bundle]:
    """The bundles of an overloaded edge, the first to be moved first."""

    def key(bundle: Bundle) -> tuple[int, float, str]:
        if metric is Metric.QUEUE:
            group = queue_group(bundle, thresholds)
        else:
            group = SUBSCRIBERS[metric][bundle.reach]
        return group, -bundle.budget, bundle.topic

    return sorted((bundle for bundle in edge.bundles.values() if bundle.subscribers), key=key)


def head_order(head: Head, metric: Metric) -> list[PublisherBundle]:
    """The publishers of an overloaded head, the first to be moved first."""
    groups = PUBLISHERS[metric]
    return sorted(head.bundles.values(), key=lambda each: (groups[each.reach], -each.budget, each.topic))


def candidates(edges: Iterable[Edge], metric: Metric) -> list[Edge]:
    """The least loaded by the overloaded metric first; queues are fed by the uplink, so it stands for them."""
    by = Metric.UPLINK if metric is Metric.QUEUE else metric
    return sorted(edges, key=lambda edge: (edge.utilisation(by), -edge.uplink, edge.name))


def accepts(edge: Edge, bundle: Bundle, thresholds: Thresholds) -> bool:
    """Whether an edge may take a bundle: not overloaded by it, and its uplink still LOW (ambiguity 7)."""
    after = edge.with_bundle(bundle)
    return (
        after.utilisation(Metric.UPLINK) < thresholds.low
        and after.utilisation(Metric.DOWNLINK) < thresholds.high
        and after.utilisation(Metric.MATCHING) < thresholds.high
        and not any(thresholds.is_deep(each) for each in after.bundles.values())
    )


def head_accepts(head: Head, bundle: PublisherBundle, thresholds: Thresholds) -> bool:
    after = head.with_bundle(bundle)
    return all(after.utilisation(metric) < thresholds.low for metric in (Metric.DOWNLINK, Metric.UPLINK))


def predicted(edge: Edge, interval: float) -> Edge:
    """The edge with the rates at which its queues will leave once its bundles are as they are now.

    The uplink is shared by topics, max-min fair (ambiguity 8): what waits asks for as much as it can get.
    """
    demands = {
        topic: bundle.uplink_bits + bundle.depth_bits / interval for topic, bundle in edge.bundles.items()
    }
    shares = max_min(demands, edge.uplink)
    bundles = {
        topic: replace(
            bundle, leaving=shares[topic] / (bundle.size_bytes * BITS) if bundle.size_bytes else 0.0
        )
        for topic, bundle in edge.bundles.items()
    }
    return replace(edge, bundles=bundles)
