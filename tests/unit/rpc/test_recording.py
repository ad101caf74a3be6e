"""Hops of several processes make rows of the lake's table `rpc`."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidegate.rpc.errors import RpcError
from tidegate.rpc.recording import Joiner, RowFiles
from tidegate.rpc.stats import Meter
from tidegate.rpc.telemetry import Hop, Step

HOPS = [
    Hop(1.0, Step.ENQUEUED, "t1", "", "dispatcher", task="t1"),
    Hop(2.0, Step.WORKER, "t1", "", "worker", task="t1"),
    Hop(3.0, Step.CALL, "k1", "esl", "worker", task="t1", correlation="c1"),
    Hop(3.5, Step.FORWARD, "k1", "esl", "fwd"),
    Hop(4.0, Step.PUBLISHED, "k1", "esl", "fwd", "gw"),
    Hop(5.0, Step.GATEWAY, "k1", "esl", "gw", "gw"),
    Hop(6.0, Step.BACK, "", "esl", "bck", "gw", correlation="c1"),
    Hop(7.0, Step.REPLY, "k1", "esl", "worker", "gw", "ack", 2, "t1"),
]


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize("hops", [HOPS, HOPS[::-1]], ids=["in order", "backwards"])
def test_a_call_is_one_row_whatever_the_order_its_hops_are_told_in(hops: list[Hop]) -> None:
    joiner = Joiner("mqtt", settle=1.0)
    for hop in hops:
        joiner.add(hop, now=10.0)
    assert joiner.rows(10.9) == []  # others may still tell something
    [row] = joiner.rows(11.0)
    assert row == {
        "backbone": "mqtt",
        "ts": at(7.0),
        "task_id": "t1",
        "request_id": "k1",
        "mac": "esl",
        "gw": "gw",
        "t_enqueued": at(1.0),
        "t_worker": at(2.0),
        "t_fwd": at(3.5),
        "t_mqtt": at(4.0),
        "t_gw": at(5.0),
        "t_bck": at(6.0),
        "t_reply": at(7.0),
        "outcome": "ack",
        "attempt": 2,
    }
    assert len(joiner) == 0 and joiner.rows(99.0) == []


def test_a_hop_after_the_end_does_not_change_the_outcome() -> None:
    joiner = Joiner("mqtt")
    joiner.add(Hop(1.0, Step.REPLY, "k", "esl", "caller", "", "timeout"), 1.0)
    joiner.add(Hop(2.0, Step.GATEWAY, "k", "esl", "gw", "gw"), 1.5)
    [row] = joiner.rows(5.0)
    assert (row["outcome"], row["t_reply"], row["t_gw"]) == ("timeout", at(1.0), at(2.0))


def test_calls_without_an_end_are_given_up_and_counted() -> None:
    joiner = Joiner("mqtt", max_age=60.0, size=3)
    joiner.add(HOPS[3], 0.0)
    assert joiner.rows(59.0) == [] and len(joiner) == 1
    assert joiner.rows(60.0) == [] and (len(joiner), joiner.abandoned) == (0, 1)
    for number in range(5):
        joiner.add(HOPS[3]._replace(key=f"k{number}"), 100.0)
    assert (len(joiner), joiner.abandoned) == (3, 3)


def test_hops_of_no_call_are_not_kept() -> None:
    joiner = Joiner("mqtt")
    for _ in range(10):
        joiner.add(Hop(5.0, Step.GATEWAY, "", "esl", "gw", "gw"), now=1.0)
        joiner.add(Hop(5.0, Step.WORKER, "", "", "worker"), now=1.0)
    assert not joiner._by_correlation and not joiner._by_task


def test_rows_are_written_as_lines_and_a_disk_that_says_no_is_told(tmp_path: Path) -> None:
    with RowFiles(tmp_path / "new") as sink:
        assert sink.record("rpc", [{"request_id": "k", "ts": at(0.0)}, {"request_id": "l", "ts": None}])
        lines = (tmp_path / "new" / "rpc.jsonl").read_text().splitlines()
        assert json.loads(lines[0]) == {"request_id": "k", "ts": "1970-01-01 00:00:00+00:00"}
        (tmp_path / "new" / "beacon.jsonl").mkdir()
        assert not sink.record("beacon", [{"mac": "x"}])
    (tmp_path / "file").write_text("")
    with pytest.raises(RpcError):
        RowFiles(tmp_path / "file" / "below")


def test_arrivals_are_counted_by_the_clock_of_those_who_make_them() -> None:
    meter = Meter()
    for waited in (0.5, 0.7, 1.0, 1.3):
        meter.arrived(waited)
    reading = meter.read()
    assert (reading.taken, reading.longest_wait) == (4, 1.3)
    # Taken within a second, but made within a fifth of one.
    assert reading.arrivals(1.0) == pytest.approx(20.0)
    assert meter.read() == (0, 0.0, 0.0)
    for waited in (2.0, 1.0):  # a backlog that shrinks
        meter.arrived(waited)
    assert meter.read().arrivals(1.0) == pytest.approx(1.0)
