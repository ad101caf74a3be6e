"""Clocks that are wrong at a start: nothing that was acknowledged is lost for it."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.broker.store.clock import StoreClock
from tidegate.broker.store.store import FILE_NAME
from tidegate.mqtt import Publish, Will
from tidegate.mqtt.properties import Property
from tidegate.settings import load_settings
from tidegate.testing import NodeThread
from tidegate.testing.raw import RawClient

HOUR = 3_600.0
YEAR = 365.0 * 24 * HOUR
MONTH = 30.0 * 24 * HOUR
LASTING = {Property.SESSION_EXPIRY_INTERVAL: 7_200}


@contextmanager
def node(folder: Path, clock: Callable[[], float], monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeThread]:
    """A node whose machine has this wall clock."""
    settings = {"listeners.0.port": 0, "data": str(folder), "features.sys_interval": 0}
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", clock)
        with NodeThread(load_settings(None, (), {}, settings)) as running:
            yield running


def ahead(seconds: float) -> Callable[[], float]:
    real = time.time
    return lambda: real() + seconds


def leave(running: NodeThread) -> None:
    """A session with a queue, a retained message that expires, and a will that is due in an hour."""
    with RawClient(running.port) as reader, RawClient(running.port) as writer:
        will = Will(topic="w", payload=b"gone", properties={Property.WILL_DELAY_INTERVAL: 3_600})
        reader.connect("reader", properties=LASTING, will=will)
        reader.subscribe("t", qos=1)
        reader.disconnect(4)
        writer.connect("writer")
        writer.publish("t", b"queued", qos=1, properties={Property.MESSAGE_EXPIRY_INTERVAL: 7_200})
        writer.publish("r", b"kept", qos=1, retain=True, properties={Property.MESSAGE_EXPIRY_INTERVAL: 7_200})


def is_all_there(running: NodeThread) -> bool:
    with RawClient(running.port) as reader:
        if not reader.connect("reader", clean_start=False, properties=LASTING).session_present:
            return False
        reader.subscribe("w", qos=1)
        reader.subscribe("r", qos=1)
        return [reader.take(Publish).topic for _ in range(2)] == ["t", "r"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (0.0, -56 * YEAR),  # it stopped in its time, and starts in 1970
        (-56 * YEAR, 0.0),  # it began in 1970, learnt the time, and starts again
        (0.0, 56 * YEAR),
        (0.0, -HOUR),
        (0.0, MONTH + HOUR),
        (0.0, HOUR / 2),
    ],
)
def test_nothing_is_lost_across_a_jump_of_the_clock(
    before: float, after: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tidegate.store")
    with node(tmp_path, ahead(before), monkeypatch) as running:
        leave(running)
    with node(tmp_path, ahead(after), monkeypatch) as running:
        assert is_all_there(running)
    is_plausible = 0 <= after - before <= MONTH
    assert ("the clock jumped" in caplog.text) is not is_plausible


@pytest.mark.parametrize("away", [3 * HOUR, MONTH - HOUR])
def test_what_expired_while_the_node_was_down_is_gone(
    away: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The control: a downtime that is plausible counts."""
    with node(tmp_path, ahead(0), monkeypatch) as running:
        leave(running)
    with node(tmp_path, ahead(away), monkeypatch) as running, RawClient(running.port) as reader:
        assert not reader.connect("reader", clean_start=False, properties=LASTING).session_present
        reader.subscribe("r", qos=1)
        reader.expect_nothing()
    assert "the clock jumped" not in caplog.text


def test_a_clock_that_is_set_while_the_node_runs_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway begins in 1970, and learns the time an hour later, session by session on the disk."""
    jump = -56 * YEAR
    real = time.time
    with node(tmp_path, lambda: real() + jump, monkeypatch) as running:
        leave(running)
        jump = 0.0
        assert is_all_there(running)
        leave(running)
    with node(tmp_path, ahead(60.0), monkeypatch) as running:
        assert is_all_there(running)


def test_a_file_from_before_the_store_had_a_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with node(tmp_path, ahead(0), monkeypatch) as running:
        leave(running)
    db = sqlite3.connect(tmp_path / FILE_NAME)
    db.execute("DELETE FROM clock")
    db.commit()
    db.close()
    with node(tmp_path, ahead(HOUR / 2), monkeypatch) as running:
        assert is_all_there(running)
    with node(tmp_path, ahead(HOUR), monkeypatch) as running:
        assert is_all_there(running)


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(-3e9, 3e9)), max_size=20),
    st.floats(0, 1e7),
)
def test_the_stores_own_time_never_goes_back_and_never_leaps(
    runs: list[tuple[float, float]], plausible: float
) -> None:
    """Each run lasts so long; then the wall clock is set, whatever it was."""
    wall = 1.7e9
    clock = StoreClock(0.0, wall, None, plausible)
    last = clock.at(0.0)
    for seconds, jump in runs:
        seen = (clock.at(seconds), wall + seconds)
        assert seen[0] == pytest.approx(last + seconds)
        wall += seconds + jump
        clock = StoreClock(0.0, wall, seen, plausible)
        last = clock.at(0.0)
        assert seen[0] - 1e-3 <= last <= seen[0] + plausible + 1e-3
        assert clock.loop_time(clock.at(5.0)) == pytest.approx(5.0, abs=1e-3)
