"""The autoscaler on a step of load, 1 to 20 to 1, beside a fixed number of routers."""

from __future__ import annotations

from typing import Any

from tidegate.lab.experiment import Claim, Context, Experiment, Part, Presentation, Table, Verdict
from tidegate.lab.rpc import scaled
from tidegate.lab.statistics import show, summarise_all
from tidegate.rpc.autoscale import Autoscaler, Sample, Scale
from tidegate.sim import Simulation

COST = 0.0023  # seconds of processor a request, of E4.3
SPEED = 0.1  # processors of one router
BASE = 20.0  # requests a second at 1x: about half a router
FACTOR = 20
PHASE = 120.0  # seconds of each of the three phases
TARGET = 1.0  # seconds a request may wait
START = 3.0  # seconds until a new router works


def simulate(scale: Scale | None, fixed: int, seed: int) -> dict[str, float]:
    """One queue, as many routers as decided; those that start take a while, those that stop finish first."""
    sim = Simulation(seed)
    random = sim.random("arrivals")
    queue: list[float] = []
    state: dict[str, float] = {
        "running": fixed,
        "starting": 0,
        "busy": 0,
        "taken": 0,
        "longest": 0.0,
        "arrived": 0,
    }
    late = total = 0.0
    replica_seconds = 0.0
    scaler = Autoscaler(scale) if scale is not None else None

    def rate() -> float:
        return BASE * FACTOR if PHASE <= sim.now < 2 * PHASE else BASE

    def arrive() -> None:
        state["arrived"] += 1
        queue.append(sim.now)
        serve()
        if sim.now < 3 * PHASE:
            sim.after(random.expovariate(rate()), arrive)

    def serve() -> None:
        nonlocal late, total
        while queue and state["busy"] < state["running"]:
            waited = sim.now - queue.pop(0)
            total += 1
            late += waited > TARGET
            state["longest"] = max(state["longest"], waited)
            state["taken"] += 1
            state["busy"] += 1
            sim.after(random.gammavariate(4.0, COST / 4.0) / SPEED, done)

    def done() -> None:
        state["busy"] -= 1
        serve()

    def started() -> None:
        state["starting"] -= 1
        state["running"] += 1
        serve()

    seconds_over = 0

    def tick() -> None:
        nonlocal replica_seconds, seconds_over
        there = int(state["running"] + state["starting"])
        replica_seconds += there
        seconds_over += state["longest"] > TARGET
        if scaler is not None:
            oldest = sim.now - queue[0] if queue else state["longest"]
            sample = Sample(
                now=sim.now,
                arrivals=float(state["arrived"]),
                cost=COST / SPEED,
                backlog=len(queue),
                oldest=oldest,
                replicas=there,
            )
            wanted = scaler.decide(sample)
            for _ in range(max(0, wanted - there)):
                state["starting"] += 1
                sim.after(START, started)
            if wanted < there:
                state["running"] = max(1, wanted - state["starting"])
        state["arrived"] = state["taken"] = 0
        state["longest"] = 0.0
        if sim.now < 3 * PHASE:
            sim.after(1.0, tick)

    sim.after(0.0, arrive)
    sim.after(1.0, tick)
    sim.run()
    return {"late": late / total, "seconds_over": float(seconds_over), "replica_seconds": replica_seconds}


CASES: dict[str, tuple[Scale | None, int]] = {
    "autoscale, 30 s cool-down": (Scale(minimum=1, maximum=20, cool_down=30.0), 1),
    "autoscale, 5 s cool-down": (Scale(minimum=1, maximum=20, cool_down=5.0), 1),
    "fixed 20": (None, 20),
    "fixed 10": (None, 10),
    "fixed 1": (None, 1),
}


REAL_CASES = {"autoscale": True, "fixed 20": False}
REAL_PHASE = 40.0
MOST_OVER = 15  # seconds of a step that may be felt


