"""What is said about E5.5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.lab.experiment import Claim, Figure, Presentation, Table, Verdict
from tidegate.lab.shared.comparison_page import PLACES, machine_table, ms
from tidegate.lab.shared.variants import OURS, OURS_FIXED, OURS_PAHO, THESIS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

VARIANTS = (THESIS, OURS_FIXED, OURS, OURS_PAHO)

Row = dict[str, Any]


def _of(rows: list[Row], where: str, variant: str) -> list[Row]:
    found = [row for row in rows if row["where"] == where and row["variant"] == variant]
    return sorted(found, key=lambda row: row["interval"])


def is_dominated(row: Row, others: list[Row]) -> bool:
    """Whether one of the others is better in one respect and not worse in the other."""
    return any(
        other["mean"] <= row["mean"]
        and other["control_bytes"] <= row["control_bytes"]
        and (other["mean"] < row["mean"] or other["control_bytes"] < row["control_bytes"])
        for other in others
    )


def present(report: dict[str, Any]) -> Presentation:
    rows: list[Row] = report["summary"]
    page = Presentation()
    for where, place in PLACES.items():
        thesis, ours = _of(rows, where, THESIS.name), _of(rows, where, OURS.name)
        if not thesis:
            continue
        page.claims += _claims(thesis, ours, place)
        page.tables.append(_table(rows, where))
    page.figures.append(
        Figure(
            name="pareto",
            text="Mean wait over control bytes in 15 s: thesis and earliest finish, fixed and event-driven reports",
            draw=lambda canvas: _draw(canvas, rows),
        )
    )
    if report["rounds"]:
        page.tables.append(machine_table(report["rounds"]))
    return page


def _claims(thesis: list[Row], ours: list[Row], place: str) -> list[Claim]:
    of_interval = {row["interval"]: row for row in ours}
    pairs = [(row, of_interval[row["interval"]]) for row in thesis]
    dominated = [row for row in thesis if is_dominated(row, ours)]
    best = min(thesis, key=lambda row: row["mean"])
    cheapest = min(ours, key=lambda row: row["control_bytes"])
    return [
        Claim(
            text=f"E5.5 {place}: earliest finish waits less than the thesis's rule at every interval",
            paper=", ".join(f"{ms(row['mean'])} ({row['interval']:g} s)" for row in thesis)
            + " (its rule, here)",
            ours=", ".join(f"{ms(row['mean'])} ({row['interval']:g} s)" for row in ours),
            verdict=Verdict.HOLDS if all(b["mean"] < a["mean"] for a, b in pairs) else Verdict.FAILS,
        ),
        Claim(
            text=f"E5.5 {place}: for every fixed interval of the thesis's reports there are event-driven ones with "
            "fewer bytes and less wait",
            paper=f"best {ms(best['mean'])} ms for {best['control_bytes']:,.0f} bytes",
            ours=f"{len(dominated)} of {len(thesis)}; {ms(cheapest['mean'])} ms for "
            f"{cheapest['control_bytes']:,.0f} bytes",
            verdict=Verdict.HOLDS if len(dominated) == len(thesis) else Verdict.FAILS,
        ),
    ]


def _table(rows: list[Row], where: str) -> Table:
    lines = []
    for variant in VARIANTS:
        for row in _of(rows, where, variant.name):
            every = "–" if variant is OURS_PAHO else f"{row['interval']:g}"
            lines.append(
                [
                    variant.name,
                    every,
                    ms(row["mean"]),
                    ms(row["worst"]),
                    f"{row['control_bytes']:,.0f}",
                    f"{1e3 * row['mean'] / row['control_bytes']:.3f}",
                ]
            )
    return Table(
        title=f"E5.5, {PLACES[where]}",
        head=["rule and reports", "interval, s", "mean, ms", "worst phase", "bytes", "µs of wait per byte"],
        rows=lines,
    )


def _draw(canvas: Canvas, rows: list[Row]) -> None:
    canvas.set_size_inches(10.0, 4.5)
    places = [where for where in PLACES if _of(rows, where, THESIS.name)]
    every = canvas.subplots(1, len(places), sharey=True, squeeze=False)[0]
    for axes, where in zip(every, places, strict=True):
        for variant in VARIANTS:
            found = _of(rows, where, variant.name)
            axes.plot(
                [row["control_bytes"] for row in found],
                [row["mean"] for row in found],
                marker="o",
                label=variant.name,
            )
            for row in found if variant is THESIS else ():
                axes.annotate(
                    f" {row['interval']:g} s", (row["control_bytes"], row["mean"]), fontsize=8, va="bottom"
                )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"E5.5, {PLACES[where]}")
        axes.set_xlabel("bytes of reports and answers, all members")
    every[0].set_ylabel("mean wait, ms")
    every[-1].legend()
