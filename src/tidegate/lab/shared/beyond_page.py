"""What is said about distance and order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.lab.experiment import Claim, Figure, Presentation, Table, Verdict
from tidegate.lab.shared.comparison_page import ms

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Row = dict[str, Any]


def present(report: dict[str, Any]) -> Presentation:
    return Presentation(
        claims=[*_distance_claims(report["summary"]), *_order_claims(report["order"])],
        tables=[_distance_table(report["summary"]), _order_table(report["order"])],
        figures=[
            Figure(
                name="order",
                text="Messages begun beside an earlier one of their key over mean wait, with and without ordering keys",
                draw=lambda canvas: _draw(canvas, report["order"]),
            )
        ],
    )


def _distance_claims(rows: list[Row]) -> list[Claim]:
    claims = []
    for signal in ("events", "acknowledged"):
        pairs = [
            (row, next(r for r in rows if r["is_measured"] and _key(r) == _key(row)))
            for row in rows
            if row["signal"] == signal and not row["is_measured"]
        ]
        claims.append(
            Claim(
                text=f"Members at 0, 20 and 50 ms ({signal}): knowing half the round trip shortens the mean wait",
                paper="named as an open problem",
                ours=", ".join(
                    f"{ms(blind['mean'])} to {ms(seeing['mean'])} ms at load {blind['load']:g}"
                    for blind, seeing in pairs
                ),
                verdict=Verdict.HOLDS
                if all(seeing["mean"] < blind["mean"] for blind, seeing in pairs)
                else Verdict.FAILS,
            )
        )
    return claims


def _key(row: Row) -> tuple[float, str, str]:
    return row["load"], row["policy"], row["signal"]


def _order_claims(rows: list[Row]) -> list[Claim]:
    found = {(row["interval"], row["policy"]): row for row in rows}
    intervals = sorted({interval for interval, _ in found})
    without, keyed, hashed = "no keys", "keys, bound 1.25", "hash, topic"
    claims = []
    for interval in intervals:
        ours = found[interval, keyed]
        is_kept = ours["beside"] < 0.5 * found[interval, without]["beside"]
        is_kept = is_kept and ours["mean"] < 0.5 * found[interval, hashed]["mean"]
        claims.append(
            Claim(
                text=f"Ordering keys, a message every {interval * 1e3:g} ms: less than half as many messages as "
                "without keys begin before the one before them is done, at less than half the wait of plain hashing",
                paper="–",
                ours="; ".join(
                    f"{name} {found[interval, name]['beside']:.1f} ‰, {ms(found[interval, name]['mean'])} ms"
                    for name in (without, keyed, hashed)
                ),
                verdict=Verdict.HOLDS if is_kept else Verdict.FAILS,
            )
        )
    return claims


def _distance_table(rows: list[Row]) -> Table:
    return Table(
        title="Members at 0, 20 and 50 ms",
        head=["rule, signal", "load", "delay known", "mean, ms", "worst phase", "p99", "shares, near to far"],
        rows=[
            [
                f"{row['policy']}, {row['signal']}",
                f"{row['load']:g}",
                "yes" if row["is_measured"] and row["policy"] == "earliest_finish" else "no",
                ms(row["mean"]),
                ms(row["worst"]),
                ms(row["p99"]),
                " / ".join(f"{share:.0%}" for share in row["shares"]),
            ]
            for row in rows
        ],
        note="The way to the member is part of the wait.",
    )


def _order_table(rows: list[Row]) -> Table:
    return Table(
        title="Ordering keys",
        head=["rule", "every, ms", "begun beside, ‰", "overtaking, ‰", "mean, ms", "worst phase", "p99"],
        rows=[
            [
                row["policy"],
                f"{row['interval'] * 1e3:g}",
                f"{row['beside']:.1f}",
                f"{row['overtaking']:.1f}",
                ms(row["mean"]),
                ms(row["worst"]),
                ms(row["p99"]),
            ]
            for row in rows
        ],
        note="Begun beside: before an earlier message of the same key was done. Overtaking: done before it.",
    )


def _draw(canvas: Canvas, rows: list[Row]) -> None:
    axes = canvas.subplots()
    for policy in dict.fromkeys(row["policy"] for row in rows):
        own = [row for row in rows if row["policy"] == policy]
        axes.plot([max(row["mean"], 0.01) for row in own], [row["beside"] for row in own], "o-", label=policy)
        for row in own:
            axes.annotate(
                f" {row['interval'] * 1e3:g} ms", (max(row["mean"], 0.01), row["beside"]), fontsize=8
            )
    axes.set_xscale("log")
    axes.set_xlabel("mean wait, ms")
    axes.set_ylabel("begun beside an earlier one of their key, ‰")
    axes.legend()
