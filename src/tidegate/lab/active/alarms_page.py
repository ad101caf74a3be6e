"""What is said about E3.4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.lab.active.pairs import below, bounds
from tidegate.lab.experiment import Claim, Figure, Presentation, Table, Verdict
from tidegate.lab.statistics import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

ROBUST, LIGHT = "robust (product)", "light, θ = 1"


def present(report: dict[str, Any]) -> Presentation:
    page = Presentation()
    half = [row for row in report["summary"] if row["utilisation"] == 0.5]
    for row in half:
        page.claims.append(
            Claim(
                text=f"False alarms at utilisation 0.5, {row['service']} service: at most 5 %",
                paper="37 to 50 % by its own test (our reading)",
                ours=f"{show(row[ROBUST], '{:.1f}', 100.0)} % ; light test {show(row[LIGHT], '{:.1f}', 100.0)} %",
                verdict=below(row[ROBUST], 0.05),
                short="False congestion alarms at utilisation 0.5: the paper's light test, active"
                if row["service"] == "exponential"
                else "",
            )
        )
    for row in report["overload"]:
        low, high = bounds(row["share"])
        page.claims.append(
            Claim(
                text=f"Share of seconds with {row['n']} requests or more, m = {row['m']}, τ = {row['tau']:g} s"
                + (f", back-off {row['backoff']:g} s" if row["backoff"] else ""),
                paper=f"tail formula {row['formula']:.5f}",
                ours=show(row["share"], "{:.5f}"),
                verdict=Verdict.HOLDS if low <= row["formula"] <= high else Verdict.FAILS,
            )
        )
    tests = [name for name in report["summary"][0] if name not in ("utilisation", "service")]
    page.tables.append(
        Table(
            title="Alarms, % of checks, while nothing is wrong",
            head=["utilisation, service", *tests],
            rows=[
                [
                    f"{row['utilisation']:g}, {row['service']}",
                    *(show(row[name], "{:.1f}", 100.0) for name in tests),
                ]
                for row in report["summary"]
            ],
            note="The mediate level knows the SIB's queue limit and so never errs here; it needs the SIB's help.",
        )
    )
    page.tables.append(
        Table(
            title="Seconds from the halving of capacity (utilisation 0.7 becomes 1.4) until half the probes noticed",
            head=["service", *tests],
            rows=[
                [row["service"], *(show(row[name], "{:.1f}") for name in tests)]
                for row in report["detection"]
            ],
            note="A test that alarms all the time notices at once, and means nothing.",
        )
    )
    page.figures.append(
        Figure(
            name="alarms",
            text="share of checks that alarm while nothing is wrong, by utilisation, exponential service",
            draw=lambda canvas: _draw(canvas, report, tests),
        )
    )
    return page


def _draw(canvas: Canvas, report: dict[str, Any], tests: list[str]) -> None:
    axes = canvas.subplots()
    rows = [row for row in report["summary"] if row["service"] == "exponential"]
    width = 0.8 / len(tests)
    for place, name in enumerate(tests):
        at = [number + width * (place - (len(tests) - 1) / 2) for number in range(len(rows))]
        axes.bar(at, [100.0 * row[name]["mean"] for row in rows], width, label=name)
    axes.axhline(5.0, color="grey", linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(rows)), [f"{row['utilisation']:g}" for row in rows])
    axes.set_xlabel("utilisation of the SIB")
    axes.set_ylabel("false alarms, % of checks")
    canvas.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=5)
