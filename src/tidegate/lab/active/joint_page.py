"""What is said about E3.5."""

from __future__ import annotations

from typing import Any

from tidegate.lab.active.pairs import below, bounds, text
from tidegate.lab.active.variants import ACTIVE
from tidegate.lab.experiment import Claim, Presentation, Table, Verdict
from tidegate.lab.statistics import show, summarise


def present(report: dict[str, Any]) -> Presentation:
    rows = {(row["workload"], row["variant"], row["gate"], row["rogues"]): row for row in report["summary"]}
    values = {
        (row["workload"], row["variant"], row["gate"], row["rogues"]): row["values"]
        for row in report["seeds"]
    }
    page = Presentation()
    for workload in ("A", "C"):
        gated, free = values[workload, ACTIVE, True, False], values[workload, ACTIVE, False, False]
        row = rows[workload, ACTIVE, True, False]
        swing = summarise(a - b for a, b in zip(gated["swing"], free["swing"], strict=True))
        stale = summarise(a - b for a, b in zip(gated["staleness"], free["staleness"], strict=True))
        page.claims += [
            Claim(
                text=f"Workload {workload}: the broker's back-off holds at most 5 % of the requests of active clients",
                paper="–",
                ours=f"{show(row['held'], '{:.2f}', 100.0)} % held, {show(row['hold'], '{:.1f}', 1e3)} ms on average",
                verdict=below(row["held"], 0.05),
            ),
            Claim(
                text=f"Workload {workload}: with both controls, requests swing no more than with the client's alone",
                paper="–",
                ours=f"autocorrelation {text(swing, '{:+.3f}')} (at most +0.05), staleness {text(stale, '{:+.2f}')} s",
                verdict=below(swing, 0.05),
            ),
        ]
    rogue = rows["A", ACTIVE, True, True]
    low, _ = bounds(rogue["rogue_held"])
    page.claims.append(
        Claim(
            text="Rogues among them are held, the others are not",
            paper="–",
            ours=f"{show(rogue['rogue_held'], '{:.0f}', 100.0)} % of the rogues' requests, "
            f"{show(rogue['held'], '{:.2f}', 100.0)} % of the others'",
            verdict=Verdict.HOLDS if low > 0.5 else Verdict.FAILS,
        )
    )
    page.tables.append(
        Table(
            title="m = 100",
            head=[
                "workload, level",
                "gate",
                "rogues",
                "requests/s",
                "drops %",
                "staleness s",
                "p99 ms",
                "dispersion",
                "swing",
                "held %",
                "hold ms",
                "rogues held %",
            ],
            rows=[
                [
                    f"{workload}, {name}",
                    "yes" if gate else "no",
                    "yes" if rogues else "no",
                    show(row["rate"], "{:.1f}"),
                    show(row["drop_rate"], "{:.2f}", 100.0),
                    show(row["staleness"], "{:.2f}"),
                    show(row["p99"], "{:.0f}", 1e3),
                    show(row["dispersion"], "{:.2f}"),
                    show(row["swing"], "{:.2f}"),
                    show(row["held"], "{:.2f}", 100.0),
                    show(row["hold"], "{:.1f}", 1e3),
                    show(row["rogue_held"], "{:.0f}", 100.0),
                ]
                for (workload, name, gate, rogues), row in rows.items()
            ],
            note="`swing`: largest autocorrelation of requests per second at lags of 2 to 25 s. Workload A has a "
            "rhythm of its own, 30 s, which is beyond.",
        )
    )
    return page
