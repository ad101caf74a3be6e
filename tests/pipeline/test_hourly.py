"""Aggregates of the whole lake against sums in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import pytest

from tests.pipeline.conftest import Found, Row
from tidegate.schema import bin_of, bin_value

pytestmark = pytest.mark.timeout(600)
Rows = Callable[[str], list[Row]]


def place(ts: datetime) -> tuple[date, int]:
    return ts.date(), ts.hour


def gaps_of(row: Row) -> dict[int, int]:
    if row["window_us"]:
        return dict(zip(row["gap_bins"], row["gap_counts"], strict=True))
    return {} if row["gap_us"] is None else {bin_of(row["gap_us"]): 1}


def gap_sums(row: Row) -> tuple[int, float]:
    if row["window_us"]:
        pairs = gaps_of(row).items()
        return sum(n for _, n in pairs), sum(bin_value(at) * n for at, n in pairs)
    return (0, 0.0) if row["gap_us"] is None else (1, float(row["gap_us"]))


def test_clients_are_the_sums_of_their_messages(found: Found, raw: Rows) -> None:
    sums: dict[Any, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
    first: dict[Any, datetime] = {}
    last: dict[Any, datetime] = {}
    topics: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in raw("publish"):
        key = (*place(row["ts"]), row["client_id"])
        gaps, gap = gap_sums(row)
        for at, value in enumerate((row["count"], row["bytes"], gaps, gap)):
            sums[key][at] += value
        begin, end = row["first"] or row["ts"], row["last"] or row["ts"]
        first[key] = min(first.get(key, begin), begin)
        last[key] = max(last.get(key, end), end)
        topics[key][row["topic"]] += row["count"]
    rows = found.aggregates("clients")
    assert len(rows) == len(sums)
    for row in rows:
        key = (row["date"], row["hour"], row["client_id"])
        messages, size, gaps, gap = sums[key]
        assert (row["messages"], row["bytes"], row["gaps"], row["negative_gaps"]) == (messages, size, gaps, 0)
        assert row["gap_sum_us"] == pytest.approx(gap)
        assert row["first"] == first[key].replace(tzinfo=None)
        assert row["last"] == last[key].replace(tzinfo=None)
        assert row["topic"] == max(topics[key].items(), key=lambda each: (each[1], each[0]))[0]


def test_topics_and_nodes_are_the_sums_of_their_messages(found: Found, raw: Rows) -> None:
    topics: Counter[Any] = Counter()
    publishers = defaultdict(set)
    nodes: Counter[Any] = Counter()
    for row in raw("publish"):
        topics[(*place(row["ts"]), row["topic"])] += row["count"]
        publishers[(*place(row["ts"]), row["topic"])].add(row["client_id"])
        nodes[(*place(row["ts"]), row["node"])] += row["count"]
    got = {
        (r["date"], r["hour"], r["topic"]): (r["messages"], r["publishers"])
        for r in found.aggregates("topics")
    }
    assert got == {key: (count, len(publishers[key])) for key, count in topics.items()}
    assert {(r["date"], r["hour"], r["node"]): r["messages"] for r in found.aggregates("nodes")} == nodes


def test_histograms_of_gaps_are_those_of_all_messages(found: Found, raw: Rows) -> None:
    expected: Counter[Any] = Counter()
    for row in raw("publish"):
        day, hour = place(row["ts"])
        for at, count in gaps_of(row).items():
            expected[(day, hour // 6, row["client_id"], at)] += count
    got = {(r["date"], r["part"], r["client_id"], r["bin"]): r["count"] for r in found.aggregates("gaps")}
    assert got == expected


def test_seconds_are_counted_for_the_topics_that_matter(found: Found, raw: Rows) -> None:
    expected: dict[Any, Counter[int]] = defaultdict(Counter)
    for row in raw("publish"):
        at = row["first"] or row["ts"]
        expected[(*place(row["ts"]), row["topic"])][at.minute * 60 + at.second] += row["count"]
    rows = found.aggregates("seconds")
    assert len(rows) == len(expected)  # there are fewer topics than those that may matter
    for row in rows:
        got = dict(zip(row["seconds"], row["counts"], strict=True))
        assert got == expected[(row["date"], row["hour"], row["topic"])]
        assert row["seconds"] == sorted(row["seconds"])


def test_loads_members_and_fan_out_are_sums(found: Found, raw: Rows) -> None:
    received: Counter[Any] = Counter()
    for row in raw("load"):
        received[(*place(row["ts"]), row["node"])] += row["publish_received"]
    assert {(r["date"], r["hour"], r["node"]): r["received"] for r in found.aggregates("loads")} == received
    delivered: Counter[Any] = Counter()
    for row in raw("deliver"):
        delivered[(*place(row["ts"]), row["topic"])] += row["count"]
    assert {
        (r["date"], r["hour"], r["topic"]): r["messages"] for r in found.aggregates("fanout")
    } == delivered
    service: Counter[Any] = Counter()
    for row in raw("member"):
        if row["count"] and row["service"]:
            service[(*place(row["ts"]), row["group"], row["client_id"])] += row["service"] * row["count"]
    got = {
        (r["date"], r["hour"], r["group"], r["client_id"]): r["service_sum"]
        for r in found.aggregates("members")
    }
    assert got == pytest.approx(service)


def test_calls_are_counted_by_hop_and_outcome(found: Found, raw: Rows) -> None:
    hops: Counter[Any] = Counter()
    outcomes: Counter[Any] = Counter()
    for row in raw("rpc"):
        outcomes[(row["gw"], row["outcome"])] += 1
        for hop, begin, end in (("gateway", "t_mqtt", "t_gw"), ("total", "t_enqueued", "t_reply")):
            if row[begin] is not None and row[end] is not None:
                micros = round((row[end] - row[begin]).total_seconds() * 1e6)
                hops[(*place(row["ts"]), hop, bin_of(micros))] += 1
    got = {
        (r["date"], r["hour"], r["hop"], r["bin"]): r["count"]
        for r in found.aggregates("rpc_hops")
        if r["hop"] in ("gateway", "total")
    }
    assert got == hops
    ended: Counter[Any] = Counter()
    for row in found.aggregates("rpc_outcomes"):
        ended[(row["gw"], row["outcome"])] += row["count"]
    assert ended == outcomes


def test_beacons_and_checks_are_counted(found: Found, raw: Rows) -> None:
    heard: Counter[Any] = Counter()
    for row in raw("beacon"):
        heard[(row["mac"], row["gw"], int(row["ts"].timestamp()) // 300)] += 1
    assert {(r["mac"], r["gw"], r["slot"]): r["count"] for r in found.aggregates("beacons")} == heard
    losses: Counter[Any] = Counter()
    for row in raw("check"):
        losses[(*place(row["ts"]), row["client_id"])] += row["losses"]
    assert {
        (r["date"], r["hour"], r["client_id"]): r["losses"] for r in found.aggregates("control")
    } == losses
