"""E2.3: many draws in the paper's ranges; and oscillations over ten thousand runs."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from tidegate.flow.balance import Bundle, Edge
from tidegate.flow.placement import pack, worst_of
from tidegate.lab.cluster import tables
from tidegate.lab.cluster.scenario import VARIANTS, bursting_together, outcome, scenario
from tidegate.lab.experiment import Claim, Context, Experiment, Part, Presentation, Table, Verdict
from tidegate.lab.parallel import parallel
from tidegate.lab.statistics import columns, show, summarise, summarise_all
from tidegate.sim.cluster import Topic

# The paper's own burst fills the uplinks to 95.3 %. Of a burst that asks for more than there is every policy misses
# something, and what it misses says little about it.
FITS = 0.955
OSCILLATION_PART = 500  # runs between two steps of progress
OSCILLATION_RUNS = {"deadline": 10_000, "paper": 1_000}


def run(context: Context) -> dict[str, Any]:
    count = context.number_of_seeds(200, 5)
    drawn = [tables.draw(Random(f"e2.3/{seed}")) for seed in range(count)]
    values: list[dict[str, Any]] = []
    summary: list[dict[str, Any]] = []
    for variant in context.follow("e2.3 policies", VARIANTS):
        seeds = list(parallel(partial(_one, variant), range(count)))
        values.append({"variant": variant, "seeds": columns(seeds)})
        for group, part in (
            ("all", seeds),
            ("fitting", [each for each in seeds if each["burst_fill"] <= FITS]),
        ):
            if part:
                with_misses = sum(each["missed"] > 0 for each in part)
                summary.append(
                    {
                        "variant": variant,
                        "group": group,
                        "draws": len(part),
                        "draws_with_misses": with_misses,
                        **summarise_all(part, without=("seed",)),
                    }
                )
    runs = dict.fromkeys(OSCILLATION_RUNS, 8) if context.is_quick else OSCILLATION_RUNS
    oscillations = {}
    for variant, number in runs.items():
        total = 0
        for first in context.follow(f"e2.3 oscillations, {variant}", range(0, number, OSCILLATION_PART)):
            some = range(first, min(first + OSCILLATION_PART, number))
            total += sum(parallel(partial(_oscillations, variant), some))
        oscillations[variant] = total
    return {
        "parameters": {
            "draws": f"{count}; 1–5 publishers at 50 msg/s, 1–8 subscribers, 200–1000 bytes, ten of 0.9–1.8 s and five "
            f"of 30–100 s; those whose uplinks are {tables.FILL[0]:.0%} to {tables.FILL[1]:.0%} full before the burst",
            "burst": "seven topics, twice the rate from 30 s to the end at 91 s",
            "correlation": "0.9 among the topics that burst, known to placement; peer places everything on b1",
            "runs for oscillations": runs,
        },
        "summary": summary,
        "packing": _packing(drawn),
        "oscillations": oscillations,
        "oscillation_runs": runs,
        "seeds": values,
    }


def _one(variant: str, seed: int) -> dict[str, Any]:
    topics, burst = tables.draw(Random(f"e2.3/{seed}"))
    cluster = scenario(
        variant, topics, burst, seed=seed, correlation=bursting_together(burst), judge=variant != "random"
    )
    return {"seed": seed, "burst_fill": burst_fill(topics, burst), **outcome(cluster)}


def _oscillations(variant: str, seed: int) -> int:
    topics, burst = tables.draw(Random(f"e2.3/oscillations/{seed}"))
    return scenario(variant, topics, burst, seed=seed, judge=False, until=71.0).oscillations


def burst_fill(topics: dict[str, Topic], burst: list[str]) -> float:
    """How full all uplinks together are in the burst."""
    capacity = sum(spec.bandwidth for spec in tables.edges().values())
    return sum(tables.uplink_bits(t) * (2.0 if n in burst else 1.0) for n, t in topics.items()) / capacity


def _packing(drawn: list[tuple[dict[str, Topic], list[str]]]) -> dict[str, Any]:
    """How full the fullest uplink is in the burst: one by one, packed, and packed knowing what bursts."""
    found: dict[str, list[float]] = {"packed": [], "packed, correlation known": [], "mean of all uplinks": []}
    for topics, burst in drawn:
        edges = [
            Edge(name=name, uplink=spec.bandwidth, downlink=spec.bandwidth)
            for name, spec in tables.edges().items()
        ]
        calm = [_bundle(topic, 1.0) for topic in topics.values()]
        bursting = [_bundle(topic, 2.0 if name in burst else 1.0) for name, topic in topics.items()]
        found["packed"].append(worst_of(pack(calm, edges), bursting, edges))
        known = pack(calm, edges, bursting_together(burst))
        found["packed, correlation known"].append(worst_of(known, bursting, edges))
        total = sum(bundle.uplink_bits for bundle in bursting)
        found["mean of all uplinks"].append(total / sum(edge.uplink for edge in edges))
    return {name: summarise(each) for name, each in found.items()}


def _bundle(topic: Topic, factor: float) -> Bundle:
    rate = topic.publishers * topic.rate * topic.subscribers * factor
    return Bundle(
        topic=topic.name,
        subscribers=topic.subscribers,
        size_bytes=topic.size_bytes,
        budget=topic.latency,
        arriving=rate,
    )


def present(report: dict[str, Any]) -> Presentation:
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for row in report["summary"]:
        groups.setdefault(row.get("group", "all"), {})[row["variant"]] = row
    rows = groups["all"]
    fitting = groups.get("fitting", rows)

    def mean(variant: str, key: str, among: dict[str, dict[str, Any]] = rows) -> float:
        return float(among[variant][key]["mean"])

    def fits(variant: str, key: str) -> float:
        return mean(variant, key, fitting)

    page = Presentation()
    peer, paper, ours = "peer", "paper", "deadline"
    count = next(iter(fitting.values()))["draws"] if fitting else 0
    page.claims += [
        _fewer(
            "The published policy acts needlessly less often than PEER",
            paper,
            peer,
            "needless",
            mean,
            "fewer",
        ),
        _fewer(
            f"The published policy misses fewer deadlines than PEER, where the burst fits ({count} draws)",
            paper,
            peer,
            "missed",
            fits,
            "fewer",
            note="All draws: "
            + _misses(rows)
            + ". Bursts that fill the uplinks no more than the paper's own (95 %): "
            + _misses(fitting)
            + ". Where more is asked for than there is, nobody is in time; PEER then spreads the "
            "shortage over all edges by needless moves, which are free in the simulator.",
        ),
        Claim(
            text="The default misses fewer deadlines than the published policy, at no more actions",
            paper="–",
            ours=f"{mean(ours, 'missed'):,.0f} against {mean(paper, 'missed'):,.0f} missed, "
            f"{mean(ours, 'actions'):.2f} against {mean(paper, 'actions'):.2f} actions a run",
            verdict=Verdict.HOLDS
            if mean(ours, "missed") < mean(paper, "missed")
            and mean(ours, "actions") <= mean(paper, "actions")
            else Verdict.FAILS,
            short="E2.3, deadlines missed a run, published policy and default",
            is_headline=True,
        ),
        Claim(
            text=f"Nothing is moved back to where it came from, in {report['oscillation_runs']['deadline']:,} runs",
            paper="–",
            ours=", ".join(
                f"{name}: {count} in {report['oscillation_runs'][name]:,}"
                for name, count in report["oscillations"].items()
            ),
            verdict=Verdict.HOLDS if report["oscillations"]["deadline"] == 0 else Verdict.FAILS,
        ),
    ]
    keys = (
        "missed",
        "missed_critical",
        "actions",
        "needless",
        "actions_before",
        "moved",
        "oscillations",
        "over",
        "p99",
    )
    page.tables += [
        Table(
            title="Means a run, with 95 % intervals",
            head=["policy", "missed", "of them critical", "actions", "needless", "actions before", "clients moved",
                  "moved back", "s above 100 %", "p99 of wait over budget", "draws with misses"],
            rows=[
                [
                    name if group == "all" else f"{name}, fitting bursts",
                    *(show(row[key], "{:,.2f}") for key in keys),
                    f"{row['draws_with_misses']} of {row['draws']}",
                ]
                for group, part in groups.items()
                for name, row in part.items()
            ],
            note="Needless: nothing on the source would have been late before the end, had nothing been done.",
        ),
        Table(
            title="The fullest uplink in the burst, if all topics are placed at once",
            head=["layout", "utilisation"],
            rows=[[name, show(value, "{:.3f}")] for name, value in report["packing"].items()],
        ),
    ]  # fmt: skip
    return page


def _misses(rows: dict[str, dict[str, Any]]) -> str:
    names = ("peer", "peer, topics", "peer, subscriptions", "paper", "deadline")
    return ", ".join(f"{name} {rows[name]['missed']['mean']:,.0f}" for name in names if name in rows)


def _fewer(text: str, ours: str, theirs: str, key: str, mean: Any, paper: str, note: str = "") -> Claim:
    is_fewer = mean(ours, key) < mean(theirs, key)
    return Claim(
        text=text,
        paper=paper,
        ours=f"{mean(ours, key):,.2f} against {mean(theirs, key):,.2f} a run",
        verdict=Verdict.HOLDS if is_fewer else Verdict.DIFFERS if note else Verdict.FAILS,
        note=note,
    )


EXPERIMENT = Experiment(
    name="e2.3-draws",
    title="Random draws",
    question="Over many clusters: what is missed, what is moved, and how much of that for nothing?",
    run=run,
    present=present,
    parts=(Part.SIM,),
)
