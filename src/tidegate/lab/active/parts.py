"""E3.7: what each idea beyond the paper is worth by itself (spec 3 (e) 1, 2, 3, 4, 6 and 7).

1. A back-off drawn uniformly from nothing to twice its mean, against the paper's around its mean: where back-off acts,
   workload A with 500 KPs. 2. The queue that the first common event makes, without a bound on it. 3. Losses under
   congestion do not speed up polling: workload C, with and without. 4. Pace from the server against the paper's advice:
   bytes of an answer, and fairness. 6. Identical queries answered once, with each level: what remains for clients to
   gain. 7. δ chosen from a wanted staleness: is it kept, and is τ as predicted?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from tidegate.flow.timeout import NAME, Announcement, Strategy, StrategySettings, delta_for, sawtooth
from tidegate.lab.active import parts_page
from tidegate.lab.active.levels import SLOW, world_of
from tidegate.lab.active.measures import measure, rate_between
from tidegate.lab.active.model import MU, USE, Kp, World, simulate
from tidegate.lab.active.variants import (
    ACTIVE,
    LEVEL_1,
    LEVEL_2,
    LEVEL_3,
    NDELTA,
    NO_FREEZING,
    NO_PACE,
    NO_PACE_OR_FREEZING,
    PARTS,
    SINGLE,
    UNIFORM,
    VARIANTS,
    Variant,
)  # fmt: skip
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.parallel import parallel
from tidegate.lab.statistics import columns, summarise_all
from tidegate.sim import Simulation

ALL = VARIANTS | PARTS | SINGLE
ADVICE = tuple(name for name in VARIANTS if name.endswith("advice"))
NO_PRE_DELAY = "active without pre-delay"
PROPERTY = 5 + len(NAME)  # bytes of a User Property beside its value: its kind and two lengths
TARGETS = ((2.0, 0.05), (5.0, 0.02), (10.0, 0.01), (20.0, 0.002))  # seconds of staleness, losses per second
CHECKS = 20_000
EVENT = 240.0  # seconds

Case = tuple[str, str, int]  # workload, variant, KPs
PLAIN: tuple[Case, ...] = (
    *(("A", name, 500) for name in (LEVEL_3, UNIFORM)),
    *(("A", name, 200) for name in (LEVEL_2, NDELTA, ACTIVE, *ADVICE)),
    *(("A", name, 500) for name in (ACTIVE, *ADVICE)),
)
FROZEN = (LEVEL_2, ACTIVE, NO_FREEZING, NO_PACE, NO_PACE_OR_FREEZING)
SHARED = (LEVEL_1, LEVEL_2, LEVEL_3, ACTIVE)


def plain(workload: str, name: str, m: int, seed: int) -> dict[str, Any]:
    return measure(simulate(ALL[name].make(), world_of(workload, m, seed, ALL[name]), seed))


def cached(name: str, m: int, is_cached: bool, seed: int) -> dict[str, Any]:
    world = replace(world_of("A", m, seed, ALL[name]), caches=is_cached)
    return measure(simulate(ALL[name].make(), world, seed))


def first_burst(name: str, m: int, seed: int) -> dict[str, Any]:
    """The longest queue after one update that everybody sees, if nothing is dropped; KPs know their pace by then."""
    variant: Variant = ALL[name]
    world = World(m=m, updates=(EVENT,), seconds=EVENT + 60.0, announces_rate=variant.announces_rate, queue=10**9)

    def forget(sim: Simulation, kps: list[Kp]) -> None:
        sim.at(EVENT, lambda: setattr(kps[0].outcome, "longest_queue", 0))

    return {"longest_queue": simulate(variant.make(), world, seed, attach=forget).longest_queue}


def frozen(name: str, seed: int) -> dict[str, Any]:
    """Workload C, and the same run with its capacity left alone."""
    variant = ALL[name]
    slowed = simulate(variant.make(), world_of("C", 200, seed, variant), seed)
    whole = simulate(variant.make(), world_of("B", 200, seed, variant), seed)
    rate = rate_between(slowed, *SLOW)
    return {**measure(slowed), "rate_slow": rate, "feedback": rate / rate_between(whole, *SLOW)}


def tuned(staleness: float, nu: float, seed: int) -> dict[str, Any]:
    """The adaptive strategy alone, with losses at random: its mean timeout and how long losses stay unseen."""
    random = Random(f"{seed}/{staleness}/{nu}")
    delta = delta_for(staleness, nu)
    strategy = Strategy(StrategySettings(delta=delta, start=staleness, low=1e-6, high=1e6))
    now = stale = 0.0
    lost, next_loss = 0, random.expovariate(nu)
    for _ in range(CHECKS):
        interval = strategy.t_ast
        now += interval
        losses = 0
        while next_loss <= now:
            losses += 1
            stale += now - next_loss
            next_loss += random.expovariate(nu)
        lost += losses
        strategy.next(losses, interval)
    tau = now / CHECKS
    return {
        "staleness": stale / lost,
        "tau": tau,
        "staleness_error": stale / lost / staleness - 1.0,
        "tau_error": sawtooth(2.0, delta, nu).mean / tau - 1.0,
    }


def answer_bytes() -> dict[str, int]:
    """What announcing costs an answer: everything, and the rate alone, which is what the paper's advice needs."""
    service = 1.0 / MU
    whole = Announcement(
        processing=service, queueing=0.512, limit=30 * service, capacity=MU, watchers=200, rate=USE * MU / 200
    )
    return {
        "whole": PROPERTY + len(whole.encode()),
        "rate": PROPERTY + len(Announcement(rate=whole.rate).encode()),
    }


def run(context: Context) -> dict[str, Any]:
    seeds = context.number_of_seeds(30, 2)
    jobs: list[tuple[dict[str, Any], Callable[[int], dict[str, Any]]]] = [
        *(({"part": "plain", "workload": w, "variant": v, "m": m}, partial(plain, w, v, m)) for w, v, m in PLAIN),
        *(({"part": "frozen", "variant": v, "m": 200}, partial(frozen, v)) for v in FROZEN),
        *(
            ({"part": "cache", "variant": v, "m": m, "cache": on}, partial(cached, v, m, on))
            for m in (200, 500)
            for v in SHARED
            for on in (False, True)
        ),
        *(
            ({"part": "burst", "variant": v, "m": m}, partial(first_burst, v, m))
            for m in (100, 200, 500)
            for v in (NO_PRE_DELAY, ACTIVE)
        ),
        *(({"part": "tuned", "target": s, "nu": nu}, partial(tuned, s, nu)) for s, nu in TARGETS),
    ]
    data: dict[str, Any] = {
        "parameters": {"SIB": "as in E3.1", "seeds": seeds, "answers from the cache": "a tenth of the time"},
        "bytes": answer_bytes(),
        "summary": [],
        "seeds": [],
    }
    for row, job in context.follow("e3.7 parts", jobs):
        values = list(parallel(job, range(seeds)))
        data["summary"].append({**row, **summarise_all(values)})
        data["seeds"].append({**row, "values": columns(values)})
    return data


EXPERIMENT = Experiment(
    name="e3.7-parts",
    title="The ideas beyond the paper, one by one",
    question="What is each idea beyond the paper worth by itself, and what remains to gain if the broker caches?",
    run=run,
    present=parts_page.present,
    parts=(Part.SIM,),
)
