"""The numbers of spec 3 (b) and (c), exactly."""

from math import inf
from random import Random

import pytest

from tidegate.flow.timeout import (
    AdaptiveTimeout,
    Announcement,
    BackoffSettings,
    Check,
    Draw,
    First,
    Light,
    Losses,
    Mediate,
    PaperTimeout,
    RandomBackoff,
    Rigorous,
    Smoothed,
    Strategy,
    StrategySettings,
    arrivals,
    delta_for,
    point,
    sawtooth,
    tail,
)

STEADY = BackoffSettings(spread=0.0)


def check(duration: float = 0.1, losses: int = 0, **fields: object) -> Check:
    return Check(interval=5.0, duration=duration, losses=losses, **fields)  # type: ignore[arg-type]


def test_the_strategy_halves_on_a_loss_and_adds_delta_without() -> None:
    strategy = Strategy(StrategySettings())
    assert strategy.t_ast == 5.0
    assert strategy.next(1, 5.0) == 2.5
    assert strategy.next(0, 2.5) == 3.0
    assert AdaptiveTimeout().loop().check(check(losses=7), Random(1)) == 2.5  # once a check, however many


def test_the_strategy_stays_within_its_bounds() -> None:
    strategy = Strategy(StrategySettings())
    assert [strategy.next(1, 1.0) for _ in range(9)][-1] == 0.2
    assert [strategy.next(0, 1.0) for _ in range(200)][-1] == 60.0


def test_a_frozen_strategy_does_not_ask_sooner() -> None:
    strategy = Strategy(StrategySettings())
    assert strategy.next(3, 5.0, is_frozen=True) == 5.0
    assert strategy.next(0, 5.0, is_frozen=True) == 5.5


def test_growth_by_n_delta_keeps_its_value_before_it_reaches_t() -> None:
    strategy = Strategy(StrategySettings(growth="ndelta"))
    assert strategy.next(0, 5.0) == 5.5  # no estimate yet: one step
    for _ in range(3):
        strategy.next(1, 10.0)
        strategy.next(0, 10.0)
    expected = strategy.expected()
    assert expected is not None
    before = strategy.t_ast
    after = strategy.next(0, 10.0)
    expected = strategy.expected()
    assert expected is not None
    jump = before + 0.5 * max(1.0, expected.steps)
    assert after == (before if jump >= expected.end else jump)
    assert after < expected.end


def test_the_back_off_doubles_up_to_five_averages_and_a_good_check_ends_it() -> None:
    backoff, random = RandomBackoff(STEADY), Random(1)
    grown = [backoff.next(True, 0.2, check(), 5.0, random) for _ in range(6)]
    assert grown == [0.0625, 0.125, 0.25, 0.5, 1.0, 1.0]
    assert backoff.next(False, 0.2, check(), 5.0, random) == 0.0
    assert backoff.next(True, 0.2, check(), 5.0, random) == 0.0625


def test_the_variation_is_not_fed_back_and_stays_within_bounds() -> None:
    backoff, random = RandomBackoff(BackoffSettings(spread=0.9)), Random(1)
    for _ in range(500):
        assert 0.0 <= backoff.next(True, 0.2, check(), 5.0, random) <= 1.0
    assert backoff.base == 1.0


def test_requirements() -> None:
    assert Rigorous(0.1, 0.05, 0.5).threshold(check(), 0.0) == pytest.approx(0.20)
    smoothed = Smoothed(0.875)
    assert (smoothed.add(0.2), smoothed.add(0.6)) == (0.2, pytest.approx(0.25))
    assert Light(1.5).threshold(check(), 0.2) == pytest.approx(0.3)
    assert Light().threshold(check(), 0.0) == inf
    mediate = Mediate(t_net=0.01)
    assert mediate.threshold(check(), 0.0) == inf
    told = check(load=Announcement(processing=0.025, limit=0.5))
    assert mediate.threshold(told, 0.0) == pytest.approx(0.535)
    assert mediate.threshold(check(), 0.0) == pytest.approx(0.535)  # as last announced


def test_first_back_off_from_the_past_interval() -> None:
    backoff = RandomBackoff(BackoffSettings(spread=0.0, first=First.PAST_INTERVAL))
    random = Random(1)
    assert backoff.next(True, 0.2, check(), 5.0, random) == 0.0625  # no history: t_min
    backoff.next(False, 0.2, Check(interval=6.0, duration=0.1), 5.0, random)
    assert backoff.next(True, 0.2, Check(interval=3.5, duration=0.9), 5.0, random) == 2.5
    assert backoff.next(True, 0.2, Check(interval=3.5, duration=0.9), 5.0, random) == 2.5  # never less


def test_a_uniform_draw_has_the_same_mean_and_twice_the_reach() -> None:
    random, check = Random(5), Check(interval=5.0, duration=1.0, load=Announcement(rate=0.1))
    found = []
    for _ in range(20_000):
        backoff = RandomBackoff(BackoffSettings(first=First.ADVICE, draw=Draw.UNIFORM))
        found.append(backoff.next(True, 0.2, check, 5.0, random))
    assert sum(found) / len(found) == pytest.approx(5.0, rel=0.02)
    assert 0.0 <= min(found) < 0.1
    assert 9.9 < max(found) <= 10.0


