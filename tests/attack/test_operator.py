"""Who gives orders, and that nothing anybody does keeps the operator out."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.attack.conftest import RIGHTS, Dial, StartNode, Until, login
from tidegate.broker.pressure import Pressure
from tidegate.mqtt import Connect, Publish, ReasonCode
from tidegate.mqtt.properties import Property
from tidegate.net.addresses import parse_address
from tidegate.net.errors import ListenError
from tidegate.net.operators import operators_way, place_for
from tidegate.settings import load_settings
from tidegate.testing import NodeThread
from tidegate.testing.raw import RawClient

RELEASE = json.dumps({"client": "meter", "seconds": 0}).encode()


def _order(client: RawClient) -> Any:
    return client.publish("$tide/control/release", RELEASE, qos=1).reason_code


def _operator(node: NodeThread) -> RawClient:
    client = RawClient(node.operator_socket())
    client.connect("boss")
    return client


@contextmanager
def _listening(path: Path) -> Iterator[None]:
    """Somebody answers there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        yield


def _looks_and_acts(node: NodeThread) -> None:
    """Who runs the node gets in, sees what is going on, and is obeyed."""
    with _operator(node) as operator:
        operator.subscribe("$SYS/tide/pulse")
        assert operator.take(Publish, topic="$SYS/tide/pulse").payload
        answer = operator.publish("$tide/control/release", b"{}", qos=1)
        assert "identifier" in str(answer.properties[Property.REASON_STRING])  # it was read


# -- who gives orders ---------------------------------------------------------------------------------------


def test_an_anonymous_client_on_this_machine_gives_no_orders(start_node: StartNode, dial: Dial) -> None:
    client = dial(start_node())
    client.connect("meter")
    client.publish("t", b"1", qos=1)
    assert _order(client) == ReasonCode.NOT_AUTHORIZED


def test_the_user_who_runs_the_node_gives_orders(start_node: StartNode, dial: Dial) -> None:
    node = start_node()
    meter = dial(node)
    meter.connect("meter")
    meter.publish("t", b"1", qos=1)
    with _operator(node) as operator:
        assert _order(operator) == ReasonCode.SUCCESS


