"""The one place that names what is recorded and what is learnt: tables, columns, histograms, files, snapshots.

Plain Python, so that every room may import it: `lake/` turns it into Arrow, `pipeline/` into Spark types.

**Lake.** `<lake>/<table>/date=YYYY-MM-DD/hour=HH/<node>-<run>-<number>.parquet`, date and hour of `ts` in UTC. A name
that begins with `_` is a file being written or set aside: readers pass over it. Every table begins with the columns
of `COMMON`. Rows of one file have a `ts` in its hour, in no particular order.

**Levels.** At `summary` there is one row for each client and topic in each window of some seconds (`window_us`), at
`full` one row a message (`window_us` 0, `count` 1). Both have the same columns, so one job reads either: messages are
`sum(count)`, and the histogram of gaps is `gap_bins`/`gap_counts` of a summary row, or the bin of `gap_us`.

**Versions.** A column that is added says the version it came `since`; older files lack it, and readers see null. A
column never changes its meaning or type. Files carry `tidegate.table` and `tidegate.schema` (the version) in their
metadata. Unknown columns are ignored. A file may lack columns that are null in all its rows, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from math import floor, log2
from typing import Final


class Type(StrEnum):
    """Column types; `TIMESTAMP` is UTC in microseconds."""

    STRING = "string"
    BOOL = "bool"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    TIMESTAMP = "timestamp"
    LIST_INT16 = "list<int16>"
    LIST_INT64 = "list<int64>"
    LIST_FLOAT64 = "list<float64>"


@dataclass(slots=True, frozen=True)
class Column:
    """Null where a row has nothing to say, unless `is_required`."""

    name: str
    type: Type
    doc: str
    is_required: bool = False
    since: int = 1


@dataclass(slots=True, frozen=True)
class Table:
    """One folder of the lake, or one file of a snapshot."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    version: int = 1
    key: tuple[
        str, ...
    ] = ()  # columns that tell rows apart, if any do: a second row with the same key is a duplicate

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name}")


_S, _B, _F, _T = Type.STRING, Type.BOOL, Type.FLOAT64, Type.TIMESTAMP
_I16, _I32, _I64 = Type.INT16, Type.INT32, Type.INT64

COMMON: Final = (
    Column("run", _S, "one process of a node, from its start to its end", True),
    Column("node", _S, "name of the node that recorded the row", True),
    Column("ts", _T, "when; for a window its beginning", True),
    Column(
        "lost",
        _I64,
        "rows (publish: messages) of this table that the node dropped before this row; null: none",
    ),
)


def _table(name: str, doc: str, *columns: Column, key: tuple[str, ...] = ()) -> Table:
    return Table(name, doc, COMMON + columns, key=key)


PUBLISH: Final = _table(
    "publish",
    "Messages that publishers sent.",
    Column("client_id", _S, "the publisher", True),
    Column("topic", _S, "", True),
    Column("qos", _I16, "0, 1 or 2", True),
    Column("window_us", _I64, "length of the window that the row sums up; 0: one message", True),
    Column("count", _I64, "messages", True),
    Column("bytes", _I64, "of whole packets, headers included", True),
    Column("first", _T, "arrival of the first; null at level full, where `ts` is it"),
    Column("last", _T, "arrival of the last; null at level full"),
    Column(
        "gap_us",
        _I64,
        "microseconds since the client's message before, on any topic; of n messages that were read together each has "
        "an n-th of the time; null for the first of a run and in summaries",
    ),
    Column(
        "gap_bins", Type.LIST_INT16, "histogram of `gap_us` in a summary: bins, ascending (see `bin_of`),"
    ),
    Column("gap_counts", Type.LIST_INT64, "and the messages in each"),
    Column("label", _S, "of generated data: what kind of publisher this is; else null"),
)

