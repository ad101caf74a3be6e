"""Tables between the lake and the policy: aggregates that merge by adding, and what the report shows.

The same plain description as `schema.py` gives the lake, so that every job has explicit schemas in and out. Tables of
aggregates are partitioned by `date` and `hour` (`gaps` by `date` and `part`), which are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.schema import Column, Table, Type

_S, _B, _F, _T = Type.STRING, Type.BOOL, Type.FLOAT64, Type.TIMESTAMP
_I16, _I32, _I64 = Type.INT16, Type.INT32, Type.INT64

CLIENTS: Final = Table(
    "clients",
    "Publishers by hour.",
    (
        Column("client_id", _S, "", True),
        Column("topic", _S, "that it sent most to", True),
        Column("messages", _I64, "", True),
        Column("bytes", _I64, "", True),
        Column("first", _T, "arrival", True),
        Column("last", _T, "arrival", True),
        Column("gaps", _I64, "messages whose gap is known", True),
        Column("gap_sum_us", _F, "", True),
        Column("gap_squares", _F, "sum of squared gaps, µs²", True),
        Column("negative_gaps", _I64, "set aside: clocks do not run backwards", True),
    ),
    key=("client_id",),
)
TOPIC_HOURS: Final = Table(
    "topics",
    "Topics by hour.",
    (
        Column("topic", _S, "", True),
        Column("messages", _I64, "", True),
        Column("bytes", _I64, "", True),
        Column("publishers", _I64, "", True),
    ),
    key=("topic",),
)
NODES: Final = Table(
    "nodes",
    "What nodes received by hour.",
    (
        Column("node", _S, "", True),
        Column("messages", _I64, "", True),
        Column("bytes", _I64, "", True),
        Column("publishers", _I64, "", True),
        Column("lost", _I64, "messages that the recorder dropped and counted", True),
    ),
    key=("node",),
)
LOADS: Final = Table(
    "loads",
    "State of nodes by hour, from their own samples.",
    (
        Column("node", _S, "", True),
        Column("samples", _I64, "", True),
        Column("seconds", _F, "that samples cover", True),
        Column("low", _I64, "samples in this state", True),
        Column("high", _I64, "", True),
        Column("overload", _I64, "", True),
        Column("wait_sum_us", _F, "", True),
        Column("wait_max_us", _I64, "", True),
        Column("cpu_us", _I64, "", True),
        Column("held_max", _I64, "", True),
        Column("connections_max", _I64, "", True),
        Column("received", _I64, "", True),
        Column("sent", _I64, "", True),
        Column("dropped", _I64, "", True),
    ),
    key=("node",),
)
GAPS: Final = Table(
    "gaps",
    "Histogram of gaps by client (log2, 32 bins an octave), for some hours together.",
    (
        Column("client_id", _S, "", True),
        Column("bin", _I16, "", True),
        Column("count", _I64, "", True),
    ),
    key=("client_id", "bin"),
)
SECONDS: Final = Table(
    "seconds",
    "Messages by second of the topics that matter, one row a topic and hour.",
    (
        Column("topic", _S, "", True),
        Column("seconds", Type.LIST_INT16, "of the hour, 0 to 3599, ascending", True),
        Column("counts", Type.LIST_INT64, "messages in each", True),
    ),
    key=("topic",),
)
FANOUT: Final = Table(
    "fanout",
    "What subscribers got, by topic.",
    (
        Column("topic", _S, "", True),
        Column("messages", _I64, "", True),
        Column("bytes", _I64, "", True),
        Column("subscribers", _I64, "", True),
    ),
    key=("topic",),
)
SUBSCRIBERS: Final = Table(
    "subscribers",
    "What subscribers got.",
    (
        Column("client_id", _S, "empty: a shared group as a whole", True),
        Column("group", _S, "share name or empty", True),
        Column("messages", _I64, "", True),
        Column("bytes", _I64, "", True),
        Column("dropped", _I64, "", True),
    ),
    key=("client_id", "group"),
)
QUEUES: Final = Table(
    "queues",
    "Queues of subscribers, from samples of those that were not empty.",
    (
        Column("client_id", _S, "", True),
        Column("samples", _I64, "", True),
        Column("qd_sum", _I64, "", True),
        Column("qd_max", _I64, "", True),
        Column("blocked", _I64, "samples whose socket took no more", True),
        Column("dropped", _I64, "", True),
        Column("deadline_miss", _I64, "", True),
    ),
    key=("client_id",),
)
MEMBER_HOURS: Final = Table(
    "members",
    "Members of shared groups: moments of the service time over windows, weighted by messages.",
    (
        Column("group", _S, "", True),
        Column("client_id", _S, "", True),
        Column("windows", _I64, "", True),
        Column("messages", _I64, "", True),
        Column("service_sum", _F, "seconds × messages", True),
        Column("service_squares", _F, "seconds² × messages", True),
        Column(
            "scatter",
            _F,
            "Σ messages × (window's mean − hour's mean)²: variance of one message × windows",
            True,
        ),
    ),
    key=("group", "client_id"),
)
RPC_HOPS: Final = Table(
    "rpc_hops",
    "Histogram of the latency of calls, by hop and in total.",
    (
        Column("hop", _S, "queue, worker, route, gateway, return, reply or total", True),
        Column("bin", _I16, "", True),
        Column("count", _I64, "", True),
        Column("sum_us", _F, "exact sum of what is in the bin", True),
    ),
    key=("hop", "bin"),
)
RPC_OUTCOMES: Final = Table(
    "rpc_outcomes",
    "How calls ended.",
    (
        Column("gw", _S, "empty: unknown", True),
        Column("outcome", _S, "", True),
        Column("count", _I64, "", True),
        Column("retries", _I64, "of them not first attempts", True),
    ),
    key=("gw", "outcome"),
)
BEACONS: Final = Table(
    "beacons",
    "Advertisements by device, gateway and slot of five minutes.",
    (
        Column("mac", _S, "", True),
        Column("gw", _S, "", True),
        Column("slot", _I64, "five minutes since 1970", True),
        Column("count", _I64, "", True),
        Column("rssi_sum", _F, "dBm", True),
        Column("last", _T, "", True),
    ),
    key=("mac", "gw", "slot"),
)
CONTROL_HOURS: Final = Table(
    "control",
    "Checks of clients under active control.",
    (
        Column("client_id", _S, "", True),
        Column("checks", _I64, "", True),
        Column("lossy", _I64, "checks that found a loss", True),
        Column("losses", _I64, "", True),
        Column("seconds", _F, "Σ of the timeouts", True),
        Column("dropped", _I64, "", True),
        Column("congested", _I64, "", True),
    ),
    key=("client_id",),
)
GATE: Final = Table(
    "gate",
    "Who was held or refused.",
    (
        Column("client_id", _S, "", True),
        Column("state", _S, "what the policy thought of it", True),
        Column("holds", _I64, "", True),
        Column("held_seconds", _F, "", True),
        Column("refused", _I64, "", True),
        Column("rate_max", _F, "messages per second"),
        Column("trained_max", _F, "messages per second"),
    ),
    key=("client_id", "state"),
)

AGGREGATES: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (
        CLIENTS,
        TOPIC_HOURS,
        NODES,
        LOADS,
        GAPS,
        SECONDS,
        FANOUT,
        SUBSCRIBERS,
        QUEUES,
        MEMBER_HOURS,
        RPC_HOPS,
        RPC_OUTCOMES,
        BEACONS,
        CONTROL_HOURS,
        GATE,
    )
}
"""Tables below `<out>/hourly/`."""

# -- findings: written whole by each run below `<out>/findings/` ---------------------------------------------

CHANGES: Final = Table(
    "changes",
    "Clients whose behaviour changed.",
    (
        Column("client_id", _S, "", True),
        Column("changed_at", _T, "beginning of the first hour that is different", True),
        Column("kind", _S, "faster, slower, silent, burst or irregular", True),
        Column("before", _F, "messages per second, or for irregular the squared variation of gaps", True),
        Column("after", _F, "", True),
        Column("score", _F, "how sure; from 1 on it is a change", True),
        Column("is_over", _B, "it behaves again as before", True),
        Column("ended_at", _T, "of one that is over: end of the last hour that is different"),
    ),
    key=("client_id",),
)
FORECASTS: Final = Table(
    "forecasts",
    "How good forecasts of the last hours were, by topic, beside the same hour of the day before.",
    (
        Column("topic", _S, "", True),
        Column("hours", _I64, "forecast and compared", True),
        Column("error", _F, "mean absolute error, messages per second", True),
        Column("naive_error", _F, "of the seasonal-naive forecast", True),
        Column("covered", _F, "share of hours inside their interval", True),
    ),
    key=("topic",),
)
GATEWAYS: Final = Table(
    "gateways",
    "Gateways, and those that died.",
    (
        Column("gw", _S, "", True),
        Column("heard_at", _T, "last", True),
        Column("devices", _I64, "routed to it", True),
        Column("is_dead", _B, "silent while its devices were heard elsewhere", True),
    ),
    key=("gw",),
)
RPC_LATENCY: Final = Table(
    "rpc_latency",
    "Latency of calls by hour and hop.",
    (
        Column("at", _T, "beginning of the hour", True),
        Column("hop", _S, "", True),
        Column("calls", _I64, "", True),
        Column("mean_us", _F, "", True),
        Column("p50_us", _F, "", True),
        Column("p90_us", _F, "", True),
        Column("p95_us", _F, "", True),
        Column("p99_us", _F, "", True),
        Column("is_bottleneck", _B, "largest mean of all hops in its hour", True),
    ),
    key=("at", "hop"),
)
DISAGREEMENTS: Final = Table(
    "disagreements",
    "Where the broker's decision and the same policy run again differ.",
    (
        Column("run", _S, "", True),
        Column("seq", _I64, "", True),
        Column("source", _S, "check or member", True),
        Column("kind", _S, "", True),
        Column("name", _S, "of the column, or why it could not be compared", True),
        Column("client_id", _S, ""),
        Column("recorded", _S, ""),
        Column("computed", _S, ""),
    ),
    key=("run", "source", "seq", "name"),
)
REPLAYED: Final = Table(
    "replayed",
    "What was run again.",
    (
        Column("run", _S, "", True),
        Column("source", _S, "", True),
        Column("events", _I64, "", True),
        Column("compared", _I64, "verdicts, ranks or choices", True),
        Column("disagreements", _I64, "", True),
        Column("note", _S, "why some could not be compared; empty if all were", True),
    ),
    key=("run", "source"),
)
QUALITY: Final = Table(
    "quality",
    "What is wrong with the input, and what was done about it.",
    (
        Column("kind", _S, "", True),
        Column("table", _S, "", True),
        Column("subject", _S, "file, hour or node", True),
        Column("count", _I64, "files, rows or messages, as the kind says", True),
        Column("detail", _S, "", True),
    ),
)
FINDINGS: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (CHANGES, FORECASTS, GATEWAYS, RPC_LATENCY, DISAGREEMENTS, REPLAYED, QUALITY)
}
