"""E2.4 slow subscribers, E2.5 two clusters, E2.6 an overloaded head; and shedding when nobody has room."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tidegate.flow.balance.shedding import Demand, admitted
from tidegate.lab.cluster import tables
from tidegate.lab.cluster.scenario import VARIANTS, outcome, scenario
from tidegate.lab.experiment import Claim, Context, Experiment, Part, Presentation, Table, Verdict
from tidegate.sim.cluster import ClusterSimulation, NodeSpec

COMPARED = ("none", "peer, placed", "paper", "deadline, fair uplink", "deadline")
SLOW_SHARES = (0.9, 0.8, 0.7, 0.6, 0.5)
SLOW_EDGE = "b1"
BURST = [str(number) for number in tables.BURST]
LOADS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
TABLE_HEAD = ["policy", "missed", "of them critical", "actions", "needless", "clients moved"]


def _cells(name: str, row: dict[str, Any]) -> list[str]:
    return [
        name,
        f"{row['missed']:,.0f}",
        f"{row['missed_critical']:,.0f}",
        str(row["actions"]),
        str(row["needless"]),
        str(row["moved"]),
    ]


def _judge(is_true: bool) -> Verdict:
    return Verdict.HOLDS if is_true else Verdict.FAILS


# -- E2.4 -----------------------------------------------------------------------------------------------------------


def run_slow(context: Context) -> dict[str, Any]:
    """Subscribers of b1 read slowly from 30 s on: its uplink is worth less. No burst."""
    summary = []
    for share in context.follow("e2.4 capacity that is left", SLOW_SHARES):
        for variant in COMPARED:

            def slow(cluster: ClusterSimulation, share: float = share) -> None:
                cluster.at(tables.BURST_AT, partial(cluster.set_uplink, SLOW_EDGE, share))

            cluster = scenario(variant, tables.topics(), [], layout=tables.pinned(), prepare=slow)
            summary.append({"share": share, "variant": variant, **outcome(cluster)})
    return {
        "parameters": {
            "attack": f"the uplink of {SLOW_EDGE} is worth a share of itself from {tables.BURST_AT:g} s on"
        },
        "summary": summary,
        "shedding": _shedding(),
    }


def _shedding() -> list[dict[str, Any]]:
    """All edges as one, load 1 to 2 times the capacity: what is left of critical topics, with and without order."""
    topics = tables.topics()
    capacity = sum(spec.bandwidth for spec in tables.edges().values())
    base = sum(tables.uplink_bits(topic) for topic in topics.values())
    rows = []
    for load in LOADS:
        scale = load * capacity / base
        by_priority = admitted(
            (
                Demand(
                    topic=name,
                    bits=tables.uplink_bits(topic) * scale,
                    priority=1 if topic.latency < 10.0 else 2,
                    budget=topic.latency,
                )
                for name, topic in topics.items()
            ),
            capacity,
        )
        critical = [name for name, topic in topics.items() if topic.latency < 10.0]
        bits = {name: tables.uplink_bits(topics[name]) for name in topics}
        total = sum(bits[name] for name in critical)
        rows.append(
            {
                "load": load,
                "critical": sum(bits[name] * by_priority[name] for name in critical) / total,
                "plain": min(1.0, 1.0 / load),
            }
        )
    return rows


def present_slow(report: dict[str, Any]) -> Presentation:
    rows = {(row["share"], row["variant"]): row for row in report["summary"]}
    page = Presentation()

    def total(variant: str) -> float:
        return float(sum(row["missed"] for (_, name), row in rows.items() if name == variant))

    page.claims.append(
        Claim(
            text="Slow subscribers cost the default fewer deadlines than the published policy",
            paper="–",
            ours=f"{total('deadline'):,.0f} against {total('paper'):,.0f}, all shares together",
            verdict=_judge(total("deadline") <= total("paper")),
        )
    )
    for share in SLOW_SHARES:
        page.tables.append(
            Table(
                title=f"{share:.0%} of b1's uplink left",
                head=TABLE_HEAD,
                rows=[_cells(variant, rows[share, variant]) for variant in COMPARED],
            )
        )
    page.tables.append(
        Table(
            title="No node has room: share of critical messages that is admitted",
            head=["load", "by priority", "without order"],
            rows=[
                [f"{r['load']:g}", f"{r['critical']:.1%}", f"{r['plain']:.1%}"] for r in report["shedding"]
            ],
            note="Critical topics ask for two thirds of Table VI: up to a load of 1.5 none of them is refused.",
        )
    )
    return page


# -- E2.5 -----------------------------------------------------------------------------------------------------------


def run_two(context: Context) -> dict[str, Any]:
    """The paper's cluster three quarters as large, and a second one that is idle: what one has no room for moves."""
    edges = {
        name: replace(spec, bandwidth=spec.bandwidth * 0.75) for name, spec in tables.edges("h0").items()
    }
    edges |= {f"c{n}": NodeSpec(bandwidth=8 * tables.MBIT, head="h1") for n in range(2)}
    heads = {"h0": tables.head_spec(), "h1": tables.head_spec()}
    topics = tables.topics("h0")
    summary = []
    for variant in context.follow("e2.5 policies", ("none", "paper", "deadline, fair uplink", "deadline")):
        for is_joined in (False, True):
            own = {name: spec for name, spec in edges.items() if is_joined or spec.head == "h0"}
            cluster = scenario(
                variant,
                topics,
                BURST,
                layout=tables.pinned(),
                edges=own,
                heads=heads if is_joined else {"h0": heads["h0"]},
            )
            away = sum(
                queue.subscribers
                for edge in cluster.edges.values()
                for queue in edge.node.queues.values()
                if edge.spec.head == "h1"
            )
            summary.append({"variant": variant, "joined": is_joined, "away": away, **outcome(cluster)})
    return {
        "parameters": {
            "first cluster": "Table V with three quarters of its bandwidth, layout of E2.1, burst of E2.1",
            "second cluster": "two idle edges of 8 Mbit/s; the way there is 0.1 s longer",
        },
        "summary": summary,
    }


