"""The product's timeout: what it does where the paper's goes wrong."""

from collections.abc import Callable
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.flow import TIMEOUT, UnknownPolicy, timeout_policy
from tidegate.flow.timeout import (
    UNKNOWN,
    ActiveSettings,
    ActiveTimeout,
    Announcement,
    Check,
    Light,
    RobustTest,
    parse_announcement,
)

CALM = ActiveSettings(jitter=0.0, pace_jitter=0.0)


def good(duration: float = 0.1, **fields: object) -> Check:
    return Check(interval=5.0, duration=duration, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(TIMEOUT))
def test_every_policy_gives_waits_that_can_be_waited_for(name: str) -> None:
    loop = timeout_policy(name)().loop()
    random = Random(4)
    assert loop.start(random) >= 0.0
    for number in range(300):
        check = Check(
            interval=random.uniform(0.1, 20.0),
            duration=random.expovariate(10.0),
            losses=int(random.random() < 0.2),
            is_dropped=random.random() < 0.1,
            load=Announcement(rate=0.2, processing=0.02, limit=0.3) if number % 3 else UNKNOWN,
        )
        wait = loop.check(check, random)
        assert wait >= 0.0
        assert wait < 200.0 or name == "off"
        assert loop.react(random) >= 0.0
        retry = loop.retry(check, random)
        assert retry is None or 0.0 <= retry < 200.0
        assert loop.t_ast > 0.0
        assert loop.t_bck >= 0.0
        assert loop.t_avg >= 0.0
    assert isinstance(loop.is_congested, bool)


def test_unknown_policies_are_named() -> None:
    with pytest.raises(UnknownPolicy) as caught:
        timeout_policy("activ")
    assert caught.value.kind == "timeout"


def test_loss_under_congestion_does_not_make_it_ask_sooner() -> None:
    loop = ActiveTimeout(CALM).loop()
    random = Random(1)
    for _ in range(9):
        loop.check(good(), random)
    before = loop.t_ast
    loop.check(good(5.0, losses=3), random)
    assert loop.is_congested
    assert loop.t_ast == before
    loop.check(good(0.1, losses=3), random)
    assert not loop.is_congested
    assert loop.t_ast == before / 2.0


def test_the_announced_pace_is_kept() -> None:
    loop = ActiveTimeout(CALM).loop()
    assert loop.check(good(load=Announcement(rate=0.05)), Random(1)) == pytest.approx(20.0)
    # And on average when it is jittered.
    loop, random = ActiveTimeout().loop(), Random(2)
    waits = [loop.check(good(losses=1, load=Announcement(rate=0.05)), random) for _ in range(3000)]
    assert sum(waits) / len(waits) == pytest.approx(20.0, rel=0.03)


def test_a_reaction_is_spread_over_what_the_broker_needs_for_all() -> None:
    loop, random = ActiveTimeout().loop(), Random(1)
    assert loop.react(random) == 0.0  # nothing announced
    load = Announcement(watchers=200.0, capacity=40.0)
    delays = [loop.react(random, load) for _ in range(2000)]
    assert max(delays) <= 6.25
    assert sum(delays) / len(delays) == pytest.approx(3.125, rel=0.05)
    crowd = Announcement(watchers=1e6, capacity=1.0)
    assert max(loop.react(random, crowd) for _ in range(200)) <= 30.0


def test_the_first_to_react_do_not_wait_while_they_would_not_fill_half_of_the_stable_queue() -> None:
    loop, random = ActiveTimeout().loop(), Random(1)
    load = Announcement(watchers=200.0, capacity=40.0, limit=0.75)
    delays = [loop.react(random, load) for _ in range(5000)]
    at_once = sum(delay == 0.0 for delay in delays) / len(delays)
    assert at_once == pytest.approx(0.375 / 6.25, rel=0.1)  # 12 of 200, where a queue of 30 is stable
    assert max(delays) <= 6.25 - 0.375
    # A crowd that fits need not wait at all.
    few = Announcement(watchers=10.0, capacity=40.0, limit=0.75)
    assert max(loop.react(random, few) for _ in range(200)) == 0.0
    # What waits already takes the room, and what is beyond stable work is waited for.
    queued = Announcement(watchers=200.0, capacity=40.0, limit=0.75, queueing=0.75)
    assert sum(loop.react(random, queued) == 0.0 for _ in range(200)) == 0
    full = Announcement(watchers=200.0, capacity=40.0, limit=0.75, queueing=1.75)
    assert min(loop.react(random, full) for _ in range(200)) >= 0.5


