"""The adaptive back-off: when it holds, for how long, and what cannot be taught to it."""

from copy import copy
from math import isfinite
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.flow.backoff import (
    REFUSE,
    AdaptiveBackoff,
    AdaptivePublisher,
    AdaptiveSettings,
    Load,
    Mode,
    Prior,
    State,
)

NO_FLOOR = AdaptiveSettings(floor_rate=0.0)


def regular(
    policy: AdaptiveBackoff, *, rate: float = 1.0, messages: int = 200
) -> tuple[AdaptivePublisher, float]:
    publisher = policy.publisher("p")
    now = 10.0
    for _ in range(messages):
        now += 1.0 / rate
        assert publisher.observe(now) == 0.0
    return publisher, now


def flood(publisher: AdaptivePublisher, now: float, *, rate: float, seconds: float) -> tuple[int, float]:
    """A sender that waits when it is held. Answers with messages admitted, and the time."""
    end = now + seconds
    admitted = 0
    while now < end:
        now += 1.0 / rate
        hold = publisher.observe(now)
        if hold != REFUSE:
            admitted += 1
            now += hold
    return admitted, now


def test_training_takes_n_messages_and_a_least_time() -> None:
    publisher = AdaptiveBackoff().publisher("p")
    for sent in range(16):
        assert publisher.snapshot(sent).state is State.TRAINING
        publisher.observe(float(sent))
    assert publisher.snapshot(15.0).state is State.NORMAL
    assert publisher.trained_rate == 1.0
    hurried = AdaptiveBackoff().publisher("q")
    for sent in range(100):
        hurried.observe(1.0 + sent * 1e-3)
    assert hurried.trained_rate == 0.0


def test_messages_that_all_arrive_at_one_instant_train_nothing() -> None:
    publisher = AdaptiveBackoff(AdaptiveSettings(training_time=0.0)).publisher("p")
    for _ in range(100):
        assert publisher.observe(5.0, count=10) == 0.0
    assert publisher.trained_rate == 0.0


def test_one_odd_pause_in_training_does_not_halve_the_rate() -> None:
    publisher = AdaptiveBackoff().publisher("p")
    now = 0.0
    for sent in range(16):
        now += 100.0 if sent == 7 else 1.0
        publisher.observe(now)
    assert publisher.trained_rate == pytest.approx(1.0)


def test_nobody_is_held_while_the_load_is_low() -> None:
    publisher, now = regular(AdaptiveBackoff(NO_FLOOR))
    admitted, now = flood(publisher, now, rate=1000.0, seconds=1.0)
    assert admitted >= 1000
    assert publisher.snapshot(now).state is State.SUSPICIOUS


def test_under_load_a_flood_is_paced_near_the_trained_rate() -> None:
    policy = AdaptiveBackoff(NO_FLOOR)
    publisher, now = regular(policy)
    policy.load = Load.HIGH
    admitted, now = flood(publisher, now, rate=1000.0, seconds=100.0)
    assert 100 <= admitted <= 150
    assert publisher.snapshot(now).state is State.HELD
    assert publisher.snapshot(now).hold > 0.0
    assert not publisher.is_in_good_standing
    assert publisher.trained_rate == pytest.approx(1.0, rel=0.05)  # being paced taught it nothing


def test_overload_paces_more_strictly() -> None:
    counts = []
    for load in (Load.HIGH, Load.OVERLOAD):
        policy = AdaptiveBackoff(NO_FLOOR)
        publisher, now = regular(policy)
        policy.load = load
        counts.append(flood(publisher, now, rate=1000.0, seconds=100.0)[0])
    assert counts[1] < 0.7 * counts[0]


def test_who_keeps_to_its_rate_is_not_held_at_any_load() -> None:
    policy = AdaptiveBackoff(NO_FLOOR)
    publisher, now = regular(policy)
    for policy.load in (Load.HIGH, Load.OVERLOAD):
        for _ in range(500):
            now += 1.0
            assert publisher.observe(now) == 0.0


def test_nobody_is_held_below_the_floor_rate() -> None:
    policy = AdaptiveBackoff()
    publisher, now = regular(policy)
    policy.load = Load.HIGH
    for _ in range(1000):
        now += 1.0 / 49.0
        assert publisher.observe(now) == 0.0
    assert publisher.is_suspicious


def test_a_flood_is_never_paced_below_the_floor_rate() -> None:
    policy = AdaptiveBackoff()
    publisher, now = regular(policy)
    policy.load = Load.HIGH
    admitted, _ = flood(publisher, now, rate=10_000.0, seconds=20.0)
    assert 50 * 20 <= admitted <= 50 * 23


