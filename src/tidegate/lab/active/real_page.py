"""What is said about E3.6."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.lab.active.variants import ACTIVE, LEVEL_2, LEVEL_3
from tidegate.lab.experiment import Claim, Figure, Presentation, Table, Verdict
from tidegate.lab.statistics import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

HEAD = [
    "clients, level",
    "requests/s",
    "drops %",
    "p50 ms",
    "p99 ms",
    "peak/mean",
    "dispersion",
    "staleness s",
    "missed %",
    "fairness",
    "requests/s in the slow time",
]
Rows = dict[tuple[str, int, str], dict[str, Any]]


def present(report: dict[str, Any]) -> Presentation:
    rows: Rows = {(row["workload"], row["m"], row["variant"]): row for row in report["summary"]}
    page = Presentation()
    largest = max((m for _, m, _ in rows), default=0)
    page.claims += _slides(rows, largest)
    page.claims += _slowed(rows, largest)
    for workload in sorted({workload for workload, _, _ in rows}):
        page.tables.append(
            Table(
                title=f"Over sockets, workload {workload}",
                head=HEAD,
                rows=[
                    [f"{m}, {name}", *_cells(row)] for (of, m, name), row in rows.items() if of == workload
                ],
                note="A drop is a refusal of the space (its queue is full) or an answer beyond the client's "
                "patience.",
            )
        )
    names = [name for workload, m, name in rows if (workload, m) == ("A", largest)]
    if names:
        page.figures.append(
            Figure(
                name="levels",
                text=f"over sockets, workload A, {largest} clients: drops, peak to mean and staleness of each level",
                draw=lambda canvas: _draw(canvas, [rows["A", largest, name] for name in names], names),
            )
        )
    return page


def _draw(canvas: Canvas, rows: list[dict[str, Any]], names: list[str]) -> None:
    axes = canvas.subplots(1, 3, sharey=True)
    for place, (key, title, scale) in zip(
        axes,
        (
            ("drop_rate", "drops, %", 100.0),
            ("peak_to_mean", "peak to mean", 1.0),
            ("staleness", "staleness, s", 1.0),
        ),
        strict=True,
    ):
        place.barh(range(len(names)), [scale * (row[key]["mean"] or 0.0) for row in rows])
        place.set_yticks(range(len(names)), names)
        place.set_xlabel(title)
    axes[0].invert_yaxis()


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        show(row["rate"], "{:.1f}"),
        show(row["drop_rate"], "{:.1f}", 100.0),
        show(row["p50"], "{:.0f}", 1e3),
        show(row["p99"], "{:.0f}", 1e3),
        show(row["peak_to_mean"], "{:.1f}"),
        show(row["dispersion"], "{:.1f}"),
        show(row["staleness"], "{:.2f}"),
        show(row["missed"], "{:.1f}", 100.0),
        show(row["fairness"], "{:.3f}"),
        show(row["rate_slow"], "{:.1f}"),
    ]


def _slides(rows: Rows, m: int) -> list[Claim]:
    found = [rows.get(("A", m, name)) for name in (ACTIVE, LEVEL_2, LEVEL_3)]
    ours, level_2, level_3 = found
    if ours is None or level_2 is None or level_3 is None:
        return []
    return [
        Claim(
            text=f"Over sockets, A, {m} clients: the product's drops are at most a tenth of level 2's",
            paper="–",
            ours=f"{show(ours['drops'], '{:.0f}')} against {show(level_2['drops'], '{:.0f}')}",
            verdict=_holds(ours["drops"]["mean"] <= 0.1 * level_2["drops"]["mean"]),
        ),
        Claim(
            text=f"Over sockets, A, {m} clients: its peak-to-mean is at most half of level 2's",
            paper="–",
            ours=f"{show(ours['peak_to_mean'], '{:.1f}')} against {show(level_2['peak_to_mean'], '{:.1f}')}",
            verdict=_holds(ours["peak_to_mean"]["mean"] <= 0.5 * level_2["peak_to_mean"]["mean"]),
        ),
        Claim(
            text=f"Over sockets, A, {m} clients: its staleness is no worse than level 3's",
            paper="–",
            ours=f"{show(ours['staleness'], '{:.2f}')} s against {show(level_3['staleness'], '{:.2f}')} s",
            verdict=_holds(ours["staleness"]["mean"] <= level_3["staleness"]["mean"]),
        ),
    ]


def _slowed(rows: Rows, m: int) -> list[Claim]:
    """C against B: the same updates, and the capacity left alone."""
    slowed, whole = rows.get(("C", m, ACTIVE)), rows.get(("B", m, ACTIVE))
    if slowed is None or whole is None:
        return []
    return [
        Claim(
            text=f"Over sockets, C, {m} clients: the product's requests do not rise when the capacity halves",
            paper="–",
            ours=f"{show(slowed['rate_slow'], '{:.1f}')} requests/s in the slow time, "
            f"{show(whole['rate_slow'], '{:.1f}')} without it",
            verdict=_holds(slowed["rate_slow"]["mean"] <= whole["rate_slow"]["mean"]),
        )
    ]


def _holds(is_so: bool) -> Verdict:
    return Verdict.HOLDS if is_so else Verdict.FAILS