def test_a_unix_listener_takes_orders_where_no_rights_are_set(
    start_node: StartNode, dial: Dial, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    node = start_node(listeners__1__type="unix", listeners__1__path=str(path))
    meter = dial(node)
    meter.connect("meter")
    meter.publish("t", b"1", qos=1)
    with RawClient(path) as client:
        client.connect("local")
        assert _order(client) == ReasonCode.SUCCESS


def test_a_unix_listener_asks_for_the_right_where_rights_are_set(
    start_node: StartNode, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    start_node(RIGHTS, listeners__1__type="unix", listeners__1__path=str(path))
    with RawClient(path) as client:
        login(client, "mallory")
        assert _order(client) == ReasonCode.NOT_AUTHORIZED


def test_the_operator_needs_no_account_and_reads_everything(start_node: StartNode, dial: Dial) -> None:
    node = start_node(RIGHTS)
    owner = dial(node)
    login(owner, "owner")
    with _operator(node) as operator:
        operator.subscribe("secret/#")
        owner.publish("secret/a", b"1", qos=1)
        assert operator.take(Publish).payload == b"1"
        node.reload()
        operator.barrier()  # a reload ends clients without account, and not this one


def test_nobody_else_may_open_the_operators_socket(start_node: StartNode) -> None:
    path = start_node().operator_socket()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_socket_goes_with_its_node() -> None:
    with NodeThread(load_settings(None, (), {}, {"listeners.0.port": 0})) as node:
        path = node.operator_socket()
        assert operators_way(f"127.0.0.1:{node.port}") == f"unix:{path}"
    assert not path.exists()
    assert operators_way(f"127.0.0.1:{node.port}") == f"127.0.0.1:{node.port}"


def test_a_node_can_be_without(start_node: StartNode) -> None:
    node = start_node(operator_socket="none")
    assert node.node.operator_socket is None
    assert operators_way(f"127.0.0.1:{node.port}") == f"127.0.0.1:{node.port}"


def test_a_socket_that_was_asked_for_and_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    settings = load_settings(None, (), {}, {"listeners.0.port": 0, "operator_socket": str(tmp_path / "no" / "s")})
    with pytest.raises(ListenError, match="No such file"), NodeThread(settings):
        pass


def test_a_folder_that_others_can_write_to_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can put a socket there would be taken for the node."""
    folder = tmp_path / "tidegate"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert place_for(parse_address("127.0.0.1:1")).parent != folder
    with _listening(folder / "localhost-1.operator"):
        assert operators_way("127.0.0.1:1") == "127.0.0.1:1"
        folder.chmod(0o700)
        assert operators_way("127.0.0.1:1").startswith("unix:")  # the control: it would have been found


@pytest.mark.parametrize(
    ("listener", "address"),
    [
        ("127.0.0.1:1", "localhost:1"),
        ("[::1]:1", "127.0.0.1:1"),
        ("0.0.0.0:1", "localhost:1"),
        ("0.0.0.0:1", "127.0.0.2:1"),
        ("192.0.2.1:1", "192.0.2.1:1"),
        ("127.0.0.1:1", "mqtts://127.0.0.1:1"),
    ],
)
def test_a_socket_is_found_by_the_words_that_reach_its_node(
    listener: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with _listening(place_for(parse_address(listener))):
        assert operators_way(address).startswith("unix:")


@pytest.mark.parametrize(
    ("listener", "address"),
    [("127.0.0.1:1", "127.0.0.1:2"), ("127.0.0.1:1", "192.0.2.1:1"), ("192.0.2.1:1", "localhost:1")],
)
def test_a_socket_is_not_taken_for_another_nodes(
    listener: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with _listening(place_for(parse_address(listener))):
        assert operators_way(address) == address


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_socket_that_another_user_put_beside_a_listener_is_not_trusted(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/mqtt"
    place = place_for(parse_address(address))
    with _listening(place):
        assert operators_way(address) == f"unix:{place}"  # the control
        os.chown(place, 12_345, -1)
        assert operators_way(address) == address


# -- and who cannot keep them out ---------------------------------------------------------------------------


def test_the_operator_has_names_of_its_own(start_node: StartNode, dial: Dial) -> None:
    """A client that was there first under the same name is not disturbed, and does not disturb."""
    node = start_node()
    client = dial(node)
    client.connect("boss", clean_start=False, properties={Property.SESSION_EXPIRY_INTERVAL: 1_000})
    with _operator(node) as operator:
        operator.barrier()
        client.barrier()
    client.close()
    with _operator(node):
        pass
    back = dial(node)
    answer = back.connect("boss", clean_start=False, properties={Property.SESSION_EXPIRY_INTERVAL: 1_000})
    assert answer.session_present


def test_no_client_takes_the_name_of_an_operator(start_node: StartNode, dial: Dial) -> None:
    stranger = dial(start_node())
    assert stranger.connect("$operator/boss").reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


def test_the_operator_leaves_nothing_behind(start_node: StartNode, tmp_path: Path, until: Until) -> None:
    node = start_node(data=str(tmp_path / "data"))
    with RawClient(node.operator_socket()) as operator:
        answer = operator.connect("boss", clean_start=False, properties={Property.SESSION_EXPIRY_INTERVAL: 1_000})
        assert answer.properties[Property.SESSION_EXPIRY_INTERVAL] == 0
    until(lambda: node.call(lambda: not node.node.broker.core.sessions))


def test_the_operator_gets_in_when_all_connections_are_taken(start_node: StartNode, dial: Dial) -> None:
    node = start_node(limits__max_connections=5)
    for number in range(5):
        dial(node).connect(f"c{number}")
    assert dial(node).connect("one-more").reason_code == ReasonCode.QUOTA_EXCEEDED
    _looks_and_acts(node)


def test_the_operator_gets_in_when_all_sessions_are_taken_also_after_a_restart(
    dial: Dial, tmp_path: Path
) -> None:
    given = {"listeners.0.port": 0, "limits.max_sessions": 5, "data": str(tmp_path / "data")}
    with NodeThread(load_settings(None, (), {}, given)) as node:
        for number in range(5):
            client = dial(node)
            client.connect(f"c{number}", properties={Property.SESSION_EXPIRY_INTERVAL: 1_000})
            client.disconnect()
        _looks_and_acts(node)
    with NodeThread(load_settings(None, (), {}, given)) as node:
        assert dial(node).connect("one-more").reason_code == ReasonCode.QUOTA_EXCEEDED
        _looks_and_acts(node)


def test_the_operator_gets_in_while_half_open_connections_fill_the_node(
    start_node: StartNode, dial: Dial, until: Until
) -> None:
    node = start_node(limits__max_connections=50, limits__max_half_open=50)
    for _ in range(60):
        dial(node)
    until(lambda: node.call(lambda: len(node.node.broker.core.door) >= 50))
    _looks_and_acts(node)


def test_the_operator_gets_in_while_clients_have_to_queue_to_connect(start_node: StartNode, dial: Dial) -> None:
    node = start_node(limits__connection_rate=1.0)
    for number in range(20):
        dial(node).send(Connect(client_id=f"c{number}"))
    _looks_and_acts(node)


def test_the_operator_acts_while_memory_is_short(start_node: StartNode, dial: Dial) -> None:
    node = start_node(limits__max_memory=1)  # less than any process has
    memory = node.node.broker.core.memory
    assert node.call(lambda: memory.look() or memory.pressure) is Pressure.GIVE_WAY
    assert dial(node).connect("client").reason_code == ReasonCode.SERVER_BUSY
    _looks_and_acts(node)
