"""The broker's counters as Prometheus metrics, served by a thread of their own so that a slow reader costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

import tidegate
from tidegate.broker.cluster_metrics import cluster_metrics
from tidegate.broker.metrics_page import MetricsPage
from tidegate.errors import TidegateError
from tidegate.net.errors import ListenError

COUNTERS = {
    "bytes_received": "Bytes read from clients",
    "bytes_sent": "Bytes written to clients",
    "messages_received": "Control packets received",
    "work": "Units of work that clients caused, about a microsecond each",
    "publish_received": "PUBLISH packets received",
    "publish_bytes_received": "Bytes of PUBLISH packets received",
    "publish_sent": "PUBLISH packets sent or queued for sending",
    "publish_denied": "PUBLISH packets without the right to their topic",
    "publish_held": "Times a publisher was held because a queue was full",
    "publish_refused": "PUBLISH packets answered with 0x97 because a queue was full",
    "shared_moved": "Messages that went on to another member of a shared subscription",
    "subscribe_denied": "Topic filters that were refused",
    "dropped": "Messages dropped for one session",
    "discarded": "Messages that waited, or were not acknowledged, when their session ended",
    "expired": "Messages that expired in a queue",
    "too_large": "Messages over a client's Maximum Packet Size",
    "protocol_errors": "Connections ended for what the client sent",
    "connections_total": "Connections accepted",
    "connects_refused": "CONNECT packets refused",
    "handshakes_displaced": "Connections closed before CONNECT because others needed their place",
    "memory_gave_way": "Connections closed because memory was over its bound, and they held much of it",
    "retained_refused": "Messages delivered and not retained for want of room",
    "sessions_expired": "Sessions that expired",
    "backoff_holds": "Times a publisher was held because it was too fast",
    "backoff_held_seconds": "Seconds publishers were told to wait because they were too fast",
    "backoff_refused": "PUBLISH packets refused or dropped because their publisher was too fast",
    "backoff_shed": "QoS 0 messages of held publishers dropped so that their PINGREQ is answered in time",
    # With a lake only
    "recorder_dropped": "Rows and messages that the recorder had no room for",
    "recorder_lost": "Rows and messages that are missing in the lake",
    "recorder_rows": "Rows written to the lake",
    "recorder_files": "Files written to the lake",
    # With a policy folder only
    "policy_loads": "Policy snapshots taken",
    "policy_faults": "Policy snapshots refused",
    # With a data folder only
    "store_commits": "Transactions written to the data folder",
    "store_rows_written": "Rows written to the data folder",
    "store_failures": "Attempts to write to the data folder that failed",
}
GAUGES = {
    "connections": "Clients connected",
    "sessions": "Sessions, connected or not",
    "subscriptions": "Subscriptions",
    "shared_subscriptions": "Subscriptions that belong to a shared group",
    "retained": "Retained messages",
    "retained_bytes": "Bytes of retained messages",
    "queued_messages": "QoS 1 and 2 messages waiting for their session",
    "queued_bytes": "Bytes waiting for sessions",
    "full_sessions": "Sessions whose queue is full",
    "handshakes": "Connections that have not completed CONNECT",
    "waiting_connects": "Clients whose turn to connect has not come",
    "memory_bytes": "Resident memory of the process",
    "kept_bytes": "Bytes of sessions, subscriptions, wills and retained messages",
    "memory_pressure": "0 none, 1 no new clients, 2 nothing new is kept, 3 publishers held, 4 connections give way",
    "routes": "Topics whose recipients are cached",
    "loop_lag": "Seconds the event loop was late at its last tick",
    "load_state": "0 LOW, 1 HIGH, 2 OVERLOAD",
    "load_wait": "Seconds a message that arrives at a random moment waits for its turn",
    "lanes_waiting": "Clients whose messages, or other packets, wait for their turn",
    "backoff_held": "Publishers that are held because they are too fast",
    "backoff_known": "Publishers whose habits are known, connected or not",
    "backoff_known_bytes": "Bytes of what is known of them",
    # With a lake only
    "recorder_waiting": "Batches that wait to be written to the lake",
    # With a data folder only
    "store_is_failing": "1 while the data folder cannot be written to and publishers wait",
    "store_uncommitted_bytes": "Bytes that wait for the next transaction",
}

NAMED = 10  # publishers that appear by name


class MetricsError(TidegateError):
    """The metrics page cannot be served."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"cannot serve metrics on {address}: {problem}")
        self.hint = "choose another port with --metrics-port"


