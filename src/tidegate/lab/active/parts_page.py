"""What is said about E3.7."""

from __future__ import annotations

from typing import Any

from tidegate.lab.active.model import Q
from tidegate.lab.active.pairs import below, bounds, difference, text
from tidegate.lab.active.variants import (
    ACTIVE,
    LEVEL_2,
    LEVEL_3,
    NDELTA,
    NO_FREEZING,
    NO_PACE,
    NO_PACE_OR_FREEZING,
    UNIFORM,
)  # fmt: skip
from tidegate.lab.experiment import Claim, Presentation, Table, Verdict
from tidegate.lab.statistics import show, summarise

Row = dict[str, Any]


class Found:
    """Rows of the report by what they are about."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.rows: list[Row] = report["summary"]
        self._values = {self._key(row): row["values"] for row in report["seeds"]}

    @staticmethod
    def _key(row: Row) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in ("part", "variant", "m", "cache"))

    def of(self, part: str, variant: str, m: int, cache: bool | None = None) -> Row:
        wanted = (part, variant, m, cache)
        return next(row for row in self.rows if self._key(row) == wanted)

    def change(self, part: str, m: int, one: str, other: str, key: str) -> dict[str, Any]:
        """One minus the other, seed by seed."""
        first, second = (self._values[part, name, m, None][key] for name in (one, other))
        pairs = zip(first, second, strict=True)
        return summarise(difference(a, b) for a, b in pairs if a is not None and b is not None)


def present(report: dict[str, Any]) -> Presentation:
    if not report["summary"]:
        return Presentation()
    found = Found(report)
    page = Presentation()
    page.claims += [*_draws(found), *_bursts(found), *_frozen(found), *_paced(found, report["bytes"])]
    page.claims += [*_caches(found), *_tuned(found)]
    page.tables += [_levels(found), _slowed(found), _cached(found), _queues(found), _tuning(found)]
    return page


def _draws(found: Found) -> list[Claim]:
    means = [show(found.of("plain", name, 500)["t_bck"], "{:.2f}") for name in (UNIFORM, LEVEL_3)]
    claims = []
    for key, name, form, scale in (
        ("dispersion", "a lower index of dispersion", "{:+.2f}", 1.0),
        ("drop_rate", "fewer drops", "{:+.2f} points", 100.0),
    ):
        change = found.change("plain", 500, UNIFORM, LEVEL_3, key)
        claims.append(
            Claim(
                text=f"(e) 1: a back-off drawn uniformly up to twice its base has {name} (workload A, m = 500)",
                paper="drawn around its base",
                ours=f"{text(change, form, scale)}; mean back-off {means[0]} s against {means[1]} s",
                verdict=below(change, 0.0),
                note="The published draw is cut off at t_max, which takes a tenth from its mean."
                if key == "dispersion"
                else "",
            )
        )
    return claims


def _bursts(found: Found) -> list[Claim]:
    claims = []
    for m in (100, 200, 500):
        peak = found.of("burst", ACTIVE, m)["longest_queue"]
        without = found.of("burst", "active without pre-delay", m)["longest_queue"]
        claims.append(
            Claim(
                text=f"(e) 2: the queue after the first common event stays below Q = {Q}, m = {m}",
                paper=f"about {m}: everybody reacts at once",
                ours=f"{show(peak, '{:.1f}')}; without the pre-delay {show(without, '{:.1f}')}",
                verdict=below(peak, Q),
            )
        )
    return claims


def _frozen(found: Found) -> list[Claim]:
    claims = []
    for name in (LEVEL_2, NO_PACE_OR_FREEZING, NO_PACE, ACTIVE):
        feedback = found.of("frozen", name, 200)["feedback"]
        low, high = bounds(feedback)
        claims.append(
            Claim(
                text=f"(e) 3: {name} asks no more when the capacity is halved (workload C, m = 200)",
                paper="feared of level 2",
                ours=f"{show(feedback, '{:.3f}')} times the requests of the same run with its capacity left alone",
                verdict=below(feedback, 1.0) if low > 1.0 or high < 1.0 else Verdict.NOT_JUDGED,
            )
        )
    for one, other, what in (
        (NO_PACE, NO_PACE_OR_FREEZING, "without a pace"),
        (ACTIVE, NO_FREEZING, "with all else"),
    ):
        change = found.change("frozen", 200, one, other, "staleness")
        claims.append(
            Claim(
                text=f"(e) 3: not speeding up under congestion makes nobody staler, {what} (workload C, m = 200)",
                paper="–",
                ours=text(change, "{:+.2f} s"),
                verdict=below(change, 0.0),
            )
        )
    return claims


def _paced(found: Found, sizes: dict[str, int]) -> list[Claim]:
    claims = []
    for m in (200, 500):
        best = max(_advice(found), key=lambda name: found.of("plain", name, m)["fairness"]["mean"])
        change = found.change("plain", m, best, ACTIVE, "fairness")
        ours = found.of("plain", ACTIVE, m)
        claims.append(
            Claim(
                text=f"(e) 4: pace from the server is fairer than the paper's advice (workload A, m = {m})",
                paper="third choice of the first back-off",
                ours=f"Jain {show(ours['fairness'], '{:.4f}')} against at best "
                f"{show(found.of('plain', best, m)['fairness'], '{:.4f}')} ({best[2:]}); drops "
                f"{show(ours['drop_rate'], '{:.2f}', 100.0)} % against "
                f"{show(found.of('plain', best, m)['drop_rate'], '{:.2f}', 100.0)} %; {sizes['whole']} bytes an answer "
                f"against {sizes['rate']}",
                verdict=below(change, 0.0),
            )
        )
    return claims


def _advice(found: Found) -> list[str]:
    return sorted({row["variant"] for row in found.rows if row.get("variant", "").endswith("advice")})


def _caches(found: Found) -> list[Claim]:
    claims = []
    for m in (200, 500):
        level, ours = (found.of("cache", name, m, True)["drop_rate"] for name in (LEVEL_3, ACTIVE))
        stale = [show(found.of("cache", name, m, True)["staleness"], "{:.2f}") for name in (ACTIVE, LEVEL_3)]
        claims.append(
            Claim(
                text=f"(e) 6: with a cache at the broker there is still something to gain on the client, m = {m}",
                paper="–",
                ours=f"drops {show(ours, '{:.2f}', 100.0)} % (active) against {show(level, '{:.2f}', 100.0)} % "
                f"(level 3); staleness {stale[0]} s against {stale[1]} s",
                verdict=Verdict.HOLDS if bounds(ours)[1] < bounds(level)[0] else Verdict.FAILS,
            )
        )
    return claims


def _tuned(found: Found) -> list[Claim]:
    rows = [row for row in found.rows if row["part"] == "tuned"]
    worst_tau = max((max(abs(each) for each in bounds(row["tau_error"])) for row in rows), default=0.0)
    worst = max((max(abs(each) for each in bounds(row["staleness_error"])) for row in rows), default=0.0)
    return [
        Claim(
            text="(e) 7: with δ chosen from a wanted staleness, τ is as predicted within 10 %",
            paper="–",
            ours=f"at most {100.0 * worst_tau:.1f} % off, interval included",
            verdict=Verdict.HOLDS if worst_tau <= 0.10 else Verdict.FAILS,
        ),
        Claim(
            text="(e) 7: and the wanted staleness is what comes out, within 10 %",
            paper="–",
            ours=f"at most {100.0 * worst:.1f} % off, interval included",
            verdict=Verdict.HOLDS if worst <= 0.10 else Verdict.FAILS,
        ),
    ]


def _cells(row: Row) -> list[str]:
    return [
        show(row["rate"], "{:.1f}"),
        show(row["drop_rate"], "{:.2f}", 100.0),
        show(row["dispersion"], "{:.2f}"),
        show(row["staleness"], "{:.2f}"),
        show(row["p99"], "{:.0f}", 1e3),
        show(row["fairness"], "{:.4f}"),
        show(row["timeout"], "{:.1f}"),
        show(row["t_bck"], "{:.2f}"),
    ]


HEAD = ["requests/s", "drops %", "dispersion", "staleness s", "p99 ms", "fairness", "timeout s", "back-off s"]


def _levels(found: Found) -> Table:
    rows = [row for row in found.rows if row["part"] == "plain"]
    return Table(
        title="Workload A, single ideas",
        head=["m", "level", *HEAD],
        rows=[[str(row["m"]), row["variant"], *_cells(row)] for row in rows],
        note=f"`{NDELTA}` is Algorithm 2 to the letter: it adds N·δ at once, or keeps the old value if that reaches T.",
    )


def _slowed(found: Found) -> Table:
    rows = [row for row in found.rows if row["part"] == "frozen"]
    return Table(
        title="Workload C, m = 200, with and without freezing",
        head=["level", *HEAD, "against unslowed"],
        rows=[[row["variant"], *_cells(row), show(row["feedback"], "{:.3f}")] for row in rows],
    )


def _cached(found: Found) -> Table:
    rows = [row for row in found.rows if row["part"] == "cache"]
    return Table(
        title="Workload A, with and without a cache of identical queries at the broker",
        head=["m", "level", "cache", *HEAD],
        rows=[[str(row["m"]), row["variant"], "yes" if row["cache"] else "no", *_cells(row)] for row in rows],
        note="A burst that comes at once does not fit into the queue, however quickly it is answered.",
    )


def _queues(found: Found) -> Table:
    rows = [row for row in found.rows if row["part"] == "burst"]
    return Table(
        title="Longest queue after one common event, nothing dropped",
        head=["m", "level", "requests"],
        rows=[[str(row["m"]), row["variant"], show(row["longest_queue"], "{:.1f}")] for row in rows],
    )


def _tuning(found: Found) -> Table:
    rows = [row for row in found.rows if row["part"] == "tuned"]
    return Table(
        title="δ from a wanted staleness",
        head=["wanted s", "losses/s", "staleness s", "τ s", "prediction of τ is off by"],
        rows=[
            [
                f"{row['target']:g}",
                f"{row['nu']:g}",
                show(row["staleness"], "{:.2f}"),
                show(row["tau"], "{:.2f}"),
                f"{100.0 * row['tau_error']['mean']:+.1f} %",
            ]
            for row in rows
        ],
    )
