"""Connections to web pages that ask for nothing: whoever asks is answered within a second."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.attack.conftest import StartNode
from tests.console.conftest import Console
from tests.e2e.test_space import serving
from tidegate.testing.ports import free_port

IDLE = 1_100
STARTS: dict[str, bytes] = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: localhost\r\n",
    "no body": b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nContent-Type: text/plain\r\n\r\n",
}
SPARQL = (
    b"POST /home/sparql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
    b"Content-Type: application/sparql-query\r\n\r\nASK"
)


@pytest.fixture
def crowd() -> Iterator[Callable[[int, bytes], None]]:
    with ExitStack() as stack:

        def come(port: int, start: bytes) -> None:
            for _ in range(IDLE):
                each = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5.0))
                try:
                    each.sendall(start)
                except ConnectionError:
                    pass  # it gave way

        yield come


def answered(url: str) -> float:
    """Seconds until a page is there."""
    began = time.monotonic()
    with urllib.request.urlopen(url, timeout=5.0) as answer:
        assert answer.status == 200
        answer.read()
    return time.monotonic() - began


@pytest.mark.parametrize("start", STARTS)
def test_the_console_serves_a_browser(
    start: str, start_node: StartNode, crowd: Callable[[int, bytes], None]
) -> None:
    console = Console(start_node().operator_socket())
    try:
        crowd(console.port, STARTS[start])
        assert answered(f"{console.url}/") < 1.0
    finally:
        console.stop()


@pytest.mark.parametrize("start", ["nothing", "half a head", "no body"])
def test_a_space_serves_a_query(start: str, crowd: Callable[[int, bytes], None]) -> None:
    port = free_port()
    with serving("-s", "home", "--no-mqtt", "--http-port", str(port)) as (_, line):
        assert "ready" in line
        crowd(port, SPARQL if start == "no body" else STARTS[start])
        assert answered(f"http://127.0.0.1:{port}/home/sparql?query=ASK+%7B%7D") < 1.0


@pytest.mark.parametrize("start", ["nothing", "half a head"])
def test_the_metrics_page_is_served(
    start: str, start_node: StartNode, crowd: Callable[[int, bytes], None]
) -> None:
    port = free_port()
    node = start_node(metrics__port=port)
    crowd(port, STARTS[start])
    assert answered(f"http://127.0.0.1:{port}/metrics") < 1.0
    assert node.call(lambda: len(node.node.broker.core.connections)) == 0
