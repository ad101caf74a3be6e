"""The simulated ingress, with the published rule: what each mode does to messages that are too fast."""

from math import e

import pytest

from tidegate.flow.backoff import Mode, NoBackoff, PaperBackoff
from tidegate.sim import Arrival, Gate, Simulation

TIMES = (0.0, 6.0, 12.0, 18.0, 24.0, 25.0, 25.5, 40.0)  # trained on 1/6; then one at 1 and one at 2 msg/s
SIZE = 40


def run(mode: Mode) -> tuple[Gate, list[Arrival], list[tuple[int, float]]]:
    sim = Simulation()
    gate = Gate(sim, PaperBackoff(mode=mode))
    accepted: list[tuple[int, float]] = []
    inlet = gate.open(gate.policy.publisher("p"), lambda arrival: accepted.append((arrival.number, sim.now)))
    arrivals = [Arrival(number=number, size_bytes=SIZE, t_sent=time) for number, time in enumerate(TIMES)]
    for arrival in arrivals:
        sim.at(arrival.t_sent, lambda arrival=arrival: inlet.send(arrival))
    sim.run()
    return gate, arrivals, accepted


def test_backpressure_reads_nothing_while_it_waits() -> None:
    gate, arrivals, accepted = run(Mode.BACKPRESSURE)
    assert arrivals[4].hold == 0.0
    assert arrivals[5].hold == pytest.approx(e)
    # The next one was sent meanwhile and is read when the hold ends, which is slower than it was sent.
    assert arrivals[6].t_read == pytest.approx(25.0 + e)
    assert accepted[5] == (5, pytest.approx(25.0 + e))
    assert [number for number, _ in accepted] == list(range(len(TIMES)))
    assert gate.bytes_read == gate.bytes_forwarded == SIZE * len(TIMES)


def test_hold_reads_on_and_forwards_in_order() -> None:
    _, arrivals, accepted = run(Mode.HOLD)
    assert [arrival.t_read for arrival in arrivals] == list(TIMES)
    assert [time for _, time in accepted] == list(TIMES)
    assert arrivals[5].t_forwarded == pytest.approx(25.0 + e)
    assert arrivals[6].t_forwarded == pytest.approx(25.5 + e**2)
    forwarded = [arrival.t_forwarded for arrival in arrivals]
    assert forwarded == sorted(forwarded)


def test_drop_reads_all_and_forwards_what_is_not_too_fast() -> None:
    gate, arrivals, _ = run(Mode.DROP)
    assert [arrival.number for arrival in arrivals if arrival.is_dropped] == [5, 6]
    assert (gate.bytes_read, gate.bytes_forwarded) == (SIZE * len(TIMES), SIZE * (len(TIMES) - 2))


def test_without_back_off_nothing_waits() -> None:
    sim = Simulation()
    gate = Gate(sim, NoBackoff())
    accepted: list[Arrival] = []
    inlet = gate.open(gate.policy.publisher("p"), accepted.append)
    for number in range(5):
        inlet.send(Arrival(number=number, size_bytes=1, t_sent=0.0))
    assert len(accepted) == 5
    assert not any(arrival.is_marked for arrival in accepted)
