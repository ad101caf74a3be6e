"""E3.5: clients with active control behind the broker's back-off (spec 3 (e) 8, the bridge to paper 1).

Two controls act on the same requests: the client's timeout, and the gate of the MQTT broker, which holds publishers
that leave their habit. If a client that honours its back-off were taken for an attacker, or if the two controls
pushed each other to and fro, both would be harmful. The gate is as strict as it can be: no floor rate, load HIGH all
the time. Workload A, then C, m = 100. In half of the runs one client in twenty is a rogue that asks ten times a second
from the middle of the run on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from tidegate.flow.backoff import AdaptiveBackoff, AdaptiveSettings, Load, Mode
from tidegate.flow.timeout import Check
from tidegate.lab.active import joint_page
from tidegate.lab.active.levels import SECONDS, world_of
from tidegate.lab.active.measures import measure
from tidegate.lab.active.model import Kp, simulate
from tidegate.lab.active.variants import ACTIVE, LEVEL_2, LEVEL_3, VARIANTS
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.parallel import parallel
from tidegate.lab.statistics import columns, summarise_all
from tidegate.sim import Arrival, Gate, Simulation

M = 100
NAMES = (LEVEL_2, LEVEL_3, ACTIVE)
ROGUES = 5
ROGUE_START = 300.0
ROGUE_INTERVAL = 0.1
SIZE = 64


class Ledger:
    """What the gate did, to whom."""

    def __init__(self) -> None:
        self.sent = {"client": 0, "rogue": 0}
        self.held = {"client": 0, "rogue": 0}
        self.seconds = {"client": 0.0, "rogue": 0.0}

    def attach(self, sim: Simulation, kps: list[Kp], rogues: int) -> None:
        policy = AdaptiveBackoff(AdaptiveSettings(floor_rate=0.0), mode=Mode.BACKPRESSURE)
        policy.load = Load.HIGH
        gate = Gate(sim, policy)
        for kp in kps:
            kp.gate = self._door(gate, f"kp{kp.number}", "rogue" if kp.number < rogues else "client")

    def _door(self, gate: Gate, name: str, kind: str) -> Callable[[Callable[[], None]], None]:
        waiting: dict[int, Callable[[], None]] = {}
        number = 0

        def accepted(arrival: Arrival) -> None:
            self.held[kind] += arrival.hold > 0.0
            self.seconds[kind] += arrival.hold
            waiting.pop(arrival.number)()

        inlet = gate.open(gate.policy.publisher(name), accepted)

        def send(action: Callable[[], None]) -> None:
            nonlocal number
            number += 1
            self.sent[kind] += 1
            waiting[number] = action
            inlet.send(Arrival(number=number, size_bytes=SIZE, t_sent=gate.sim.now))

        return send

    def share(self, kind: str) -> float:
        return self.held[kind] / self.sent[kind] if self.sent[kind] else 0.0


class RogueLoop:
    """Asks like the others, and from some moment on ten times a second, whatever it is told."""

    counts_reactions: bool = False
    t_bck = 0.0
    t_avg = 0.0
    threshold = inf
    is_congested = False
    t_ast = 5.0

    def __init__(self) -> None:
        self._time = 0.0

    def start(self, random: Any) -> float:
        return float(random.random() * self.t_ast)

    def check(self, check: Check, random: Any) -> float:
        self._time += check.interval
        return ROGUE_INTERVAL if self._time >= ROGUE_START else self.t_ast

    def react(self, random: Any, load: Any = None) -> float:
        return 0.0

    def retry(self, check: Check, random: Any) -> float | None:
        return None


def one(workload: str, name: str, has_gate: bool, has_rogues: bool, seed: int) -> dict[str, Any]:
    variant = VARIANTS[name]
    ledger = Ledger()

    def attach(sim: Simulation, kps: list[Kp]) -> None:
        if has_rogues:
            for kp in kps[:ROGUES]:
                kp.loop = RogueLoop()
        if has_gate:
            ledger.attach(sim, kps, ROGUES if has_rogues else 0)

    outcome = simulate(variant.make(), world_of(workload, M, seed, variant), seed, attach=attach)
    found = measure(outcome)
    return {
        **{
            key: found[key] for key in ("drop_rate", "dispersion", "peak_to_mean", "staleness", "p99", "rate")
        },
        "swing": swing(outcome.arrivals),
        "held": ledger.share("client"),
        "hold": ledger.seconds["client"] / max(1, ledger.sent["client"]),
        "rogue_held": ledger.share("rogue"),
    }


def swing(arrivals: list[int]) -> float:
    """Largest autocorrelation of requests per second at 2 to 25 s: near 1 for an oscillation, near 0 for none."""
    series = [sum(arrivals[at : at + 10]) for at in range(600, len(arrivals) - 10, 10)]
    mean = sum(series) / len(series)
    centred = [value - mean for value in series]
    power = sum(value * value for value in centred)
    if power == 0.0:
        return 0.0
    best = 0.0
    for lag in range(2, 26):
        together = sum(a * b for a, b in zip(centred, centred[lag:], strict=False))
        best = max(best, together / power)
    return best


def run(context: Context) -> dict[str, Any]:
    seeds = context.number_of_seeds(30, 2)
    data: dict[str, Any] = {
        "parameters": {
            "m": M,
            "gate": "adaptive back-off, floor rate 0, load HIGH throughout",
            "rogues": f"{ROGUES} that ask every {ROGUE_INTERVAL:g} s from {ROGUE_START:g} s on",
            "seconds": SECONDS,
            "seeds": seeds,
        },
        "summary": [],
        "seeds": [],
    }
    cases = [
        (workload, name, has_gate, has_rogues)
        for workload in ("A", "C")
        for name in NAMES
        for has_gate in (False, True)
        for has_rogues in (False, True)
    ]
    for workload, name, has_gate, has_rogues in context.follow("e3.5 joint", cases):
        values = list(parallel(partial(one, workload, name, has_gate, has_rogues), range(seeds)))
        row = {"workload": workload, "variant": name, "gate": has_gate, "rogues": has_rogues}
        data["summary"].append({**row, **summarise_all(values)})
        data["seeds"].append({**row, "values": columns(values)})
    return data


EXPERIMENT = Experiment(
    name="e3.5-joint",
    title="Active control and the broker's back-off together",
    question="Does the broker's back-off hold clients that honour active control, or do the two oscillate?",
    run=run,
    present=joint_page.present,
    parts=(Part.SIM,),
)
