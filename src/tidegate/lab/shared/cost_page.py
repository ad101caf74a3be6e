"""What is said about E5.7."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.lab.experiment import Claim, Figure, Presentation, Table, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LIMIT = 2.0
OURS = "earliest_finish"

Costs = dict[tuple[str, str], dict[int, float]]


def present(report: dict[str, Any]) -> Presentation:
    page = Presentation()
    costs: Costs = {}
    for row in report["summary"]:
        costs.setdefault((row["policy"], row["signal"]), {})[row["members"]] = row["best_ns"]
    if costs:
        page.claims += _claims(costs)
        page.tables.append(_table(report["summary"]))
        page.figures.append(
            Figure(
                name="cost",
                text="Nanoseconds for a choice over the number of members, six rules",
                draw=lambda canvas: _draw(canvas, costs),
            )
        )
    if report["real"]:
        page.tables.append(_real_table(report["real"]))
    return page


def _claims(costs: Costs) -> list[Claim]:
    claims = []
    for signal in ("reports", "acknowledgements"):
        ours, thesis = costs[OURS, signal], costs["thesis", "reports"]
        ratio = ours[1000] / ours[3]
        claims.append(
            Claim(
                text=f"E5.7: a choice among 1000 members ({signal}) costs at most {LIMIT:g} times one among three",
                paper=f"not measured; its rule, here: {thesis[1000] / thesis[3]:.0f} times "
                f"({thesis[3] / 1e3:.2f} to {thesis[1000] / 1e3:.0f} µs)",
                ours=f"{ratio:.2f} times ({ours[3] / 1e3:.2f} to {ours[1000] / 1e3:.2f} µs)",
                verdict=Verdict.HOLDS if ratio <= LIMIT else Verdict.FAILS,
                short="A choice among 1000 members over one among three, processor time"
                if signal == "reports"
                else "",
            )
        )
    return claims


def _table(rows: list[dict[str, Any]]) -> Table:
    sizes = sorted({row["members"] for row in rows})
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["policy"], row["signal"]), {})[row["members"]] = row
    return Table(
        title="Choosing and telling the member, ns: best (median)",
        head=["rule, signal", *(f"{size} members" for size in sizes), "1000 over 3"],
        rows=[
            [
                f"{policy}, {signal}",
                *(f"{of[size]['best_ns']:,.0f} ({of[size]['median_ns']:,.0f})" for size in sizes),
                f"{of[sizes[-1]]['best_ns'] / of[sizes[0]]['best_ns']:.2f}",
            ]
            for (policy, signal), of in found.items()
        ],
        note="With acknowledgements the end of the message is part of it: `on_sent` and `on_done`.",
    )


def _real_table(rows: list[dict[str, Any]]) -> Table:
    best: dict[tuple[str, int], float] = {}
    for row in rows:
        key = (row["policy"], row["members"])
        best[key] = min(row["us"], best.get(key, row["us"]))
    sizes = sorted({size for _, size in best})
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    return Table(
        title="The broker's processor time for a message, µs",
        head=["rule", *(f"{size} members" for size in sizes)],
        rows=[[policy, *(f"{best[policy, size]:.1f}" for size in sizes)] for policy in policies],
        note="All of it, from reading to writing; the better of two runs. Writes that several messages share become "
        f"rare as members become many, whatever the rule. Stolen at most {max(row['steal'] for row in rows):.1%}, lost "
        f"{sum(row['lost'] for row in rows)}.",
    )


def _draw(canvas: Canvas, costs: Costs) -> None:
    axes = canvas.subplots()
    for (policy, signal), of in costs.items():
        style = "--" if signal == "acknowledgements" else "-"
        axes.plot(list(of), list(of.values()), style, marker="o", label=f"{policy}, {signal}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("members")
    axes.set_ylabel("ns a choice")
    axes.legend()
