"""What is said about E3.6."""

from __future__ import annotations

from typing import Any

from tidegate.lab.active.variants import ACTIVE, LEVEL_2, LEVEL_3
from tidegate.lab.experiment import Claim, Presentation, Table, Verdict
from tidegate.lab.statistics import show


def present(report: dict[str, Any]) -> Presentation:
    rows = {(row["m"], row["variant"]): row for row in report["summary"]}
    page = Presentation()
    largest = max((m for m, _ in rows), default=0)
    if (largest, ACTIVE) in rows:
        ours, level_2, level_3 = rows[largest, ACTIVE], rows[largest, LEVEL_2], rows[largest, LEVEL_3]
        page.claims += [
            Claim(
                text=f"Over sockets, {largest} clients: the product's drops are at most a tenth of level 2's",
                paper="–",
                ours=f"{show(ours['drops'], '{:.0f}')} against {show(level_2['drops'], '{:.0f}')}",
                verdict=_holds(ours["drops"]["mean"] <= 0.1 * level_2["drops"]["mean"]),
            ),
            Claim(
                text=f"Over sockets, {largest} clients: its peak-to-mean is at most half of level 2's",
                paper="–",
                ours=f"{show(ours['peak_to_mean'], '{:.1f}')} against {show(level_2['peak_to_mean'], '{:.1f}')}",
                verdict=_holds(ours["peak_to_mean"]["mean"] <= 0.5 * level_2["peak_to_mean"]["mean"]),
            ),
            Claim(
                text=f"Over sockets, {largest} clients: its staleness is no worse than level 3's",
                paper="–",
                ours=f"{show(ours['staleness'], '{:.2f}')} s against {show(level_3['staleness'], '{:.2f}')} s",
                verdict=_holds(ours["staleness"]["mean"] <= level_3["staleness"]["mean"]),
            ),
        ]
    page.tables.append(
        Table(
            title="Over sockets",
            head=[
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
            ],
            rows=[
                [
                    f"{m}, {name}",
                    show(row["rate"], "{:.1f}"),
                    show(row["drop_rate"], "{:.1f}", 100.0),
                    show(row["p50"], "{:.0f}", 1e3),
                    show(row["p99"], "{:.0f}", 1e3),
                    show(row["peak_to_mean"], "{:.1f}"),
                    show(row["dispersion"], "{:.1f}"),
                    show(row["staleness"], "{:.2f}"),
                    show(row["missed"], "{:.1f}", 100.0),
                    show(row["fairness"], "{:.3f}"),
                ]
                for (m, name), row in rows.items()
            ],
            note="A drop is a refusal of the space (its queue is full) or an answer beyond the client's patience.",
        )
    )
    return page


def _holds(is_so: bool) -> Verdict:
    return Verdict.HOLDS if is_so else Verdict.FAILS
