"""What a choice costs; alone on the machine, because it is measured."""

from random import Random
from timeit import repeat

import pytest

from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared import ClientLoad, EarliestFinish, Member

CHOICES = 2000


def cost(count: int, *, is_reporting: bool) -> float:
    """Seconds for one choice and telling the member of it, at full load; the best of many runs."""
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

    def run() -> None:
        nonlocal now
        for _ in range(CHOICES):
            now += 0.02 / count
            chosen = policy.choose(members, b"topic", "publisher", now, random)
            if policy.is_counting:
                members[chosen].on_sent(now)

    return min(repeat(run, number=1, repeat=40)) / CHOICES


@pytest.mark.serial
def test_ten_members_that_tell_nothing_cost_less_than_600_nanoseconds() -> None:
    assert cost(10, is_reporting=False) < 0.6e-6


@pytest.mark.serial
def test_a_thousand_members_cost_at_most_twice_what_three_do() -> None:
    assert cost(1000, is_reporting=True) <= 2.0 * cost(3, is_reporting=True)
