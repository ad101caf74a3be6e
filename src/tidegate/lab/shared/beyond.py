"""Spec 5 (e) 7 and 9, simulated: members at different distances, and messages whose order matters.

Ours: knowing the way to a member (half a round trip) shortens waits; with ordering keys a key's messages are worked on
one after the other far more often, at a price in waiting that is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import Any, Final

from tidegate.flow import shared_policy
from tidegate.flow.shared import EarliestFinish, Ordering, SharedPolicy
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.shared import beyond_page
from tidegate.lab.shared.scenarios import CALIBRATED, FAST, SLOW, constant, regular
from tidegate.lab.shared.simulate import Delivery, Outcome, Signal, Worker, simulate
from tidegate.lab.statistics import percentile

DELAYS: Final = (0.0, 0.02, 0.05)  # seconds, one way
LOADS: Final = (0.4, 0.8)  # of what the members can do
KEYS: Final = 10
ORDER_INTERVALS: Final = (CALIBRATED, 0.0125, 0.02)
BOUNDS: Final = (1.25, 2.0, 4.0)


def _waits(outcomes: Sequence[Outcome]) -> dict[str, float]:
    means = [fmean(outcome.waits()) * 1e3 for outcome in outcomes]
    every = [wait * 1e3 for outcome in outcomes for wait in outcome.waits()]
    return {"mean": fmean(means), "worst": max(means), "p99": percentile(every, 0.99)}


def distance(load: float, policy: str, signal: Signal, *, is_measured: bool, phases: int) -> dict[str, Any]:
    """Three equal members at 0, 20 and 50 ms."""
    workers = [Worker(service=constant(FAST), delay=delay, is_measured=is_measured) for delay in DELAYS]
    interval = FAST / len(DELAYS) / load
    outcomes = [
        simulate(shared_policy(policy)(), workers, regular(interval), signal=signal, seed=seed)
        for seed in range(1, phases + 1)
    ]
    shares = [
        fmean(sum(each.member == member for each in outcome.deliveries) for outcome in outcomes)
        for member in range(len(workers))
    ]
    return {
        "load": load,
        "policy": policy,
        "signal": signal,
        "is_measured": is_measured,
        **_waits(outcomes),
        "shares": [share / sum(shares) for share in shares],
    }


def out_of_order(deliveries: Sequence[Delivery]) -> tuple[int, int]:
    """Messages that began before an earlier one of their key was done, and those that were done before it."""
    latest: dict[bytes, float] = {}
    beside = overtaking = 0
    for delivery in deliveries:
        before = latest.get(delivery.key, 0.0) - 1e-9
        beside += delivery.t_dequeued < before
        overtaking += delivery.t_done < before
        latest[delivery.key] = max(before, delivery.t_done)
    return beside, overtaking


def _keyed(seed: int, length: int) -> list[bytes]:
    random = Random(f"{seed}/keys")
    return [f"key/{random.randrange(KEYS)}".encode() for _ in range(length)]


def order(interval: float, name: str, policies: Sequence[SharedPolicy], signal: Signal) -> dict[str, Any]:
    """The members of E5.2, each message with one of `KEYS` keys; a run for each policy object."""
    workers = [Worker(service=constant(seconds)) for seconds in (FAST, FAST, SLOW)]
    times = regular(interval)
    outcomes = []
    for seed, policy in enumerate(policies, 1):
        keys = _keyed(seed, len(times))
        outcomes.append(simulate(policy, workers, times, signal=signal, seed=seed, topic=keys.__getitem__))
    found = [out_of_order(outcome.deliveries) for outcome in outcomes]
    return {
        "interval": interval,
        "policy": name,
        **_waits(outcomes),
        "beside": 1e3 * fmean(beside for beside, _ in found) / len(times),
        "overtaking": 1e3 * fmean(overtaking for _, overtaking in found) / len(times),
    }


def run(context: Context) -> dict[str, Any]:
    phases = context.number_of_seeds(20, 3)
    data: dict[str, Any] = {
        "parameters": {
            "distance": f"three members of {FAST * 1e3:g} ms, one way {', '.join(f'{d * 1e3:g}' for d in DELAYS)} ms",
            "order": f"the members of E5.2, {KEYS} keys drawn for each message, acknowledgements",
            "phases": phases,
        },
        "summary": [],
        "order": [],
        "seeds": [],
    }
    cases = [
        (load, policy, signal, is_measured)
        for load in LOADS
        for policy, signal, is_measured in (
            ("round_robin", Signal.NOTHING, True),
            ("thesis", Signal.THESIS, True),
            ("earliest_finish", Signal.EVENTS, False),
            ("earliest_finish", Signal.EVENTS, True),
            ("earliest_finish", Signal.ACKNOWLEDGED, False),
            ("earliest_finish", Signal.ACKNOWLEDGED, True),
        )
    ]
    for load, policy, signal, is_measured in context.follow("distance", cases):
        data["summary"].append(distance(load, policy, signal, is_measured=is_measured, phases=phases))
    for interval in context.follow("ordering keys", ORDER_INTERVALS):
        several = range(phases)
        rules: dict[str, list[SharedPolicy]] = {
            "no keys": [EarliestFinish() for _ in several],
            "hash, topic": [shared_policy("hash_topic")() for _ in several],
        }
        for bound in BOUNDS:
            rules[f"keys, bound {bound:g}"] = [
                EarliestFinish(ordering=Ordering.TOPIC, bound=bound) for _ in several
            ]
        data["order"] += [
            order(interval, name, policies, Signal.ACKNOWLEDGED) for name, policies in rules.items()
        ]
    return data


EXPERIMENT = Experiment(
    name="distance-order",
    title="Distance and order",
    question="What do members far away and messages that must stay in order change?",
    run=run,
    present=beyond_page.present,
    parts=(Part.SIM,),
)