DELIVER: Final = _table(
    "deliver",
    "Messages that subscribers were given, by subscriber and topic in windows (1 s at level full).",
    Column("client_id", _S, "the subscriber; null: `group` as a whole, and table `member` tells who of it"),
    Column("topic", _S, "null for a row that only counts `dropped`"),
    Column("qos", _I16, "as published", True),
    Column("group", _S, "share name, if they went to a shared subscription"),
    Column("window_us", _I64, "", True),
    Column("count", _I64, "messages handed to its session", True),
    Column("bytes", _I64, "of whole packets as published", True),
    Column("dropped", _I64, "messages of the window that were dropped because it had no room for more", True),
)

LOAD: Final = _table(
    "load",
    "State of the node, once a window; counts are those of the window (spec 2, Tables I to III).",
    Column("window_us", _I64, "", True),
    Column("state", _S, "LOW, HIGH or OVERLOAD", True),
    Column("wait_us", _I64, "mean wait of a message that arrives at a random moment", True),
    Column("lag_us", _I64, "lateness of the event loop's tick", True),
    Column("cpu_us", _I64, "processor time of the process", True),
    Column("memory_bytes", _I64, "", True),
    Column("memory_share", _F, "of what it may use", True),
    Column("queue_share", _F, "of what queues may hold", True),
    Column("connections", _I64, "", True),
    Column("sessions", _I64, "", True),
    Column("subscriptions", _I64, "", True),
    Column("held", _I64, "publishers that wait", True),
    Column("publish_received", _I64, "messages", True),
    Column("publish_sent", _I64, "messages", True),
    Column("bytes_received", _I64, "", True),
    Column("bytes_sent", _I64, "", True),
    Column("dropped", _I64, "messages", True),
    Column("util_up", _F, "uplink utilisation, where the bandwidth is known"),
    Column("util_down", _F, "downlink utilisation"),
    Column("util_match", _F, "matching utilisation"),
    Column("policy_version", _S, "policy snapshot in force"),
)

QUEUE: Final = _table(
    "queue",
    "Queues that are not empty, sampled once a window (spec 2: λ, μ, QD, TH).",
    Column("client_id", _S, "the subscriber", True),
    Column("topic", _S, "null: all topics of the session"),
    Column("window_us", _I64, "", True),
    Column("qd", _I64, "messages that wait", True),
    Column("bytes", _I64, "that wait", True),
    Column("inflight", _I64, "messages sent and not acknowledged", True),
    Column("is_connected", _B, "", True),
    Column("is_blocked", _B, "its socket takes no more", True),
    Column("lambda", _F, "messages per second in; null where nothing was counted"),
    Column("mu", _F, "messages per second out"),
    Column("th", _F, "threshold of the queue depth, eq (2)"),
    Column("dropped", _I64, "messages of the window", True),
    Column("deadline_miss", _I64, "messages of the window that were later than their topic allows"),
)

MEMBER: Final = _table(
    "member",
    "Shared subscriptions (spec 5). `state` rows once a window; at level full also every event that a choice depends "
    "on, in the order of `seq`, so that choices can be computed again.",
    Column("seq", _I64, "order of events within a run, without gaps at level full; null for `state`"),
    Column(
        "kind",
        _S,
        "state; or group (a policy begins), join, leave, choose, sent, done, report, rtt, forget, prior, owes",
        True,
    ),
    Column("group", _S, "share name; null for events of a client whatever its groups"),
    Column("topic_filter", _S, ""),
    Column("policy", _S, "name in the registry of shared policies"),
    Column("client_id", _S, "the member"),
    Column("t", _F, "the clock that policies see, seconds; monotonic, of this run"),
    Column("topic", _S, "choose"),
    Column("publisher", _S, "choose"),
    Column("qos", _I16, "sent: 1 if it will be acknowledged"),
    Column("place", _I32, "choose: index of the member that the policy chose, in the order of `members`"),
    Column(
        "members", _I32, "choose: how many there were; those with a right to the topic, in order of joining"
    ),
    Column(
        "count",
        _I64,
        "done: messages acknowledged; report: messages it covers; state: messages of the window",
    ),
    Column("left", _I64, "done, owes: messages that it still has"),
    Column("processed", _I64, "report: total"),
    Column("m_q", _I64, "messages in its queue, as it reported"),
    Column("m_s", _I64, "messages sent since its last report"),
    Column("t_p", _F, "seconds a message takes, as it reported (mean of five)"),
    Column("service", _F, "seconds a message takes, as the broker estimates"),
    Column("rtt", _F, "rtt: seconds"),
    Column("outstanding", _I64, "messages given and not finished"),
    Column("wait", _F, "seconds until it has worked off all it was given"),
    Column(
        "detail", _S, "group: parameters of the policy, JSON; choose: client ids, if only some may receive"
    ),
)

