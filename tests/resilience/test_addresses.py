"""Limits per address for clients of other machines: real connections in a network namespace of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidegate.mqtt import ReasonCode

pytestmark = pytest.mark.serial

PROGRAM = Path(__file__).with_name("foreign_addresses.py")
UNSHARE = ("unshare", "--net", "--map-root-user")


def in_namespace(experiment: str) -> dict[str, Any]:
    """What `foreign_addresses.py` found; skips where the system allows no namespaces."""
    if subprocess.run([*UNSHARE, "ip", "link"], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are not allowed here")
    done = subprocess.run(
        [*UNSHARE, sys.executable, PROGRAM, experiment],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_address_over_its_rate_is_refused_at_different_times_and_others_are_not() -> None:
    found = in_namespace("rate")
    admitted = [seconds for code, seconds in found["answers"] if code == 0]
    refused = [seconds for code, seconds in found["answers"] if code == ReasonCode.CONNECTION_RATE_EXCEEDED]
    assert 3 <= len(admitted) <= 6  # four in the first second, and what the time it took added
    assert len(admitted) + len(refused) == 20
    # Delays are even over two seconds: 14 of them within a third of a second have a chance of 1 in 10^9.
    assert max(refused) - min(refused) > 0.33
    assert found["other"] == 0


def test_an_address_has_no_more_connections_than_allowed_until_one_ends() -> None:
    found = in_namespace("count")
    assert found["codes"] == [0, 0, 0, ReasonCode.QUOTA_EXCEEDED]
    assert found["other"] == 0
    assert found["loopback"] == [0] * 5
    assert found["after one left"] == 0


def test_clients_that_wait_for_their_turn_count_as_connections_of_their_address() -> None:
    found = in_namespace("waiting")
    assert sorted(found["codes"]) == [0] * 3 + [ReasonCode.QUOTA_EXCEEDED] * 5
