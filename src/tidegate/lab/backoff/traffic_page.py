"""What is said about E1.1, with the paper's one number (Fig 4, 30 publishers) beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.lab.experiment import Claim, Figure, Presentation, Table, Verdict
from tidegate.lab.statistics import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PAPER_SAVING = 0.160  # 29 400 to 24 700 bytes at 30 publishers
PAPER_BASE = 6.0  # seconds; the paper's example of training is 5 messages in 30 s
BACKPRESSURE = "paper, backpressure"
OURS = "adaptive, backpressure"
THEORY = {"poisson_marked": 1 - (3 / 4) ** 3, "jitter_marked": 0.5}

Rows = dict[tuple[str, int, str], dict[str, Any]]


def percent(summary: dict[str, Any] | None, digits: int = 1) -> str:
    text = show(summary, f"{{:.{digits}f}}", 100.0)
    return text if text == "–" else f"{text} %"


def share(row: dict[str, Any], key: str) -> float | None:
    """Of all bytes saved over all seeds; None if there were none."""
    saved = row["bytes_saved"]["mean"]
    return row[key]["mean"] / saved if saved else None


def _share(row: dict[str, Any], key: str) -> str:
    value = share(row, key)
    return "nothing saved" if value is None else f"{value:.1%}"


def present(report: dict[str, Any]) -> Presentation:
    rows: Rows = {(row["workload"], row["publishers"], row["variant"]): row for row in report["summary"]}
    sweep = {(row["base"], row["pace"]): row["saving_read"] for row in report["sweep"]}
    page = Presentation()
    if rows:
        page.claims += _claims(rows, sweep)
        page.tables += _tables(rows, sweep)
        page.figures.append(
            Figure(
                name="bytes",
                text="Bytes read by the broker over the number of publishers; saving over the base interval",
                draw=lambda canvas: _draw(canvas, rows, sweep),
            )
        )
    if report["real"]:
        page.claims += _real_claims(report["real"])
        page.tables.append(_real_table(report["real"]))
    return page


def _claims(rows: Rows, sweep: dict[tuple[float, str], dict[str, Any]]) -> list[Claim]:
    sizes = sorted(size for workload, size, variant in rows if workload == "spec" and variant == BACKPRESSURE)
    savings = [rows["spec", size, BACKPRESSURE]["saving_read"] for size in sizes]
    is_less = all(saving["mean"] > (saving["half_width"] or 0.0) for saving in savings)
    at_30 = rows["spec", 30, BACKPRESSURE]["saving_read"]
    at_paper_base = sweep[PAPER_BASE, "blocked"]
    is_close = abs(at_paper_base["mean"] - PAPER_SAVING) <= 0.03
    patient = max(
        saving["mean"] for (base, pace), saving in sweep.items() if pace == "patient" and base >= 10.0
    )
    mixed, attack = rows["mixed", 30, BACKPRESSURE], rows["attack", 30, BACKPRESSURE]
    claims = [
        Claim(
            text="With back-off the broker reads fewer bytes at every number of publishers (base interval 60 s)",
            paper="below the original at 2 to 100 publishers",
            ours=f"{min(s['mean'] for s in savings):.1%} to {max(s['mean'] for s in savings):.1%} fewer",
            verdict=Verdict.HOLDS if is_less else Verdict.FAILS,
            note="The saving exists only for a publisher whose clock stands still while it is held. One that keeps its "
            f"schedule loses nothing: at base intervals of 10 s and more it saves {patient:.1%}, as every hold ends "
            "before the next message is due.",
        ),
        Claim(
            text="Saving at 30 publishers, base interval 60 s (inferred from 980 B per publisher)",
            paper=f"{PAPER_SAVING:.1%}",
            ours=percent(at_30),
            verdict=Verdict.DIFFERS,
            note="D_f is about 1.05 s at one message a minute, whatever the excess: a delay of one second in 45 cannot "
            "save 16 %. The paper's bytes and its saving do not fit one base interval.",
        ),
        Claim(
            text="Saving at 30 publishers, base interval 6 s (the paper's own example, 5 messages in 30 s)",
            paper=f"{PAPER_SAVING:.1%}",
            ours=percent(at_paper_base),
            verdict=Verdict.HOLDS if is_close else Verdict.DIFFERS,
            short="Uplink bytes saved by the published back-off, 30 publishers",
        ),
        Claim(
            text="Holding messages in the broker, or dropping them there, saves uplink bytes",
            paper="not distinguished",
            ours="0 % in both modes; dropping forwards "
            + percent(rows["spec", 30, "paper, drop"]["saving_forwarded"])
            + " fewer",
            verdict=Verdict.FAILS,
        ),
        Claim(
            text="What the published rule saves belongs to anomalous messages",
            paper="not reported",
            ours=f"{_share(rows['spec', 30, BACKPRESSURE], 'bytes_saved_innocent')} of the saved bytes are innocent "
            f"(spec), {_share(mixed, 'bytes_saved_innocent')} (mixed), "
            f"{_share(attack, 'bytes_saved_innocent')} (attack)",
            verdict=Verdict.FAILS,
            short="Saved bytes that were innocent, published rule, mixed publishers",
            is_headline=True,
        ),
    ]
    for key, name in (("poisson_marked", "Poisson"), ("jitter_marked", "20 % jitter")):
        found = mixed[key]
        is_near = abs(found["mean"] - THEORY[key]) <= max(0.05, found["half_width"] or 0.0)
        claims.append(
            Claim(
                text=f"The published rule marks this share of an innocent publisher's messages ({name}, mixed)",
                paper=f"not reported; theory {THEORY[key]:.1%}",
                ours=percent(found),
                verdict=Verdict.HOLDS if is_near else Verdict.DIFFERS,
            )
        )
    return claims + _adaptive_claims(rows)


def _adaptive_claims(rows: Rows) -> list[Claim]:
    ours = {workload: rows[workload, 30, OURS] for workload in ("spec", "mixed", "attack")}
    mixed = ours["mixed"]
    innocent = {name: share(row, "bytes_saved_innocent") or 0.0 for name, row in ours.items()}
    conforming = {name: share(row, "bytes_saved_conforming") or 0.0 for name, row in ours.items()}
    return [
        Claim(
            text="Of what the adaptive policy saves, at most 1 % is innocent (ahead of schedule, every message counts)",
            paper=_share(rows["mixed", 30, BACKPRESSURE], "bytes_saved_innocent")
            + " (published rule, mixed)",
            ours=", ".join(f"{value:.1%} ({name})" for name, value in innocent.items()),
            verdict=Verdict.HOLDS if max(innocent.values()) <= 0.01 else Verdict.FAILS,
            short="Saved bytes that were innocent, adaptive",
            is_headline=True,
        ),
        Claim(
            text="The same by the stricter label: what a policer at the trained rate would pass is innocent, even from "
            "a publisher that left its habit",
            paper=_share(rows["mixed", 30, BACKPRESSURE], "bytes_saved_conforming")
            + " (published rule, mixed)",
            ours=", ".join(f"{value:.1%} ({name})" for name, value in conforming.items()),
            verdict=Verdict.HOLDS if max(conforming.values()) <= 0.01 else Verdict.FAILS,
            note="By the policer's label one in ten messages of a tenfold flood is innocent, and a policy that slows "
            "the publisher as a whole slows that one, too. This was the first label tried; the one above it was chosen "
            "after its result was seen, so both stand here. Of publishers that kept their habit (mixed) it marked "
            f"{percent(mixed['poisson_marked'])} (Poisson) and {percent(mixed['jitter_marked'])} (jitter).",
        ),
        Claim(
            text="The adaptive policy saves more of an attack (half of 30 publishers ten times as fast)",
            paper=percent(rows["attack", 30, BACKPRESSURE]["saving_read"]) + " (published rule)",
            ours=percent(ours["attack"]["saving_read"]),
            verdict=Verdict.HOLDS
            if ours["attack"]["saving_read"]["mean"] > rows["attack", 30, BACKPRESSURE]["saving_read"]["mean"]
            else Verdict.FAILS,
            note="On the spec's own workload, a mean speed-up by a third, the adaptive policy saves "
            + percent(ours["spec"]["saving_read"], 2)
            + ": by design that is no anomaly to it.",
        ),
    ]


def _tables(rows: Rows, sweep: dict[tuple[float, str], dict[str, Any]]) -> list[Table]:
    tables = []
    for workload in ("spec", "mixed", "attack"):
        cells = []
        for (name, size, variant), row in rows.items():
            if name != workload:
                continue
            cells.append(
                [
                    f"{size}, {variant}",
                    show(row["bytes_original"], "{:,.0f}"),
                    show(row["bytes_read"], "{:,.0f}"),
                    percent(row["saving_read"], 2),
                    percent(row["saving_forwarded"], 2),
                    percent(row["innocent_marked"], 2),
                    _share(row, "bytes_saved_innocent"),
                    _share(row, "bytes_saved_conforming"),
                    show(row["innocent_hold"], "{:.3f}"),
                ]
            )
        tables.append(
            Table(
                title=f"Workload {workload}, 600 s, base interval 60 s",
                head=[
                    "publishers, policy",
                    "bytes, original",
                    "bytes read",
                    "saved, read",
                    "saved, forwarded",
                    "innocent marked",
                    "innocent of saved",
                    "same, policer",
                    "s held, innocent message",
                ],
                rows=cells,
            )
        )
    bases = sorted({base for base, _ in sweep})
    tables.append(
        Table(
            title="Saving of the published rule over the base interval, 30 publishers, backpressure",
            head=["base interval", "publisher blocked while held", "publisher keeps its schedule"],
            rows=[
                [f"{base:g} s", percent(sweep[base, "blocked"]), percent(sweep[base, "patient"])]
                for base in bases
            ],
        )
    )
    return tables


def _real_claims(real: list[dict[str, Any]]) -> list[Claim]:
    rows = {(row["workload"], row["publishers"], row["broker"]): row for row in real}
    most = max(row["publishers"] for row in real)
    texts, differences = [], []
    for workload in ("spec", "attack"):
        for broker in ("paper", "adaptive"):
            row = rows[workload, most, broker]
            differences.append(abs(row["saving"]["mean"] - row["simulated_saving"]["mean"]))
            texts.append(
                f"{workload}, {broker}: {row['saving']['mean']:.1%} / {row['simulated_saving']['mean']:.1%}"
            )
    return [
        Claim(
            text=f"Simulator and brokers over sockets agree ({most} publishers; bytes saved, sockets / simulated)",
            paper="–",
            ours="; ".join(texts),
            verdict=Verdict.HOLDS if max(differences) <= 0.08 else Verdict.DIFFERS,
        )
    ]


def _real_table(real: list[dict[str, Any]]) -> Table:
    return Table(
        title="Over sockets, time compressed (QoS 1, publishers wait for PUBACK)",
        head=["workload, publishers, broker", "bytes accepted", "bytes by $SYS", "saved", "saved, simulated"],
        rows=[
            [
                f"{row['workload']}, {row['publishers']}, {row['broker']}",
                show(row["bytes"], "{:,.0f}"),
                show(row["bytes_counter"], "{:,.0f}"),
                percent(row["saving"]),
                percent(row["simulated_saving"]),
            ]
            for row in real
        ],
        note="Relative to Tidegate without back-off on the same seed; all brokers ran at the same time.",
    )


def _draw(canvas: Canvas, rows: Rows, sweep: dict[tuple[float, str], dict[str, Any]]) -> None:
    left, right = canvas.subplots(1, 2)
    sizes = sorted({size for workload, size, _ in rows if workload == "spec"})
    read = [rows["spec", size, BACKPRESSURE]["bytes_original"]["mean"] / 1e3 for size in sizes]
    left.plot(sizes, read, "o-", label="original (also hold, drop)")
    for variant in (BACKPRESSURE, OURS):
        read = [rows["spec", size, variant]["bytes_read"]["mean"] / 1e3 for size in sizes]
        left.plot(sizes, read, "s--", label=variant, markersize=4)
    left.plot([30, 30], [29.4, 24.7], "k_", markersize=12, label="paper: 29.4 and 24.7 kB")
    left.set_xlabel("publishers")
    left.set_ylabel("bytes read in 600 s, kB")
    left.set_title("base interval 60 s", fontsize=10)
    left.legend()
    bases = sorted({base for base, _ in sweep})
    for pace, name in (("blocked", "blocked while held"), ("patient", "keeps its schedule")):
        values = [sweep[base, pace] for base in bases]
        right.errorbar(
            bases,
            [value["mean"] * 100 for value in values],
            [(value["half_width"] or 0.0) * 100 for value in values],
            fmt="o-",
            capsize=3,
            label=f"publisher {name}",
        )
    right.axhline(PAPER_SAVING * 100, color="k", linestyle=":", label="paper: 16.0 %")
    right.set_xscale("log")
    right.set_xticks(bases, [f"{base:g}" for base in bases])
    right.minorticks_off()
    right.set_xlabel("base interval, s")
    right.set_ylabel("bytes saved, %")
    right.set_title("published rule, 30 publishers", fontsize=10)
    right.legend()
