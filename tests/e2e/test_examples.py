"""Every example runs, and prints what it should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.testing import BrokerThread

EXAMPLES = Path(__file__).parents[2] / "examples"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
TESTED = {
    "aiomqtt_client.py",
    "embed_broker.py",
    "paho_client.py",
    "rpc_prices.py",
    "test_with_fixture.py",
}


def run(*arguments: object) -> str:
    """Standard output of a Python command that must succeed and have nothing to complain about."""
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    result = subprocess.run(command, env=CLEAN, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    return result.stdout


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == TESTED


def test_the_embedded_broker_refuses_strangers_and_keeps_its_guest_book() -> None:
    assert run(EXAMPLES / "embed_broker.py").splitlines() == [
        "mallory: BAD_USER_NAME_OR_PASSWORD",
        "guests/anna here",
        "guests/bert here",
        "guests/bert gone",
    ]


def test_a_price_is_changed_once_though_its_task_ran_twice() -> None:
    assert run(EXAMPLES / "rpc_prices.py").splitlines() == [
        "5 labels show 1.99 after 2 attempts",
        "price changes at labels: 5",
    ]


def test_the_paho_example_gets_its_answer(tidegate_broker: BrokerThread) -> None:
    assert run(EXAMPLES / "paho_client.py", "--port", tidegate_broker.port).splitlines() == [
        "asked: How deep is it? [('language', 'en')]",
        "answered: 3.2 m q1",
    ]


def test_the_aiomqtt_example_spreads_its_jobs(tidegate_broker: BrokerThread) -> None:
    *workers, total = run(EXAMPLES / "aiomqtt_client.py", "--port", tidegate_broker.port).splitlines()
    # Who does how much is the policy's business; that nothing is done twice or not at all is ours.
    assert [line.rpartition(" ")[0] for line in workers] == [f"worker {number} did" for number in range(3)]
    assert sum(int(line.rpartition(" ")[2]) for line in workers) == 12
    assert total == "jobs done: 12"


@pytest.mark.parametrize("name", sorted(TESTED))
def test_an_example_says_how_to_run_it(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert f"examples/{name}" in text.split('"""')[1]


def test_the_fixture_example_passes(tmp_path: Path) -> None:
    # Outside this repository's configuration, as in somebody else's project.
    output = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, "-c", os.devnull,
                 EXAMPLES / "test_with_fixture.py")  # fmt: skip
    assert "3 passed" in output
