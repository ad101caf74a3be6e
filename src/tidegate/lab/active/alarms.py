"""E3.4: false alarms and detection. Spec 3 (e) 5, ambiguity 5, and the tail formula against Poisson load.

A response above the average is no congestion: a third to a half of all are. The SIB is kept at a stated utilisation
by strangers (Poisson), and probes judge their own responses by each test. Then its capacity is halved, and the time
until a probe notices is taken. The last part compares the share of overloaded seconds under Poisson load with the
tail formula.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from statistics import fmean
from typing import Any

from tidegate.flow.timeout import (
    Check,
    Light,
    Mediate,
    Requirement,
    Rigorous,
    RobustTest,
    Smoothed,
    arrivals,
    tail,
)
from tidegate.lab.active import alarms_page
from tidegate.lab.active.measures import windows
from tidegate.lab.active.model import BIN, MU, T_NET, Outcome, Sib, World
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.statistics import columns, summarise_all
from tidegate.sim import Simulation

UTILISATIONS = (0.3, 0.5, 0.7)
PROBES = 20
INTERVAL = 5.0
SECONDS = 1200.0
CHANGE = 600.0  # from here on a fraction of the capacity, in the part about detection
OVERLOAD = ((100, 5.0, 0.0, 30), (100, 5.0, 2.0, 30), (200, 5.0, 0.0, 50), (200, 5.0, 1.0, 50))


class _Paper:
    """A test of the paper with its smoothed average."""

    def __init__(self, requirement: Requirement) -> None:
        self._requirement = requirement
        self._smoothed = Smoothed()

    def add(self, check: Check) -> bool:
        threshold = self._requirement.threshold(check, self._smoothed.mean)
        self._smoothed.add(check.duration)
        return check.duration > threshold


class _Robust:
    def __init__(self) -> None:
        self._test = RobustTest()

    def add(self, check: Check) -> bool:
        return self._test.add(check.duration)


TESTS: dict[str, Callable[[], Any]] = {
    "rigorous": lambda: _Paper(Rigorous(1.0 / MU, T_NET)),
    "mediate": lambda: _Paper(Mediate(T_NET)),
    "light, θ = 1": lambda: _Paper(Light()),
    "light, θ = 1.5": lambda: _Paper(Light(1.5)),
    "robust (product)": _Robust,
}


def probe(utilisation: float, is_exponential: bool, seed: int, *, is_slowed: bool) -> dict[str, float | None]:
    """Share of alarms of each test; with `is_slowed`, seconds from the change until half the probes noticed."""
    sim = Simulation(seed)
    slow = (CHANGE, inf) if is_slowed else (inf, inf)
    world = World(m=PROBES, updates=(), seconds=SECONDS, is_exponential=is_exponential, slow=slow)
    sib = Sib(sim, world, Outcome(world))
    strangers = sim.random("strangers")
    rate = utilisation * MU - PROBES / INTERVAL

    def stranger() -> None:
        sib.arrive()
        sim.after(strangers.expovariate(rate), stranger)

    alarms = dict.fromkeys(TESTS, 0)
    noticed: dict[str, list[float]] = {name: [] for name in TESTS}
    checks = 0

    def start(number: int) -> None:
        tests = {name: make() for name, make in TESTS.items()}
        random = sim.random(f"probe{number}")
        saw: set[str] = set()

        def ask() -> None:
            asked = sim.now
            served = sib.arrive()
            if served is None:
                for name in tests:
                    note(name)
            else:
                sim.at(served + T_NET, lambda: judge(asked))
            sim.after(random.uniform(0.8, 1.2) * INTERVAL, ask)

        def judge(asked: float) -> None:
            nonlocal checks
            checks += 1
            check = Check(interval=INTERVAL, duration=sim.now - asked, load=sib.announce())
            for name, test in tests.items():
                if test.add(check):
                    alarms[name] += 1
                    note(name)

        def note(name: str) -> None:
            if sim.now > CHANGE and name not in saw:
                saw.add(name)
                noticed[name].append(sim.now - CHANGE)

        sim.after(random.random() * INTERVAL, ask)

    for number in range(PROBES):
        start(number)
    sim.after(strangers.expovariate(rate), stranger)
    sim.run(SECONDS)
    if not is_slowed:
        return {name: alarms[name] / checks for name in TESTS}
    half = PROBES // 2
    return {name: sorted(times)[half - 1] if len(times) >= half else None for name, times in noticed.items()}


def overloaded(m: int, tau: float, backoff: float, n: int, seed: int, seconds: float) -> float:
    """Share of seconds with `n` or more requests of m loops whose timeouts are exponential."""
    random = Random(f"{seed}/{m}/{backoff}")
    bins = [0] * int(seconds / BIN)
    for _ in range(m):
        now = random.expovariate(1.0 / (tau + backoff))
        while now < seconds:
            bins[int(now / BIN)] += 1
            now += random.expovariate(1.0 / (tau + backoff))
    counts = windows(bins)
    return fmean(count >= n for count in counts)


def run(context: Context) -> dict[str, Any]:
    seeds = context.number_of_seeds(30, 2)
    data: dict[str, Any] = {
        "parameters": {
            "probes": f"{PROBES}, one check in {INTERVAL:g} s each, among strangers' Poisson requests",
            "utilisation": list(UTILISATIONS),
            "seconds": SECONDS,
            "detection": f"capacity halved at {CHANGE:g} s, utilisation 0.7 before",
            "seeds": seeds,
        },
        "summary": [],
        "detection": [],
        "overload": [],
        "seeds": [],
    }
    cases = [(u, kind) for u in UTILISATIONS for kind in (True, False)]
    for utilisation, is_exponential in context.follow("e3.4 alarms", cases):
        values = [probe(utilisation, is_exponential, seed, is_slowed=False) for seed in range(seeds)]
        row = {"utilisation": utilisation, "service": "exponential" if is_exponential else "constant"}
        data["summary"].append({**row, **summarise_all(values)})
        data["seeds"].append({**row, "values": columns(values)})
    for is_exponential in context.follow("e3.4 detection", (True, False)):
        values = [probe(0.7, is_exponential, seed, is_slowed=True) for seed in range(seeds)]
        row = {"service": "exponential" if is_exponential else "constant"}
        data["detection"].append({**row, **summarise_all(values)})
    for m, tau, backoff, n in context.follow("e3.4 overload", OVERLOAD):
        shares = [{"share": overloaded(m, tau, backoff, n, seed, 600.0)} for seed in range(seeds)]
        expected = tail(n, arrivals(m, tau, 1.0, backoff))
        row = {"m": m, "tau": tau, "backoff": backoff, "n": n, "formula": expected}
        data["overload"].append({**row, **summarise_all(shares)})
    return data


EXPERIMENT = Experiment(
    name="e3.4-alarms",
    title="False alarms, detection, and the tail formula",
    question="How often does each test see congestion that is not there, and how soon does it see what is?",
    run=run,
    present=alarms_page.present,
    parts=(Part.SIM,),
)
