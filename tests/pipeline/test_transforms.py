"""Each transformation against a slow and obvious one, on small data."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from math import log, sqrt
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.pipeline.conftest import Row
from tidegate.pipeline import tables
from tidegate.schema import BIN_MAX, Table, bin_of, bin_sql, bin_value, bin_value_sql, histogram, quantile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)
Frame = Callable[..., "DataFrame"]
DAY = date(2026, 1, 5)


def test_bins_are_those_of_the_broker(spark: SparkSession) -> None:
    rng = Random(1)
    values = [
        0,
        1,
        2,
        3,
        4,
        1023,
        1024,
        1025,
        2**40,
        2**62,
        -5,
        *(rng.randrange(1, 10**12) for _ in range(500)),
    ]
    frame = spark.createDataFrame([(value,) for value in values], "v bigint")
    got = frame.selectExpr("v", f"{bin_sql('v')} AS b").collect()
    assert {row.v: row.b for row in got} == {value: bin_of(value) for value in values}
    worth = spark.range(0, BIN_MAX + 1, 7).selectExpr("id", f"{bin_value_sql('id')} AS w").collect()
    assert all(row.w == pytest.approx(bin_value(row.id)) for row in worth)


def test_quantiles_and_deviations_are_those_of_the_histogram(frame: Frame) -> None:
    from pyspark.sql import functions as F

    from tidegate.pipeline.transforms import histograms

    rng = Random(2)
    samples = {
        name: [rng.lognormvariate(8, sigma) for _ in range(n)]
        for name, sigma, n in (("a", 0.1, 50), ("b", 2.0, 400), ("c", 1, 1))
    }
    rows = [
        {"client_id": name, "bin": at, "count": count, "date": DAY, "part": part}
        for name, values in samples.items()
        for part in (0, 1)
        for at, count in histogram(values[part::2]).items()
    ]
    collected = histograms.collect(frame(rows, tables.GAPS, "date", "part"), "client_id")
    got = (
        collected.select(
            "client_id",
            *(histograms.quantile(q).alias(f"q{q}") for q in (0.0, 0.5, 0.9, 0.99, 1.0)),
            histograms.quantile(0.5).alias("median"),
            "histogram",
        )
        .withColumn("mad", histograms.median_deviation(F.col("median")))
        .collect()
    )
    assert len(got) == 3
    for row in got:
        counts = histogram(samples[row.client_id])
        for q in (0.0, 0.5, 0.9, 0.99, 1.0):
            assert row[f"q{q}"] == pytest.approx(quantile(counts, q))
        middle = quantile(counts, 0.5)
        spread = sorted(abs(bin_value(at) - middle) for at, n in counts.items() for _ in range(n))
        assert row.mad == pytest.approx(spread[(len(spread) + 1) // 2 - 1])


def client_hours(counts: dict[str, list[int]], topic: str = "home/x") -> list[Row]:
    """Clients that send evenly within each hour."""
    rows = []
    for client_id, hours in counts.items():
        for h, n in enumerate(hours):
            if n:
                day = date.fromordinal(DAY.toordinal() + h // 24)
                gap = 3.6e9 / n
                rows.append(
                    {
                        "client_id": client_id,
                        "topic": topic,
                        "messages": n,
                        "bytes": 50 * n,
                        "first": datetime(day.year, day.month, day.day, h % 24, 0, 1),
                        "last": datetime(day.year, day.month, day.day, h % 24, 59, 59),
                        "gaps": n,
                        "gap_sum_us": gap * n,
                        "gap_squares": gap * gap * n * 1.001,
                        "negative_gaps": 0,
                        "date": day,
                        "hour": h % 24,
                    }
                )
    return rows


def test_changes_are_told_with_their_hour_and_kind(frame: Frame) -> None:
    from tidegate.pipeline.io import plain
    from tidegate.pipeline.transforms.changes import changes

    rng = Random(3)
    rhythm = [1.0 + 0.6 * np.sin(2 * np.pi * h / 24) for h in range(48)]

    def client(*factors: float) -> list[int]:
        return [
            round(rng.gauss(1, 0.02) * 100 * rhythm[h] * factors[h * len(factors) // 48]) for h in range(48)
        ]

    counts = {f"calm-{n}": client(1) for n in range(30)}
    counts["fast"] = client(1, 1, 1, 2)  # from hour 36 on
    counts["slow"] = client(1, 0.4)  # from hour 24 on
    counts["mute"] = client(1, 1, 1, 0)
    counts["loud"] = client(*[1] * 20, 20, *[1] * 27)
    found = {
        row.client_id: row
        for row in plain(changes(frame(client_hours(counts), tables.CLIENTS, "date", "hour"))).collect()
    }
    assert {name: row.kind for name, row in found.items()} == {
        "fast": "faster",
        "slow": "slower",
        "mute": "silent",
        "loud": "burst",
    }
    at = {name: row.changed_at for name, row in found.items()}
    assert at["fast"] == at["mute"] == datetime(2026, 1, 6, 12)
    assert at["slow"] == datetime(2026, 1, 6)
    assert at["loud"] == datetime(2026, 1, 5, 20)
    assert found["fast"].after / found["fast"].before == pytest.approx(2, rel=0.05)
    assert [found[name].is_over for name in ("fast", "loud")] == [False, True]


def test_a_rhythm_of_its_own_is_no_change(frame: Frame) -> None:
    from tidegate.pipeline.transforms.changes import changes

    counts = {f"even-{n}": [100] * 72 for n in range(20)}
    counts["nightly"] = [100 if h % 24 < 12 else 20 for h in range(72)]
    assert changes(frame(client_hours(counts), tables.CLIENTS, "date", "hour")).count() == 0


def test_too_few_hours_show_nothing(frame: Frame) -> None:
    from tidegate.pipeline.transforms.changes import changes

    counts = {"a": [100, 100, 900, 900], "b": [100, 100, 100, 100]}
    assert changes(frame(client_hours(counts), tables.CLIENTS, "date", "hour")).count() == 0


def test_baselines_rank_by_rate_and_forget_what_came_after_a_change(frame: Frame) -> None:
    from tidegate.pipeline.io import plain
    from tidegate.pipeline.transforms.baselines import baselines

    counts = {"slow": [36] * 10, "twin": [36] * 10, "fast": [3600] * 10, "flood": [360] * 5 + [36_000] * 5}
    counts["burst"] = [3600] * 3 + [360_000] + [3600] * 6
    clients = frame(client_hours(counts), tables.CLIENTS, "date", "hour")
    gaps = [
        {"client_id": name, "bin": at, "count": count, "date": DAY, "part": 0}
        for name, hours in counts.items()
        for at, count in histogram([3.6e9 / hours[0]] * 90 + [7.2e9 / hours[0]] * 10).items()
    ]
    change = {"client_id": "flood", "changed_at": datetime(2026, 1, 5, 5), "kind": "faster"}
    over = {"client_id": "burst", "changed_at": datetime(2026, 1, 5, 3), "ended_at": datetime(2026, 1, 5, 4)}
    got = {
        row.client_id: row
        for row in plain(
            baselines(
                clients,
                frame(gaps, tables.GAPS, "date", "part"),
                frame([change, over], tables.CHANGES),
                limit_factor=4.0,
            )
        ).collect()
    }
    assert {name: row["rank"] for name, row in got.items()} == {
        "slow": 1,
        "twin": 1,
        "flood": 3,
        "fast": 4,
        "burst": 4,
    }
    assert {name: round(row.rate, 2) for name, row in got.items()} == {
        "slow": 0.01,
        "twin": 0.01,
        "flood": 0.1,
        "fast": 1.0,
        "burst": 1.0,
    }
    # What was a burst, and is over, teaches nothing; all else of that client does.
    assert (got["burst"].changed_at, got["burst"].messages) == (None, 9 * 3600)
    assert got["burst"].limit == pytest.approx(4.0, rel=0.01)
    # Gaps of hours that share their histogram with hours of a change are not told apart.
    assert got["flood"].median_us is None and got["burst"].median_us is None
    assert got["slow"].median_us is not None
    assert got["fast"].limit == pytest.approx(4.0, rel=0.01)
    assert got["slow"].limit == 1.0
    assert got["flood"].changed_at == datetime(2026, 1, 5, 5)
    assert got["flood"].messages == 5 * 360
    assert all(row.dispersion == 0.0 for row in got.values())


def topic_hours(counts: dict[str, list[int | None]]) -> list[Row]:
    return [
        {
            "topic": topic,
            "messages": n,
            "bytes": 10 * n,
            "publishers": 1,
            "date": date.fromordinal(DAY.toordinal() + h // 24),
            "hour": h % 24,
        }
        for topic, hours in counts.items()
        for h, n in enumerate(hours)
        if n
    ]


def slow_forecast(n: list[float], at: int) -> float:
    """As the job does, one hour at a time."""

    def season(h: int) -> float | None:
        lags = [(n[h - 24 * d], 1.0 if d < 7 else 2.0) for d in range(1, 8) if h - 24 * d >= 0]
        return sum(v * w for v, w in lags) / sum(w for _, w in lags) if lags else None

    def ratio(h: int) -> float | None:
        base = season(h) if h >= 0 else None
        return None if base is None else log((n[h] + 1) / (base + 1))

    base = season(at)
    if base is None:
        recent = [(n[at - back], 0.6**back) for back in (1, 2, 3) if at - back >= 0]
        return sum(v * w for v, w in recent) / sum(w for _, w in recent)
    last = [ratio(at - back) for back in (1, 2, 3)]
    if None in last:
        return base
    middle = median(each for each in last if each is not None)
    known = [abs(r) for r in (ratio(h) for h in range(max(0, at - 48), at)) if r is not None]
    noise = 0.5 * (1.2533 * sum(known) / len(known)) ** 2 * 1.57 / 3
    level = middle * max(0.0, 1 - noise / middle**2) if middle else 0.0
    return base * float(np.exp(min(1.4, max(-1.4, level))))


def test_forecasts_are_those_of_a_loop_over_hours(frame: Frame) -> None:
    from tidegate.pipeline.transforms.topics import forecasts, grid

    rng = Random(5)
    counts = {
        "wave": [
            round(1000 * (1 + 0.5 * np.sin(h / 24 * 2 * np.pi)) * rng.gauss(1, 0.05)) for h in range(80)
        ],
        "step": [100 if h < 60 else 300 for h in range(80)],
    }
    rows = (
        forecasts(grid(frame(topic_hours(dict(counts)), tables.TOPIC_HOURS, "date", "hour")))
        .orderBy("topic", "h")
        .collect()
    )
    for topic, hours in counts.items():
        mine = [row for row in rows if row.topic == topic]
        assert [row.is_next for row in mine] == [False] * 80 + [True]
        for at, row in enumerate(mine):
            if at > 0:
                assert row.forecast == pytest.approx(slow_forecast([float(n) for n in hours], at)), (
                    topic,
                    at,
                )


def test_topics_have_rates_a_profile_and_an_interval(frame: Frame, spark: SparkSession) -> None:
    from tidegate.pipeline.transforms.topics import forecasts, grid, topic_policy

    counts: dict[str, list[int | None]] = {
        "a": [3600 if h % 24 < 12 else 7200 for h in range(48)],
        "b": [None] * 47 + [36],
    }
    groups = spark.createDataFrame([("a", 7)], "topic string, burst_group bigint")
    hours = frame(topic_hours(counts), tables.TOPIC_HOURS, "date", "hour")
    got = {row.topic: row for row in topic_policy(hours, forecasts(grid(hours)), groups).collect()}
    assert got["a"].rate == pytest.approx(1.5)
    assert got["a"].bytes_rate == pytest.approx(15.0)
    assert got["a"].profile == [1.0 if h % 24 < 12 else 2.0 for h in range(168)]
    assert got["a"].forecast == pytest.approx(1.0)
    assert got["a"].forecast_low < 1.0 < got["a"].forecast_high
    assert (got["a"].burst_group, got["b"].burst_group) == (7, None)
    assert got["b"].rate == pytest.approx(36 / 48 / 3600)


def test_correlations_are_those_of_numpy_within_hours(frame: Frame) -> None:
    from tidegate.pipeline.transforms.topics import correlations

    rng = np.random.default_rng(6)
    common = (rng.random((2, 3600)) < 0.05) * 8
    series = {
        "a": rng.poisson(0.2 + common),
        "b": rng.poisson(0.3 + common),
        "c": rng.poisson(1.0, (2, 3600)),
        "d": rng.poisson(np.array([[50.0], [5.0]]), (2, 3600)),
        "e": rng.poisson(np.array([[50.0], [5.0]]), (2, 3600)),
    }
    rows = [
        {
            "topic": name,
            "seconds": np.flatnonzero(values[h]).tolist(),
            "counts": values[h][values[h] > 0].tolist(),
            "date": DAY,
            "hour": h,
        }
        for name, values in series.items()
        for h in range(2)
        if (name, h) != ("b", 0)  # it was not among the busiest yet
    ]
    got = {
        (r.topic_a, r.topic_b): r.rho
        for r in correlations(frame(rows, tables.SECONDS, "date", "hour"), -1.0).collect()
    }
    for (a, b), rho in got.items():
        both = slice(1 if "b" in (a, b) else 0, 2)
        x, y = ((series[name] - series[name].mean(axis=1, keepdims=True))[both] for name in (a, b))
        assert rho == pytest.approx(float((x * y).sum() / sqrt((x * x).sum() * (y * y).sum()))), (a, b)
    assert len(got) == 10
    assert [pair for pair, rho in got.items() if rho > 0.7] == [("a", "b")]  # d and e only share a rhythm


def second_rows(series: dict[str, dict[int, int]]) -> list[Row]:
    """Messages by second of one hour, by topic."""
    return [
        {"topic": name, "seconds": sorted(counts), "counts": [counts[at] for at in sorted(counts)]}
        | {"date": DAY, "hour": 3}
        for name, counts in series.items()
    ]


def test_the_beginning_and_the_end_of_a_recording_are_no_common_burst(frame: Frame) -> None:
    from tidegate.pipeline.transforms.topics import LEAST_SECONDS, correlations

    rng = np.random.default_rng(8)
    # Two that have nothing to do with each other, as long as is looked at: but nobody was told what was before.
    begin = 900
    series = {
        name: {begin + at: int(n) for at, n in enumerate(rng.poisson(5.0, 2 * LEAST_SECONDS)) if n}
        for name in ("a", "b")
    }
    (row,) = correlations(frame(second_rows(series), tables.SECONDS, "date", "hour"), -1.0).collect()
    assert abs(row.rho) < 0.2
    assert row.seconds == pytest.approx(2 * LEAST_SECONDS, abs=5)


def test_a_short_recording_tells_no_correlation(frame: Frame) -> None:
    from tidegate.pipeline.transforms.topics import QUIET, correlations

    bursts = {at: 1 + at % 7 for start in (100, 100 + 20 + QUIET) for at in range(start, start + 20)}
    rows = second_rows({"a": bursts, "b": bursts})
    assert correlations(frame(rows, tables.SECONDS, "date", "hour"), -1.0).collect() == []
    # Somebody else who is heard all the time does not make it long.
    clock = second_rows({"clock": {at: 1 + at % 2 for at in range(3_600)}})
    found = correlations(frame(rows + clock, tables.SECONDS, "date", "hour"), -1.0).collect()
    assert ("a", "b") not in {(row.topic_a, row.topic_b) for row in found}


def test_a_console_that_measures_itself_teaches_nothing(
    spark: SparkSession, frame: Frame, tmp_path: Path
) -> None:
    from tidegate import schema
    from tidegate.pipeline import io
    from tidegate.pipeline.jobs import baselines, topics
    from tidegate.pipeline.settings import PipelineSettings

    settings = PipelineSettings(lake=str(tmp_path))
    clients = client_hours({"calm": [600]}) + client_hours({"console-1": [3_600]}, "tidegate/probe/0f1e")
    seconds = {row["topic"]: {at: 1 + at % 7 for at in range(3_600)} for row in clients}
    for table, rows in (
        (tables.CLIENTS, clients),
        (tables.TOPIC_HOURS, [row | {"publishers": 1} for row in clients]),
        (tables.SECONDS, second_rows(seconds)),
    ):
        io.write_aggregate(frame(rows, table, "date", "hour"), settings, table)
    baselines.main(spark, settings)
    topics.main(spark, settings)

    def learnt(table: Table, column: str) -> list[str]:
        return [row[column] for row in io.read_finding(spark, settings, table).collect()]

    assert learnt(schema.BASELINES, "client_id") == ["calm"]
    assert learnt(schema.TOPICS, "topic") == ["home/x"]
    assert learnt(schema.CORRELATIONS, "topic_a") == []


def test_burst_groups_are_what_hangs_together() -> None:
    from tidegate.pipeline.transforms.topics import burst_groups

    pairs = [("a", "b"), ("x", "y"), ("b", "c"), ("y", "z"), ("c", "a")]
    assert dict(burst_groups(pairs)) == {"a": 1, "b": 1, "c": 1, "x": 2, "y": 2, "z": 2}
    assert dict(burst_groups([])) == {}


def slow_route(
    slots: list[dict[str, float]], hysteresis: float = 5.0, age: int = 2
) -> tuple[str | None, int]:
    own: str | None = None
    flaps = 0
    known: dict[str, tuple[float, int]] = {}
    for heard in slots:
        after = {
            gw: (known[gw][0] + 0.2 * (rssi - known[gw][0]) if gw in known else rssi, 0)
            for gw, rssi in heard.items()
        }
        for gw, (rssi, silent) in known.items():
            if gw not in heard and silent + 1 < age:
                after[gw] = (rssi, silent + 1)
        known = after
        best = max(known, key=lambda gw: (known[gw][0], gw))
        if own is None or own not in known or known[best][0] > known[own][0] + hysteresis:
            flaps += own is not None
            own = best
    return own, flaps


def test_routes_are_those_of_a_loop_over_slots(frame: Frame) -> None:
    from tidegate.pipeline.transforms.routes import gateways, routes

    rng = Random(7)
    devices = {}
    for n in range(40):
        strength = {gw: rng.uniform(-90, -50) for gw in ("g1", "g2", "g3")}
        slots = []
        for at in range(30):
            if at == 15 and n % 3 == 0:
                strength = {gw: rng.uniform(-90, -50) for gw in strength}
            alive = ["g1", "g2"] if at >= 20 else ["g1", "g2", "g3"]
            slots.append(
                {gw: strength[gw] + rng.gauss(0, 4) for gw in alive if rng.random() < 0.8} or {"g1": -70.0}
            )
        devices[f"mac-{n}"] = slots
    rows = [
        {
            "mac": mac,
            "gw": gw,
            "slot": at,
            "count": 1,
            "rssi_sum": rssi,
            "last": datetime(2026, 1, 5, at // 12, at % 12 * 5),
            "date": DAY,
            "hour": at // 12,
        }
        for mac, slots in devices.items()
        for at, heard in enumerate(slots)
        for gw, rssi in heard.items()
    ]
    beacons = frame(rows, tables.BEACONS, "date", "hour")
    found = routes(beacons)
    got = {row.mac: (row.gw, row.flaps) for row in found.collect()}
    assert got == {mac: slow_route(slots) for mac, slots in devices.items()}
    dead = {row.gw: row.is_dead for row in gateways(beacons, found).collect()}
    assert dead == {"g1": False, "g2": False, "g3": True}


def test_a_member_has_its_speed_and_spread_and_old_hours_count_less(frame: Frame) -> None:
    from tidegate.pipeline.transforms import hourly
    from tidegate.pipeline.transforms.members import members
    from tidegate.schema import MEMBER

    rng = np.random.default_rng(8)
    rows = [
        {
            "kind": "state",
            "group": "g",
            "client_id": "m",
            "count": int(n),
            "date": DAY,
            "hour": 0,
            "service": float(rng.normal(0.05, 0.02, n).mean()),
        }
        for n in rng.integers(1, 40, 400)
    ]
    rows += [
        {
            "kind": "state",
            "group": "g",
            "client_id": "idle",
            "count": 0,
            "service": 0.5,
            "date": DAY,
            "hour": 0,
        }
    ]
    hours = hourly.members(frame(rows, MEMBER, "date", "hour"))
    got = {(row["group"], row.client_id): row for row in members(hours).collect()}
    assert set(got) == {("g", "m"), ("", "m")}
    assert got["g", "m"].service == pytest.approx(0.05, rel=0.02)
    assert got["g", "m"].variability == pytest.approx(0.4, rel=0.15)
    assert got["g", "m"].messages == sum(row["count"] for row in rows)
    old_and_new = [
        {
            "group": "g",
            "client_id": "m",
            "windows": 1,
            "messages": 100,
            "service_sum": s * 100,
            "service_squares": 0.0,
            "scatter": 0.0,
            "date": DAY,
            "hour": h,
        }
        for h, s in ((0, 0.01), (6, 0.04))
    ]
    aged = members(frame(old_and_new, tables.MEMBER_HOURS, "date", "hour")).where("group = 'g'").first()
    assert aged is not None
    assert aged.service == pytest.approx((0.5 * 0.01 + 0.04) / 1.5)


def test_the_bottleneck_is_the_slowest_hop_and_quantiles_are_near_the_true_ones(frame: Frame) -> None:
    from tidegate.pipeline.transforms import hourly, rpc
    from tidegate.schema import RPC

    rng = Random(9)
    rows: list[Row] = []
    for n in range(300):
        moments = [datetime(2026, 1, 5, 3, 0, n % 50)]
        for mean in (5, 2, 1, 40, 2, 1):
            moments.append(
                moments[-1].replace(
                    microsecond=moments[-1].microsecond + rng.randrange(500 * mean, 1500 * mean)
                )
            )
        names = ("t_enqueued", "t_worker", "t_fwd", "t_mqtt", "t_gw", "t_bck", "t_reply")
        call = dict(zip(names, moments, strict=True)) | {
            "request_id": str(n),
            "attempt": 1,
            "outcome": "ack",
            "date": DAY,
            "hour": 3,
        }
        if n % 10 == 0:
            call |= {"t_gw": None, "t_bck": None, "t_reply": None, "outcome": "timeout"}
        rows.append(call)
    twice = rows + rows[:50]
    got = {row.hop: row for row in rpc.latency(hourly.rpc_hops(frame(twice, RPC, "date", "hour"))).collect()}
    assert [hop for hop, row in got.items() if row.is_bottleneck] == ["gateway"]
    assert (got["queue"].calls, got["total"].calls) == (300, 270)
    totals = sorted(
        (row["t_reply"] - row["t_enqueued"]).total_seconds() * 1e6 for row in rows if row["t_reply"]
    )
    assert got["total"].mean_us == pytest.approx(sum(totals) / len(totals))
    for name, q in (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99)):
        assert got["total"][name] == pytest.approx(totals[int(q * len(totals)) - 1], rel=0.03)


def test_control_parameters_follow_from_the_loss_rate(frame: Frame) -> None:
    from tidegate.pipeline.transforms.control import control

    rows = [
        {
            "client_id": name,
            "checks": 100,
            "lossy": 10,
            "losses": losses,
            "seconds": 500.0,
            "dropped": 0,
            "congested": 0,
            "date": DAY,
            "hour": h,
        }
        for h in (0, 1)
        for name, losses in (("a", 20), ("b", 0))
    ]
    got = {
        row.client_id: row
        for row in control(frame(rows, tables.CONTROL_HOURS, "date", "hour"), staleness=5.0).collect()
    }
    a = got["a"]
    assert (a.loss_rate, a.tau, a.k, a.alpha) == (0.04, 5.0, 2.0, 2.0)
    assert a.t == pytest.approx(sqrt(2 * a.delta * 4 / (0.04 * 3)))  # spec 3, N, T, K
    assert a.t * 3 / 4 == pytest.approx(5.0)  # τ is the staleness wanted
    assert a.n == pytest.approx(a.t / (2 * a.delta))
    assert (got["b"].loss_rate, got["b"].t, got["b"].delta) == (0.0, None, 0.01)
    assert got[""].loss_rate == pytest.approx(0.02)