RPC: Final = _table(
    "rpc",
    "Calls to devices, one row each when it ended (spec 4). Times are null for hops it did not reach.",
    Column("backbone", _S, "mqtt, rabbitmq+redis, http", True),
    Column("replicas", _I32, ""),
    Column("workers", _I32, ""),
    Column("task_id", _S, ""),
    Column("request_id", _S, "", True),
    Column("mac", _S, "the device", True),
    Column("gw", _S, "the gateway it went through"),
    Column("t_enqueued", _T, ""),
    Column("t_worker", _T, "a worker took the task"),
    Column("t_fwd", _T, "a forwarding router took the request"),
    Column("t_mqtt", _T, "published"),
    Column("t_gw", _T, "the gateway answered"),
    Column("t_bck", _T, "a return router took the answer"),
    Column("t_reply", _T, "the caller has it"),
    Column("outcome", _S, "ack, nack, timeout, refused or expired; misrouted of the baseline", True),
    Column("attempt", _I32, "1 for the first", True),
    key=("request_id", "attempt"),
)

BEACON: Final = _table(
    "beacon",
    "Advertisements of devices as gateways heard them (spec 4, route table).",
    Column("mac", _S, "the device", True),
    Column("gw", _S, "the gateway that heard it", True),
    Column("rssi", _F, "dBm", True),
    Column("label", _S, "of generated data: the right gateway; else null"),
)

CHECK: Final = _table(
    "check",
    "Decisions about clients. Of the gate (spec 1): at level summary those that held or refused somebody; at level "
    "full every event that verdicts and ranks depend on, in the order of `seq`, so that they can be computed again. "
    "Of clients under active control (spec 3): `kind` is control.",
    Column(
        "seq",
        _I64,
        "order of events within a run, without gaps at level full; null for `control` and at summary",
    ),
    Column(
        "kind",
        _S,
        "policy (the gate begins anew: `detail`), load, open, close, observe, rate, rank, hold, refuse, control",
        True,
    ),
    Column("t", _F, "the clock that policies see, seconds; monotonic, of this run"),
    Column("client_id", _S, "the publisher; for control the knowledge processor"),
    Column("user", _S, "authenticated user, empty for none; with `client_id` the identity"),
    Column(
        "publisher",
        _I64,
        "number of the state that judges it, from 1 since `policy`; a new name may continue an old one",
    ),
    Column("address", _S, "open, close: where it comes from, as identities use it"),
    Column("policy", _S, "name in the registry of back-off policies"),
    Column("mode", _S, "backpressure, hold or drop"),
    Column("load", _S, "load that the policy sees: LOW, HIGH or OVERLOAD"),
    Column("count", _I64, "observe: messages read together"),
    Column("bytes", _I64, "observe: their size"),
    Column("d_f", _F, "observe, hold: the answer, seconds; 0 admitted, -1 refused"),
    Column("state", _S, "training, normal, suspicious or held, after it"),
    Column("fr_new", _F, "rate of late, messages per second"),
    Column("fr_avg", _F, "trained rate, messages per second; 0 unknown"),
    Column("dispersion", _F, "variance of the number of messages over its mean"),
    Column("rank", _I64, "rank: 1 is served first"),
    Column("place", _F, "rank: key among those that wait, the smallest is next"),
    Column("rate", _F, "rate: what the order of service was told, messages per second"),
    Column("prior_rate", _F, "open: from a snapshot; null: none"),
    Column("prior_dispersion", _F, "open"),
    Column("limit", _F, "open: quota, messages per second; 0 none"),
    Column("prior_rank", _I64, "open"),
    Column("policy_version", _S, "policy snapshot in force"),
    Column("detail", _S, "policy: all parameters, JSON; open: band of the class, JSON; control: see docs"),
    # Spec 3, kind control.
    Column("level", _I16, "0 none, 1 basic, 2 adaptive, 3 active"),
    Column("requirement", _S, "rigorous, mediate or light"),
    Column("init_mode", _S, "interval, success or advice"),
    Column("check_number", _I64, "of this client, from 1"),
    Column("t_send", _T, ""),
    Column("t_resp", _T, "null: no answer"),
    Column("dropped", _B, "denied or timed out"),
    Column("losses", _I64, "k_i: updates missed since the last check"),
    Column("t_ast", _F, "adaptive strategy timeout, seconds"),
    Column("t_bck", _F, "random back-off timeout, seconds"),
    Column("t_avg", _F, "smoothed response time, seconds"),
    Column("congested", _B, ""),
    Column("version_seen", _I64, ""),
    Column("version_true", _I64, ""),
)

