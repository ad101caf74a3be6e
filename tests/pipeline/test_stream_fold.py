"""Streaming state, one step at a time, without Spark."""

import random

import pytest

from tidegate.pipeline.stream_fold import (
    ALARM,
    CALM,
    TRAINING,
    Change,
    Rate,
    Route,
    as_fields,
    route_of,
    step_rate,
    step_route,
)


def walk(counts: list[int], ratio: float = 1.5) -> tuple[Rate, list[Change]]:
    rate = Rate()
    found: list[Change] = []
    for minute, count in enumerate(counts):
        if count:
            found += step_rate(rate, minute, count, ratio)
    return rate, found


def poisson(mean: float, random_: random.Random) -> int:
    count, sum_ = 0, random_.expovariate(1.0)
    while sum_ < mean:
        count += 1
        sum_ += random_.expovariate(1.0)
    return count


def test_a_steady_client_is_never_called_different() -> None:
    random_ = random.Random(1)
    _, found = walk([poisson(30, random_) for _ in range(5_000)])
    assert found == []


@pytest.mark.parametrize(("factor", "kind"), [(3.0, "faster"), (0.25, "slower")])
def test_a_change_is_found_within_minutes_and_its_beginning_named(factor: float, kind: str) -> None:
    random_ = random.Random(2)
    counts = [poisson(30, random_) for _ in range(200)] + [poisson(30 * factor, random_) for _ in range(30)]
    rate, found = walk(counts)
    assert [(each.kind, each.is_over) for each in found] == [(kind, False)]
    assert 197 <= found[0].minute <= 203
    assert found[0].before == pytest.approx(0.5, rel=0.15)
    assert found[0].score >= 1.0
    assert rate.kind == kind


def test_a_change_that_ends_is_said_to_be_over() -> None:
    counts = [30] * 100 + [150] * 20 + [30] * 30
    _, found = walk(counts)
    assert [(each.kind, each.is_over, each.minute) for each in found] == [
        ("faster", False, 100),
        ("faster", True, 100),
    ]
    assert found[1].after == pytest.approx(150 / 60, rel=0.1)


def test_silent_minutes_count() -> None:
    _, found = walk([30] * 100 + [0] * 10 + [30])
    assert [(each.kind, each.minute) for each in found] == [("slower", 100)]


def test_nothing_is_said_while_it_is_learnt_what_is_usual() -> None:
    _, found = walk([1, 1000] * (TRAINING // 2))
    assert found == []
    assert (ALARM, CALM) == (20.0, 10)


def test_a_route_stays_unless_another_is_stronger_by_the_hysteresis() -> None:
    route = step_route(Route(), {"a": (-60.0, 10), "b": (-63.0, 10)}, 5.0, 2)
    assert (route.gw, route.second, route.flaps) == ("a", "b", 0)
    route = step_route(route, {"a": (-64.0, 1000), "b": (-60.0, 1000)}, 5.0, 2)
    assert (route.gw, route.flaps) == ("a", 0)
    route = step_route(route, {"a": (-70.0, 1000), "b": (-60.0, 1000)}, 5.0, 2)
    assert (route.gw, route.second, route.flaps) == ("b", "a", 1)


def test_a_gateway_that_is_not_heard_grows_old() -> None:
    route = step_route(Route(), {"a": (-50.0, 10)}, 5.0, 2)
    route = step_route(route, {"b": (-80.0, 10)}, 5.0, 2)
    assert route.gw == "a"
    route = step_route(route, {"b": (-80.0, 10)}, 5.0, 2)
    assert (route.gw, route.second, route.flaps) == ("b", None, 1)


def test_state_survives_being_written_down() -> None:
    import json

    route = step_route(Route(), {"a": (-60.0, 10), "b": (-63.0, 10)}, 5.0, 2)
    assert route_of(json.loads(json.dumps(as_fields(route)))) == route
    rate, _ = walk([30] * 50)
    assert Rate(**json.loads(json.dumps(as_fields(rate)))) == rate
