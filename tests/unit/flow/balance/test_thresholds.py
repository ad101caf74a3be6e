"""Equations 1 and 2, budgets and states, with the numbers of the specification."""

import pytest

from tests.unit.flow.balance.tables import edge, overloaded_b1
from tidegate.flow.balance import (
    BudgetRule,
    Bundle,
    Edge,
    Head,
    Metric,
    Path,
    PublisherBundle,
    State,
    Thresholds,
    edge_budget,
)
from tidegate.flow.balance.thresholds import depth_threshold, is_within_budget, time_to_violation

PATH = Path(publisher_to_head=0.2, head_to_edge=0.1, edge_to_subscriber=0.2)


@pytest.mark.parametrize(("required", "paper", "path"), [(1.8, 1.5, 1.3), (1.1, 0.8, 0.6), (0.9, 0.6, 0.4)])
def test_the_papers_budget_counts_one_client_hop_and_ours_counts_both(
    required: float, paper: float, path: float
) -> None:
    assert edge_budget(required, PATH, BudgetRule.PAPER) == pytest.approx(paper)
    assert edge_budget(required, PATH, BudgetRule.PATH) == pytest.approx(path)


def test_every_part_of_the_way_is_taken_off_the_budget_which_is_never_negative() -> None:
    path = Path(
        publisher_to_head=0.01, head_to_head=0.02, head_to_edge=0.03, edge_to_subscriber=0.04, in_head=0.05,
        in_remote_head=0.06, arriving=0.07, matching=0.08, departing=0.09,
    )  # fmt: skip
    assert edge_budget(1.0, path) == pytest.approx(0.55)
    assert edge_budget(0.1, path) == 0.0


@pytest.mark.parametrize(("balancing", "threshold"), [(0.2, 560.0), (0.1, 682.5)])
def test_equation_2_gives_the_thresholds_of_topic_8(balancing: float, threshold: float) -> None:
    assert depth_threshold(1400, 1225, 0.8, balancing, 1.0) == pytest.approx(threshold)


def test_per_subscriber_the_threshold_is_passed_at_the_same_moment() -> None:
    assert depth_threshold(200, 175, 0.8, 0.2, 1.0) == pytest.approx(80.0)


@pytest.mark.parametrize("depth", [0.0, 400.0, 559.0, 561.0, 700.0])
def test_equation_1_holds_exactly_up_to_the_threshold_of_equation_2(depth: float) -> None:
    assert is_within_budget(depth, 1400, 1225, 0.8, 0.2, 1.0) == (depth <= 560.0)


def test_the_path_budget_triggers_at_34_s_only_for_a_balancing_cost_below_29_ms() -> None:
    def first(balancing: float) -> int:
        return next(s for s in range(1, 9) if 175.0 * s > depth_threshold(1400, 1225, 0.6, balancing, 1.0))

    assert first(0.028) == 4
    assert first(0.030) == 3


def test_a_threshold_is_never_negative_and_a_stopped_queue_is_overloaded_by_anything() -> None:
    assert depth_threshold(5000, 100, 0.1, 0.2, 1.0) == 0.0
    assert depth_threshold(0, 0, 100.0, 0.2, 1.0) == 0.0
    stopped = Bundle(topic="t", subscribers=1, size_bytes=100, budget=10, depth=1)
    assert Thresholds().is_deep(stopped)
    stopped.depth = 0
    assert not Thresholds().is_deep(stopped)
    assert is_within_budget(0, 0, 0, 1, 0.2, 1)
    assert not is_within_budget(1, 0, 0, 1, 0.2, 1)


@pytest.mark.parametrize(("second", "is_deep"), [(1, False), (2, False), (3, False), (4, True)])
def test_topic_8_is_too_deep_from_34_s_on(second: int, is_deep: bool) -> None:
    b1 = overloaded_b1(second)
    assert Thresholds().edge_overload(b1) == (Metric.QUEUE if is_deep else None)
    assert Thresholds().edge_state(b1) is (State.OVERLOAD if is_deep else State.HIGH)


def test_during_the_burst_only_b0_is_low() -> None:
    states = {name: Thresholds().edge_state(edge(name, is_burst=True)) for name in ("b0", "b1", "b2", "b3")}
    assert states == {"b0": State.LOW, "b1": State.HIGH, "b2": State.HIGH, "b3": State.HIGH}
    shares = [round(edge(n, is_burst=True).utilisation(Metric.UPLINK), 2) for n in ("b0", "b1", "b2", "b3")]
    assert shares == [0.8, 1.07, 0.99, 0.94]


@pytest.mark.parametrize(
    ("load", "state"), [(0.899, State.LOW), (0.9, State.HIGH), (0.949, State.HIGH), (0.95, State.OVERLOAD)]
)
@pytest.mark.parametrize("metric", [Metric.DOWNLINK, Metric.MATCHING])
def test_equality_counts_as_the_higher_class(metric: Metric, load: float, state: State) -> None:
    rate = load * 1000
    one = Bundle(topic="t", subscribers=1, size_bytes=125, budget=10, arriving=rate, leaving=rate)
    capacity = {Metric.DOWNLINK: 1e9, Metric.MATCHING: 1e9}
    capacity[metric] = 1e6 if metric is Metric.DOWNLINK else 1000.0
    node = Edge(
        name="e", uplink=1e9, downlink=capacity[Metric.DOWNLINK], matching=capacity[Metric.MATCHING],
        bundles={"t": one},
    )  # fmt: skip
    assert Thresholds().edge_state(node) is state


def test_an_edges_uplink_alone_never_overloads_it() -> None:
    one = Bundle(topic="t", subscribers=1, size_bytes=125, budget=10, arriving=5000, leaving=5000)
    node = Edge(name="e", uplink=1e6, downlink=1e9, bundles={"t": one})
    assert node.utilisation(Metric.UPLINK) == 5.0
    assert Thresholds().edge_state(node) is State.HIGH


@pytest.mark.parametrize(
    ("rate", "copies", "metric"), [(960, 1, Metric.DOWNLINK), (500, 2, Metric.UPLINK), (800, 1, None)]
)
def test_a_head_is_judged_by_both_links(rate: float, copies: int, metric: Metric | None) -> None:
    one = PublisherBundle(topic="t", publishers=1, size_bytes=125, rate=rate, copies=copies)
    head = Head(name="h", uplink=1e6, downlink=1e6, bundles={"t": one})
    assert Thresholds().head_overload(head) is metric
    assert Thresholds().head_state(head) is (State.LOW if metric is None else State.OVERLOAD)


def test_time_to_violation_counts_down_to_the_moment_of_the_miss() -> None:
    assert time_to_violation(0, 1400, 1225, 0.8) == pytest.approx(5.6)
    assert time_to_violation(700, 1400, 1225, 0.8) == pytest.approx(1.6)
    assert time_to_violation(1000, 1400, 1225, 0.8) == 0.0
    assert time_to_violation(100, 1000, 1000, 0.8) == float("inf")
