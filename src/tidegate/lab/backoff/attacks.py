"""Attackers that know the rule: one that trains fast, and one that never stays long enough to be known.

Twenty honest publishers at one message a second (5 % jitter) and one attacker at 500 on the virtual clock, the node's
load HIGH, all settings at their defaults. The attacker is blocked while it is held. What it got through, of what it
would have sent unhindered, is what the attack achieved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.flow.backoff import BackoffPolicy, IdentityTable, Load, Publisher
from tidegate.sim import Arrival, Gate, Inlet, Pace, Simulation, Source
from tidegate.sim.workloads import FAMILIES, constant, scaled

HONEST = 20
RATE = 500.0
START = 30.0  # the honest ones are trained by then
SECONDS = 20.0
MESSAGES_PER_ID = 3  # fewer than any training takes
SIZE = 40

ATTACKS = {
    "poisoned training": "500 msg/s from the first message on",
    "new ids": f"500 msg/s, a new client id every {MESSAGES_PER_ID} messages, identities by client id alone",
    "new ids, identity table": "the same, with states left at the address it comes from (IdentityTable)",
}


class _Attacker:
    """Sends through one inlet after another; ids change if `per_id` is not 0."""

    def __init__(self, gate: Gate, open_id: Callable[[int], Publisher], per_id: int) -> None:
        self._gate = gate
        self._open_id = open_id
        self._per_id = per_id
        self._inlet: Inlet | None = None
        self.arrivals: list[Arrival] = []
        interval = scaled(constant(gate.sim.random("attacker")), 1.0 / RATE)
        self._source = Source(gate.sim, interval, self._send, pace=Pace.BLOCKED, start=START)

    def _send(self, number: int) -> None:
        if self._inlet is None or (self._per_id and number % self._per_id == 0):
            self._inlet = self._gate.open(self._open_id(number), lambda _: self._source.accepted())
        arrival = Arrival(number=number, size_bytes=SIZE, t_sent=self._gate.sim.now)
        self.arrivals.append(arrival)
        self._inlet.send(arrival)


def attack(kind: str, make: Callable[[], BackoffPolicy], seed: int) -> dict[str, Any]:
    """One run; shares of messages."""
    sim = Simulation(seed)
    policy = make()
    policy.load = Load.HIGH
    gate = Gate(sim, policy)
    table = IdentityTable(policy)
    honest: list[Arrival] = []

    def honest_source(name: str) -> None:
        inlet = gate.open(table.open(name, "", f"honest {name}", 0.0), lambda _: None)

        def send(number: int) -> None:
            arrival = Arrival(number=number, size_bytes=SIZE, t_sent=sim.now)
            inlet.send(arrival)
            if sim.now >= START:
                honest.append(arrival)

        random = sim.random(name)
        Source(sim, FAMILIES["jitter 5 %"](random), send, start=random.random())

    for number in range(HONEST):
        honest_source(f"p{number}")

    last = ""

    def open_id(number: int) -> Publisher:
        nonlocal last
        if kind == "new ids":
            return policy.publisher(f"a{number}")
        if last:
            table.close(last, "", "attacker", sim.now)
        last = f"a{number}"
        return table.open(last, "", "attacker", sim.now)

    attacker = _Attacker(gate, open_id, 0 if kind == "poisoned training" else MESSAGES_PER_ID)
    sim.run(START + SECONDS)
    marked = sum(arrival.is_marked for arrival in attacker.arrivals)
    innocent_marked = sum(arrival.is_marked for arrival in honest)
    return {
        "admitted": len(attacker.arrivals) / (RATE * SECONDS),
        "admitted_rate": len(attacker.arrivals) / SECONDS,
        "recall": marked / len(attacker.arrivals),
        "false_positive_rate": innocent_marked / len(honest),
        "precision": marked / (marked + innocent_marked) if marked + innocent_marked else None,
        "innocent_hold": sum(arrival.hold for arrival in honest) / len(honest),
    }
