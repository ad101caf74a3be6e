"""What is said about E3.1 to E3.3: hypotheses with intervals, whichever way they fall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.lab.active.pairs import Values, below, bounds, difference, expected, paired, text, values_of
from tidegate.lab.active.variants import ACTIVE, LEVEL_0, LEVEL_1, LEVEL_2, LEVEL_3, PAPER, PARTS, VARIANTS
from tidegate.lab.experiment import Claim, Figure, Presentation, Table, Verdict
from tidegate.lab.statistics import show, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

NONE = "no measurement in the paper"
Rows = dict[tuple[int, str], dict[str, Any]]


def present(workload: str, report: dict[str, Any]) -> Presentation:
    rows: Rows = {(row["m"], row["variant"]): row for row in report["summary"]}
    if not rows:
        return Presentation()
    values = values_of(report)
    sizes = sorted({m for m, _ in rows})
    page = Presentation()
    full = [m for m in sizes if m >= 200]
    page.claims += [claim for m in full for claim in _hypotheses(workload, values, m)]
    page.claims += _product(workload, rows, values)
    page.tables += [_table(rows, m, workload) for m in sizes]
    page.figures.append(
        Figure(
            name="levels",
            text="drop rate, peak to mean and staleness over the number of KPs, for each level",
            draw=lambda canvas: _draw(canvas, rows, sizes),
        )
    )
    return page


def _hypotheses(workload: str, values: Values, m: int) -> list[Claim]:
    found = []
    for key, name, form, scale in (
        ("drop_rate", "fewer drops", "{:+.2f} points", 100.0),
        ("p99", "a lower p99 of responses", "{:+.0f} ms", 1e3),
    ):
        changes = {each.name: paired(values, m, each.name, LEVEL_2, key, difference) for each in PAPER}
        verdicts = {each: below(change, 0.0) for each, change in changes.items()}
        judged = expected(changes[LEVEL_3], 0.0)
        holds = sum(verdict is Verdict.HOLDS for verdict in verdicts.values())
        fails = sum(verdict is Verdict.FAILS for verdict in verdicts.values())
        best = min(changes, key=lambda each: (changes[each] or {"mean": 0.0})["mean"])
        found.append(
            Claim(
                text=f"Workload {workload}, m = {m}: level 3 has {name} than level 2",
                paper=f"expected; {NONE}",
                ours=f"light, past interval: {text(changes[LEVEL_3], form, scale)}; of nine combinations {holds} "
                f"better, {fails} worse; best {best[2:]}: {text(changes[best], form, scale)}",
                verdict=judged,
                note="The back-off acts after a congested answer, when the burst is over: there is nothing left for it "
                "to do unless the overload lasts."
                if judged is Verdict.DIFFERS and key == "drop_rate"
                else "",
            )
        )
    change = paired(values, m, LEVEL_3, LEVEL_2, "staleness", difference)
    one = values.get((m, LEVEL_3))
    if change is not None and one is not None:
        allowed = summarise(one["t_bck"])["mean"]
        found.append(
            Claim(
                text=f"Workload {workload}, m = {m}: level 3 is staler than level 2 by the mean back-off at most",
                paper=f"expected; {NONE}",
                ours=f"{text(change, '{:+.2f} s')}; mean back-off {allowed:.2f} s",
                verdict=below(change, allowed),
            )
        )
    change = paired(values, m, LEVEL_1, LEVEL_2, "drop_rate", difference)
    found.append(
        Claim(
            text=f"Workload {workload}, m = {m}: level 2 drops more than level 1 (positive feedback)",
            paper=f"expected; {NONE}",
            ours=f"level 1 against level 2: {text(change, '{:+.2f} points', 100.0)}",
            verdict=expected(change, 0.0),
            note="A negative number says that the fixed timeout of 5 s drops less." if m == 200 else "",
        )
    )
    return found


def _product(workload: str, rows: Rows, values: Values) -> list[Claim]:
    if (200, ACTIVE) not in rows:
        return []
    if workload == "C":
        return _feedback(rows)
    drops = paired(values, 200, ACTIVE, LEVEL_2, "drops", lambda a, b: a - 0.1 * b)
    peak = paired(values, 200, ACTIVE, LEVEL_2, "peak_to_mean", lambda a, b: a - 0.5 * b)
    ours, level_2, level_3 = rows[200, ACTIVE], rows[200, LEVEL_2], rows[200, LEVEL_3]
    best = min((each.name for each in PAPER), key=lambda name: rows[200, name]["staleness"]["mean"])
    stale = paired(values, 200, ACTIVE, best, "staleness", difference)
    found = [
        Claim(
            text=f"Workload {workload}, m = 200: the product's drops are at most a tenth of level 2's",
            paper="–",
            ours=f"{show(ours['drops'], '{:.1f}')} against {show(level_2['drops'], '{:.0f}')} in 600 s",
            verdict=below(drops, 0.0),
            short=f"Requests dropped in 600 s, 200 clients, workload {workload}: level 2, active"
            if workload == "A"
            else "",
            is_headline=workload == "A",
        ),
        Claim(
            text=f"Workload {workload}, m = 200: its peak-to-mean of arrivals is at most half of level 2's",
            paper="–",
            ours=f"{show(ours['peak_to_mean'], '{:.1f}')} against {show(level_2['peak_to_mean'], '{:.1f}')}",
            verdict=below(peak, 0.0),
        ),
        Claim(
            text=f"Workload {workload}, m = 200: its staleness is no worse than level 3's, the best of the nine",
            paper="–",
            ours=f"{show(ours['staleness'], '{:.2f}')} s against {show(rows[200, best]['staleness'], '{:.2f}')} s "
            f"({best[2:]}) and {show(level_3['staleness'], '{:.2f}')} s (light, past interval)",
            verdict=below(stale, 0.0),
            short="Seconds until a client knows an update, 200 clients: best level 3, active"
            if workload == "A"
            else "",
        ),
    ]
    # What the workload does not strain is not a matter of tenths and halves.
    return found if workload == "A" else found[2:]


def _feedback(rows: Rows) -> list[Claim]:
    found = []
    for name, is_ours in ((LEVEL_2, False), (LEVEL_3, False), (ACTIVE, True)):
        summary = rows[200, name]["feedback"]
        before, slow = rows[200, name]["rate_before"], rows[200, name]["rate_slow"]
        low, _ = bounds(summary)
        if is_ours:
            verdict = below(summary, 1.0)
            claim = "the product asks no more when capacity is halved"
        else:
            claim = f"level {name} asks more when capacity is halved (positive feedback)"
            verdict = Verdict.HOLDS if low > 1.0 else Verdict.DIFFERS
        found.append(
            Claim(
                text=f"Workload C, m = 200: {claim}",
                paper="–" if is_ours else f"expected of level 2; {NONE}",
                ours=f"{show(summary, '{:.3f}')} times the requests of the same run without the change "
                f"({show(before, '{:.1f}')}/s before, {show(slow, '{:.1f}')}/s while slow)",
                verdict=verdict,
                short="Requests while capacity is halved, against unhalved: active" if is_ours else "",
            )
        )
    return found


def _table(rows: Rows, m: int, workload: str) -> Table:
    order = [*VARIANTS, *(PARTS if m == 200 else ())]
    slow = ["requests/s while slow", "against unslowed"] if workload == "C" else []
    return Table(
        title=f"m = {m}",
        head=[
            "level",
            "requests/s",
            "drops %",
            "utilisation",
            "p50 ms",
            "p99 ms",
            "peak/mean",
            "dispersion",
            "staleness s",
            "p95 s",
            "missed %",
            "per useful",
            "overloaded %",
            "Poisson %",
            "fairness",
            "timeout s",
            "back-off s",
            "congested %",
            *slow,
        ],
        rows=[_cells(name, rows[m, name], workload) for name in order if (m, name) in rows],
        note="Means over seeds with 95 % intervals. `overloaded`: share of seconds with at least as many requests as "
        "the SIB can serve; `Poisson`: the same by the tail formula from the mean rate. `per useful`: requests for "
        "each update that a KP learnt.",
    )


def _cells(name: str, row: dict[str, Any], workload: str) -> list[str]:
    extra = [show(row["rate_slow"], "{:.1f}"), show(row["feedback"], "{:.3f}")] if workload == "C" else []
    return [
        name,
        show(row["rate"], "{:.1f}"),
        show(row["drop_rate"], "{:.2f}", 100.0),
        show(row["utilisation"], "{:.2f}"),
        show(row["p50"], "{:.0f}", 1e3),
        show(row["p99"], "{:.0f}", 1e3),
        show(row["peak_to_mean"], "{:.1f}"),
        show(row["dispersion"], "{:.2f}"),
        show(row["staleness"], "{:.2f}"),
        show(row["staleness_p95"], "{:.2f}"),
        show(row["missed"], "{:.2f}", 100.0),
        show(row["per_useful"], "{:.2f}"),
        show(row["overloaded"], "{:.1f}", 100.0),
        show(row["overloaded_poisson"], "{:.1f}", 100.0),
        show(row["fairness"], "{:.3f}"),
        show(row["timeout"], "{:.1f}"),
        show(row["t_bck"], "{:.2f}"),
        show(row["congested"], "{:.0f}", 100.0),
        *extra,
    ]


def _draw(canvas: Canvas, rows: Rows, sizes: list[int]) -> None:
    axes = canvas.subplots(1, 3)
    for place, (key, title, scale) in zip(
        axes,
        (
            ("drop_rate", "drops, %", 100.0),
            ("peak_to_mean", "peak to mean", 1.0),
            ("staleness", "staleness, s", 1.0),
        ),
        strict=True,
    ):
        for name in (LEVEL_0, LEVEL_1, LEVEL_2, LEVEL_3, ACTIVE):
            points = [
                (m, rows[m, name][key]["mean"] * scale)
                for m in sizes
                if (m, name) in rows and rows[m, name][key]["mean"] is not None
            ]
            place.plot(*zip(*points, strict=True), "o-", label=name, markersize=4)
        place.set_xscale("log")
        place.set_xticks(sizes, [str(m) for m in sizes])
        place.set_xlabel("KPs")
        place.set_ylabel(title)
    canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
