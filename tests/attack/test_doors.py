"""Connections that never become clients: they crowd out nobody else, hold little, and have one deadline for all."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.attack.wires import UPGRADE
from tests.attack.conftest import RIGHTS, StartNode, Until, login, write_accounts
from tidegate.accounts.passwords import hash_password
from tidegate.mqtt import Connect, Publish, ReasonCode, encode_packet
from tidegate.net.operators import operators_way
from tidegate.testing import NodeThread
from tidegate.testing.certificates import make_authority
from tidegate.testing.ports import free_port
from tidegate.testing.raw import RawClient

PLACES = 40
ELSEWHERE = "127.0.0.9"  # another address of this machine
HEADER = b"PROXY TCP4 192.0.2.7 192.0.2.1 %d 1883\r\n"
KINDS = ["tcp", "tls", "ws", "ws upgraded", "proxy", "proxy introduced"]


def frame(data: bytes, length: int | None = None) -> bytes:
    """A binary frame as a client sends it, or the beginning of one that is announced as longer."""
    size = len(data) if length is None else length
    head = bytes((0x82, 0x80 | size)) if size < 126 else (
        bytes((0x82, 0xFE)) + size.to_bytes(2) if size < 65_536 else bytes((0x82, 0xFF)) + size.to_bytes(8)
    )  # fmt: skip
    return head + bytes(4) + data


@pytest.fixture
def node(start_node: StartNode, tmp_path: Path) -> NodeThread:
    issued = make_authority(tmp_path).issue("localhost")
    return start_node(
        limits__max_half_open=PLACES,
        listeners__1__type="tls", listeners__1__port=0,
        listeners__1__certfile=str(issued.certificate), listeners__1__keyfile=str(issued.key),
        listeners__2__type="ws", listeners__2__port=0,
        listeners__3__type="tcp", listeners__3__port=0, listeners__3__proxy_protocol=True,
    )  # fmt: skip


def port_of(node: NodeThread, listener: int) -> int:
    return node.call(lambda: node.node.broker.endpoint_of(listener).port)


@pytest.fixture
def crowd(node: NodeThread) -> Iterator[Callable[[str, int], list[socket.socket]]]:
    """Opens connections that go so far and no further."""
    with ExitStack() as stack:

        def open_some(kind: str, count: int) -> list[socket.socket]:
            listener = {"tcp": 0, "tls": 1, "ws": 2, "ws upgraded": 2}.get(kind, 3)
            port = port_of(node, listener)
            made = []
            for number in range(count):
                each = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5.0))
                if kind == "tls":
                    each.sendall(b"\x16")  # it begins, and says no more
                if kind == "ws upgraded":
                    each.sendall(UPGRADE)
                if kind == "proxy introduced":
                    each.sendall(HEADER % (1_024 + number))
                made.append(each)
            return made

        yield open_some


def is_served(port: int, source: str = "") -> float:
    """Seconds until a client is let in and answered."""
    began = time.monotonic()
    with RawClient(port, source=source) as client:
        assert client.connect("honest").reason_code == ReasonCode.SUCCESS
        client.barrier()
    return time.monotonic() - began


def places(node: NodeThread) -> int:
    return node.call(lambda: len(node.node.broker.core.door))


@pytest.mark.parametrize("kind", KINDS)
def test_silent_connections_of_one_address_keep_nobody_out(
    kind: str, node: NodeThread, crowd: Callable[[str, int], list[socket.socket]], until: Until
) -> None:
    crowd(kind, 3 * PLACES)
    until(lambda: places(node) >= PLACES - 1)
    for source in (ELSEWHERE, ""):
        assert is_served(node.port, source) < 1.0
    assert places(node) <= PLACES


def test_who_was_there_before_from_elsewhere_stays(
    node: NodeThread, crowd: Callable[[str, int], list[socket.socket]], until: Until
) -> None:
    with RawClient(node.port, source=ELSEWHERE) as slow:
        until(lambda: places(node) == 1)
        crowd("tcp", 3 * PLACES)
        until(lambda: places(node) == PLACES)
        assert slow.connect("slow").reason_code == ReasonCode.SUCCESS


def test_all_layers_have_one_deadline(start_node: StartNode, until: Until) -> None:
    """Who takes its time for the header, and for the upgrade, has none left for CONNECT."""
    node = start_node(
        limits__connect_timeout=1.0,
        listeners__1__type="ws", listeners__1__port=0, listeners__1__proxy_protocol=True,
    )  # fmt: skip
    packet = frame(encode_packet(Connect(client_id="slow"), 5))
    for patience, is_allowed in ((0.0, True), (0.55, False)):
        with socket.create_connection(("127.0.0.1", port_of(node, 1)), 5.0) as client:
            client.sendall(HEADER % 2_000)
            time.sleep(patience)
            client.sendall(UPGRADE)
            assert client.recv(4_096).startswith(b"HTTP/1.1 101")
            client.sendall(packet[:5])
            time.sleep(patience)
            left = 1 if is_allowed else 0
            until(lambda left=left: places(node) == left, 1.0)  # type: ignore[misc]
            if is_allowed:
                client.sendall(packet[5:])
                assert client.recv(4_096)[2] == 0x20  # CONNACK in its frame


def test_a_websocket_holds_no_more_than_a_connect_may_be_long(node: NodeThread) -> None:
    with socket.create_connection(("127.0.0.1", port_of(node, 2)), 5.0) as client:
        client.sendall(UPGRADE)
        client.recv(4_096)
        client.sendall(frame(bytes(1_000), 1_000_000))
        answer = client.recv(4_096)
        assert answer[:1] in (b"", b"\x88") and answer[2:4] in (b"", (1009).to_bytes(2))  # too big


def test_a_large_message_may_come_right_behind_connect(node: NodeThread) -> None:
    """In one piece, before CONNACK, as MQTT allows."""
    connect = frame(encode_packet(Connect(client_id="eager"), 5))
    large = frame(encode_packet(Publish(topic="t", payload=bytes(400_000), qos=1, packet_identifier=1), 5))
    with socket.create_connection(("127.0.0.1", port_of(node, 2)), 5.0) as client:
        client.sendall(UPGRADE)
        client.recv(4_096)
        client.sendall(connect + large)
        answer = b""
        while b"\x40" not in answer[20:]:
            more = client.recv(4_096)
            assert more, answer
            answer += more


def test_what_half_open_connections_hold_is_bounded(start_node: StartNode, until: Until) -> None:
    """Each sends most of a CONNECT that is as long as it may be, on either kind of listener."""
    node = start_node(listeners__1__type="ws", listeners__1__port=0)
    door = node.node.broker.core.door
    node.call(lambda: setattr(door, "most_bytes", 2_000_000))
    part = b"\x10\xf0\xff\x07" + bytes(120_000)
    with ExitStack() as stack:
        for number in range(60):
            is_framed = number % 2
            port = port_of(node, is_framed)
            each = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5.0))
            try:
                each.sendall(UPGRADE + frame(part, len(part) + 10) if is_framed else part)
            except ConnectionError:
                pass  # it gave way
        until(lambda: node.call(lambda: door.displaced) > 30)
        assert node.call(lambda: door.held_bytes) <= 2_000_000
        assert is_served(node.port, ELSEWHERE) < 1.0


def test_passwords_of_one_address_do_not_hold_up_another(start_node: StartNode, tmp_path: Path) -> None:
    node = start_node(RIGHTS, accounts__guard_failures=0)
    usual = hash_password(b"guest", time_cost=2, memory_cost_kib=19_456, parallelism=1)
    path = write_accounts(tmp_path)
    path.write_text(path.read_text().replace(_line(path, "guest"), f"guest:{usual}"))
    node.reload()
    with ExitStack() as stack:
        for number in range(300):
            attacker = stack.enter_context(RawClient(node.port))
            attacker.send(Connect(client_id=f"a{number}", username="guest", password=b"%d" % number))
        honest = stack.enter_context(RawClient(node.port, source=ELSEWHERE))
        began = time.monotonic()
        assert login(honest, "guest", "honest").reason_code == ReasonCode.SUCCESS
        assert time.monotonic() - began < 1.5  # three hundred checks take about ten seconds


def _line(path: Path, name: str) -> str:
    return next(line for line in path.read_text().splitlines() if line.startswith(f"{name}:"))


def test_the_last_descriptors_are_for_the_operator(tmp_path: Path) -> None:
    """A process may have 300 files; an attacker wants 600 connections, half of them as a client."""
    port = free_port()
    command = [sys.executable, "-m", "tidegate", "serve", "--port", str(port), "--data", str(tmp_path / "data")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300)),
            )
        )
        stack.callback(process.kill)
        assert process.stdout is not None and b"ready" in process.stdout.readline()
        for number in range(300):
            client = stack.enter_context(RawClient(port))
            client.send(Connect(client_id=f"c{number}"))
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 5.0))
        for number in range(3):
            way = operators_way(f"127.0.0.1:{port}")
            assert way.startswith("unix:")
            with RawClient(Path(way.removeprefix("unix:"))) as operator:
                assert operator.connect(f"boss{number}").reason_code == ReasonCode.SUCCESS
                operator.subscribe("$SYS/tide/pulse")
                assert operator.take(Publish, topic="$SYS/tide/pulse").payload
        assert process.poll() is None
