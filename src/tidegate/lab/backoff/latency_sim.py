"""E1.3 on the virtual clock: one server, one rare sender and thirty fast ones.

Two ways to wait. `queue`: all that was sent waits at the broker, as in the paper and in theory. `lanes`: one message of
each sender waits at the broker, and the sender's next one outside, as in the node; then more than the server can do
does no harm but to the senders' own backlog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import Any

from tidegate.flow.priority import AgeingPriority, NoPriority, PaperPriority, PriorityPolicy
from tidegate.lab.statistics import percentile
from tidegate.sim import Pace, Server, Simulation, Source

FAST = 30
SERVICE = 0.01
RARE_RATE = 0.5
PATIENCE = 1.0
UTILISATIONS = (0.90, 0.95, 1.0, 1.1, 1.2)
MODELS = {"queue": Pace.OPEN, "lanes": Pace.PATIENT}
POLICIES: dict[str, Callable[[], PriorityPolicy]] = {
    "first come": NoPriority,
    "strict (paper)": PaperPriority,
    "ageing": lambda: AgeingPriority(patience=PATIENCE),
}


@dataclass(slots=True)
class _Waiting:
    sender: str
    arrival: float


@dataclass(slots=True)
class _Waits:
    """Seconds from arrival to the end of service."""

    rare: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    everybody: list[float] = field(default_factory=list)


def rates(utilisation: float) -> dict[str, float]:
    """Messages per second; the fast ones differ a little, so that there is a last rank."""
    share = (utilisation / SERVICE - RARE_RATE) / FAST
    fast = {f"fast{number}": share * (0.8 + 0.4 * number / (FAST - 1)) for number in range(FAST)}
    return {"rare": RARE_RATE, **fast}


def _intervals(random: Random, rate: float) -> Iterator[float]:
    while True:
        yield random.expovariate(rate)


def simulate(policy: str, model: str, utilisation: float, seed: int, seconds: float) -> dict[str, Any]:
    """One run; waits in seconds, service included."""
    sim = Simulation(seed)
    order = POLICIES[policy]()
    sources: dict[str, Source] = {}
    waits = _Waits()
    last = f"fast{FAST - 1}"

    def done(item: _Waiting) -> None:
        wait = sim.now - item.arrival
        waits.everybody.append(wait)
        if item.sender == "rare":
            waits.rare.append(wait)
        elif item.sender == last:
            waits.last.append(wait)
        sources[item.sender].accepted()

    server: Server[_Waiting] = Server(
        sim, service=lambda _: SERVICE, done=done, key=lambda item: order.key(item.sender, item.arrival)
    )
    for name, rate in rates(utilisation).items():
        order.update(name, rate)

        def send(_number: int, name: str = name) -> None:
            server.submit(_Waiting(name, sim.now))

        sources[name] = Source(sim, _intervals(sim.random(name), rate), send, pace=MODELS[model])
    sim.run(seconds)
    return {
        "busy": server.busy_seconds / seconds,
        "mean": fmean(waits.everybody),
        "rare_min": min(waits.rare),
        "rare_p50": percentile(waits.rare, 0.5),
        "rare_p99": percentile(waits.rare, 0.99),
        "rare_max": max(waits.rare),
        "last_p99": percentile(waits.last, 0.99) if waits.last else None,
        "last_max": max(waits.last) if waits.last else None,
        # Those that were never served are part of the truth about starving.
        "unserved": sum(source.sent for source in sources.values()) - len(waits.everybody),
        "oldest": max([0.0, *(sim.now - item.arrival for item in server.waiting())]),
    }
