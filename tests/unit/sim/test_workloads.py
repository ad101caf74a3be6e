"""Streams of intervals, and who is ahead of schedule."""

from itertools import accumulate, islice, repeat
from random import Random
from statistics import fmean

import pytest

from tidegate.sim.workloads import FAMILIES, Schedule, drift, scaled, then


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_sends_one_message_a_second_on_average(family: str) -> None:
    assert fmean(islice(FAMILIES[family](Random(5)), 20_000)) == pytest.approx(1.0, rel=0.03)


def test_habits_can_be_scaled_changed_and_bent() -> None:
    assert list(islice(scaled(repeat(1.0), 60.0), 2)) == [60.0, 60.0]
    assert list(islice(then(repeat(1.0), 2, repeat(0.5)), 4)) == [1.0, 1.0, 0.5, 0.5]
    bent = list(islice(drift(repeat(1.0), start=1, length=2, speed=4.0), 5))
    assert bent == pytest.approx([1.0, 1.0, 0.5, 0.25, 0.25])


def test_a_regular_publisher_is_never_ahead_even_after_a_pause() -> None:
    for is_policer in (False, True):
        schedule = Schedule(0.1, 0.0, is_policer=is_policer)
        times = [*accumulate(repeat(0.1, 1000)), *accumulate(repeat(0.1, 1000), initial=900.0)]
        assert not any(schedule.is_ahead(time) for time in times)


def test_twice_the_rate_is_wholly_ahead_and_a_policer_passes_every_other_one() -> None:
    times = [0.5 * number for number in range(100)]
    schedule, policer = Schedule(1.0, 1.0), Schedule(1.0, 1.0, is_policer=True)
    assert [schedule.is_ahead(time) for time in times] == [False] * 3 + [True] * 97
    assert sum(policer.is_ahead(time) for time in times) == 49
