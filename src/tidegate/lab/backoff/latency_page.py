"""What is said about E1.3. The paper gives an order only: its largest latency with priority is the smallest without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.lab.backoff.latency_sim import FAST, PATIENCE, SERVICE
from tidegate.lab.experiment import Claim, Figure, Presentation, Table, Verdict
from tidegate.lab.statistics import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

FIFO, STRICT, AGEING = "first come", "strict (paper)", "ageing"
POLICIES = (FIFO, STRICT, AGEING)
# The patience, one round of all senders, and the service in progress; what a lane can cost at most.
BOUND = PATIENCE + (FAST + 1) * SERVICE

Rows = dict[tuple[str, float, str], dict[str, Any]]


def _ms(summary: dict[str, Any] | None) -> str:
    return show(summary, "{:.1f}", 1e3)


def present(report: dict[str, Any]) -> Presentation:
    rows: Rows = {(row["model"], row["utilisation"], row["policy"]): row for row in report["summary"]}
    page = Presentation()
    if rows:
        page.claims += _claims(rows)
        page.tables += [_table(rows, model) for model in ("queue", "lanes")]
        page.figures.append(
            Figure(
                name="waits",
                text="99th percentile of the rare sender and longest wait of the last rank over utilisation",
                draw=lambda canvas: _draw(canvas, rows),
            )
        )
    if report["real"]:
        page.claims += _real_claims(report["real"])
        page.tables.append(_real_table(report["real"]))
    return page


def _claims(rows: Rows) -> list[Claim]:
    busy = [(model, load) for model, load, policy in rows if policy == FIFO and load <= 0.95]
    over = {load for model, load, policy in rows if model == "lanes" and load >= 1.1}
    distance = max(
        rows[m, u, STRICT]["rare_max"]["max"] - rows[m, u, FIFO]["rare_min"]["min"] for m, u in busy
    )
    excess = {
        u: rows["lanes", u, STRICT]["rare_max"]["max"] - rows["lanes", u, FIFO]["rare_min"]["min"]
        for u in over
    }
    holds_at = ", ".join(f"{u:g}" for u, value in sorted(excess.items()) if value <= 0) or "none"
    p99 = {u: _ratio(rows, "lanes", u) for model, u, policy in rows if model == "lanes" and policy == FIFO}
    p99_queue = {
        u: _ratio(rows, "queue", u) for model, u, policy in rows if model == "queue" and policy == FIFO
    }
    longest = max(rows["lanes", u, AGEING]["last_max"]["max"] for u in p99)
    strict = max(rows["lanes", u, STRICT]["last_max"]["max"] for u in p99)
    gain = rows["queue", 0.95, FIFO]["rare_p99"]["mean"] / rows["queue", 0.95, STRICT]["rare_p99"]["mean"]
    return [
        Claim(
            text="The longest latency with priority is at most the shortest without, at utilisation 0.9 to 0.95",
            paper="max (priority) = min (original)",
            ours=f"max is {distance * 1e3:.1f} ms longer than min, at a service time of {SERVICE * 1e3:g} ms",
            verdict=Verdict.HOLDS if distance <= 0 else Verdict.FAILS,
            note="A broker that is idle one moment in ten serves somebody at once, whatever the order; and a message "
            "with priority waits for the service in progress. So the paper's order needs a broker that is never idle: "
            f"with lanes it holds at utilisation {holds_at}.",
        ),
        Claim(
            text="Priority shortens the rare sender's 99th percentile (queue, utilisation 0.95)",
            paper="shorter, by how much is not stated",
            ours=f"{gain:.0f} times shorter ({_ms(rows['queue', 0.95, FIFO]['rare_p99'])} ms to "
            f"{_ms(rows['queue', 0.95, STRICT]['rare_p99'])} ms)",
            verdict=Verdict.HOLDS if gain > 1 else Verdict.FAILS,
            short="p99 of a rare sender at utilisation 0.95, with priority",
        ),
        Claim(
            text="Ageing keeps rank 1 within 10 % of strict priority's p99, utilisation 0.9 to 1.2, in lanes",
            paper="–",
            ours=", ".join(f"{value - 1:+.1%} ({u:g})" for u, value in sorted(p99.items())),
            verdict=Verdict.HOLDS if max(p99.values()) <= 1.1 else Verdict.FAILS,
        ),
        Claim(
            text="The same in an unbounded queue",
            paper="–",
            ours=", ".join(f"{value - 1:+.1%} ({u:g})" for u, value in sorted(p99_queue.items())),
            verdict=Verdict.HOLDS if max(p99_queue.values()) <= 1.1 else Verdict.FAILS,
            note="In a queue without a bound and more work than time, the backlog grows older than any patience, and "
            "then ageing is first come, first served. The node has lanes for that reason.",
        ),
        Claim(
            text="Nobody starves: the longest wait of the last rank is bounded, utilisation up to 1.2, in lanes",
            paper="the last rank starves under strict priority (not discussed)",
            ours=f"{longest:.2f} s with ageing, {strict:.1f} s with strict priority; bound {BOUND:.2f} s",
            verdict=Verdict.HOLDS if longest <= BOUND else Verdict.FAILS,
            short="Longest wait of the last rank, strict and ageing",
        ),
    ]


def _ratio(rows: Rows, model: str, utilisation: float) -> float:
    ours, strict = rows[model, utilisation, AGEING], rows[model, utilisation, STRICT]
    return float(ours["rare_p99"]["mean"] / strict["rare_p99"]["mean"])


def _table(rows: Rows, model: str) -> Table:
    cells = []
    for (name, utilisation, policy), row in rows.items():
        if name != model:
            continue
        # Of a queue with random arrivals and constant service (Pollaczek and Khinchine).
        theory = "–"
        if model == "queue" and policy == FIFO and utilisation < 1.0:
            theory = f"{(SERVICE + utilisation * SERVICE / (2 * (1 - utilisation))) * 1e3:.1f}"
        cells.append(
            [
                f"{utilisation:g}, {policy}",
                show(row["busy"], "{:.3f}"),
                _ms(row["mean"]),
                theory,
                *(
                    _ms(row[key])
                    for key in ("rare_min", "rare_p50", "rare_p99", "rare_max", "last_p99", "last_max")
                ),
                show(row["oldest"], "{:.2f}"),
            ]
        )
    head = [
        "utilisation, order",
        "busy",
        "mean, all",
        "theory",
        "rare min",
        "rare p50",
        "rare p99",
        "rare max",
    ]
    return Table(
        title=f"Simulated, {model}: from arrival to the end of service, ms",
        head=[*head, "last p99", "last max", "oldest unserved at the end, s"],
        rows=cells,
        note="Smallest and largest are means of each seed's. `last`: the fastest sender, which has the last rank.",
    )


def _real_claims(real: list[dict[str, Any]]) -> list[Claim]:
    rows = {row["broker"]: row for row in real}
    longest, shortest = rows["ageing"]["max"]["max"], rows["off"]["min"]["min"]
    kept = ", ".join(f"{name} {row['kept']} of {row['measured']}" for name, row in rows.items())
    p99 = {name: row["p99"] for name, row in rows.items()}
    # Shorter only if the intervals of the two do not meet.
    gap = p99["off"]["mean"] - p99["ageing"]["mean"]
    is_shorter = gap > (p99["off"]["half_width"] or 0.0) + (p99["ageing"]["half_width"] or 0.0)
    return [
        Claim(
            text="Over sockets as well: the longest latency with ageing is at most the shortest without priority",
            paper="max (priority) = min (original)",
            ours=f"max {longest * 1e3:.2f} ms, min {shortest * 1e3:.2f} ms",
            verdict=Verdict.HOLDS if longest <= shortest else Verdict.FAILS,
        ),
        Claim(
            text="Over sockets, priority shortens the rare sender's 99th percentile",
            paper="shorter, by how much is not stated",
            ours=f"p99 off {_ms(p99['off'])} ms, strict {_ms(p99['paper'])} ms, ageing {_ms(p99['ageing'])} ms; "
            f"Mosquitto {_ms(p99['Mosquitto'])} ms",
            verdict=Verdict.HOLDS if is_shorter else Verdict.FAILS,
            note="A message costs a real broker some tens of microseconds, and what was routed in one turn of the loop "
            "leaves together at its end; so a rare sender waits for turns and for the machine, and its place within a "
            f"turn changes little. Measurements at the right utilisation: {kept}. Each broker has its own rate, and "
            "batching makes the same utilisation worth very different rates.",
        ),
    ]


def _real_table(real: list[dict[str, Any]]) -> Table:
    return Table(
        title="Over sockets: latency of the rare sender, ms",
        head=["broker", "utilisation", "fast msg/s", "min", "p50", "p99", "max", "taken by others", "lost"],
        rows=[
            [
                row["broker"],
                show(row["utilisation"], "{:.3f}"),
                show(row["rate"], "{:,.0f}"),
                *(show(row[key], "{:.2f}", 1e3) for key in ("min", "p50", "p99", "max")),
                show(row["others"], "{:.1%}"),
                show(row["lost"], "{:.1f}"),
            ]
            for row in real
        ],
        note="Each at its own rate, the one that keeps it 0.9 to 0.95 busy. `taken by others`: of the time, the broker "
        "was ready to run and another process had its processor.",
    )


def _draw(canvas: Canvas, rows: Rows) -> None:
    left, right = canvas.subplots(1, 2)
    loads = sorted({load for _, load, _ in rows})
    for axes, key, title in (
        (left, "rare_p99", "rare sender, p99, ms"),
        (right, "last_max", "last rank, longest wait, ms"),
    ):
        for policy, colour in zip(POLICIES, ("C0", "C1", "C2"), strict=True):
            for model, style in (("lanes", "o-"), ("queue", "x:")):
                # A sender that is served once in the whole time has no longest wait worth the name.
                points = [
                    (load, rows[model, load, policy][key]["mean"] * 1e3)
                    for load in loads
                    if rows[model, load, policy][key]["mean"] is not None
                    and not (key == "last_max" and policy == STRICT and model == "queue" and load > 1.0)
                ]
                axes.plot(
                    *zip(*points, strict=True), style, color=colour, label=f"{policy}, {model}", markersize=4
                )
        axes.set_yscale("log")
        axes.set_xticks(loads, [f"{load:g}" for load in loads], rotation=45)
        axes.set_xlabel("utilisation")
        axes.set_ylabel(title)
    canvas.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
