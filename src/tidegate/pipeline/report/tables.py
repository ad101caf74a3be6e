"""What both forms of a report say in words and tables: sections of text and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidegate.pipeline.inventory import USUAL
from tidegate.pipeline.report.gather import Facts, Row
from tidegate.pipeline.transforms.topics import LEAST_HEARD, LEAST_SECONDS
from tidegate.pipeline.words import counted


@dataclass(slots=True, kw_only=True)
class Section:
    """`rows` below `head`; without rows `nothing` is said in their place."""

    title: str
    text: str = ""
    head: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    nothing: str = "Nothing was recorded."


def show(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _section(
    title: str, rows: Sequence[Row], columns: Sequence[tuple[str, str]], text: str = "", nothing: str = ""
) -> Section:
    return Section(
        title=title,
        text=text,
        head=tuple(head for head, _ in columns),
        rows=[tuple(show(row[name]) for _, name in columns) for row in rows],
        nothing=nothing or "Nothing was recorded.",
    )


def sections(facts: Facts) -> Iterator[Section]:
    """In the order of the page."""
    yield _traffic(facts)
    yield _section(
        "Busiest topics",
        facts.topics,
        (
            ("topic", "topic"),
            ("msg/s", "rate"),
            ("next hour", "forecast"),
            ("from", "forecast_low"),
            ("to", "forecast_high"),
            ("burst group", "burst_group"),
        ),
        _forecast_text(facts),
    )
    yield _section(
        "Topics that rise together",
        facts.correlations,
        (("topic", "topic_a"), ("and", "topic_b"), ("ρ", "rho")),
        f"Pairs of which at least {LEAST_SECONDS // 60} minutes were recorded, and messages in {LEAST_HEARD} seconds.",
        "None that is correlated.",
    )
    kinds = ", ".join(f"{show(row['count'])} {row['kind']}" for row in facts.change_counts)
    yield _section(
        "Clients whose behaviour changed",
        facts.changes,
        (
            ("client", "client_id"),
            ("since", "changed_at"),
            ("how", "kind"),
            ("before", "before"),
            ("after", "after"),
            ("score", "score"),
            ("over", "is_over"),
        ),
        f"{kinds}. Rates in messages per second; for irregular the squared variation of gaps."
        if kinds
        else "",
        "Nobody behaves otherwise than before.",
    )
    yield _section(
        "Who was held, and why",
        facts.gate,
        (
            ("client", "client_id"),
            ("state", "state"),
            ("holds", "holds"),
            ("seconds", "held_seconds"),
            ("refused", "refused"),
            ("rate", "rate_max"),
            ("trained", "trained_max"),
        ),
        nothing="Nobody was held or refused.",
    )
    yield _section(
        "Queues of subscribers",
        facts.queues,
        (
            ("client", "client_id"),
            ("mean", "qd_mean"),
            ("most", "qd_max"),
            ("blocked", "blocked"),
            ("dropped", "dropped"),
        ),
        nothing="No queue was seen that was not empty.",
    )
    yield _section(
        "Members of shared groups",
        [row for row in facts.members if row["group"]],
        (
            ("group", "group"),
            ("member", "client_id"),
            ("seconds a message", "service"),
            ("variability", "variability"),
            ("messages", "messages"),
        ),
    )
    yield _section(
        "Placement of topics on edges",
        facts.placement,
        (
            ("edge", "edge"),
            ("topics", "topics"),
            ("msg/s", "rate"),
            ("uplink", "util_up"),
            ("matching", "util_match"),
        ),
        "Expected utilisation of an edge's uplink, and of its matching of messages to subscribers; 1 is full.",
    )
    yield _section(
        "Calls by outcome",
        facts.outcomes,
        (("outcome", "outcome"), ("calls", "count"), ("retries", "retries")),
    )
    yield _section(
        "Calls, hop by hop, last hour",
        [row for row in facts.latency if row["at"] == max(each["at"] for each in facts.latency)]
        if facts.latency
        else [],
        (
            ("hop", "hop"),
            ("calls", "calls"),
            ("mean µs", "mean_us"),
            ("P50", "p50_us"),
            ("P90", "p90_us"),
            ("P95", "p95_us"),
            ("P99", "p99_us"),
            ("bottleneck", "is_bottleneck"),
        ),
    )
    devices = facts.routes
    roaming = (
        f"{show(devices.get('devices'))} devices have a route; a device changed it {show(devices.get('flaps'))} times "
        f"on average, {show(devices.get('flaps_max'))} at most."
    )
    yield _section(
        "Gateways",
        facts.gateways,
        (("gateway", "gw"), ("last heard", "heard_at"), ("devices", "devices"), ("dead", "is_dead")),
        roaming if devices.get("devices") else "",
    )
    yield _section(
        "Clients under active control",
        facts.control,
        (
            ("client", "client_id"),
            ("losses/s", "loss_rate"),
            ("τ s", "tau"),
            ("T s", "t"),
            ("N", "n"),
            ("K", "k"),
            ("α", "alpha"),
            ("δ s", "delta"),
        ),
    )
    yield _section(
        "Decisions run again",
        facts.replayed,
        (
            ("run", "run"),
            ("table", "source"),
            ("events", "events"),
            ("compared", "compared"),
            ("disagreements", "disagreements"),
            ("note", "note"),
        ),
        nothing="Nothing was recorded at level full, which replay needs.",
    )
    if facts.disagreements:
        yield _section(
            "Disagreements",
            facts.disagreements,
            (
                ("run", "run"),
                ("event", "seq"),
                ("kind", "kind"),
                ("column", "name"),
                ("client", "client_id"),
                ("recorded", "recorded"),
                ("computed", "computed"),
            ),
        )
    yield from _quality(facts)


def _traffic(facts: Facts) -> Section:
    by_node: dict[str, Row] = {}
    for row in facts.traffic:
        sums = by_node.setdefault(row["node"], {"node": row["node"], "messages": 0, "bytes": 0, "lost": 0})
        for name in ("messages", "bytes", "lost"):
            sums[name] += row[name] or 0
    hours = sorted({row["at"] for row in facts.traffic})
    text = (
        f"{counted(len(hours), 'hour')} from {show(hours[0])} UTC, "
        f"{counted(facts.publishers.get('publishers') or 0, 'publisher')}. {_recorded(facts)}"
        if hours
        else ""
    )
    columns = (("node", "node"), ("messages", "messages"), ("bytes", "bytes"), ("not recorded", "lost"))
    return _section("Traffic", list(by_node.values()), columns, text)


def _recorded(facts: Facts) -> str:
    """What a rate is the mean of: a part of an hour looks slower than it was."""
    text = "Rates are means of whole hours"
    told = sum(min(3_600.0, row["seconds"] or 0.0) for row in facts.loads)
    share = told / (3_600.0 * len(facts.loads)) if facts.loads else 1.0
    if share > 0.95:
        return f"{text}."
    return f"{text}, and only {100 * share:.2g} % of that time was recorded: what was sent in it was faster."


def _forecast_text(facts: Facts) -> str:
    found = facts.forecasts
    rates = f"Messages per second. {_recorded(facts)}"
    if not found.get("topics") or not found.get("naive_error"):
        return f"{rates} There is not yet a day before the last hours to judge forecasts by."
    share = found["error"] / found["naive_error"]
    return (
        f"{rates} The error of forecasts over the last hours was {share:.2f} of that of "
        f"“as yesterday”; {found['covered']:.0%} of hours lay in their interval (wanted: 90 %)."
    )


def _quality(facts: Facts) -> Iterator[Section]:
    usual = [f"“{kind}”" for kind in sorted(USUAL & {row["kind"] for row in facts.quality_counts})]
    are = "is" if len(usual) == 1 else "are"
    yield _section(
        "Data quality",
        facts.quality_counts,
        (("kind", "kind"), ("table", "table"), ("cases", "cases"), ("count", "count")),
        f"{' and '.join(usual)} {are} no fault: a lake grows while it is read." if usual else "",
        nothing="Nothing is wrong with the input.",
    )
    if facts.quality:
        yield _section(
            "Data quality, case by case",
            facts.quality,
            (
                ("kind", "kind"),
                ("table", "table"),
                ("what", "subject"),
                ("count", "count"),
                ("detail", "detail"),
            ),
        )
