"""Every example runs, and prints what it should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.broker.listener import Listener
from tidegate.mqtt import Publish
from tidegate.net.tls import server_context
from tidegate.net.websocket import WebSocketOptions
from tidegate.testing import BrokerThread
from tidegate.testing.certificates import make_authority
from tidegate.testing.ports import free_port
from tidegate.testing.raw import RawClient

EXAMPLES = Path(__file__).parents[2] / "examples"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
TESTED = {
    "aiomqtt_client.py",
    "client_outbox.py",
    "client_receive.py",
    "client_request.py",
    "client_tls.py",
    "client_worker.py",
    "embed_broker.py",
    "paho_client.py",
    "rpc_prices.py",
    "spark_mqtt.py",
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


def url(broker: BrokerThread, scheme: str = "mqtt") -> str:
    return f"{scheme}://127.0.0.1:{broker.port}"


def test_the_example_of_receiving_has_one_taker_for_each_message(tidegate_broker: BrokerThread) -> None:
    lines = run(EXAMPLES / "client_receive.py", "--url", url(tidegate_broker)).splitlines()
    assert lines[:2] == ["block: harbour/tide/north 2.1 m", "block: harbour/tide/south 1.9 m"]
    # The queue and the callback run side by side.
    assert sorted(lines[2:]) == ["callback: harbour/alarms/fire pier 3", "queue: harbour/tide/north 2.2 m"]


def test_the_example_of_workers_gives_more_to_the_fast_one(tidegate_broker: BrokerThread) -> None:
    assert run(EXAMPLES / "client_worker.py", "--url", url(tidegate_broker)).splitlines() == [
        "jobs done: 200",
        "the fast one did more: True",
    ]


def test_the_example_of_requests_has_an_answer_and_two_that_never_come(tidegate_broker: BrokerThread) -> None:
    assert run(EXAMPLES / "client_request.py", "--url", url(tidegate_broker)).splitlines() == [
        "answer: 3.2 m",
        "too late: OperationTimeout",
        "nobody: NoResponder",
    ]


def test_the_example_of_an_outbox_delivers_what_was_published_without_a_server(
    tidegate_broker: BrokerThread, tmp_path: Path
) -> None:
    command = (EXAMPLES / "client_outbox.py", "--file", tmp_path / "outbox")
    nobody = f"mqtt://127.0.0.1:{free_port()}"
    assert run(*command, "--url", nobody, "--wait", 0.2) == "left in the outbox: 3\n"
    with RawClient(tidegate_broker.port) as reader:
        reader.connect("reader")
        reader.subscribe("pumps/+/level", qos=1)
        assert run(*command, "--url", url(tidegate_broker), "--wait", 30) == "left in the outbox: 0\n"
        assert [reader.take(Publish).payload for _ in range(6)] == [b"3.1", b"3.2", b"3.3"] * 2


@pytest.mark.parametrize("name", ["client_receive.py", "client_request.py", "client_worker.py"])
def test_without_a_broker_an_example_says_so_in_two_lines(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / name), "--url", f"mqtt://127.0.0.1:{free_port()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error", "hint"]


@pytest.mark.parametrize("scheme", ["mqtts", "wss", "ws"])
def test_the_example_of_tls_and_websocket_reaches_its_broker(scheme: str, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    pump = authority.issue("pump-7")
    listener = Listener(
        host="127.0.0.1",
        port=0,
        tls=None
        if scheme == "ws"
        else server_context(
            *authority.issue("server"), client_ca=authority.certificate, require_client_certificate=True
        ),
        websocket=None if scheme == "mqtts" else WebSocketOptions(),
    )
    files = ("--cafile", authority.certificate, "--cert", pump.certificate, "--key", pump.key)
    with BrokerThread(listeners=[listener]) as broker:
        command = (EXAMPLES / "client_tls.py", "--url", url(broker, scheme))
        assert run(*command, *files) == f"{scheme} 21.5\n"


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