def test_drop_mode_refuses_what_is_over_the_pace() -> None:
    policy = AdaptiveBackoff(NO_FLOOR, mode=Mode.DROP)
    assert policy.is_per_message
    publisher, now = regular(policy)
    policy.load = Load.HIGH
    admitted, _ = flood(publisher, now, rate=100.0, seconds=100.0)
    assert 100 <= admitted <= 150
    assert publisher.is_suspicious


@pytest.mark.parametrize("load", list(Load))
@pytest.mark.parametrize("publishers", [1, 10])
def test_a_benchmark_at_full_speed_is_not_held(load: Load, publishers: int) -> None:
    """A hundred thousand messages a second in chunks of very uneven size and time."""
    policy = AdaptiveBackoff()
    policy.load = load
    for number in range(publishers):
        random = Random(number)
        publisher = policy.publisher(number)
        now = 100.0
        while now < 105.0:
            now += random.expovariate(400.0)
            assert publisher.observe(now, count=random.randint(50, 450), size=64) == 0.0


def test_a_quota_bounds_what_was_learnt() -> None:
    policy = AdaptiveBackoff(NO_FLOOR)
    policy.load = Load.HIGH
    publisher = policy.publisher("p", Prior(limit=20.0))
    admitted, _ = flood(publisher, 10.0, rate=1000.0, seconds=100.0)
    assert 20 * 100 <= admitted <= 20 * 103


def test_a_quota_holds_a_publisher_that_was_known_as_faster() -> None:
    policy = AdaptiveBackoff(NO_FLOOR)
    policy.load = Load.HIGH
    publisher = policy.publisher("p", Prior(rate=500.0, limit=20.0))
    admitted, _ = flood(publisher, 10.0, rate=500.0, seconds=100.0)
    assert admitted <= 20 * 103


def test_a_prior_replaces_training() -> None:
    policy = AdaptiveBackoff(NO_FLOOR)
    publisher = policy.publisher("p", Prior(rate=10.0, dispersion=0.01))
    policy.load = Load.HIGH
    assert publisher.snapshot(0.0).state is State.NORMAL
    now = 1e5
    for _ in range(100):
        now += 0.1
        assert publisher.observe(now) == 0.0
    admitted, _ = flood(publisher, now, rate=1000.0, seconds=20.0)
    assert 200 <= admitted <= 300


def crowd(policy: AdaptiveBackoff, publishers: int, rate: float) -> None:
    for number in range(publishers):
        publisher = policy.publisher(("sensor", number))
        for sent in range(20):
            publisher.observe(100.0 + sent / rate)


def test_training_at_full_speed_buys_no_more_than_is_usual_under_load() -> None:
    policy = AdaptiveBackoff(NO_FLOOR)
    crowd(policy, 20, 1.0)
    attacker = policy.publisher("attacker")
    _, now = flood(attacker, 200.0, rate=1000.0, seconds=5.0)
    assert attacker.trained_rate == pytest.approx(1000.0, rel=0.01)
    policy.load = Load.HIGH
    admitted, _ = flood(attacker, now, rate=5000.0, seconds=100.0)
    assert admitted <= 1.1 * 16 * 100 + 300


def test_a_stranger_is_held_under_load_before_its_training_ends() -> None:
    policy = AdaptiveBackoff(AdaptiveSettings(floor_rate=0.0, training_time=60.0))
    crowd(policy, 20, 1.0)
    policy.load = Load.HIGH
    admitted, _ = flood(policy.publisher("attacker"), 200.0, rate=1000.0, seconds=50.0)
    assert admitted <= 17 * 50 + 50


def test_good_conduct_earns_trust_that_lasts_under_load() -> None:
    policy = AdaptiveBackoff(AdaptiveSettings(trust_doubling=60.0))
    crowd(policy, 20, 1.0)
    gateway = policy.publisher("gateway")
    now = 200.0
    while now < 200.0 + 600.0:
        now += 0.05
        gateway.observe(now, count=50)
    policy.load = Load.HIGH
    for _ in range(200):
        now += 0.05
        assert gateway.observe(now, count=50) == 0.0


def test_a_creeping_rate_ends_at_what_is_usual() -> None:
    """One per cent faster each second: never suspicious, and still bounded as soon as it matters."""
    policy = AdaptiveBackoff(NO_FLOOR)
    crowd(policy, 20, 1.0)
    frog, now = regular(policy)
    rate = 1.0
    while rate < 500.0:
        rate *= 1.01
        end = now + 1.0
        while now < end:
            now += 1.0 / rate
            frog.observe(now)
    policy.load = Load.HIGH
    trust = 2.0 ** ((now - 10.0) / 600.0)
    admitted, _ = flood(frog, now, rate=500.0, seconds=50.0)
    assert admitted <= 1.1 * 16 * trust * 50 + 100


def test_who_is_gone_no_longer_tells_what_is_usual() -> None:
    policy = AdaptiveBackoff()
    publisher, _ = regular(policy)
    assert len(policy.population) == 1
    policy.leave(publisher)
    assert len(policy.population) == 0
    policy.join(publisher)
    assert len(policy.population) == 1


