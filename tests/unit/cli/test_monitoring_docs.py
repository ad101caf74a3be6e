"""The page about monitoring keeps up with the code."""

import dataclasses
import re
from pathlib import Path

from tidegate.broker import cluster_metrics as cluster
from tidegate.broker.metrics import COUNTERS, GAUGES
from tidegate.console import feed as topics
from tidegate.console.feed import Sort, View

PAGE = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text(encoding="utf-8")
OF_A_CLUSTER = (
    {f"tidegate_cluster_{name}_total" for name in cluster.COUNTERS}
    | {f"tidegate_cluster_{name}" for name in cluster.GAUGES}
    | {f"tidegate_uplink_{name}_total" for name in cluster.UPLINK_COUNTERS}
    | {f"tidegate_capacity_{name}" for name in cluster.CAPACITY_GAUGES}
    | {f"tidegate_link_{name}_total" for name in cluster.LINK_COUNTERS}
    | {f"tidegate_link_{name}" for name in cluster.LINK_GAUGES}
    | {"tidegate_balancing_step", "tidegate_edge_state", "tidegate_edge_utilisation"}
)


def test_every_metric_is_on_the_page() -> None:
    wanted = {f"tidegate_{name.removesuffix('_total')}_total" for name in COUNTERS}
    wanted |= {f"tidegate_{name}" for name in GAUGES}
    wanted |= OF_A_CLUSTER
    assert wanted - set(re.findall(r"tidegate_\w+", PAGE)) == set()


def test_no_metric_on_the_page_is_made_up() -> None:
    known = {f"tidegate_{name.removesuffix('_total')}_total" for name in COUNTERS}
    known |= {f"tidegate_{name}" for name in GAUGES}
    known |= OF_A_CLUSTER
    known |= {"tidegate_closes_total", "tidegate_node", "tidegate_policy", "tidegate_publishers"}
    known |= {"tidegate_publisher_rate", "tidegate_publisher_trained_rate"}
    known |= {"tidegate_account_work_rate", "tidegate_account_kept_bytes"}
    assert set(re.findall(r"tidegate_\w+", PAGE)) - known == set()


def test_every_order_and_every_field_that_top_reads_is_on_the_page() -> None:
    assert f"--sort {'|'.join(Sort)}" in PAGE
    assert f"--view {'|'.join(View)}" in PAGE
    renamed = {"class_name": "class", "is_connected": "connected", "messages": "queued_messages"}
    renamed |= {"size_bytes": "queued_bytes"}
    for row in (topics.Publisher, topics.Queue, topics.SharedGroup, topics.GroupMember, topics.Account):
        for field in dataclasses.fields(row):
            assert f"`{renamed.get(field.name, field.name)}`" in PAGE
