"""Runs of messages become rows: against a slow obvious computation."""

from array import array
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import schema
from tidegate.broker.recording import Level, Runs
from tidegate.lake.summing import Summing, bins_of, gaps_us

TOPICS = ("a", "b/c")


def route(topic: str, *subscribers: str, group: str = "") -> Any:
    targets = tuple(SimpleNamespace(session=SimpleNamespace(client_id=name)) for name in subscribers)
    shared = (SimpleNamespace(name=group),) if group else ()
    return SimpleNamespace(topic=topic.encode(), targets=targets, shared=shared)


def batch(runs: list[tuple[int, int, int, float]], is_first: bool = True, is_last: bool = True) -> Runs:
    """Stream n is client n // 2 and topic n % 2; six of them."""
    numbers = array("d")
    for run in runs:
        numbers.extend(run)
    return Runs(
        clock=1_000_000.0,
        numbers=numbers,
        window=0,
        window_start=0.0,
        window_end=10.0,
        is_last=is_last,
        generation=0,
        clients=["c0", "c1", "c2"] if is_first else [],
        routes=[route("a", "s1", "s2"), route("b/c", group="g")] if is_first else [],
        streams=[(n // 2, n % 2, 0) for n in range(6)] if is_first else [],
    )


@given(st.lists(st.integers(0, 2**50), max_size=50))
def test_bins_of_a_column_are_those_of_the_schema(values: list[int]) -> None:
    assert bins_of(np.array(values, float)).tolist() == [schema.bin_of(value) for value in values]


def slow_gaps(runs: list[tuple[int, int, int, float]]) -> list[int | None]:
    """Of each run: the time since the client's last, shared by all that came at the same time."""
    last: dict[int, float] = {}
    found: list[int | None] = []
    for stream, _, _, time in runs:
        client = stream // 2
        together = sum(count for s, count, _, t in runs if s // 2 == client and t == time)
        before = [t for s, _, _, t in runs if s // 2 == client and t < time]
        gap = (time - max(before)) * 1e6 / together if before else None
        found.append(None if gap is None else int(np.floor(gap)))
        last[client] = time
    return found


run_lists = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=40
).map(
    lambda steps: [
        (stream, count, count * 50, float(time))
        for (stream, count, _), time in zip(
            steps, np.cumsum([step for _, _, step in steps]) + 1.0, strict=True
        )
    ]
)


@given(run_lists)
def test_gaps_are_those_of_each_client_and_shared_by_what_came_together(
    runs: list[tuple[int, int, int, float]],
) -> None:
    columns = np.array(runs, float).T
    found = gaps_us(columns[0].astype(np.int64) // 2, columns[3], columns[1], np.full(3, np.nan))
    assert [None if np.isnan(gap) else int(gap) for gap in found] == slow_gaps(runs)


@given(run_lists, st.integers(0, 40))
@settings(max_examples=50)
def test_a_summary_adds_up_to_what_was_sent(runs: list[tuple[int, int, int, float]], cut: int) -> None:
    summing = Summing(Level.SUMMARY)
    ready = summing.take(batch(runs[:cut], is_last=False)) + summing.take(batch(runs[cut:], is_first=False))
    rows = [row for name, table in ready if name == "publish" for row in table.to_pylist()]
    gaps = slow_gaps(runs) if cut in (0, len(runs)) else None
    for stream in range(6):
        mine = [
            row for row in rows if (row["client_id"], row["topic"]) == (f"c{stream // 2}", TOPICS[stream % 2])
        ]
        sent = [run for run in runs if run[0] == stream]
        assert sum(row["count"] for row in mine) == sum(run[1] for run in sent)
        assert sum(row["bytes"] for row in mine) == sum(run[2] for run in sent)
        if not sent:
            continue
        assert min(row["first"] for row in mine).timestamp() == 1_000_000.0 + min(run[3] for run in sent)
        assert max(row["last"] for row in mine).timestamp() == 1_000_000.0 + max(run[3] for run in sent)
        if gaps is not None:
            expected: dict[int, int] = {}
            for run, gap in zip(runs, gaps, strict=True):
                if run[0] == stream and gap is not None:
                    expected[schema.bin_of(gap)] = expected.get(schema.bin_of(gap), 0) + run[1]
            found = [dict(zip(row["gap_bins"], row["gap_counts"], strict=True)) for row in mine]
            assert schema.merge(found) == expected


@given(run_lists)
@settings(max_examples=50)
def test_at_level_full_there_is_a_row_for_each_message(runs: list[tuple[int, int, int, float]]) -> None:
    ready = Summing(Level.FULL).take(batch(runs))
    rows = [row for name, table in ready if name == "publish" for row in table.to_pylist()]
    expected = [
        (f"c{stream // 2}", TOPICS[stream % 2], 1_000_000.0 + time, size // count, gap)
        for (stream, count, size, time), gap in zip(runs, slow_gaps(runs), strict=True)
        for _ in range(count)
    ]
    assert [
        (row["client_id"], row["topic"], row["ts"].timestamp(), row["bytes"], row["gap_us"]) for row in rows
    ] == expected
    assert {(row["count"], row["window_us"]) for row in rows} == {(1, 0)}


@pytest.mark.parametrize("level", [Level.SUMMARY, Level.FULL])
def test_every_recipient_of_a_route_is_given_its_messages(level: Level) -> None:
    summing = Summing(level)
    ready = summing.take(batch([(0, 3, 150, 1.0), (2, 2, 100, 2.0), (1, 4, 200, 3.0)]))
    rows = [row for name, table in ready if name == "deliver" for row in table.to_pylist()]
    found = sorted(
        (row["client_id"] or "", row["topic"], row["group"], row["count"], row["bytes"]) for row in rows
    )
    assert found == [("", "b/c", "g", 4, 200), ("s1", "a", None, 5, 250), ("s2", "a", None, 5, 250)]
    assert {row["window_us"] for row in rows} == {10_000_000}
    assert summing.take(batch([], is_first=False)) == []


def test_recipients_beyond_the_limit_are_counted_groups_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.lake.summing.MAX_DELIVERIES", 2)
    summing = Summing(Level.SUMMARY)
    ready = summing.take(batch([(0, 3, 150, 1.0), (1, 4, 200, 3.0)]))  # s1 and s2, then a group
    rows = [row for name, table in ready if name == "deliver" for row in table.to_pylist()]
    assert [row["client_id"] for row in rows] == ["s1", "s2"]
    assert summing.lost_deliveries == 1


def test_a_new_generation_of_names_forgets_the_old_arrivals() -> None:
    summing = Summing(Level.FULL)
    summing.take(batch([(0, 1, 50, 1.0)]))
    later = batch([(0, 1, 50, 5.0)])
    later.generation = 1
    [row] = [row for name, table in summing.take(later) if name == "publish" for row in table.to_pylist()]
    assert row["gap_us"] is None


def test_a_window_whose_end_was_lost_is_summed_up_when_the_next_begins() -> None:
    summing = Summing(Level.SUMMARY)
    assert summing.take(batch([(0, 3, 150, 1.0)], is_last=False)) == []
    later = batch([(0, 1, 50, 5.0)])
    later.window, later.clients = 1, []
    found = [row for name, table in summing.take(later) if name == "publish" for row in table.to_pylist()]
    assert [row["count"] for row in found] == [3, 1]
