"""What one run says: waits as the thesis has them, in milliseconds, the same for the simulator and for sockets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from tidegate.lab.statistics import percentile

STABLE = (500, 1000)  # messages of Tables 7 and 8
BIN = 25  # messages that one point of a figure stands for


@dataclass(slots=True)
class Handled:
    """One message: seconds from the start of its run. One that nobody took has the end of the run as `t_dequeued`."""

    msg_id: int
    member: int
    t_created: float
    t_dequeued: float

    @property
    def wait(self) -> float:
        return (self.t_dequeued - self.t_created) * 1e3


def table(handled: Sequence[Handled], members: int, first: int, last: int) -> list[dict[str, Any]]:
    """One row of Table 7 or 8 for each member, over messages `first` to `last`."""
    rows: list[dict[str, Any]] = []
    for member in range(members):
        waits = [each.wait for each in handled if each.member == member and first <= each.msg_id < last]
        row: dict[str, Any] = {"processed": len(waits), "min": None, "max": None, "mean": None, "sd": None}
        if waits:
            row |= {"min": min(waits), "max": max(waits), "mean": fmean(waits), "sd": pstdev(waits)}
        rows.append(row)
    return rows


def values(handled: Sequence[Handled], members: int) -> dict[str, Any]:
    """Numbers of one run."""
    waits = [each.wait for each in handled]
    start = [each.wait for each in handled if each.msg_id < STABLE[0]]
    return {
        "mean": fmean(waits),
        "p99": percentile(waits, 0.99),
        "max": max(waits),
        "start_mean": fmean(start),
        "start_max": max(start),
        "member_means": [row["mean"] for row in table(handled, members, 0, 1 << 30)],
        "stable": table(handled, members, *STABLE),
    }


def trace(runs: Sequence[Sequence[Handled]], length: int) -> list[float | None]:
    """Mean wait of each `BIN` messages over all runs."""
    bins: list[list[float]] = [[] for _ in range(-(-length // BIN))]
    for handled in runs:
        for each in handled:
            bins[each.msg_id // BIN].append(each.wait)
    return [round(fmean(waits), 3) if waits else None for waits in bins]


def merge(tables: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The table of several runs: extremes of all of them, means of the rest."""
    merged = []
    for rows in zip(*tables, strict=True):
        known = [row for row in rows if row["mean"] is not None]
        merged.append(
            {
                "processed": fmean(row["processed"] for row in rows),
                "min": min((row["min"] for row in known), default=None),
                "max": max((row["max"] for row in known), default=None),
                "mean": fmean(row["mean"] for row in known) if known else None,
                "sd": fmean(row["sd"] for row in known) if known else None,
            }
        )
    return merged


def summarise_runs(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over phases: the mean, the worst phase, and the tables in one."""
    members = len(runs[0]["stable"])
    member_means = [
        [run["member_means"][member] for run in runs if run["member_means"][member] is not None]
        for member in range(members)
    ]
    return {
        "phases": len(runs),
        "mean": fmean(run["mean"] for run in runs),
        "worst": max(run["mean"] for run in runs),
        "best": min(run["mean"] for run in runs),
        "p99": fmean(run["p99"] for run in runs),
        "max": max(run["max"] for run in runs),
        "start_mean": fmean(run["start_mean"] for run in runs),
        "start_max": fmean(run["start_max"] for run in runs),
        "start_worst": max(run["start_max"] for run in runs),
        "member_means": [fmean(found) if found else None for found in member_means],
        "stable": merge([run["stable"] for run in runs]),
    }