def present_two(report: dict[str, Any]) -> Presentation:
    rows = {(row["variant"], row["joined"]): row for row in report["summary"]}
    paper_alone, paper = rows["paper", False], rows["paper", True]
    ours_alone, ours = rows["deadline", False], rows["deadline", True]
    return Presentation(
        claims=[
            Claim(
                text="With no room of its own, a cluster is helped by another",
                paper="clients move between clusters",
                ours=f"published policy: {paper_alone['missed']:,.0f} → {paper['missed']:,.0f} missed, {paper['away']} "
                f"clients away; default: {ours_alone['missed']:,.0f} → {ours['missed']:,.0f}, {ours['away']} away",
                verdict=_judge(paper["away"] > 0 and paper["missed"] < paper_alone["missed"]),
            )
        ],
        tables=[
            Table(
                title="Alone, and with a second cluster",
                head=[*TABLE_HEAD, "clients in the other cluster"],
                rows=[
                    [*_cells(f"{variant}, {'joined' if joined else 'alone'}", row), str(row["away"])]
                    for (variant, joined), row in rows.items()
                ],
            )
        ],
    )


# -- E2.6 -----------------------------------------------------------------------------------------------------------


def run_head(context: Context) -> dict[str, Any]:
    """A head too small for its publishers beside one with room: publishers move."""
    small = replace(tables.head_spec(), bandwidth=9 * tables.MBIT)
    heads = {"h0": small, "h1": tables.head_spec()}
    edges = {name: replace(spec, bandwidth=spec.bandwidth * 1.5) for name, spec in tables.edges("h0").items()}
    summary = []
    for variant in context.follow("e2.6 policies", ("none", "paper", "deadline")):
        cluster = scenario(
            variant, tables.topics("h0"), BURST, layout=tables.pinned(), edges=edges, heads=heads, judge=False
        )
        node = cluster.heads["h0"].node
        assert node is not None
        moved = [name for name, head in cluster.publisher_heads.items() if head == "h1"]
        at = [action.time for action in cluster.actions if action.source == "h0"]
        summary.append(
            {
                "variant": variant,
                "head_over": node.over,
                "head_load": node.load_bits / node.uplink,
                "topics_moved": moved,
                "first": at[0] if at else None,
                **outcome(cluster),
            }
        )
    return {
        "parameters": {
            "heads": "h0 with 9 Mbit/s each way and all publishers, h1 with 20 Mbit/s and none",
            "edges": "one and a half times Table V, so that they are not the limit",
        },
        "summary": summary,
    }


def present_head(report: dict[str, Any]) -> Presentation:
    rows = {row["variant"]: row for row in report["summary"]}
    none, paper = rows["none"], rows["paper"]
    return Presentation(
        claims=[
            Claim(
                text="Publishers leave an overloaded head until it is not overloaded",
                paper="publishers move between heads, same three steps",
                ours=f"first move at {paper['first'] or 0:g} s; above 100 % for {paper['head_over']:.1f} s instead of "
                f"{none['head_over']:.1f} s; {paper['missed']:,.0f} missed instead of {none['missed']:,.0f}",
                verdict=_judge(paper["head_load"] < 0.95 and paper["missed"] < none["missed"]),
            )
        ],
        tables=[
            Table(
                title="The head",
                head=[
                    "policy",
                    "s above 100 %",
                    "load at the end",
                    "topics whose publishers moved",
                    "missed",
                ],
                rows=[
                    [
                        name,
                        f"{row['head_over']:.1f}",
                        f"{row['head_load']:.0%}",
                        ", ".join(row["topics_moved"]) or "none",
                        f"{row['missed']:,.0f}",
                    ]
                    for name, row in rows.items()
                ],
            )
        ],
    )


assert set(COMPARED) <= set(VARIANTS)

SLOW = Experiment(
    name="e2.4-slow",
    title="Slow subscribers",
    question="What if the subscribers of one edge read slowly, and what if no node has room?",
    run=run_slow,
    present=present_slow,
    parts=(Part.SIM,),
)
TWO_CLUSTERS = Experiment(
    name="e2.5-two-clusters",
    title="Two clusters",
    question="Does a cluster without room find help in another?",
    run=run_two,
    present=present_two,
    parts=(Part.SIM,),
)
HEAD = Experiment(
    name="e2.6-head",
    title="An overloaded head",
    question="Do publishers move from a head that is too small to one that is not?",
    run=run_head,
    present=present_head,
    parts=(Part.SIM,),
)
