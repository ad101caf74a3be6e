"""What is said about E5.1 to E5.4 and E5.6: claims and tables. Numbers of the thesis are those of its tables 7 and 8
and of its text on Figures 43 and 44; waits in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import correlation, fmean
from typing import Any, Final

from tidegate.lab.experiment import Claim, Presentation, Table, Verdict
from tidegate.lab.shared import comparison_figures
from tidegate.lab.shared.variants import COMPARED, OURS, OURS_PAHO, RANDOM, ROUND_ROBIN, THESIS, Variant

Rows = dict[tuple[str, str, str], dict[str, Any]]
Claims = Callable[[Rows, str, str], list[Claim]]

PLACES: Final = {"simulated": "simulated", "sockets": "over sockets"}
PAPER_MEANS: Final = {"random": 1400.7, "round robin": 1492.3, "thesis": 27.4}
PAPER_STABLE: Final = {
    "round robin": [(167, 0, 6, 0.9, 0.7), (166, 0, 8, 1.0, 0.8), (167, 3075, 6250, 4664.1, 923.4)],
    "thesis": [(199, 1, 10, 3.4, 2.4), (199, 1, 13, 3.7, 2.5), (102, 13, 71, 34.8, 17.8)],
}
PAPER_SPLIT: Final = (199, 199, 102)
PAPER_PENALTY: Final = 19.3  # ms that fast members wait longer than with round robin
SAVING: Final = 0.97
SPLIT: Final = 3.0  # messages
NO_WORSE: Final = 1.0  # ms
MEAN, WORST, CHANGE_MEAN = 8.0, 15.0, 5.0
OVERFED: Final = 2.0 * 50.0  # ms: two messages of the slow member ahead of one is more than its share
LIKENESS: Final = 0.7
EQUAL_BY: Final = 0.1  # ms: a smaller difference is none


def present(claims: Claims, report: dict[str, Any]) -> Presentation:
    rows: Rows = {(row["where"], row["scenario"], row["variant"]): row for row in report["summary"]}
    page = Presentation()
    for where in PLACES:
        for scenario in report["parameters"]["scenarios"]:
            if (where, scenario, THESIS.name) in rows:
                page.claims += claims(rows, where, scenario)
                page.tables.append(_overview(rows, where, scenario))
                if scenario.startswith("E5.2"):
                    page.tables.append(_stable(rows, where, scenario))
    page.claims += _agreement(report["seeds"])
    page.figures = comparison_figures.figures(report, rows)
    if report["rounds"]:
        page.tables.append(machine_table(report["rounds"]))
    return page


def _agreement(seeds: list[dict[str, Any]]) -> list[Claim]:
    """The published rule, phase by phase: the same seed has the same phases in both places."""
    found = {
        row["where"]: dict(zip(row["seeds"], row["values"]["mean"], strict=True))
        for row in seeds
        if row["scenario"] == "E5.2" and row["variant"] == THESIS.name
    }
    if len(found) < len(PLACES):
        return []
    pairs = [
        (mean, found["sockets"][seed])
        for seed, mean in found["simulated"].items()
        if seed in found["sockets"]
    ]
    if len(pairs) < 3 or len({mean for mean, _ in pairs}) == 1 or len({mean for _, mean in pairs}) == 1:
        return []
    likeness = correlation(*zip(*pairs, strict=True))
    return [
        Claim(
            text="E5.2, thesis's rule: simulator and sockets agree phase by phase (correlation of the means over 0.7)",
            paper="–",
            ours=f"correlation {likeness:.2f} over {len(pairs)} phases; mean {ms(fmean(a for a, _ in pairs))} ms "
            f"simulated, {ms(fmean(b for _, b in pairs))} ms over sockets",
            verdict=Verdict.HOLDS if likeness > LIKENESS else Verdict.DIFFERS,
        )
    ]


def _judge(row: dict[str, Any], is_kept: bool) -> Verdict:
    """What a disturbed machine measured does not refute anything."""
    if is_kept:
        return Verdict.HOLDS
    return Verdict.FAILS if row.get("is_calm", True) else Verdict.NOT_JUDGED


def ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if value < 100.0 else f"{value:.0f}"


def better_claims(rows: Rows, where: str, scenario: str) -> list[Claim]:
    """Ours against the thesis, by either signal."""
    thesis = rows[where, scenario, THESIS.name]
    claims = []
    for variant, members in ((OURS, "reports"), (OURS_PAHO, "plain paho members at QoS 1, no reports")):
        ours = rows[where, scenario, variant.name]
        claims.append(
            Claim(
                text=f"{scenario} {PLACES[where]}: earliest finish ({members}) does not wait longer than the thesis's "
                "rule",
                paper=f"{ms(thesis['mean'])} ms, worst phase {ms(thesis['worst'])} (its rule, here)",
                ours=f"{ms(ours['mean'])} ms, worst phase {ms(ours['worst'])}",
                verdict=_judge(ours, ours["mean"] <= thesis["mean"] + EQUAL_BY),
            )
        )
    return claims


def equal_claims(rows: Rows, where: str, scenario: str) -> list[Claim]:
    turn, thesis, chance = (rows[where, scenario, v.name] for v in (ROUND_ROBIN, THESIS, RANDOM))
    return [
        Claim(
            text=f"{scenario} {PLACES[where]}: the thesis's rule waits at most {NO_WORSE:g} ms longer than round robin",
            paper="about equal",
            ours=f"{ms(thesis['mean'])} ms, round robin {ms(turn['mean'])} ms",
            verdict=_judge(thesis, thesis["mean"] <= turn["mean"] + NO_WORSE),
        ),
        Claim(
            text=f"{scenario} {PLACES[where]}: a random choice waits longer than round robin",
            paper="higher; consecutive hits queue up",
            ours=f"{ms(chance['mean'])} ms, round robin {ms(turn['mean'])} ms",
            verdict=_judge(chance, chance["mean"] > turn["mean"]),
        ),
        *better_claims(rows, where, scenario),
    ]


def unequal_claims(rows: Rows, where: str, scenario: str) -> list[Claim]:
    turn, thesis = (rows[where, scenario, v.name] for v in (ROUND_ROBIN, THESIS))
    saving = 1.0 - thesis["mean"] / turn["mean"]
    if scenario != "E5.2":
        # Utilisation is exactly 1: what queues up at the start stays.
        return [
            Claim(
                text=f"{scenario} {PLACES[where]}: the thesis's rule against round robin at a utilisation of exactly 1",
                paper="about 95 % lower, by calculation",
                ours=f"{saving:.1%} lower ({ms(turn['mean'])} to {ms(thesis['mean'])} ms)",
                verdict=Verdict.NOT_JUDGED,
            ),
            *better_claims(rows, where, scenario),
        ]
    place = PLACES[where]
    split = [row["processed"] for row in thesis["stable"]]
    is_close = all(abs(got - said) <= SPLIT for got, said in zip(split, PAPER_SPLIT, strict=True))
    claims = [
        Claim(
            text=f"{scenario} {place}: the thesis's rule lowers the mean by at least {SAVING:.0%} against round robin",
            paper="98.2 % (1492.3 to 27.4 ms)",
            ours=f"{saving:.1%} ({ms(turn['mean'])} to {ms(thesis['mean'])} ms; worst phase {ms(thesis['worst'])})",
            verdict=_judge(thesis, saving >= SAVING),
            short=f"One slow member of three, {place}: the published score lowers the mean wait",
            is_headline=where == "sockets",
        ),
        Claim(
            text=f"{scenario} {place}: its split of messages 500 to 1000 is within {SPLIT:g} of Table 8",
            paper="199 / 199 / 102",
            ours=" / ".join(f"{count:.1f}" for count in split),
            verdict=_judge(thesis, is_close),
        ),
    ]
    for variant, members in ((OURS, "reports"), (OURS_PAHO, "plain paho members at QoS 1, no reports")):
        ours = rows[where, scenario, variant.name]
        penalty = _penalty(ours, turn)
        claims += [
            Claim(
                text=f"{scenario} {place}: earliest finish ({members}) waits at most {MEAN:g} ms, in the worst phase "
                f"{WORST:g} ms",
                paper="27.4 ms (its rule)",
                ours=f"{ms(ours['mean'])} ms, worst phase {ms(ours['worst'])}",
                verdict=_judge(ours, ours["mean"] <= MEAN and ours["worst"] <= WORST),
                short=f"The same with earliest finish ({members}), mean wait",
                is_headline=where == "sockets" and variant is OURS,
            ),
            Claim(
                text=f"{scenario} {place}: earliest finish ({members}) overfeeds nobody at the start: no message of "
                f"the first 500 waits longer than {OVERFED:g} ms",
                paper=f"unstable; its rule, here: up to {ms(thesis['start_worst'])} ms, mean "
                f"{ms(thesis['start_mean'])}",
                ours=f"up to {ms(ours['start_worst'])} ms, mean {ms(ours['start_mean'])}",
                verdict=_judge(ours, ours["start_worst"] <= OVERFED),
            ),
            Claim(
                text=f"{scenario} {place}: with earliest finish ({members}) fast members wait at most "
                f"{PAPER_PENALTY:g} ms longer than with round robin",
                paper=f"up to {PAPER_PENALTY:g} ms longer; its rule, here: {ms(_penalty(thesis, turn))}",
                ours=f"{ms(penalty)} ms longer",
                verdict=_judge(ours, penalty <= PAPER_PENALTY),
            ),
        ]
    return claims + better_claims(rows, where, scenario)


def _penalty(row: dict[str, Any], turn: dict[str, Any]) -> float:
    """The most that one of the two fast members waits longer than with round robin."""
    pairs = zip(row["member_means"][:2], turn["member_means"][:2], strict=True)
    return max(float(ours - theirs) for ours, theirs in pairs)


def change_claims(rows: Rows, where: str, scenario: str) -> list[Claim]:
    claims = []
    for variant, members in ((OURS, "reports"), (OURS_PAHO, "plain paho members at QoS 1, no reports")):
        ours = rows[where, scenario, variant.name]
        claims.append(
            Claim(
                text=f"{scenario} {PLACES[where]}: earliest finish ({members}) waits at most {CHANGE_MEAN:g} ms on "
                "average",
                paper=f"not measured; its rule, here: {ms(rows[where, scenario, THESIS.name]['mean'])} ms",
                ours=f"{ms(ours['mean'])} ms",
                verdict=_judge(ours, ours["mean"] <= CHANGE_MEAN),
                short=f"A member slows down, {PLACES[where]}, earliest finish ({members}), mean wait"
                if where == "sockets"
                else "",
            )
        )
    return claims + better_claims(rows, where, scenario)


def _shown(rows: Rows, where: str, scenario: str) -> Iterator[tuple[Variant, dict[str, Any]]]:
    for variant in COMPARED:
        row = rows.get((where, scenario, variant.name))
        if row is not None:
            yield variant, row


def _overview(rows: Rows, where: str, scenario: str) -> Table:
    head = [
        "rule",
        "phases",
        "thesis, ms",
        "mean, ms",
        "worst phase",
        "p99",
        "first 500",
        "longest of first 500",
    ]
    head += ["mean of each member", "messages 500 to 1000", "control bytes"]
    if where == "sockets":
        head += ["lost", "not taken"]
    lines = []
    for variant, row in _shown(rows, where, scenario):
        paper = PAPER_MEANS.get(variant.name) if scenario == "E5.2" else None
        line = [variant.name, str(row["phases"]), "–" if paper is None else f"{paper:g}", ms(row["mean"])]
        line += [ms(row["worst"]), ms(row["p99"]), ms(row["start_mean"]), ms(row["start_worst"])]
        line.append(" / ".join(ms(mean) for mean in row["member_means"]))
        line.append(" / ".join(f"{each['processed']:.0f}" for each in row["stable"]))
        line.append(f"{row['control_bytes']:,.0f}")
        if where == "sockets":
            line += [str(row["lost"]), ms(row["waiting"])]
        lines.append(line)
    note = "Waits from creation until a member takes the message, processing excluded; p99 is the mean of the phases'."
    if where == "sockets":
        note += " What nobody had taken at the end of a run counts with its wait so far."
    return Table(title=f"{scenario}, {PLACES[where]}", head=head, rows=lines, note=note)


def _stable(rows: Rows, where: str, scenario: str) -> Table:
    lines = []
    for variant in (ROUND_ROBIN, THESIS, OURS, OURS_PAHO):
        paper = PAPER_STABLE.get(variant.name)
        for member, row in enumerate(rows[where, scenario, variant.name]["stable"]):
            said = ["–"] * 5 if paper is None else [f"{number:g}" for number in paper[member]]
            ours = [f"{row['processed']:.1f}", *(ms(row[name]) for name in ("min", "max", "mean", "sd"))]
            lines.append([f"{variant.name}, subscriber {member}", *ours, *said])
    names = ["processed", "min", "max", "mean", "sd"]
    return Table(
        title=f"{scenario}, {PLACES[where]}: messages 500 to 1000 as in Tables 7 and 8, ms",
        head=["rule", *names, *(f"thesis: {name}" for name in names)],
        rows=lines,
        note="Least and greatest of all phases; the others are means of the phases' values.",
    )


def machine_table(rounds: list[dict[str, Any]]) -> Table:
    return Table(
        title="The machine during runs over sockets",
        head=[
            "run",
            "is calm",
            "tries",
            "stolen",
            "woken late, mean",
            "p99, ms",
            "max, ms",
            "broker's CPU, s",
        ],
        rows=[
            [
                f"{row['scenario']}, {row['round'] + 1}",
                "yes" if row["is_calm"] else "no",
                str(row["tries"]),
                f"{row['steal']:.2%}",
                f"{row['late_mean']:.2f}",
                f"{row['late_p99']:.2f}",
                f"{row['late_max']:.1f}",
                f"{row['broker_cpu']:.1f}",
            ]
            for row in rounds
        ],
        note="Of the worst process of each run. Runs that are not calm count only where there is no other.",
    )
