"""E1.3: what a rare sender's messages wait with and without priority. Spec 1 (c), Fig 7 of the paper.

The claim: the longest latency with priority equals the shortest without. With an idle broker priority cannot matter,
and without preemption nobody is spared the rest of a service in progress; so utilisation is a parameter.
"""

from __future__ import annotations

from typing import Any

from tidegate.lab.backoff import latency_page, latency_real, latency_sim
from tidegate.lab.backoff.latency_sim import (
    FAST,
    MODELS,
    PATIENCE,
    POLICIES,
    RARE_RATE,
    SERVICE,
    UTILISATIONS,
)
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.statistics import columns, summarise_all


def run(context: Context) -> dict[str, Any]:
    seeds = context.number_of_seeds(20, 3)
    seconds = 60.0 if context.is_quick else 300.0
    data: dict[str, Any] = {
        "parameters": {
            "fast senders": f"{FAST}, Poisson, rates within 20 % of their mean",
            "rare sender": f"{RARE_RATE:g} messages a second",
            "service": f"{SERVICE * 1e3:g} ms, constant, not preemptive",
            "patience of ageing": f"{PATIENCE:g} s",
            "utilisation": list(UTILISATIONS),
            "models": {
                "queue": "everything sent waits at the broker",
                "lanes": "one message of each sender waits at the broker, its next one outside",
            },
            "simulated seconds": seconds,
            "seeds": seeds,
        },
        "summary": [],
        "real": [],
        "seeds": [],
    }
    if context.wants(Part.SIM):
        cases = [(m, u, p) for m in MODELS for u in UTILISATIONS for p in POLICIES]
        for model, utilisation, policy in context.follow("e1.3 latency", cases):
            values = [
                latency_sim.simulate(policy, model, utilisation, seed, seconds) for seed in range(seeds)
            ]
            row = {"model": model, "utilisation": utilisation, "policy": policy}
            data["summary"].append({**row, **summarise_all(values)})
            data["seeds"].append({**row, "values": columns(values)})
    if context.wants(Part.REAL):
        data["parameters"]["real"] = latency_real.describe()
        data["real"] = latency_real.run(context)
    return data


EXPERIMENT = Experiment(
    name="e1.3-latency",
    title="Latency of a rare sender",
    question="How long does the message of a rare sender wait among those of thirty fast ones, and who pays for it?",
    run=run,
    present=latency_page.present,
)
