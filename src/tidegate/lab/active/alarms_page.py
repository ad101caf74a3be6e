"""What is said about E3.4."""

from __future__ import annotations

from typing import Any

from tidegate.lab.active.pairs import below, bounds
from tidegate.lab.experiment import Claim, Presentation, Table, Verdict
from tidegate.lab.statistics import show

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
    return page
