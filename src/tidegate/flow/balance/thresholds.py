"""When load is too much: the static thresholds, and the queue depth that a latency budget allows (equations 1 and 2).

Equality counts as the higher class; a threshold that is missing never matches (spec 2, [R]).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from tidegate.flow.balance.view import Bundle, Edge, Head, Metric, State

LOW: Final = 0.90
HIGH: Final = 0.95
BALANCING_SECONDS: Final = 0.2  # t_LB: one notification from the head to a client (ambiguity 3)


class BudgetRule(StrEnum):
    """The paper's example takes one hop between client and broker off the requirement; the path has two."""

    PAPER = "paper"
    PATH = "path"


@dataclass(slots=True, kw_only=True, frozen=True)
class Path:
    """Where a message spends its time beside the edge's queue; of a topic's publishers the slowest counts."""

    publisher_to_head: float = 0.0
    head_to_head: float = 0.0
    head_to_edge: float = 0.0
    edge_to_subscriber: float = 0.0
    in_head: float = 0.0
    in_remote_head: float = 0.0
    arriving: float = 0.0
    matching: float = 0.0
    departing: float = 0.0


def edge_budget(required: float, path: Path, rule: BudgetRule = BudgetRule.PATH) -> float:
    """t_e: seconds that a message may wait in the edge's queue; not below 0."""
    spent = (
        path.head_to_head
        + path.head_to_edge
        + path.edge_to_subscriber
        + path.in_head
        + path.in_remote_head
        + path.arriving
        + path.matching
        + path.departing
    )
    if rule is BudgetRule.PATH:
        spent += path.publisher_to_head
    return max(0.0, required - spent)


def is_within_budget(
    depth: float, arriving: float, leaving: float, budget: float, balancing: float, interval: float
) -> bool:
    """Equation 1: what waits one interval from now is sent before its budget, less the cost of acting, is over."""
    ahead = depth + (arriving - leaving) * interval
    if leaving <= 0.0:
        return ahead <= 0.0
    return ahead / leaving <= budget - balancing


def depth_threshold(
    arriving: float, leaving: float, budget: float, balancing: float, interval: float
) -> float:
    """Equation 2: the queue depth over which a queue is overloaded; never below 0.

    Without anything leaving no depth is safe: the answer is 0, so that anything that waits is too much.
    """
    if leaving <= 0.0:
        return 0.0
    return max(0.0, (budget - balancing) * leaving - (arriving - leaving) * interval)


def time_to_violation(depth: float, arriving: float, leaving: float, budget: float) -> float:
    """Seconds until a message that arrives then would wait longer than its budget; inf if that does not come."""
    allowed = budget * leaving
    if depth > allowed:
        return 0.0
    growth = arriving - leaving
    return (allowed - depth) / growth if growth > 0.0 else inf


@dataclass(slots=True, kw_only=True, frozen=True)
class Thresholds:
    """Of one cluster. `interval` is the time between two looks (Δ), `balancing` the cost of one action (t_LB)."""

    low: float = LOW
    high: float = HIGH
    interval: float = 1.0
    balancing: float = BALANCING_SECONDS

    def depth(self, bundle: Bundle) -> float:
        return depth_threshold(bundle.arriving, bundle.leaving, bundle.budget, self.balancing, self.interval)

    def is_deep(self, bundle: Bundle) -> bool:
        """Whether a queue is over its dynamic threshold."""
        return bundle.depth > self.depth(bundle)

    def edge_overload(self, edge: Edge) -> Metric | None:
        """The metric by which an edge is overloaded: the most urgent of several.

        The uplink has no upper threshold: only its queues tell whether it is too small.
        """
        for metric in (Metric.DOWNLINK, Metric.MATCHING):
            if edge.utilisation(metric) >= self.high:
                return metric
        if any(self.is_deep(bundle) for bundle in edge.bundles.values()):
            return Metric.QUEUE
        return None

    def edge_state(self, edge: Edge) -> State:
        if self.edge_overload(edge) is not None:
            return State.OVERLOAD
        rates = (Metric.DOWNLINK, Metric.MATCHING, Metric.UPLINK)
        return State.LOW if all(edge.utilisation(metric) < self.low for metric in rates) else State.HIGH

    def head_overload(self, head: Head) -> Metric | None:
        for metric in (Metric.DOWNLINK, Metric.UPLINK):
            if head.utilisation(metric) >= self.high:
                return metric
        return None

    def head_state(self, head: Head) -> State:
        if self.head_overload(head) is not None:
            return State.OVERLOAD
        rates = (Metric.DOWNLINK, Metric.UPLINK)
        return State.LOW if all(head.utilisation(metric) < self.low for metric in rates) else State.HIGH