ACTION: Final = _table(
    "action",
    "What the node did, and why: rare and worth a line each.",
    Column("kind", _S, "start, stop, load, policy, settings, balance, place, migrate, recorder", True),
    Column("policy", _S, "that decided it"),
    Column("reason", _S, ""),
    Column("topic", _S, "the topic it is about (spec 2)"),
    Column("moved_bundle", _S, "topics moved, JSON list (spec 2)"),
    Column("src", _S, "from: node, state or version"),
    Column("dst", _S, "to"),
    Column("clients", _I64, "concerned"),
    Column("is_done", _B, "false: it failed or was refused", True),
    Column("detail", _S, "JSON"),
)

TABLES: Final[Mapping[str, Table]] = {
    table.name: table for table in (PUBLISH, DELIVER, LOAD, QUEUE, MEMBER, RPC, BEACON, CHECK, ACTION)
}
"""Tables of the lake by name."""


# -- histograms ------------------------------------------------------------------------------------------------------

BINS_PER_OCTAVE: Final = 32
BIN_EPSILON: Final = 1e-9  # so that every library's logarithm puts a power of two into the same bin
BIN_MAX: Final = 1 + BINS_PER_OCTAVE * 63  # of an int64


def bin_of(value_us: float) -> int:
    """Bin of a value in µs: 0 below 1 µs (negative ones included), else 1 + ⌊32·log2(value)⌋."""
    if value_us < 1:
        return 0
    return min(1 + floor(log2(value_us) * BINS_PER_OCTAVE + BIN_EPSILON), BIN_MAX)


def bin_sql(column: str) -> str:
    """`bin_of` as a Spark SQL expression over a numeric column; null stays null."""
    return (
        f"CAST(CASE WHEN {column} < 1 THEN 0 "
        f"ELSE 1 + FLOOR(LOG2({column}) * {BINS_PER_OCTAVE}D + {BIN_EPSILON}D) END AS SMALLINT)"
    )


def bin_start(number: int) -> float:
    """Smallest value in µs of a bin (as a real number; 0 for bin 0)."""
    return 0.0 if number <= 0 else 2.0 ** ((number - 1) / BINS_PER_OCTAVE)


def bin_value(number: int) -> float:
    """The value in µs that stands for a bin: its geometric middle, at most 1.09 % off; 0 for bin 0."""
    return 0.0 if number <= 0 else 2.0 ** ((number - 0.5) / BINS_PER_OCTAVE)


def bin_value_sql(column: str) -> str:
    """`bin_value` as a Spark SQL expression."""
    return f"CASE WHEN {column} <= 0 THEN 0D ELSE POWER(2D, ({column} - 0.5D) / {BINS_PER_OCTAVE}D) END"