def run(context: Context) -> dict[str, Any]:
    report: dict[str, Any] = {
        "parameters": {"requests/s": f"{BASE:g}, {BASE * FACTOR:g}, {BASE:g}", "phase s": PHASE},
    }
    if context.wants(Part.SIM):
        seeds = range(context.number_of_seeds(10, 2))
        report["sim"] = [
            {"case": name, **summarise_all([simulate(*CASES[name], seed) for seed in seeds])}
            for name in context.follow("autoscale", CASES)
        ]
    if context.wants(Part.REAL):
        phase = 6.0 if context.is_quick else REAL_PHASE
        report["parameters"] |= {
            "over sockets, calls/s": f"{2 * scaled.BASE:g}, {2 * scaled.BASE * FACTOR:g}, {2 * scaled.BASE:g}",
            "over sockets, phase s": phase,
            "over sockets, processors a router": scaled.CPU,
        }
        report["real"] = [
            {"case": name, **scaled.measure(is_scaled, phase)}
            for name, is_scaled in context.follow("autoscale over sockets", REAL_CASES.items())
        ]
    return report


def present(report: dict[str, Any]) -> Presentation:
    page = Presentation()
    if sim := report.get("sim"):
        rows = {row["case"]: row for row in sim}
        ours, fixed = rows["autoscale, 30 s cool-down"], rows["fixed 20"]
        page.claims.append(
            _claim(
                "Simulated",
                *(ours[name]["mean"] for name in ("seconds_over", "replica_seconds")),
                *(fixed[name]["mean"] for name in ("seconds_over", "replica_seconds")),
            )
        )
        page.claims[-1].note = (
            f"A router takes {START:g} s to start and the load is looked at once a second, so a step of 20 times is "
            "met some seconds late whatever the rule."
        )
        page.tables.append(
            Table(
                title="Simulated, 360 s, the load is 20 times as high in the middle third",
                head=["", "seconds over target", "late requests", "replica-seconds"],
                rows=[
                    [
                        name,
                        show(row["seconds_over"], "{:.1f}"),
                        show(row["late"], "{:.4f}"),
                        show(row["replica_seconds"], "{:,.0f}"),
                    ]
                    for name, row in rows.items()
                ],
            )
        )
    if real := report.get("real"):
        rows = {row["case"]: row for row in real}
        ours, fixed = rows["autoscale"], rows["fixed 20"]
        claim = _claim(
            "Over sockets",
            *(ours[name] for name in ("seconds_over", "replica_seconds")),
            *(fixed[name] for name in ("seconds_over", "replica_seconds")),
        )
        claim.short = "Autoscaler on a step of load, 20 times, beside 20 fixed routers"
        page.claims.append(claim)
        page.tables.append(
            Table(
                title="Over sockets: router processes that autoscale starts and stops",
                head=[
                    "",
                    "tasks",
                    "failed",
                    "seconds over target",
                    "late tasks",
                    "replica-seconds",
                    "most",
                    "at the end",
                ],
                rows=[
                    [
                        name,
                        *(f"{row[key]:,.0f}" for key in ("tasks", "failed", "seconds_over")),
                        f"{row['late']:.4f}",
                        *(f"{row[key]:,.0f}" for key in ("replica_seconds", "most", "last")),
                    ]
                    for name, row in rows.items()
                ],
                note="Each router may use a fiftieth of a processor. Starting a Python process takes about a second "
                "of one, and the two cores are shared with broker, gateway and callers.",
            )
        )
    return page


def _claim(where: str, over: float, spent: float, fixed_over: float, fixed_spent: float) -> Claim:
    share = spent / fixed_spent
    return Claim(
        text=f"{where}, a step of load, 1 to 20 to 1: seconds over target and replica-seconds beside 20 fixed routers",
        paper="KEDA's parameters were not studied",
        ours=f"{over:.0f} s over {TARGET:g} s (fixed: {fixed_over:.0f} s) for {share:.0%} of the replica-seconds",
        verdict=Verdict.HOLDS if over <= MOST_OVER and share < 0.75 else Verdict.FAILS,
    )


EXPERIMENT = Experiment(
    name="rpc-autoscale",
    title="A step of load",
    question="How long is a step of load felt, and what do the routers cost, beside a fixed number?",
    run=run,
    present=present,
)
