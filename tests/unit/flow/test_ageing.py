"""Ageing: rare senders first, and a bound for everybody's wait."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.flow.priority import (
    BULK,
    URGENT,
    AgeingPriority,
    Band,
    NoPriority,
    PaperPriority,
    PriorityPolicy,
)

SERVICE = 0.01
FAST = 30


@dataclass
class Waits:
    """Seconds from arrival to the end of service."""

    rare: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


def serve(policy: PriorityPolicy, utilisation: float, seed: int, seconds: float = 300.0) -> Waits:
    """One server, one rare sender and thirty fast ones; like the node's lanes, one message a sender waits at a time.

    A sender whose message waits is not read: its next one arrives when that is served, at the earliest.
    """
    random = Random(seed)
    rates = {"rare": 0.5}
    for number in range(FAST):
        rates[f"fast{number}"] = (utilisation / SERVICE - 0.5) / FAST * (0.8 + 0.4 * number / (FAST - 1))
    for name, rate in rates.items():
        policy.update(name, rate)
    arrivals = [(random.expovariate(rate), name) for name, rate in rates.items()]
    arrivals.sort()
    waiting: list[tuple[float, int, float, str]] = []
    waits = Waits()
    now = 0.0
    number = 0
    while now < seconds:
        while arrivals and (arrivals[0][0] <= now or not waiting):
            arrival, name = heappop(arrivals)
            now = max(now, arrival) if not waiting else now
            number += 1
            heappush(waiting, (policy.key(name, arrival), number, arrival, name))
        _, _, arrival, name = heappop(waiting)
        now += SERVICE
        if name == "rare":
            waits.rare.append(now - arrival)
        elif name == f"fast{FAST - 1}":
            waits.last.append(now - arrival)
        # Sent while it could not be read: due at once. Arrival is when the node could see it.
        following = arrival + random.expovariate(rates[name])
        heappush(arrivals, (max(now, following), name))
    return waits


def test_a_message_is_overtaken_only_within_its_patience() -> None:
    policy = AgeingPriority(patience=2.0)
    policy.update("rare", 0.1)
    policy.update("fast", 10.0)
    assert policy.key("rare", 1.9) < policy.key("fast", 0.0) < policy.key("rare", 2.1)


def test_places_go_from_the_rarest_to_the_fastest_with_the_untrained_in_the_middle() -> None:
    policy = AgeingPriority()
    assert policy.place("alone") == 0.5
    for number in range(5):
        policy.update(number, 1.0 + number)
    assert [policy.place(number) for number in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert policy.place("new") == 0.5
    assert (policy.rank(0), policy.rank(4), policy.rank("new")) == (1, 5, 3)


def test_a_class_pins_the_place() -> None:
    policy = AgeingPriority()
    for number in range(5):
        policy.update(number, 1.0 + number)
    policy.pin(4, URGENT)
    policy.pin(0, BULK)
    policy.pin(2, Band(first=0.8, last=1.0))
    assert (policy.place(4), policy.place(0), policy.place(2)) == (0.0, 1.0, 0.9)
    assert (policy.rank(4), policy.rank(0)) == (1, 5)
    assert policy.key_in(URGENT, 3, 7.0) == 7.0
    assert policy.key_in(None, 3, 7.0) == policy.key(3, 7.0)
    policy.pin(4, None)
    assert policy.place(4) == 1.0
    policy.pin(4, URGENT)
    policy.remove(4)
    assert policy.place(4) == 0.5


def test_a_patience_without_meaning_is_refused() -> None:
    for patience in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError):
            AgeingPriority(patience=patience)


@pytest.mark.parametrize("utilisation", [0.95, 1.05, 1.2])
def test_the_rare_sender_waits_as_with_strict_priority_and_nobody_starves(utilisation: float) -> None:
    strict = serve(PaperPriority(), utilisation, seed=1)
    ageing = serve(AgeingPriority(patience=1.0), utilisation, seed=1)
    assert p99(ageing.rare) <= 1.1 * p99(strict.rare)
    assert max(ageing.rare) <= 2 * SERVICE + 1e-9  # the rest of the service in progress, then its own
    # Whoever may overtake arrived within the patience, one message a sender at a time.
    assert max(ageing.last) <= 1.0 + (FAST + 1) * SERVICE + 1e-9


def test_the_rare_sender_waits_less_than_first_come_first_served() -> None:
    plain = serve(NoPriority(), 1.2, seed=1)
    ageing = serve(AgeingPriority(), 1.2, seed=1)
    assert p99(ageing.rare) < 0.2 * p99(plain.rare)


def test_strict_priority_lets_the_last_wait_longer() -> None:
    """Why ageing is the default."""
    strict = serve(PaperPriority(), 1.2, seed=1)
    ageing = serve(AgeingPriority(patience=0.2), 1.2, seed=1)
    assert max(ageing.last) < 0.2 * max(strict.last)


@given(
    st.lists(st.floats(0.001, 1e5), min_size=1, max_size=30, unique=True),
    st.floats(0.0, 100.0),
    st.floats(0.0, 1e6),
    st.floats(0.0, 1e6),
)
def test_a_key_lies_between_arrival_and_arrival_plus_patience(
    rates: list[float], patience: float, one: float, other: float
) -> None:
    policy = AgeingPriority(patience=patience)
    for number, rate in enumerate(rates):
        policy.update(number, rate)
    for number in range(len(rates)):
        assert one <= policy.key(number, one) <= one + patience
        assert (policy.key(number, one) <= policy.key(number, other)) or other <= one
    slow, fast = rates.index(min(rates)), rates.index(max(rates))
    assert policy.key(slow, one) <= policy.key(fast, one)
