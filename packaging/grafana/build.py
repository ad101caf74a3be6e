"""Writes tidegate.json beside it: a Grafana dashboard of one node. `make docs` runs it; a test keeps it up to date.

Panels are a table of titles and queries here, so that a changed metric is one changed line and not a hundred of JSON.
"""

import json
from pathlib import Path
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 8, 7
NODE = 'job="$job",instance="$instance"'
LOAD_STATES = {"0": {"text": "LOW", "color": "green"}, "1": {"text": "HIGH", "color": "orange"},
               "2": {"text": "OVERLOAD", "color": "red"}}  # fmt: skip

# Title, unit, and pairs of legend and query; N stands for the chosen node.
PANELS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("Messages", "ops", [("in", "rate(tidegate_publish_received_total{N}[$__rate_interval])"),
                         ("out", "rate(tidegate_publish_sent_total{N}[$__rate_interval])")]),
    ("Bytes", "Bps", [("in", "rate(tidegate_bytes_received_total{N}[$__rate_interval])"),
                      ("out", "rate(tidegate_bytes_sent_total{N}[$__rate_interval])")]),
    ("Wait of a message, lag of the loop", "s", [("wait", "tidegate_load_wait{N}"), ("lag", "tidegate_loop_lag{N}")]),
    ("Clients", "short", [("connected", "tidegate_connections{N}"), ("sessions", "tidegate_sessions{N}"),
                          ("waiting to connect", "tidegate_waiting_connects{N}")]),
    ("Publishers by verdict", "short", [("{{state}}", "tidegate_publishers{N}")]),
    ("Held because too fast", "short", [("publishers", "tidegate_backoff_held{N}"),
                                        ("holds/s", "rate(tidegate_backoff_holds_total{N}[$__rate_interval])"),
                                        ("in lanes", "tidegate_lanes_waiting{N}")]),
    ("Rate of those that matter most", "ops", [("{{client}}", "tidegate_publisher_rate{N}"),
                                              ("{{client}}, normal", "tidegate_publisher_trained_rate{N}")]),
    ("Queued messages", "short", [("messages", "tidegate_queued_messages{N}"),
                                  ("full sessions", "tidegate_full_sessions{N}")]),
    ("Queued bytes", "bytes", [("sessions", "tidegate_queued_bytes{N}"), ("retained", "tidegate_retained_bytes{N}"),
                               ("uncommitted", "tidegate_store_uncommitted_bytes{N}")]),
    ("Lost, refused, denied", "ops", [("dropped", "rate(tidegate_dropped_total{N}[$__rate_interval])"),
                                      ("expired", "rate(tidegate_expired_total{N}[$__rate_interval])"),
                                      ("too large", "rate(tidegate_too_large_total{N}[$__rate_interval])"),
                                      ("refused", "rate(tidegate_publish_refused_total{N}[$__rate_interval])"),
                                      ("denied", "rate(tidegate_publish_denied_total{N}[$__rate_interval])")]),
    ("Connections ended, by reason", "ops", [("{{reason}}", "rate(tidegate_closes_total{N}[$__rate_interval])")]),
    ("Coming in", "ops", [("accepted", "rate(tidegate_connections_total{N}[$__rate_interval])"),
                          ("refused", "rate(tidegate_connects_refused_total{N}[$__rate_interval])")]),
    ("Shared subscriptions", "short", [("subscriptions", "tidegate_shared_subscriptions{N}"),
                                       ("moved/s", "rate(tidegate_shared_moved_total{N}[$__rate_interval])")]),
    ("Store", "ops", [("commits", "rate(tidegate_store_commits_total{N}[$__rate_interval])"),
                      ("rows", "rate(tidegate_store_rows_written_total{N}[$__rate_interval])"),
                      ("failures", "rate(tidegate_store_failures_total{N}[$__rate_interval])")]),
    ("CPU and memory", "short", [("cores", "rate(process_cpu_seconds_total{N}[$__rate_interval])"),
                                 ("memory, GB", "tidegate_memory_bytes{N} / 1e9"),
                                 ("pressure", "tidegate_memory_pressure{N}")]),
]  # fmt: skip


def _query(text: str) -> str:
    return text.replace("{N}", f"{{{NODE}}}")


def _state_panel() -> dict[str, Any]:
    return {
        "id": 1,
        "type": "stat",
        "title": "Load",
        "datasource": SOURCE,
        "gridPos": {"x": 0, "y": 0, "w": 24, "h": 3},
        "options": {"colorMode": "background", "reduceOptions": {"calcs": ["lastNotNull"]}},
        "fieldConfig": {
            "defaults": {"mappings": [{"type": "value", "options": LOAD_STATES}]},
            "overrides": [],
        },
        "targets": [{"refId": "A", "datasource": SOURCE, "expr": _query("tidegate_load_state{N}")}],
    }


def _panel(at: int, title: str, unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "id": at + 2,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"x": at % 3 * WIDTH, "y": 3 + at // 3 * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(65 + number), "datasource": SOURCE, "expr": _query(query), "legendFormat": legend}
            for number, (legend, query) in enumerate(queries)
        ],
    }


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": "tidegate-node",
        "title": "Tidegate node",
        "tags": ["mqtt", "tidegate"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
                {"name": "job", "type": "query", "datasource": SOURCE, "query": "label_values(tidegate_node, job)"},
                {"name": "instance", "type": "query", "datasource": SOURCE,
                 "query": 'label_values(tidegate_node{job="$job"}, instance)'},
            ]
        },
        "panels": [_state_panel(), *(_panel(at, *panel) for at, panel in enumerate(PANELS))],
    }  # fmt: skip


def render() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    path = Path(__file__).with_name("tidegate.json")
    path.write_text(render(), encoding="utf-8")
    print(f"wrote packaging/grafana/{path.name}")
