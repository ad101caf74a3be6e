"""From the raw counts of a run to the numbers that are compared (spec 3 (c), metrics)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pvariance
from typing import Any

from tidegate.flow.timeout import tail
from tidegate.lab.active.model import BIN, Outcome
from tidegate.lab.statistics import percentile

WINDOW = 1.0  # seconds, of the overload probability


def jain(values: Sequence[float]) -> float | None:
    """Fairness: 1 if all are equal, 1/n if one has everything."""
    total = sum(values)
    return total * total / (len(values) * sum(value * value for value in values)) if total else None


def windows(arrivals: Sequence[int]) -> list[int]:
    """Arrivals in windows of one second."""
    step = round(WINDOW / BIN)
    return [sum(arrivals[at : at + step]) for at in range(0, len(arrivals) - step + 1, step)]


def measure(outcome: Outcome) -> dict[str, Any]:
    """Times in seconds, shares of 1; None where there is nothing to measure."""
    world = outcome.world
    bins = outcome.arrivals[: int(world.seconds / BIN)]
    mean = fmean(bins)
    known = outcome.staleness
    responses = outcome.responses
    per_window = windows(bins)
    capacity = int(world.mu * WINDOW)
    total = len(world.updates) * world.m
    return {
        "sent": outcome.sent,
        "rate": outcome.sent / world.seconds,
        "drops": outcome.dropped,
        "drop_rate": outcome.dropped / outcome.sent if outcome.sent else 0.0,
        "utilisation": outcome.busy / world.seconds,
        "p50": percentile(responses, 0.5) if responses else None,
        "p95": percentile(responses, 0.95) if responses else None,
        "p99": percentile(responses, 0.99) if responses else None,
        "peak_to_mean": max(bins) / mean if mean else None,
        "dispersion": pvariance(bins) / mean if mean else None,
        "longest_queue": outcome.longest_queue,
        "staleness": fmean(known) if known else None,
        "staleness_p95": percentile(known, 0.95) if known else None,
        "missed": outcome.unknown / total if total else None,
        "per_useful": outcome.sent / len(known) if known else None,
        "overloaded": sum(count >= capacity for count in per_window) / len(per_window),
        "overloaded_poisson": tail(capacity, mean * WINDOW / BIN),
        "fairness": jain(outcome.intervals) if outcome.intervals else None,
        "t_bck": outcome.backoff / outcome.checks if outcome.checks else 0.0,
        "timeout": fmean(outcome.intervals) if outcome.intervals else None,
        "congested": outcome.congested / outcome.checks if outcome.checks else 0.0,
    }


def rate_between(outcome: Outcome, start: float, end: float) -> float:
    """Requests per second in a part of the run."""
    return sum(outcome.arrivals[round(start / BIN) : round(end / BIN)]) / (end - start)
