"""E1.1: bytes that a broker reads with and without back-off. Spec 1 (c), Fig 4 of the paper.

The claim: at 30 publishers 29 400 bytes without and 24 700 with back-off (-16.0 %), and less at every size. The paper
does not say how many of the messages it kept back were innocent, so that is counted here. The same seed gives the same
publishers to every policy.
"""

from __future__ import annotations

from typing import Any

from tidegate.lab.backoff import traffic_page, traffic_real
from tidegate.lab.backoff.population import WORKLOADS
from tidegate.lab.backoff.traffic_sim import BASE, ORIGINAL, SECONDS, VARIANTS, compare, simulate
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.statistics import columns, summarise, summarise_all
from tidegate.sim import Pace

SIZES = (2, 5, 10, 20, 30, 50, 100)
MIXED_SIZES = (10, 30, 100)
BASES = (2.0, 4.0, 6.0, 10.0, 20.0, 30.0, 60.0)
SWEEP = {"blocked": Pace.BLOCKED, "patient": Pace.PATIENT}


def run(context: Context) -> dict[str, Any]:
    seeds = context.number_of_seeds(40, 6)
    data: dict[str, Any] = {
        "parameters": {
            "publishers": list(SIZES),
            "workloads": WORKLOADS,
            "base interval": f"{BASE:g} s (simulated)",
            "duration": f"{SECONDS:g} s (simulated)",
            "message": "QoS 0, topic of 20 bytes, payload of 16: a PUBLISH of 40 bytes; CONNECT is not counted",
            "publisher": "blocked: it begins the next interval when its message was accepted",
            "anomalous": "ahead of the trained schedule by more than one interval (GCRA), by one that left its habit",
            "adaptive": "rate and dispersion as from a policy snapshot, floor_rate 0, load HIGH",
            "seeds": f"{seeds} from 0; more for fewer than 20 publishers",
        },
        "summary": [],
        "sweep": [],
        "real": [],
        "seeds": [],
    }
    if context.wants(Part.SIM):
        _simulated(context, data, seeds)
    if context.wants(Part.REAL):
        data["parameters"]["real"] = traffic_real.describe(context)
        data["real"] = traffic_real.run(context)
    return data


def _simulated(context: Context, data: dict[str, Any], seeds: int) -> None:
    cases = [("spec", size) for size in SIZES]
    cases += [(workload, size) for workload in ("mixed", "attack") for size in MIXED_SIZES]
    for workload, size in context.follow("e1.1 traffic", cases):
        # One message more or less is much for two publishers: small numbers get more seeds, and are cheap.
        count = seeds * max(1, min(8, 20 // size))
        originals = [simulate(ORIGINAL, workload, size, seed, record=context.record) for seed in range(count)]
        for variant in VARIANTS:
            if variant == ORIGINAL:
                continue
            mode = variant.rpartition(" ")[2]
            values = [
                compare(originals[seed], simulate(variant, workload, size, seed, record=context.record), mode)
                for seed in range(count)
            ]
            row = {"workload": workload, "publishers": size, "variant": variant}
            data["summary"].append({**row, **summarise_all(values)})
            data["seeds"].append({**row, "values": columns(values)})
    # The paper does not state its base interval, and the formula depends on it: exp(rate) is no rate.
    sweep_seeds = min(seeds, 4 if context.is_quick else 20)
    pairs = [(base, pace) for base in BASES for pace in SWEEP]
    for base, pace in context.follow("e1.1 base interval", pairs):
        saved = []
        for seed in range(sweep_seeds):
            options: dict[str, Any] = {"base": base, "pace": SWEEP[pace]}
            before = simulate(ORIGINAL, "spec", 30, seed, **options)
            after = simulate("paper, backpressure", "spec", 30, seed, **options)
            saved.append(compare(before, after, "backpressure")["saving_read"])
        data["sweep"].append({"base": base, "pace": pace, "saving_read": summarise(saved), "values": saved})


EXPERIMENT = Experiment(
    name="e1.1-traffic",
    title="Traffic",
    question="How many bytes does back-off keep from the broker, and were they the right ones?",
    run=run,
    present=traffic_page.present,
)
