"""`tidegate clients` as people use it, against real nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.attack.conftest import RIGHTS, Dial, StartNode, dial, login, start_node
from tests.integration.client.servers import mosquitto
from tidegate.cli.status import ExitStatus
from tidegate.mqtt import Disconnect, ReasonCode
from tidegate.mqtt.properties import Property

__all__ = ["dial", "start_node"]

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
LASTING = {Property.SESSION_EXPIRY_INTERVAL: 1_000}


def clients(port: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidegate", "clients", *map(str, arguments), "--port", str(port)],
        env=CLEAN, capture_output=True, text=True, timeout=30.0, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_publisher_is_released_and_put_into_a_class(start_node: StartNode, dial: Dial) -> None:
    node = start_node()
    meter = dial(node)
    meter.connect("meter")
    meter.publish("t", b"1", qos=1)
    found = clients(node.port, "release", "meter", "--seconds", 5)
    assert (found.stdout, found.stderr) == ("meter is released, and not held again for 5 s\n", "")
    assert clients(node.port, "class", "meter", "bulk").stdout == "meter is served as bulk\n"
    assert clients(node.port, "class", "meter", "rate").stdout == "meter is served by its rate\n"
    found = clients(node.port, "class", "meter", "red")
    assert (found.returncode, found.stdout) == (ExitStatus.FAILURE, "")
    assert "urgent, normal, bulk" in found.stderr


def test_a_session_is_ended_and_its_name_is_free(start_node: StartNode, dial: Dial) -> None:
    """Who first used a name kept it for ever."""
    node = start_node(RIGHTS)
    squatter, victim = dial(node), dial(node)
    login(squatter, "mallory", "pump-1", properties=LASTING)
    assert login(victim, "guest", "pump-1").reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert clients(node.port, "end", "pump-1").stdout == "the session of pump-1 is over\n"
    assert squatter.take(Disconnect).reason_code == ReasonCode.ADMINISTRATIVE_ACTION
    assert login(dial(node), "guest", "pump-1").reason_code == ReasonCode.SUCCESS


def test_the_session_of_a_client_that_is_away_is_ended(start_node: StartNode, dial: Dial, tmp_path: Path) -> None:
    node = start_node(data=str(tmp_path / "data"))
    client = dial(node)
    client.connect("pump", properties=LASTING)
    client.subscribe("t", qos=1)
    client.disconnect()
    assert clients(node.port, "end", "pump").returncode == ExitStatus.OK
    answer = dial(node).connect("pump", clean_start=False, properties=LASTING)
    assert not answer.session_present
    found = clients(node.port, "end", "nobody")
    assert (found.returncode, found.stdout) == (ExitStatus.FAILURE, "")
    assert "no session of this name" in found.stderr


def test_who_comes_by_an_account_needs_the_right(start_node: StartNode, dial: Dial, tmp_path: Path) -> None:
    node = start_node(RIGHTS)
    login(dial(node), "guest", "pump-1")
    for name, is_obeyed in (("mallory", False), ("owner", True)):
        password = tmp_path / name
        password.write_text(name)
        found = clients(node.port, "end", "pump-1", "--username", name, "--password-file", password)
        assert (found.returncode == ExitStatus.OK) is is_obeyed
        assert ("topic write" in found.stderr) is not is_obeyed


def test_a_server_that_knows_no_orders_is_told_apart(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        found = clients(port, "end", "pump")
        assert found.returncode == ExitStatus.FAILURE
        assert "takes no orders" in found.stderr
