"""What a choice costs; alone on the machine, because it is measured."""

from collections.abc import Callable
from random import Random
from time import perf_counter

import pytest

from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared import ClientLoad, EarliestFinish, Member

CHOICES = 500
ROUNDS = 150  # short and alternating, so that a moment of rest of the machine is a moment for each group


def group(count: int, *, is_reporting: bool) -> Callable[[], float]:
    """Measures seconds for one choice and telling the member of it, at full load."""
    random = Random(1)
    members = tuple(Member(str(number), ClientLoad()) for number in range(count))
    if is_reporting:
        for member in members:
            time = 0.02 + 0.001 * random.random()
            member.load.on_report(
                0.0, LoadReport(queue_length=5, processing_time=time, count=9, processed=0)
            )
    policy = EarliestFinish()
    now = 1.0

    def run() -> float:
        nonlocal now
        start = perf_counter()
        for _ in range(CHOICES):
            now += 0.02 / count
            chosen = policy.choose(members, b"topic", "publisher", now, random)
            if policy.is_counting:
                members[chosen].on_sent(now)
        return (perf_counter() - start) / CHOICES

    return run


def best(*groups: Callable[[], float]) -> list[float]:
    return [min(times) for times in zip(*[[run() for run in groups] for _ in range(ROUNDS)], strict=True)]


@pytest.mark.serial
def test_members_that_tell_nothing_cost_no_more_than_a_turn_of_the_wheel() -> None:
    """0.15 µs, measured on a calm machine."""
    assert best(group(10, is_reporting=False))[0] < 1.5e-6


@pytest.mark.serial
def test_the_cost_hardly_grows_with_the_group() -> None:
    """1.7 to 2.1 times, measured; a look at every member would be two hundred times as dear as at three."""
    three, thousand = best(group(3, is_reporting=True), group(1000, is_reporting=True))
    assert thousand <= 4.0 * three
