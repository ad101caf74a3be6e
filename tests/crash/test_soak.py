"""The crash suite; `make soak` runs it with 200 kills, `make test` with a handful."""

import json
from pathlib import Path

import pytest

from tests.crash.soak import run


@pytest.mark.serial
def test_a_broker_killed_under_load_loses_nothing_and_doubles_no_qos_2_message(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    kills: int = pytestconfig.getoption("--kills")
    messages: int = pytestconfig.getoption("--between")
    report = run(tmp_path, seed=pytestconfig.getoption("--soak-seed"), kills=kills, messages=messages)
    print(json.dumps(report.as_dict(), indent=2))
    assert report.faults == []
    assert (report.lost, report.duplicates) == (0, 0)
    assert report.kills == kills
    assert report.fewest_between_kills >= messages
    assert report.kills_in_recovery > 0
    assert report.retained_changes > 0 and report.subscription_changes > 0 and report.wills > 0
    assert report.start_seconds_longest < 5
