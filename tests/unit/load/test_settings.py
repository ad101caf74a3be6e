"""Options become settings, or an error that names what to choose; figures become a result."""

import json
import os
import time

import pytest

from tidegate.load import Mode, Result, SettingsError, make_settings
from tidegate.load.clients import _receive_maximum
from tidegate.load.result import percentile
from tidegate.load.usage import cpu_seconds, memory


def test_each_mode_has_defaults_that_pass_its_own_checks() -> None:
    for mode in Mode:
        assert make_settings(mode, pid=1).mode is mode


def test_options_that_are_none_leave_the_modes_default() -> None:
    settings = make_settings("fanout", qos=None, subscribers=None, payload_bytes=100)
    assert (settings.publishers, settings.subscribers, settings.qos, settings.payload_bytes) == (
        1,
        50,
        0,
        100,
    )


def test_a_batch_never_exceeds_the_window() -> None:
    assert make_settings("pairs", window=50).batch == 50


@pytest.mark.parametrize(
    "mode, options",
    [
        ("waltz", {}),
        ("pairs", {"no_such_option": 1}),
        ("pairs", {"publishers": 3}),
        ("pairs", {"qos": 3}),
        ("pairs", {"protocol": 3}),
        ("pairs", {"payload_bytes": 10}),
        ("pairs", {"window": 40_000}),
        ("fanout", {"publishers": 2}),
        ("fanin", {"subscribers": 2}),
        ("trickle", {"rate": 0.0}),
        ("idle", {}),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(mode: str, options: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        make_settings(mode, **options)


def test_passwords_are_not_shown() -> None:
    assert "hunter2" not in repr(make_settings("pairs", password="hunter2"))


def test_a_result_becomes_json_without_what_was_not_measured() -> None:
    result = Result(mode="pairs", protocol=4, qos=0, publishers=1, subscribers=1, payload_bytes=64, sent=3)
    record = json.loads(json.dumps(result.as_dict()))
    assert record["sent"] == 3
    assert "broker_cpu_seconds" not in record


@pytest.mark.parametrize("fault", ["drops", "repeats", "refused", "disconnects", "unanswered_pings"])
def test_a_single_fault_makes_a_result_inexact(fault: str) -> None:
    result = Result(mode="hold", protocol=4, qos=0, publishers=1, subscribers=1, payload_bytes=64)
    assert result.is_exact
    setattr(result, fault, 1)
    assert not result.is_exact


def test_a_trickle_that_leaves_late_is_disturbed() -> None:
    result = Result(mode="trickle", protocol=4, qos=0, publishers=1, subscribers=1, payload_bytes=64)
    assert result.disturbance == 0
    result.delivered, result.late_sends, result.steal_share = 100, 30, 0.1
    assert result.disturbance == 0.3


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99)) == (51.0, 100.0, 7.0)


@pytest.mark.parametrize(
    "properties, expected",
    [
        ("", 65_535),
        ("210014", 20),
        ("2401" + "1100000e10" + "130030" + "2200ff" + "2700001000" + "210005", 5),
        ("12000161" + "260001620001632100ff", 255),
    ],
)
def test_receive_maximum_is_found_among_other_properties(properties: str, expected: int) -> None:
    data = bytes.fromhex(properties)
    assert _receive_maximum(bytes((0, 0, len(data))) + data) == expected


def test_cpu_time_and_memory_of_a_process_can_be_read() -> None:
    before = cpu_seconds(os.getpid())
    deadline = time.process_time() + 0.05
    while time.process_time() < deadline:
        pass
    assert cpu_seconds(os.getpid()) > before
    assert 1_000_000 < memory(os.getpid()).pss_bytes <= memory(os.getpid()).rss_bytes * 2
