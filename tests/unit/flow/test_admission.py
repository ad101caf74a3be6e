"""Who may connect now: rates are kept whatever the order of events, nobody waits for longer than allowed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.flow import admission
from tidegate.flow.admission import Admission, Admitter

STEP = 1e-6
"""Rounding of sums of fractions; far below anything a clock can tell."""

RATES = st.floats(min_value=0.5, max_value=500)
PAUSES = st.lists(st.floats(min_value=0, max_value=3), min_size=1, max_size=120)


def turns(admitter: Admitter, pauses: list[float], address: str = "") -> list[float]:
    """When each client that is admitted may go on; clients come after these pauses."""
    now = 100.0
    found: list[float] = []
    for pause in pauses:
        now += pause
        answer = admitter.ask(now, address)
        if not isinstance(answer, Admission):
            assert 0 <= answer <= admitter.max_wait
            found.append(now + answer)
    return found


@given(rate=RATES, pauses=PAUSES, max_wait=st.floats(min_value=0, max_value=20))
def test_in_no_time_more_clients_get_their_turn_than_the_rate_and_one_second_ahead_allow(
    rate: float, pauses: list[float], max_wait: float
) -> None:
    found = turns(Admitter(rate=rate, max_wait=max_wait), pauses)
    for first, start in enumerate(found):
        for count, end in enumerate(found[first:], start=1):
            assert count <= rate * (end - start + 1.0) + 1 + STEP


@given(rate=RATES, pauses=PAUSES)
def test_turns_come_in_the_order_of_arrival(rate: float, pauses: list[float]) -> None:
    found = turns(Admitter(rate=rate, max_wait=1e9), pauses)
    assert len(found) == len(pauses)
    assert all(later >= earlier - STEP for earlier, later in pairwise(found))


@given(rate=RATES, pauses=PAUSES, max_wait=st.floats(min_value=0, max_value=5))
def test_a_refused_client_costs_those_behind_it_nothing(
    rate: float, pauses: list[float], max_wait: float
) -> None:
    admitter = Admitter(rate=rate, max_wait=max_wait)
    asked_once = Admitter(rate=rate, max_wait=max_wait)
    now = 100.0
    for pause in pauses:
        now += pause
        first = admitter.ask(now, "")
        if isinstance(first, Admission):
            assert admitter.ask(now, "") is first is Admission.RATE
        assert asked_once.ask(now, "") == first


@given(rate=st.floats(min_value=2, max_value=500), pauses=PAUSES)
def test_after_a_storm_and_a_rest_a_full_second_of_clients_is_admitted_at_once(
    rate: float, pauses: list[float]
) -> None:
    admitter = Admitter(rate=rate, max_wait=5.0)
    turns(admitter, pauses)
    later = 100.0 + sum(pauses) + 5.0 + 1.0 + STEP
    at_once = [admitter.ask(later, "") for _ in range(int(rate))]
    assert all(answer == pytest.approx(0, abs=STEP) for answer in at_once)


def test_a_storm_is_spread_over_the_time_that_its_size_calls_for() -> None:
    admitter = Admitter(rate=1_000, max_wait=30.0)
    found = turns(admitter, [0.0] * 10_000)
    assert len(found) == 10_000
    assert found[999] == pytest.approx(100.0)
    assert found[-1] == pytest.approx(109.0)


def test_whoever_would_wait_for_longer_than_allowed_is_refused() -> None:
    admitter = Admitter(rate=10, max_wait=2.0)
    answers = [admitter.ask(100.0, "") for _ in range(40)]
    assert sum(not isinstance(answer, Admission) for answer in answers) == 30  # 10 at once, 20 within 2 s
    assert set(answers[30:]) == {Admission.RATE}
    assert not isinstance(admitter.ask(100.1 + STEP, ""), Admission)  # a tenth of a second makes room for one


def test_a_rate_of_zero_is_no_limit() -> None:
    admitter = Admitter(rate=0, max_wait=0)
    assert [admitter.ask(100.0, "10.0.0.1") for _ in range(10_000)] == [0.0] * 10_000


@given(rate=RATES, pauses=PAUSES)
def test_an_address_never_exceeds_its_own_rate(rate: float, pauses: list[float]) -> None:
    found = turns(Admitter(rate=0, max_wait=0, address_rate=rate), pauses, "10.0.0.1")
    for first, start in enumerate(found):
        for count, end in enumerate(found[first:], start=1):
            assert count <= rate * (end - start + max(1.0, 1.0 / rate)) + STEP  # one may always come


def test_one_address_over_its_rate_takes_nothing_from_another() -> None:
    admitter = Admitter(rate=0, max_wait=0, address_rate=4)
    answers = [admitter.ask(100.0, "10.0.0.1") for _ in range(8)]
    assert answers == [0.0] * 4 + [Admission.ADDRESS_RATE] * 4
    assert admitter.ask(100.0, "10.0.0.2") == 0.0
    assert admitter.ask(100.25, "10.0.0.1") == 0.0


def test_an_address_over_its_rate_uses_up_nothing_of_the_rate_of_the_node() -> None:
    admitter = Admitter(rate=10, max_wait=0, address_rate=1)
    for _ in range(100):
        admitter.ask(100.0, "10.0.0.1")
    assert [admitter.ask(100.0, f"10.0.1.{n}") for n in range(9)] == [0.0] * 9
    assert admitter.ask(100.0, "10.0.1.9") is Admission.RATE


@given(
    most=st.integers(min_value=1, max_value=5),
    events=st.lists(st.tuples(st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.booleans()), max_size=80),
)
def test_an_address_has_as_many_connections_as_allowed_and_no_more(
    most: int, events: list[tuple[str, bool]]
) -> None:
    admitter = Admitter(rate=0, max_wait=0, address_connections=most)
    present = {"10.0.0.1": 0, "10.0.0.2": 0}
    for address, is_coming in events:
        if is_coming:
            answer = admitter.ask(100.0, address)
            assert (answer is Admission.ADDRESS_COUNT) == (present[address] == most)
            if answer == 0.0:
                admitter.connected(address)
                present[address] += 1
        elif present[address]:
            admitter.disconnected(address)
            present[address] -= 1


def test_clients_of_this_machine_have_no_limits_of_their_own() -> None:
    admitter = Admitter(rate=0, max_wait=0, address_rate=1, address_connections=1)
    for _ in range(10):
        assert admitter.ask(100.0, "") == 0.0
        admitter.connected("")


def test_the_address_that_was_longest_unseen_is_forgotten_first() -> None:
    admitter = Admitter(rate=0, max_wait=0, address_rate=1)
    for number in range(admission.MAX_ADDRESSES):
        admitter.ask(100.0, f"2001:db8::{number:x}")
    assert admitter.ask(100.0, "2001:db8::0") is Admission.ADDRESS_RATE  # and is the last one seen now
    admitter.ask(100.0, "2001:db8:1::")
    assert admitter.ask(100.0, "2001:db8::0") is Admission.ADDRESS_RATE
    assert admitter.ask(100.0, "2001:db8::1") == 0.0
