"""Experiments E5.1 to E5.6 of spec 5: members, messages, and what is measured.

Over sockets the same scenarios run: clients find theirs by its name in `SCENARIOS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tidegate.flow import shared_policy
from tidegate.lab.shared.simulate import Outcome, Signal, Worker, simulate
from tidegate.lab.statistics import percentile

SECONDS = 15.0  # Table 6
NOMINAL = 0.010
CALIBRATED = 0.01029  # the publisher's real interval, from the growth of the queue in Table 7
FAST = 0.025
SLOW = 0.050


def constant(seconds: float) -> Callable[[float], float]:
    return lambda _now: seconds


def changing(before: float, after: float, at: float) -> Callable[[float], float]:
    return lambda now: before if now < at else after


def regular(interval: float, seconds: float = SECONDS) -> list[float]:
    return [number * interval for number in range(int(seconds / interval))]


def bursts(size: int = 40, gap: float = 0.001, every: float = 0.5, seconds: float = SECONDS) -> list[float]:
    return [start * every + number * gap for start in range(int(seconds / every)) for number in range(size)]


@dataclass(slots=True, kw_only=True, frozen=True)
class Scenario:
    """Members and the times of messages, in seconds from the start."""

    name: str
    workers: tuple[Worker, ...]
    times: Sequence[float]

    def until(self, seconds: float) -> Scenario:
        """The beginning of it."""
        return replace(self, times=[time for time in self.times if time < seconds])


def _workers(*services: float) -> tuple[Worker, ...]:
    return tuple(Worker(service=constant(seconds)) for seconds in services)


def equal(interval: float = CALIBRATED) -> Scenario:
    return Scenario(name="E5.1", workers=_workers(FAST, FAST, FAST), times=regular(interval))


def unequal(interval: float = CALIBRATED) -> Scenario:
    name = "E5.2" if interval == CALIBRATED else f"E5.2 at {interval * 1e3:g} ms"
    return Scenario(name=name, workers=_workers(FAST, FAST, SLOW), times=regular(interval))


def speed_change(interval: float = CALIBRATED) -> Scenario:
    slowing = Worker(service=changing(FAST, SLOW, 7.0))
    return Scenario(name="E5.3", workers=(*_workers(FAST, FAST), slowing), times=regular(interval))


def burst() -> Scenario:
    return Scenario(name="E5.4", workers=_workers(FAST, FAST, SLOW), times=bursts())


def churn(interval: float = CALIBRATED) -> Scenario:
    """A fourth member joins at 5 s, a fast one leaves at 10 s: what is left can just bear the load."""
    workers = (
        Worker(service=constant(FAST), leaves=10.0),
        *_workers(FAST, SLOW),
        Worker(service=constant(FAST), joins=5.0),
    )
    return Scenario(name="E5.6", workers=workers, times=regular(interval))


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (equal(), unequal(), unequal(NOMINAL), speed_change(), burst(), churn())
}


@dataclass(slots=True, kw_only=True)
class Summary:
    """Over all phases; times in seconds. `split`: mean number of messages 500 to 999 that each member got."""

    mean: float
    worst: float
    p99: float
    split: list[float]
    control_bytes: float
    means: list[float]


def measure(
    scenario: Scenario,
    policy: str,
    signal: Signal,
    *,
    phases: int = 20,
    interval: float = 1.0,
    first_seed: int = 1,
) -> Summary:
    """The same scenario in `phases` runs that differ in the phase of the ping timers."""
    make = shared_policy(policy)
    outcomes = [
        simulate(make(), scenario.workers, scenario.times, signal=signal, interval=interval, seed=seed)
        for seed in range(first_seed, first_seed + phases)
    ]
    means = [fmean(outcome.waits()) for outcome in outcomes]
    return Summary(
        mean=fmean(means),
        worst=max(means),
        p99=percentile([wait for outcome in outcomes for wait in outcome.waits()], 0.99),
        split=[
            fmean(_stable(outcome, member) for outcome in outcomes) for member in range(len(scenario.workers))
        ],
        control_bytes=fmean(outcome.control_bytes for outcome in outcomes),
        means=means,
    )


def _stable(outcome: Outcome, member: int) -> int:
    """Messages 500 to 999 of tables 7 and 8 that a member got."""
    return sum(delivery.member == member for delivery in outcome.deliveries[500:1000])
