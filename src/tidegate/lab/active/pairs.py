"""Comparisons seed by seed: the same updates and the same luck, so differences have narrow intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.lab.experiment import Verdict
from tidegate.lab.statistics import show, summarise

Values = dict[tuple[int, str], dict[str, list[float]]]


def values_of(report: dict[str, Any]) -> Values:
    return {(row["m"], row["variant"]): row["values"] for row in report["seeds"]}


def paired(
    values: Values, m: int, first: str, second: str, key: str, how: Callable[[float, float], float]
) -> dict[str, Any] | None:
    """Summary of how(first, second) over seeds; None if one of them was not run."""
    one, other = values.get((m, first)), values.get((m, second))
    if one is None or other is None:
        return None
    both = zip(one[key], other[key], strict=True)
    return summarise(how(a, b) for a, b in both if a is not None and b is not None)


def difference(a: float, b: float) -> float:
    return a - b


def bounds(summary: dict[str, Any]) -> tuple[float, float]:
    """Ends of the 95 % interval; of a single value, that value."""
    width = summary["half_width"] or 0.0
    return summary["mean"] - width, summary["mean"] + width


def below(summary: dict[str, Any] | None, limit: float) -> Verdict:
    """Holds if the whole interval is below the limit, fails if it is above, and else nobody knows."""
    if summary is None or summary["mean"] is None:
        return Verdict.NOT_JUDGED
    low, high = bounds(summary)
    if high <= limit:
        return Verdict.HOLDS
    return Verdict.FAILS if low > limit else Verdict.NOT_JUDGED


def expected(summary: dict[str, Any] | None, limit: float) -> Verdict:
    """Of what the paper expects to be below: an interval that includes the limit shows no such thing."""
    verdict = below(summary, limit)
    is_known = summary is not None and summary["mean"] is not None
    return Verdict.DIFFERS if is_known and verdict is not Verdict.HOLDS else verdict


def text(summary: dict[str, Any] | None, form: str = "{:+.3g}", scale: float = 1.0) -> str:
    return show(summary, form, scale)