def test_first_back_off_from_the_past_success() -> None:
    backoff = RandomBackoff(BackoffSettings(spread=0.0, first=First.PAST_SUCCESS))
    random = Random(1)
    for _ in range(3):
        backoff.next(True, 0.2, check(), 5.0, random)
    backoff.next(False, 0.2, check(), 5.0, random)
    assert backoff.next(True, 0.2, check(), 5.0, random) == 0.25


def test_first_back_off_from_the_brokers_advice() -> None:
    backoff = RandomBackoff(BackoffSettings(spread=0.0, first=First.ADVICE))
    told = check(load=Announcement(rate=0.1))
    assert backoff.next(True, 0.2, told, 4.0, Random(1)) == 6.0


def test_a_drawn_first_back_off_has_the_mean_and_its_bounds() -> None:
    random = Random(7)
    drawn = []
    for _ in range(4000):
        backoff = RandomBackoff(BackoffSettings(first=First.ADVICE))
        drawn.append(backoff.next(True, 0.2, check(load=Announcement(rate=0.1)), 4.0, random))
    assert min(drawn) >= 0.0
    assert max(drawn) <= 12.0
    assert sum(drawn) / len(drawn) == pytest.approx(6.0, rel=0.02)


def test_level_three_is_the_sum_of_both() -> None:
    loop = PaperTimeout(spread=0.0).loop()
    random = Random(1)
    assert loop.check(check(0.2), random) == 5.5
    assert not loop.is_congested
    wait = loop.check(check(0.6), random)
    assert loop.is_congested
    assert loop.t_avg == pytest.approx(0.25)
    assert wait == pytest.approx(6.0 + 2 * 5 * 0.25 / 32)
    assert loop.check(check(0.0, is_dropped=True), random) > 6.5
    assert loop.is_congested


@pytest.mark.parametrize(
    ("m", "tau", "backoff", "n", "exact", "more"),
    [
        (100, 5.0, 0.0, 30, 0.0083435, 0.021818),
        (100, 5.0, 2.0, 30, 1.0452e-4, 1.9002e-4),
        (200, 5.0, 0.0, 50, 0.017707, 0.070335),
        (200, 5.0, 1.0, 50, 0.0015289, 0.0041808),
    ],
)
def test_overload_probability(m: int, tau: float, backoff: float, n: int, exact: float, more: float) -> None:
    mean = arrivals(m, tau, 1.0, backoff)
    assert point(n, mean) == pytest.approx(exact, rel=5e-5)
    assert tail(n, mean) == pytest.approx(more, rel=5e-5)


@pytest.mark.parametrize("mean", [0.0, 0.3, 7.0, 40.0, 2000.0])
def test_the_tail_is_the_sum_of_its_points(mean: float) -> None:
    for n in (0, 1, int(mean), int(mean) + 1, int(mean * 1.2) + 2):
        below = sum(point(k, mean) for k in range(n))
        assert tail(n, mean) == pytest.approx(1.0 - below, abs=1e-9)
    assert tail(int(mean) * 10 + 50, mean) < 1e-12


@pytest.mark.parametrize(
    ("alpha", "delta", "nu"), [(2, 0.1, 0.1), (2, 0.1, 0.01), (1.5, 0.2, 0.05), (4, 0.05, 0.02)]
)
def test_the_sawtooth_is_within_what_the_spec_found(alpha: float, delta: float, nu: float) -> None:
    """Spec 3 (b): τ within 9 %, formula low; T and N within 11 %, formula high."""
    random = Random(3)
    settings = StrategySettings(alpha=alpha, delta=delta, start=1.0, low=1e-6, high=1e6)
    strategy = Strategy(settings)
    expected = sawtooth(alpha, delta, nu)
    total = stale = 0.0
    ends, lost = [], 0
    checks = 60_000
    next_loss = random.expovariate(nu)
    now = 0.0
    for _ in range(checks):
        interval = strategy.t_ast
        now += interval
        total += interval
        losses = 0
        while next_loss <= now:
            losses += 1
            stale += now - next_loss
            next_loss += random.expovariate(nu)
        lost += losses
        if losses:
            ends.append(interval)
        strategy.next(losses, interval)
    assert total / checks == pytest.approx(expected.mean, rel=0.10)
    assert sum(ends) / len(ends) == pytest.approx(expected.end, rel=0.12)
    assert stale / lost == pytest.approx(expected.staleness, rel=0.08)


def test_delta_can_be_had_from_a_wanted_staleness() -> None:
    delta = delta_for(4.0, 0.02, 2.0)
    assert sawtooth(2.0, delta, 0.02).staleness == pytest.approx(4.0)


def test_losses_are_counted_over_the_last_fifty_checks() -> None:
    losses = Losses()
    assert (losses.nu, losses.kind, losses.sawtooth(2.0, 0.5)) == (0.0, 0.0, None)
    for number in range(100):
        losses.add(4 if number % 10 == 0 else 0, 2.0)
    assert losses.nu == pytest.approx(20 / 100)
    assert losses.kind == 4.0
    assert losses.cycles == 10