def test_a_retry_gets_no_head_start() -> None:
    loop, random = ActiveTimeout(ActiveSettings(t_min=0.1, t_max=0.1)).loop(), Random(1)
    load = Announcement(watchers=10.0, capacity=10.0, limit=10.0)
    waits = [loop.retry(good(1.0, is_dropped=True, load=load), random) or 0.0 for _ in range(500)]
    assert sum(waits) / len(waits) == pytest.approx(0.1 + 1.25 / 2.0, rel=0.1)


def test_a_dropped_reaction_waits_as_long_as_the_broker_says() -> None:
    loop, random = ActiveTimeout().loop(), Random(1)
    check = good(1.0, is_dropped=True, load=Announcement(retry_after=4.0))
    retry = loop.retry(check, random)
    assert retry is not None
    assert retry >= 4.0


def test_loops_that_met_the_same_congestion_drift_apart() -> None:
    waits = set()
    for seed in range(50):
        loop, random = ActiveTimeout(CALM).loop(), Random(seed)
        loop.check(good(1.0, is_dropped=True), random)
        waits.add(round(loop.check(good(1.0, is_dropped=True), random), 3))
    assert len(waits) > 40


def exponential(random: Random) -> float:
    return 0.01 + random.expovariate(1.0 / 0.05)


def steady(random: Random) -> float:
    return random.gauss(0.1, 0.005)


@pytest.mark.parametrize("draw", [exponential, steady])
def test_false_alarms_are_rare(draw: Callable[[Random], float]) -> None:
    random = Random(9)
    alarms = checks = 0
    for _ in range(60):
        test = RobustTest()
        for _ in range(120):
            checks += 1
            alarms += test.add(draw(random))
    assert alarms / checks <= 0.05


def test_the_papers_test_alarms_a_third_of_the_time() -> None:
    random, light = Random(9), Light()
    average, alarms = 0.06, 0
    for _ in range(5000):
        duration = exponential(random)
        alarms += duration > light.threshold(good(), average)
        average = 0.875 * average + 0.125 * duration
    assert 0.25 < alarms / 5000 < 0.45


def test_a_slower_broker_is_normal_in_the_end() -> None:
    random, test = Random(9), RobustTest()
    for _ in range(50):
        test.add(steady(random))
    alarms = [test.add(4.0 * steady(random)) for _ in range(60)]
    assert all(alarms[:10])
    assert not any(alarms[30:])


def test_no_answer_is_congestion_and_teaches_nothing() -> None:
    test = RobustTest()
    assert test.threshold() == inf
    assert test.add(1.0, is_dropped=True)
    assert test.mean == 0.0


@given(st.builds(Announcement, **{name: st.floats(0.0, 1e6) for name in Announcement.__dataclass_fields__}))
def test_announcements_survive_the_wire(load: Announcement) -> None:
    again = parse_announcement(load.encode())
    for name in Announcement.__dataclass_fields__:
        value = getattr(load, name)
        assert getattr(again, name) == pytest.approx(value, rel=1e-3)


@given(st.text(max_size=60))
def test_any_text_is_an_announcement_or_none(text: str) -> None:
    load = parse_announcement(text)
    assert all(0.0 <= getattr(load, name) < inf for name in Announcement.__dataclass_fields__)


def test_what_an_announcement_does_not_understand_it_ignores() -> None:
    assert parse_announcement("proc=0.5;queue=nan;cap=-1;rate=x;new=3; watch=7") == Announcement(
        processing=0.5, watchers=7.0
    )


def test_no_announcement_makes_a_loop_wait_longer_than_its_longest_timeout() -> None:
    for load in (Announcement(rate=1e-9), Announcement(retry_after=1e9)):
        loop = ActiveTimeout().loop()
        assert loop.check(good(1.0, load=load), Random(1)) <= 60.0
        wait = loop.retry(good(1.0, is_dropped=True, load=load), Random(1))
        assert wait is not None
        assert wait <= 90.0
