"""What decisions cost as a cluster grows, up to 1 000 edges and 1 000 000 subscribers."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any

from tidegate.flow.balance import Bundle, DeadlineBalance, Edge, Metric, PaperBalance
from tidegate.flow.placement import Spread, unrelated
from tidegate.lab.experiment import Claim, Context, Experiment, Figure, Part, Presentation, Table, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SIZES = ((10, 10_000), (30, 30_000), (100, 100_000), (300, 300_000), (1_000, 1_000_000))
PER_BUNDLE = 10  # subscribers of a topic
REPEATS = 5
LOOK = 1.0  # seconds that all decisions of one look may take


def make(edges: int, subscribers: int, random: Random) -> list[Edge]:
    """A cluster 70 % full, one edge of which is a tenth too full."""
    per_edge = max(1, subscribers // PER_BUNDLE // edges)
    found = []
    for number in range(edges):
        bundles: dict[str, Bundle] = {}
        for topic in range(per_edge):
            name = f"t{number}-{topic}"
            rate = random.uniform(50, 150)
            budget = random.choice((0.5, 1.0, 40.0))
            bundles[name] = Bundle(
                topic=name,
                subscribers=PER_BUNDLE,
                size_bytes=300,
                budget=budget,
                arriving=rate,
                leaving=rate,
            )
        load = sum(bundle.uplink_bits for bundle in bundles.values())
        capacity = load / (1.1 if number == 0 else random.uniform(0.6, 0.8))
        found.append(Edge(name=f"e{number:04}", uplink=capacity, downlink=capacity, bundles=bundles))
    worst = max(found[0].bundles.values(), key=lambda bundle: (bundle.uplink_bits, -bundle.budget))
    worst.budget = 0.5
    worst.leaving = worst.arriving * 0.5
    worst.depth = worst.arriving * 0.3
    return found


def _timed(work: Any) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def measure(edges: int, subscribers: int, seed: int) -> dict[str, Any]:
    """Seconds of one look at all edges, of one selection, and of placing one client."""
    random = Random(f"scale/{seed}/{edges}")
    views = make(edges, subscribers, random)
    row: dict[str, Any] = {
        "edges": edges,
        "subscribers": subscribers,
        "bundles": sum(len(v.bundles) for v in views),
    }
    for name, policy in (("paper", PaperBalance()), ("deadline", DeadlineBalance())):
        row[f"{name}_look"] = _timed(lambda p=policy: [p.trigger(view, 0.0) for view in views])
        helpers = [view for view in views[1:] if policy.may_help(view, 0.0)]
        metric = policy.trigger(views[0], 0.0) or Metric.QUEUE
        row[f"{name}_select"] = _timed(
            lambda p=policy, h=helpers, m=metric: p.select(views[0], h, m, 0.0, random)
        )
        row[f"{name}_moves"] = len(policy.select(views[0], helpers, metric, 0.0, random).moves)
    newcomer = Bundle(topic="new", subscribers=1, size_bytes=300, budget=1.0, arriving=10.0)
    placement = Spread()
    row["place"] = _timed(lambda: placement.place(newcomer, views, unrelated, random))
    return row


def run(context: Context) -> dict[str, Any]:
    sizes = SIZES[:2] if context.is_quick else SIZES
    rows = [measure(edges, subscribers, 1) for edges, subscribers in context.follow("e2.7 sizes", sizes)]
    return {
        "parameters": {
            "cluster": f"topics of {PER_BUNDLE} subscribers, edges 60 to 80 % full, one of them a tenth too full",
            "time": f"best of {REPEATS}, one core",
        },
        "summary": rows,
    }


def present(report: dict[str, Any]) -> Presentation:
    rows = report["summary"]
    last = rows[-1]
    page = Presentation()
    slowest = last["deadline_look"] + last["deadline_select"]
    page.claims.append(
        Claim(
            text=f"One look at {last['edges']:,} edges with {last['subscribers']:,} subscribers is decided on within a "
            "second",
            paper="–",
            ours=f"{slowest * 1e3:.0f} ms on one core; in a cluster each edge looks at itself alone",
            verdict=Verdict.HOLDS if slowest < LOOK else Verdict.FAILS,
            short="Cost of one look at the largest cluster",
        )
    )
    page.tables.append(
        Table(
            title="Milliseconds",
            head=[
                "edges, subscribers",
                "paper: look",
                "paper: select",
                "default: look",
                "default: select",
                "place one",
            ],
            rows=[
                [
                    f"{row['edges']:,}, {row['subscribers']:,}",
                    *(
                        f"{row[key] * 1e3:.2f}"
                        for key in ("paper_look", "paper_select", "deadline_look", "deadline_select", "place")
                    ),
                ]
                for row in rows
            ],
        )
    )
    page.figures.append(
        Figure(
            name="cost", text="Cost of decisions over subscribers", draw=lambda canvas: _draw(canvas, rows)
        )
    )
    return page


def _draw(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    axes = canvas.subplots()
    for key, label in (
        ("paper_look", "paper, look"),
        ("paper_select", "paper, select"),
        ("deadline_look", "default, look"),
        ("deadline_select", "default, select"),
        ("place", "place one client"),
    ):
        axes.plot([row["subscribers"] for row in rows], [row[key] * 1e3 for row in rows], "o-", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("subscribers")
    axes.set_ylabel("ms")
    axes.legend()


EXPERIMENT = Experiment(
    name="e2.7-scale",
    title="Cost of decisions",
    question="What do decisions cost with up to 1 000 edges and 1 000 000 subscribers?",
    run=run,
    present=present,
    parts=(Part.SIM,),
)