class BrokerCollector(Collector):
    """Reads the statistics at the moment somebody asks."""

    def __init__(self, name: str, statistics: Callable[[], dict[str, Any]]) -> None:
        self._name = name
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        values = self._statistics()
        for name, help_text in COUNTERS.items():
            if name not in values:
                continue
            yield CounterMetricFamily(
                f"tidegate_{name.removesuffix('_total')}", help_text, value=values[name]
            )
        for name, help_text in GAUGES.items():
            if name in values:
                yield GaugeMetricFamily(f"tidegate_{name}", help_text, value=values[name])
        yield from _publishers(values)
        yield from _accounts(values)
        yield from cluster_metrics(values.get("cluster", {}))
        node = GaugeMetricFamily(
            "tidegate_node", "Always 1; the labels name the node", labels=["name", "version"]
        )
        node.add_metric([self._name, tidegate.__version__], 1)
        yield node
        if values.get("policy_version"):
            policy = GaugeMetricFamily(
                "tidegate_policy",
                "Always 1; the label names the policy snapshot in force",
                labels=["version"],
            )
            policy.add_metric([values["policy_version"]], 1)
            yield policy
        closes = CounterMetricFamily("tidegate_closes", "Connections ended, by reason", labels=["reason"])
        for reason, count in dict(values["closes"]).items():
            closes.add_metric([str(reason)], count)
        yield closes


def _publishers(values: dict[str, Any]) -> Iterator[Metric]:
    """How many there are of each kind, and the few that matter most by name: labels must not grow with clients."""
    counts = GaugeMetricFamily(
        "tidegate_publishers", "Connected publishers, by what the back-off thinks of them", labels=["state"]
    )
    for state, count in dict(values.get("publishers", {})).items():
        counts.add_metric([str(state)], count)
    yield counts
    rates = GaugeMetricFamily(
        "tidegate_publisher_rate",
        f"Messages per second of the {NAMED} publishers that matter most",
        labels=["client"],
    )
    trained = GaugeMetricFamily(
        "tidegate_publisher_trained_rate", "What is normal for them, messages per second", labels=["client"]
    )
    for row in list(values.get("top", ()))[:NAMED]:
        rates.add_metric([row["client"]], row["rate"])
        trained.add_metric([row["client"]], row["trained_rate"])
    yield rates
    yield trained


def _accounts(values: dict[str, Any]) -> Iterator[Metric]:
    """Of the few that cause most work; all clients without user name are one, with an empty label."""
    work = GaugeMetricFamily(
        "tidegate_account_work_rate",
        f"Units of work a second (a million is all of a core) of the {NAMED} accounts that cause most",
        labels=["user"],
    )
    kept = GaugeMetricFamily("tidegate_account_kept_bytes", "Bytes that they make the node keep", labels=["user"])
    for row in list(values.get("accounts", ()))[:NAMED]:
        work.add_metric([row["user"] or ""], row["work"])
        kept.add_metric([row["user"] or ""], row["kept_bytes"])
    yield work
    yield kept


def serve_metrics(
    host: str, port: int, name: str, statistics: Callable[[], dict[str, Any]]
) -> tuple[int, Callable[[], None]]:
    """Serve /metrics, and nothing on other paths; gives the port and the function that stops it."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(name, statistics))
    ProcessCollector(registry=registry)
    try:
        page = MetricsPage(host, port, registry)
    except ListenError as error:
        raise MetricsError(f"{host}:{port}", error.problem) from error
    return page.port, page.stop
