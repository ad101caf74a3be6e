"""The guard against guessing, with a clock of our own."""

import pytest

from tidegate.accounts.guard import FIRST_DELAY, LoginGuard, address_of


def fail(guard: LoginGuard, times: int, address: str = "a", now: float = 0.0) -> None:
    for _ in range(times):
        guard.on_failure(address, now)


def test_the_first_failures_cost_nothing() -> None:
    guard = LoginGuard(failures=3)
    fail(guard, 2)
    assert guard.check("a", 0.0) == 0.0


def test_delays_double_up_to_the_longest() -> None:
    guard = LoginGuard(failures=3, max_delay=1.0)
    fail(guard, 3)
    delays = []
    for _ in range(5):
        delays.append(guard.check("a", 0.0))
        fail(guard, 1)
    assert delays == [FIRST_DELAY, 2 * FIRST_DELAY, 1.0, 1.0, 1.0]


def test_an_address_that_goes_on_is_refused() -> None:
    guard = LoginGuard(failures=3, refuse_after=10)
    fail(guard, 9)
    assert guard.check("a", 0.0) is not None and not guard.is_refused("a", 0.0)
    fail(guard, 1)
    assert guard.check("a", 0.0) is None and guard.is_refused("a", 0.0)


def test_time_heals_even_while_attempts_go_on() -> None:
    guard = LoginGuard(failures=10, window=60, refuse_after=20)
    fail(guard, 20)
    # A device with a wrong password behind the same address tries every second and is refused each time.
    answers = [guard.check("a", float(second)) for second in range(67)]
    assert answers[0] is None and answers[7] is not None and answers[-1] == 0.0


def test_other_addresses_are_not_concerned() -> None:
    guard = LoginGuard(failures=1, refuse_after=2)
    fail(guard, 5)
    assert guard.check("b", 0.0) == 0.0


def test_success_lowers_the_count_but_does_not_pay_for_guessing() -> None:
    guard = LoginGuard(failures=4)
    fail(guard, 4)
    for _ in range(2):
        guard.on_success("a", 0.0)
    assert guard.check("a", 0.0) == 0.0
    for _ in range(10):
        fail(guard, 1)
        guard.on_success("a", 0.0)
    assert guard.check("a", 0.0) != 0.0


def test_the_table_is_bounded_and_forgets_the_oldest() -> None:
    guard = LoginGuard(failures=1, refuse_after=2, capacity=3)
    for address in "abcd":
        fail(guard, 2, address)
    assert guard.statistics()["addresses"] == 3
    assert guard.check("a", 0.0) == 0.0 and guard.check("d", 0.0) is None


def test_it_can_be_switched_off() -> None:
    guard = LoginGuard(failures=0)
    fail(guard, 1000)
    assert guard.check("a", 0.0) == 0.0 and not guard.is_refused("a", 0.0)
    assert guard.failed == 1000


def test_new_settings_go_on_with_the_old_counts() -> None:
    old, new = LoginGuard(failures=3, refuse_after=4), LoginGuard(failures=1, refuse_after=2)
    fail(old, 3)
    new.adopt(old)
    assert new.check("a", 0.0) is None and new.failed == 3


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("192.0.2.7:4711", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6:4711", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7:4711", "192.0.2.7"),
        ("fe80::1%eth0:4711", "fe80::/64"),
        ("local", "local"),
    ],
)
def test_addresses_are_counted_as_networks_are_given_out(peer: str, address: str) -> None:
    assert address_of(peer) == address
