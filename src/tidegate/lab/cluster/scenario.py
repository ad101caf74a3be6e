"""One run of the paper's scenario: topics come one a second, burst at 30 s, balancing from 31 s on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tidegate.flow.balance import (
    BalancePolicy,
    BudgetRule,
    DeadlineBalance,
    NoBalance,
    PaperBalance,
    PeerBalance,
    RandomBalance,
    Sharing,
    Unit,
)
from tidegate.flow.placement import Correlation, OneNode, PlacementPolicy, Spread, unrelated
from tidegate.lab.cluster import tables
from tidegate.sim.clock import Simulation
from tidegate.sim.cluster import ClusterSimulation, Event, NodeSpec, Times, Topic

UNTIL = 91.0
BURST_RHO = 0.9
# Name of a variant: the policy, and where new subscribers go.
VARIANTS: dict[str, tuple[Callable[[], BalancePolicy], Callable[[], PlacementPolicy]]] = {
    "none": (NoBalance, Spread),
    "random": (RandomBalance, Spread),
    "peer": (PeerBalance, lambda: OneNode("b1")),
    "peer, topics": (lambda: PeerBalance(unit=Unit.TOPIC), lambda: OneNode("b1")),
    "peer, subscriptions": (lambda: PeerBalance(unit=Unit.SUBSCRIPTION), lambda: OneNode("b1")),
    "peer, placed": (PeerBalance, Spread),
    "paper": (PaperBalance, Spread),
    "deadline, fair uplink": (lambda: DeadlineBalance(sharing=Sharing.FAIR), Spread),
    "deadline": (DeadlineBalance, Spread),
}
UNPLACED = ("peer", "peer, topics", "peer, subscriptions")  # everything begins on one edge


def scenario(
    variant: str,
    topics: Mapping[str, Topic],
    burst: Sequence[str],
    *,
    seed: int = 0,
    layout: Mapping[str, str] | None = None,
    edges: dict[str, NodeSpec] | None = None,
    heads: dict[str, NodeSpec] | None = None,
    until: float = UNTIL,
    control_delay: float = 0.0,
    factor: float = 2.0,
    rule: BudgetRule = BudgetRule.PAPER,
    policy: BalancePolicy | None = None,
    placement: PlacementPolicy | None = None,
    judge: bool = True,
    record: Callable[[Event], None] | None = None,
    correlation: Correlation = unrelated,
    prepare: Callable[[ClusterSimulation], None] | None = None,
) -> ClusterSimulation:
    """Runs to the end; with a `layout` nobody is placed by policy. Without placement the baseline balances at once."""
    make_policy, make_placement = VARIANTS[variant]
    sim = Simulation(seed)
    is_one_node = variant in UNPLACED and layout is None
    cluster = ClusterSimulation(
        sim,
        edges or tables.edges(),
        policy or make_policy(),
        placement or make_placement(),
        until=until,
        heads=heads,
        times=Times(control_delay=control_delay),
        rule=rule,
        allowed_from=0.0 if is_one_node else tables.ALLOWED_FROM,
        correlation=correlation,
        judge=judge,
        record=record,
        run=str(seed),
        policy_name=variant,
    )
    for second, topic in enumerate(topics.values(), 1):
        place = None if layout is None else layout[topic.name]
        cluster.at(float(second), partial(cluster.join, topic, place))
    for name in burst:
        cluster.at(tables.BURST_AT, partial(cluster.set_factor, name, factor))
    if prepare is not None:
        prepare(cluster)
    sim.run(until)
    cluster.finish()
    return cluster


def bursting_together(burst: Sequence[str]) -> Correlation:
    """ρ as a history in which these topics burst together would have it."""
    together = frozenset(burst)
    return lambda one, other: BURST_RHO if one in together and other in together else 0.0


def outcome(cluster: ClusterSimulation) -> dict[str, Any]:
    """The numbers of one run; actions after the burst are counted apart from those of a baseline that places so."""
    missed = cluster.missed
    actions = cluster.actions
    late = [action for action in actions if action.time >= tables.BURST_AT]
    return {
        "missed": sum(missed.values()),
        "missed_critical": sum(
            count for name, count in missed.items() if cluster.topics[name].latency < 10.0
        ),
        "actions": len(late),
        "actions_before": len(actions) - len(late),
        "needless": sum(action.is_needless for action in late) if cluster.judge else None,
        "moved": sum(move.clients for action in late for move in action.moves),
        "oscillations": cluster.oscillations,
        "over": sum(edge.node.over for edge in cluster.edges.values()),
        "p99": cluster.share_of_budget(0.99),
    }
