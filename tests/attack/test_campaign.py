"""Hostile streams on all kinds of listeners: two minutes of `make attack`, and that its verdict can fail."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from bench.attack import campaign, streams
from bench.attack.campaign import Report, Round, judge, plan
from bench.attack.victim import KINDS

BOUND = 400_000_000
RATE = 10_000_000


def _report(**changes: float) -> Report:
    report = Report(seed=1, rate=RATE, bound_bytes=BOUND)
    report.peak_share = changes.get("peak", 1.0)
    report.peak_share_after_restart = changes.get("after", 0.5)
    return report


def _pings(*seconds: float) -> list[tuple[float, float]]:
    """One in each window."""
    return [(1_000.0 + 10.0 * number, each) for number, each in enumerate(seconds)]


def test_a_quiet_campaign_keeps_every_promise() -> None:
    report = _report()
    one = Round(number=0, stream="s", way="tcp", connections=1, reads=True, began=1_005.0, ended=1_015.0)
    report.rounds.append(one)
    judge(report, _pings(*[0.01] * 19, 0.4))
    assert report.broken == [] and report.usual_share == 0.95
    assert report.rounds[0].worst_ping == 0.01


@pytest.mark.parametrize(
    ("pings", "changes", "word"),
    [
        ([0.01] * 18 + [0.11, 0.12], {}, "90%"),
        ([0.01] * 99 + [0.6], {}, "600 ms"),
        ([0.01], {"peak": 1.11}, "memory was 1.11"),
        ([0.01], {"after": 1.2}, "after the restart was 1.20"),
    ],
)
def test_each_promise_that_is_broken_is_named(pings: list[float], changes: dict[str, float], word: str) -> None:
    report = _report(**changes)
    judge(report, _pings(*pings))
    (broken,) = report.broken
    assert word in broken


def test_every_stream_is_sent_before_any_is_sent_again_and_a_seed_says_how() -> None:
    begun = list(islice(plan(7), len(streams.ALL)))
    assert {name for name, *_ in begun} == set(streams.ALL)
    assert begun == list(islice(plan(7), len(streams.ALL))) != list(islice(plan(8), len(streams.ALL)))
    assert {way for _, way, *_ in islice(plan(7), 300)} == set(KINDS)


@pytest.mark.serial
def test_a_node_that_stops_for_a_moment_is_found_out(tmp_path: Path) -> None:
    """The control."""
    report = campaign.run(
        tmp_path, seconds=4.0, seed=1, rate=RATE, bound_bytes=BOUND, only=("orders_and_reports",), stall=0.7, say=print
    )
    assert any("a ping took" in each for each in report.broken)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_minutes_of_all_streams_on_all_listeners(tmp_path: Path) -> None:
    report = campaign.run(tmp_path, seconds=120.0, seed=1, rate=RATE, bound_bytes=BOUND, say=print)
    print(campaign.table(report))
    assert report.broken == []
    assert {each.stream for each in report.rounds} == set(streams.ALL)
    assert sum(each.sent_bytes for each in report.rounds) > 200_000_000
