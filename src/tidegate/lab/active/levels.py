"""E3.1 to E3.3: the benefit of each level of control, which the paper plans to measure and does not (spec 3 (c)).

Workload A (slides): an update every 30 s that all KPs see at once. B: updates at random, one in 10 s. C: as B, and the
SIB's capacity is halved for a minute. Hypotheses: level 3 has fewer drops and a lower p99 than level 2 once the KPs
can fill the SIB; its staleness is not worse than level 2's by more than the mean back-off; level 2 is worse than
level 1 in overload. And of the product: drops at most a tenth of level 2's in A at m = 200, peak to mean at most half,
staleness no worse than level 3's; in C requests do not rise when capacity falls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from random import Random
from typing import Any

from tidegate.lab.active import levels_page
from tidegate.lab.active.measures import measure, rate_between
from tidegate.lab.active.model import MU, P0, PATIENCE, T_NET, USE, Q, World, simulate
from tidegate.lab.active.variants import ACTIVE, LEVEL_1, LEVEL_2, LEVEL_3, PARTS, VARIANTS, Variant
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.parallel import parallel
from tidegate.lab.statistics import columns, summarise_all

SIZES = (10, 50, 100, 200, 500)
SECONDS = 600.0
SLOW = (300.0, 360.0)
EVERY = 30.0
RATE = 0.1
Record = Callable[[Any], None]
TWINS = (LEVEL_1, LEVEL_2, LEVEL_3, ACTIVE)  # in C also run with the capacity left alone


def slides(seconds: float) -> tuple[float, ...]:
    return tuple(EVERY * number for number in range(1, int(seconds / EVERY)))


def poisson(seed: int, seconds: float) -> tuple[float, ...]:
    random, now, found = Random(f"{seed}/updates"), 0.0, []
    while (now := now + random.expovariate(RATE)) < seconds:
        found.append(now)
    return tuple(found)


def world_of(workload: str, m: int, seed: int, variant: Variant, *, seconds: float = SECONDS) -> World:
    return World(
        m=m,
        updates=slides(seconds) if workload == "A" else poisson(seed, seconds),
        seconds=seconds,
        slow=SLOW if workload == "C" else (inf, inf),
        announces_rate=variant.announces_rate,
    )


def one(workload: str, m: int, variant: Variant, seed: int, record: Record | None = None) -> dict[str, Any]:
    """All measures of a run; in C, for those in question, also against the same run with its capacity left alone."""
    name = (variant.level, variant.requirement, variant.first)
    outcome = simulate(variant.make(), world_of(workload, m, seed, variant), seed, name=name, record=record)
    found = measure(outcome)
    if workload == "C":
        found["rate_before"] = rate_between(outcome, SLOW[0] - 60.0, SLOW[0])
        found["rate_slow"] = rate_between(outcome, *SLOW)
        found["feedback"] = None
    if workload == "C" and m >= 200 and variant.name in TWINS:
        whole = simulate(variant.make(), world_of("B", m, seed, variant), seed)
        unslowed = rate_between(whole, *SLOW)
        found["feedback"] = found["rate_slow"] / unslowed if unslowed else None
    return found


def _named(workload: str, m: int, name: str, seed: int) -> dict[str, Any]:
    """For another process, which a variant cannot be sent to."""
    return one(workload, m, (VARIANTS | PARTS)[name], seed)


def _all_seeds(workload: str, m: int, variant: Variant, seeds: int, record: Record | None) -> list[dict[str, Any]]:
    if record is not None:
        return [one(workload, m, variant, seed, record) for seed in range(seeds)]
    return list(parallel(partial(_named, workload, m, variant.name), range(seeds)))


def run(workload: str, context: Context) -> dict[str, Any]:
    seeds = context.number_of_seeds(30, 2)
    sizes = (50, 200) if context.is_quick else SIZES
    everybody = [VARIANTS[name] for name in VARIANTS]
    cases = [(m, variant) for m in sizes for variant in everybody]
    cases += [(200, variant) for variant in PARTS.values()]
    data: dict[str, Any] = {
        "parameters": {
            "SIB": f"first come, first served; {MU:g} requests/s, exponential; queue of {Q}",
            "a drop": f"is noticed after {PATIENCE:g} s",
            "notifications": f"lost with p0 = {P0:g}, more as the queue fills",
            "network": f"{T_NET * 1e3:g} ms there and back",
            "announced rate": f"{USE:g} of the capacity, shared by all KPs",
            "workload": workload,
            "m": list(sizes),
            "seconds": SECONDS,
            "seeds": seeds,
        },
        "summary": [],
        "seeds": [],
    }
    for m, variant in context.follow(f"e3 workload {workload}", cases):
        values = _all_seeds(workload, m, variant, seeds, context.record)
        row = {"m": m, "variant": variant.name}
        data["summary"].append({**row, **summarise_all(values)})
        if context.is_quick or m >= 100:
            data["seeds"].append({**row, "values": columns(values)})
    return data


def _experiment(name: str, workload: str, title: str, question: str) -> Experiment:
    runner: Callable[[Context], dict[str, Any]] = partial(run, workload)
    return Experiment(
        name=name,
        title=title,
        question=question,
        run=runner,
        present=partial(levels_page.present, workload),
        parts=(Part.SIM,),
    )


SLIDES = _experiment(
    "e3.1-slides", "A", "Workload A: everybody sees an update at once",
    "What do the levels of control cost and save when all clients react to the same event?",
)  # fmt: skip
RANDOM = _experiment(
    "e3.2-random", "B", "Workload B: updates at random",
    "What do the levels of control cost and save when updates come at random?",
)  # fmt: skip
SLOWED = _experiment(
    "e3.3-slowed", "C", "Workload C: the broker is slow for a minute",
    "Do clients ask more, or less, when the broker has half its capacity?",
)  # fmt: skip
