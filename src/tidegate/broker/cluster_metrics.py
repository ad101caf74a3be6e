"""What a node that is part of a cluster says on its metrics page: its links, and what was moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

LINK_COUNTERS = {
    "messages_received": "PUBLISH packets that came over a link",
    "bytes_received": "Bytes that came over a link",
    "bytes_sent": "Bytes sent over a link that the other end has",
    "reconnects": "Times a link was opened again",
    "dropped": "Messages dropped for a link",
}
LINK_GAUGES = {
    "is_connected": "1 while the link is open",
    "queued": "QoS 1 and 2 messages that wait for a link",
    "inflight": "QoS 1 and 2 messages on a link that are not acknowledged",
}
COUNTERS = {
    "moved": "Sessions that a head handed from node to node",
    "came": "Sessions that an edge got from another node",
    "left": "Sessions that an edge gave to another node",
    "phases": "Balancing phases that a head began",
    "migrations": "Moves of balancing phases that are over",
    "migrated": "Clients moved for load's sake",
    "taken_over": "Sessions that went on at the standby of a lost edge",
    "refused": "Topic filters refused because no node has room for them",
}
GAUGES = {
    "filters": "Topic filters that this node asks others for",
    "copies": "Sessions of which another node has a copy",
    "shadows": "Copies of other nodes' sessions",
}
UPLINK_COUNTERS = {
    "shed": "QoS 0 messages given up because they were late",
    "paced_seconds": "Seconds in which the uplink was too small",
}
CAPACITY_GAUGES = {
    "uplink": "Bits a second towards subscribers, given or measured; 0: not known",
    "matching": "Messages a second that the processor can match, as measured; 0: not known",
    "processor": "Share of a processor that the loop uses, of what it could have",
    "is_counting": "1 while messages are counted by topic",
}
STATES = {"LOW": 0, "HIGH": 1, "OVERLOAD": 2}
STEPS = ("idle", "locate", "select", "migrate", "lending")


def cluster_metrics(values: dict[str, Any]) -> Iterator[Metric]:
    """`values` are a cluster node's statistics; empty on a single node."""
    if not values:
        return
    yield from _numbers("tidegate_cluster_", COUNTERS, values, CounterMetricFamily)
    yield from _numbers("tidegate_cluster_", GAUGES, values, GaugeMetricFamily)
    yield from _numbers("tidegate_uplink_", UPLINK_COUNTERS, values.get("uplink", {}), CounterMetricFamily)
    yield from _numbers("tidegate_capacity_", CAPACITY_GAUGES, values.get("capacity", {}), GaugeMetricFamily)
    links = values.get("links", {})
    yield from _by_link("tidegate_link_", LINK_COUNTERS, links, CounterMetricFamily)
    yield from _by_link("tidegate_link_", LINK_GAUGES, links, GaugeMetricFamily)
    if "step" in values:
        yield from _phase(values)


def _numbers(prefix: str, names: dict[str, str], values: dict[str, Any], kind: type[Metric]) -> Iterator[Metric]:
    make: Callable[..., Metric] = kind
    for name, text in names.items():
        if name in values:
            yield make(prefix + name, text, value=values[name])


def _by_link(
    prefix: str,
    names: dict[str, str],
    links: dict[str, dict[str, Any]],
    kind: type[CounterMetricFamily | GaugeMetricFamily],
) -> Iterator[Metric]:
    for name, text in names.items():
        family = kind(prefix + name, text, labels=["node", "role"])
        for node, link in links.items():
            family.add_metric([node, link["role"]], link[name])
        yield family


def _phase(values: dict[str, Any]) -> Iterator[Metric]:
    """A head's: the step that its balancing is in, and how its edges are."""
    step = GaugeMetricFamily("tidegate_balancing_step", "1 for the step that balancing is in", labels=["step"])
    for name in sorted({*STEPS, values["step"]}):
        step.add_metric([name], float(name == values["step"]))
    yield step
    states = GaugeMetricFamily("tidegate_edge_state", "0 LOW, 1 HIGH, 2 OVERLOAD", labels=["node"])
    for node, state in values.get("states", {}).items():
        states.add_metric([node], STATES[state])
    yield states
    shares = GaugeMetricFamily(
        "tidegate_edge_utilisation",
        "Share of an edge's capacity that its subscribers ask for",
        labels=["node", "metric"],
    )
    for node, metrics in values.get("utilisation", {}).items():
        for name, share in metrics.items():
            shares.add_metric([node, name], share)
    yield shares