def test_the_rate_of_messages_that_are_read_together_is_that_of_messages() -> None:
    publisher = AdaptiveBackoff(NO_FLOOR).publisher("p")
    now = 0.0
    for _ in range(2000):
        now += 0.01
        publisher.observe(now, 1000)
    for silence in (0.0001, 0.009, 0.5):
        assert publisher.snapshot(now + silence).rate == pytest.approx(100_000.0, rel=0.05)
    assert publisher.snapshot(now + 3.0).rate < 1.0


def test_who_is_held_is_shown_with_what_it_may_send() -> None:
    policy = AdaptiveBackoff(AdaptiveSettings(floor_rate=50.0))
    policy.load = Load.HIGH
    publisher, now = regular(policy)
    assert publisher.snapshot(now).allowed == 0.0
    held = 0
    for _ in range(40):  # it sends what it can as soon as it is read
        now += max(0.001, publisher.observe(now, 200))
        verdict = publisher.snapshot(now - 0.001)
        if verdict.state is State.HELD:
            held += 1
            assert 1.0 <= verdict.allowed <= 2.0  # its habit is one a second
    assert held > 10
    # The time between two chunks of one that waits because we do not read it is no silence.
    assert publisher.snapshot(now - 0.001).rate == pytest.approx(50.0, rel=0.5)


def test_the_snapshot_of_a_silent_publisher_calms_down() -> None:
    publisher, now = regular(AdaptiveBackoff(NO_FLOOR))
    _, now = flood(publisher, now, rate=100.0, seconds=1.0)
    assert publisher.snapshot(now, rank=3).rate > 50.0
    later = publisher.snapshot(now + 60.0, rank=3)
    assert (later.state, later.rank, later.hold) == (State.NORMAL, 3, 0.0)
    assert later.rate < 0.02


@pytest.mark.parametrize("arguments", [{"n": 7}, {"allowance": 0.5}, {"allowance": 1.0}, {"d_max": -1.0}])
def test_parameters_without_meaning_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        AdaptiveSettings(**arguments)  # type: ignore[arg-type]


STEPS = st.lists(
    st.tuples(st.floats(0.0, 1e5) | st.floats(0.0, 1.0) | st.just(0.0), st.integers(1, 10_000)),
    max_size=120,
)


@given(STEPS, st.sampled_from(Load), st.floats(0.0, 20.0), st.sampled_from([0.0, 50.0]), st.booleans())
def test_a_hold_is_finite_not_negative_and_bounded(
    steps: list[tuple[float, int]], load: Load, d_max: float, floor: float, with_limit: bool
) -> None:
    policy = AdaptiveBackoff(AdaptiveSettings(d_max=d_max, floor_rate=floor, training_time=0.0))
    policy.load = load
    publisher = policy.publisher("p", Prior(limit=5.0) if with_limit else None)
    now = 0.0
    for gap, count in steps:
        now += gap
        hold = publisher.observe(now, count)
        assert isfinite(hold) and 0.0 <= hold <= d_max
        verdict = publisher.snapshot(now)
        assert isfinite(verdict.rate) and isfinite(verdict.dispersion) and verdict.dispersion >= 0.0


@given(STEPS, st.integers(1, 500), st.integers(1, 500), st.sampled_from([0.0, 50.0]))
def test_a_greater_excess_never_waits_less(
    steps: list[tuple[float, int]], one: int, other: int, floor: float
) -> None:
    policy = AdaptiveBackoff(AdaptiveSettings(floor_rate=floor))
    policy.load = Load.HIGH
    publisher, now = regular(policy)
    for gap, count in steps:
        now += gap
        publisher.observe(now, count)
    less, more = copy(publisher), copy(publisher)
    assert less.observe(now + 0.1, min(one, other)) <= more.observe(now + 0.1, max(one, other))


@given(st.floats(1e-6, 0.5))
def test_a_hold_begins_at_nothing(excess: float) -> None:
    """Continuous at the threshold: a message by a little too early waits a little."""
    policy = AdaptiveBackoff(NO_FLOOR)
    publisher, now = regular(policy)
    policy.load = Load.HIGH
    hold = 0.0
    while hold == 0.0:
        now += 0.999  # step by step to the edge
        probe = copy(publisher)
        hold = probe.observe(now - 0.999 + excess)
        if hold == 0.0:
            publisher.observe(now - 0.999 + excess)
            now = now - 0.999 + excess
    assert hold <= 1.0


def test_sixteen_bytes_or_sixteen_megabytes_are_one_message() -> None:
    one, other = (regular(AdaptiveBackoff())[0] for _ in range(2))
    assert one.observe(500.0, 1, 16) == other.observe(500.0, 1, 16_000_000)