def histogram(values_us: Iterable[float]) -> dict[int, int]:
    """Bins and counts of values."""
    found: dict[int, int] = {}
    for value in values_us:
        number = bin_of(value)
        found[number] = found.get(number, 0) + 1
    return found


def merge(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Histograms are merged by adding their counts, in any order."""
    total: dict[int, int] = {}
    for each in histograms:
        for number, count in each.items():
            total[number] = total.get(number, 0) + count
    return total


def quantile(counts: Mapping[int, int], q: float) -> float:
    """Nearest-rank quantile in µs, 0 ≤ q ≤ 1; 0 of nothing."""
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"a quantile is between 0 and 1: {q}")
    total = sum(counts.values())
    wanted = max(1.0, q * total)
    seen = 0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= wanted:
            return bin_value(number)
    return 0.0


# -- files of the lake -----------------------------------------------------------------------------------------------

PARQUET: Final = ".parquet"
TEMPORARY: Final = "_"  # names that begin so are not data: Spark and our readers pass over them
META_TABLE: Final = b"tidegate.table"
META_SCHEMA: Final = b"tidegate.schema"
META_NODE: Final = b"tidegate.node"
META_RUN: Final = b"tidegate.run"
META_LEVEL: Final = b"tidegate.level"
META_REPLACES: Final = b"tidegate.replaces"  # of a compacted file: names of the files it stands for, as JSON
PARTITION_PATTERN: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})")


def replaced_names(metadata: Mapping[bytes, bytes] | None) -> list[str]:
    """Names that a compacted file stands for, by its metadata; none of any other, or if it says anything else."""
    try:
        found = json.loads((metadata or {}).get(META_REPLACES, b"[]"))
    except ValueError:
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def partition(ts: datetime) -> str:
    """Folder below a table's own for rows of this moment, which must know its zone."""
    if ts.tzinfo is None:
        raise ValueError("a moment without a zone belongs to no hour")
    at = ts.astimezone(UTC)
    return f"date={at:%Y-%m-%d}/hour={at:%H}"


def partition_of_us(ts_us: int) -> str:
    """The same for microseconds since 1970."""
    return partition(datetime.fromtimestamp(ts_us // 1_000_000, UTC))


def partition_start(path: str) -> datetime | None:
    """The hour a file or folder belongs to; None if its path tells none."""
    found = PARTITION_PATTERN.search(path)
    if found is None:
        return None
    try:
        return datetime.strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    except ValueError:
        return None


def file_name(node: str, run: str, number: int) -> str:
    """Unique in a lake: a node has one run at a time, and numbers its files."""
    return f"{_safe(node)}-{_safe(run)}-{number:06d}{PARQUET}"


def _safe(name: str) -> str:
    """Part of a file name: no separators, and never a leading `_` or `.`."""
    return re.sub(r"[^0-9A-Za-z.]+", "_", name).lstrip("_.") or "node"


# -- policy snapshots ------------------------------------------------------------------------------------------------

POLICY_FORMAT: Final = 1
POLICY_POINTER: Final = "CURRENT"  # one line: the version in force; replaced by one rename
POLICY_MANIFEST: Final = "manifest.json"
POLICY_VERSION_PATTERN: Final = re.compile(
    r"[0-9A-Za-z][0-9A-Za-z.-]{0,63}"
)  # sorts by age if it begins with a time

BASELINES: Final = Table(
    "baselines",
    "What is normal for each publisher; start values of the back-off and the order of service.",
    (
        Column("client_id", _S, "", True),
        Column("rate", _F, "trained rate, messages per second", True),
        Column("dispersion", _F, "variance of the number of messages over its mean; 0 unknown", True),
        Column("limit", _F, "suggested quota, messages per second; 0 none", True),
        Column("rank", _I64, "1 is the rarest sender; equals share it", True),
        Column("messages", _I64, "that this was learnt from", True),
        Column("median_us", _F, "median gap"),
        Column("mad_us", _F, "median absolute deviation of the gap"),
        Column("changed_at", _T, "since when it behaves otherwise than before; null: it does not"),
    ),
    key=("client_id",),
)
POLICY_MEMBERS: Final = Table(
    "members",
    "How fast members of shared subscriptions are; start values of the choice.",
    (
        Column("group", _S, "share name; empty: whatever the group", True),
        Column("client_id", _S, "", True),
        Column("service", _F, "seconds a message takes", True),
        Column("variability", _F, "standard deviation over mean; 0 unknown", True),
        Column("messages", _I64, "that this was learnt from", True),
    ),
    key=("group", "client_id"),
)
TOPICS: Final = Table(
    "topics",
    "Rates of topics, now and by the hour of the week.",
    (
        Column("topic", _S, "", True),
        Column("rate", _F, "messages per second", True),
        Column("bytes_rate", _F, "bytes per second", True),
        Column(
            "profile",
            Type.LIST_FLOAT64,
            "messages per second in each hour of the week, 168 from Monday 00:00 UTC",
        ),
        Column("forecast", _F, "messages per second in the next hour"),
        Column("forecast_low", _F, "lower end of the interval"),
        Column("forecast_high", _F, "upper end"),
        Column("burst_group", _I64, "topics that burst together share a number; null: alone"),
    ),
    key=("topic",),
)
CORRELATIONS: Final = Table(
    "correlations",
    "Pairs of topics whose rates rise together, topic_a < topic_b.",
    (
        Column("topic_a", _S, "", True),
        Column("topic_b", _S, "", True),
        Column("rho", _F, "Pearson over messages per second", True),
        Column("seconds", _I64, "that it was computed over", True),
    ),
    key=("topic_a", "topic_b"),
)
PLACEMENT: Final = Table(
    "placement",
    "Which edge serves a topic.",
    (
        Column("topic", _S, "", True),
        Column("edge", _S, "", True),
        Column("rate", _F, "messages per second", True),
        Column("util_up", _F, "expected utilisation of the edge with all its topics", True),
        Column("util_match", _F, ""),
    ),
    key=("topic",),
)
ROUTES: Final = Table(
    "routes",
    "The best gateway of each device.",
    (
        Column("mac", _S, "", True),
        Column("gw", _S, "", True),
        Column("rssi", _F, "dBm", True),
        Column("heard_at", _T, "last", True),
        Column("second_gw", _S, "to try after it"),
        Column("flaps", _I64, "changes of the gateway in the time looked at", True),
    ),
    key=("mac",),
)
CONTROL: Final = Table(
    "control",
    "Active control (spec 3): what was measured of each client, and what to set.",
    (
        Column("client_id", _S, "empty: all together", True),
        Column("loss_rate", _F, "ν, updates missed per second", True),
        Column("tau", _F, "mean timeout, seconds"),
        Column("t", _F, "expected timeout at which a loss ends the growth, seconds"),
        Column("n", _F, "expected growth steps a cycle"),
        Column("k", _F, "mean losses of a lossy check"),
        Column("alpha", _F, "suggested divisor"),
        Column("delta", _F, "suggested step, seconds"),
    ),
    key=("client_id",),
)

POLICY_TABLES: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (BASELINES, POLICY_MEMBERS, TOPICS, CORRELATIONS, PLACEMENT, ROUTES, CONTROL)
}
"""Tables of a snapshot by name; each is `<table>.parquet` or absent, and has no `COMMON` columns."""


@dataclass(slots=True, kw_only=True, frozen=True)
class FileEntry:
    """A file of a snapshot, relative to its folder."""

    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(slots=True, kw_only=True, frozen=True)
class Manifest:
    """`policy/<version>/manifest.json`: written last, so a snapshot without one is not finished.

    Times are ISO 8601 in UTC. `tables` maps a table to its file, and a table may be missing.
    """

    version: str
    created: str
    input_from: str
    input_to: str
    tables: Mapping[str, FileEntry] = field(default_factory=dict)
    notes: str = ""
    format: int = POLICY_FORMAT
