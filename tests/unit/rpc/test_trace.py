"""Hops of several processes make one trace."""

import time
from pathlib import Path

import pytest

from tidegate.rpc.errors import RpcError
from tidegate.rpc.telemetry import Beacon, Hop, Several, Step
from tidegate.rpc.trace import TraceFile, assemble, find, is_sampled, read

HOPS = [
    Hop(1.0, Step.ENQUEUED, "t1", "", "dispatcher", task="t1"),
    Hop(2.0, Step.WORKER, "t1", "", "worker", task="t1"),
    Hop(3.0, Step.CALL, "k1", "esl", "worker", task="t1", correlation="c1"),
    Hop(3.5, Step.FORWARD, "k1", "esl", "fwd"),
    Hop(4.0, Step.PUBLISHED, "k1", "esl", "fwd", "gw"),
    Hop(5.0, Step.GATEWAY, "k1", "esl", "gw", "gw"),
    Hop(6.0, Step.BACK, "", "esl", "bck", "gw", correlation="c1"),
    Hop(7.0, Step.REPLY, "k1", "esl", "worker", "gw", "ack", 2, "t1"),
    Hop(6.0, Step.BACK, "", "esl", "bck", "gw", correlation="of nobody"),
]


def test_hops_of_a_request_and_its_task_are_joined() -> None:
    trace = assemble(reversed(HOPS))["k1"]
    assert [hop.step for hop in trace.hops] == list(Step)
    assert trace.seconds == 6.0
    assert trace.record() == {
        "task_id": "t1",
        "request_id": "k1",
        "mac": "esl",
        "gw": "gw",
        "t_enqueued": 1.0,
        "t_worker": 2.0,
        "t_fwd": 3.5,
        "t_mqtt": 4.0,
        "t_gw": 5.0,
        "t_bck": 6.0,
        "t_reply": 7.0,
        "outcome": "ack",
        "attempt": 2,
    }


def test_files_are_written_and_read_again(tmp_path: Path) -> None:
    with TraceFile(tmp_path, "a") as first, TraceFile(tmp_path, "b") as second:
        both = Several(first, second)
        for number, hop in enumerate(HOPS):
            (first if number % 2 else second).on_hop(hop)
        both.on_beacon(Beacon(1.0, "esl", "gw", -50.0, "gw", True))
    with (tmp_path / "a.trace.jsonl").open("a") as file:
        file.write('{"at": 1.0, "st')  # killed in the midst of a line
    assert sorted(read(tmp_path)) == sorted(HOPS)
    assert find(tmp_path, "k1").key == find(tmp_path, "k").key == find(tmp_path, "t1").key == "k1"


def test_what_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(RpcError):
        find(tmp_path, "k1")
    with TraceFile(tmp_path, "a") as file:
        for hop in HOPS:
            file.on_hop(hop)
        file.on_hop(HOPS[3]._replace(key="k12"))
    with pytest.raises(RpcError):
        find(tmp_path, "nobody")
    with pytest.raises(RpcError):
        find(tmp_path, "k")
    assert find(tmp_path, "k1").key == "k1"


def test_a_sample_is_the_same_everywhere_and_of_its_size() -> None:
    chosen = sum(is_sampled(f"key-{number}", 0.1) for number in range(10_000))
    assert 800 < chosen < 1200
    assert is_sampled("key", 1.0) and not is_sampled("key", 0.0)


def test_a_disk_that_says_no_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.trace.jsonl").symlink_to("/dev/full")
    file = TraceFile(tmp_path, "a", size=10)
    for number in range(30):
        file.on_hop(HOPS[0])
        deadline = time.monotonic() + 10.0
        while number < 10 and file.dropped <= number and time.monotonic() < deadline:
            time.sleep(0.001)
    file.close()
    assert file.dropped == 30 and not file._thread.is_alive()
