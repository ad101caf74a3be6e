"""Means with Student intervals, and percentiles. Standard library only: the lab must not need more to be believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import atan, cos, pi, sin, sqrt
from statistics import fmean, stdev
from typing import Any


def student_probability(t: float, freedom: int) -> float:
    """P(-t < T < t) for Student's T with integer degrees of freedom; the finite sums of its closed form."""
    angle = atan(t / sqrt(freedom))
    cosine = cos(angle)
    term = total = 0.0
    if freedom % 2:
        if freedom > 1:
            term = total = cosine
            for k in range(3, freedom - 1, 2):
                term *= cosine * cosine * (k - 1) / k
                total += term
        return 2.0 / pi * (angle + sin(angle) * total)
    term = total = 1.0
    for k in range(2, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return sin(angle) * total


def student_quantile(freedom: int, confidence: float = 0.95) -> float:
    """The t that |T| stays below with this probability."""
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2.0
        if student_probability(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high


def summarise(values: Iterable[float]) -> dict[str, Any]:
    """Mean, half width of the 95 % interval (None for a single value), smallest, largest and how many."""
    known = list(values)
    if not known:
        return {"mean": None, "half_width": None, "min": None, "max": None, "n": 0}
    width = None
    if len(known) > 1:
        width = student_quantile(len(known) - 1) * stdev(known) / sqrt(len(known))
    return {"mean": fmean(known), "half_width": width, "min": min(known), "max": max(known), "n": len(known)}


def columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Values of every seed by name: the same as a list of records, in a fraction of the space."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def summarise_all(
    rows: Sequence[dict[str, Any]], *, without: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """The summary of each name; what is None in a seed is left out of it."""
    return {
        name: summarise(value for value in values if value is not None)
        for name, values in columns(rows).items()
        if name not in without
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank; `share` 0.99 for the 99th. Raises ValueError if there are no values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show(summary: dict[str, Any] | None, form: str = "{:.3g}", scale: float = 1.0) -> str:
    """A summary as text, `mean ± half width`; a dash where there is none."""
    if summary is None or summary.get("mean") is None:
        return "–"
    mean = form.format(summary["mean"] * scale)
    width = summary.get("half_width")
    return mean if width is None else f"{mean} ± {form.replace('+', '').format(width * scale)}"
