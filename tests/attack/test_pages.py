"""Web pages of others get nowhere: a browser carries them to listeners that only this machine can reach."""

from __future__ import annotations

import socket

import pytest

from tests.attack.conftest import StartNode
from tidegate.testing import NodeThread

DEADLINE = 5.0


def _ask(node: NodeThread, *headers: str) -> int:
    """The status of an upgrade that a browser asks for with these headers."""
    lines = [
        "GET /mqtt HTTP/1.1",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: mqtt",
        *(header.replace("PORT", str(node.port)) for header in headers),
    ]
    with socket.create_connection(("127.0.0.1", node.port), DEADLINE) as connection:
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        answer = connection.recv(4096)
    return int(answer.split()[1])


@pytest.mark.parametrize(
    "headers",
    [
        ("Host: 127.0.0.1:PORT", "Origin: http://evil.example"),
        ("Host: localhost:PORT", "Origin: http://evil.example"),
        ("Host: localhost:PORT", "Origin: http://localhost:1"),
        ("Host: localhost:PORT", "Origin: http://localhost"),
        ("Host: localhost:PORT", "Origin: null"),
        ("Host: localhost:PORT", "Origin: file://"),
        ("Host: localhost:PORT", "Origin: http://localhost:PORT.evil.example"),
        ("Host: localhost:PORT", "Origin: http://localhost:PORT@evil.example"),
        ("Host: localhost:PORT", "Origin: http://evil.example", "Origin: http://localhost:PORT"),
        ("Host: localhost:PORT", "Origin: http://[evil"),
        ("Host: evil.example:PORT", "Origin: http://evil.example:PORT"),
        ("Host: localhost.evil.example:PORT", "Origin: http://localhost.evil.example:PORT"),
        ("Host: 127.0.0.1.evil.example:PORT", "Origin: http://127.0.0.1.evil.example:PORT"),
    ],
)
def test_a_page_of_somebody_else_is_refused(headers: tuple[str, ...], start_node: StartNode) -> None:
    assert _ask(start_node(listeners__0__type="ws"), *headers) in (400, 403)


@pytest.mark.parametrize(
    ("origins", "headers"),
    [
        ([], ("Host: localhost:PORT",)),
        ([], ("Host: localhost:PORT", "Origin: http://localhost:PORT")),
        ([], ("Host: 127.0.0.1:PORT", "Origin: http://127.0.0.1:PORT")),
        ([], ("Host: 192.0.2.1", "Origin: https://192.0.2.1")),
        (["https://plant.example"], ("Host: mqtt.plant.example", "Origin: https://plant.example")),
        (["*"], ("Host: localhost:PORT", "Origin: http://evil.example")),
    ],
)
def test_who_was_named_and_who_is_no_page_is_let_in(
    origins: list[str], headers: tuple[str, ...], start_node: StartNode
) -> None:
    assert _ask(start_node(listeners__0__type="ws", listeners__0__origins=origins), *headers) == 101
