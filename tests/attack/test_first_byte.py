"""Who does not speak MQTT is told so by the first byte, on every kind of listener."""

import socket
import ssl
import time
from pathlib import Path

import pytest

from tests.attack.conftest import StartNode
from tidegate.testing.certificates import make_authority
from tidegate.testing.raw import RawClient

CONNECT_TIMEOUT = 30.0
AT_ONCE = 2.0
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
KINDS = ("tcp", "unix", "proxy", "behind proxy", "tls", "behind tls", "ws", "behind ws")
CONNECT_FLAGS = (0x11, 0x12, 0x1F)
OTHERS = (0x00, 0x30, 0xC0, 0xF0, 0xFF)


def _settings(kind: str, folder: Path) -> dict[str, object]:
    settings: dict[str, object] = {"limits__connect_timeout": CONNECT_TIMEOUT}
    if "unix" in kind:
        settings |= {"listeners__0__type": "unix", "listeners__0__path": str(folder / "s")}
    elif "proxy" in kind:
        settings["listeners__0__proxy_protocol"] = True
        settings["listeners__0__allow_anonymous"] = True
    elif "tls" in kind:
        issued = make_authority(folder).issue("server")
        settings |= {
            "listeners__0__type": "tls",
            "listeners__0__certfile": str(issued.certificate),
            "listeners__0__keyfile": str(issued.key),
        }
    elif "ws" in kind:
        settings["listeners__0__type"] = "ws"
    return settings


def _open(kind: str, folder: Path, port: int) -> socket.socket:
    """A connection whose next byte is the first of MQTT, or of what comes before it on such a listener."""
    if kind == "unix":
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(CONNECT_TIMEOUT)
        plain.connect(str(folder / "s"))
        return plain
    plain = socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT)
    if kind == "behind proxy":
        plain.sendall(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n")
    elif kind == "behind tls":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(plain)
    elif kind == "behind ws":
        plain.sendall(UPGRADE)
        assert b" 101 " in plain.recv(4096)
    return plain


def _until_closed(sock: socket.socket) -> bytes:
    received = b""
    try:
        while data := sock.recv(4096):
            received += data
    except (ConnectionResetError, ssl.SSLError):
        pass
    return received


@pytest.mark.parametrize("kind", KINDS)
def test_a_byte_that_begins_no_connect_closes_at_once(
    start_node: StartNode, tmp_path: Path, kind: str
) -> None:
    node = start_node(**_settings(kind, tmp_path))
    before_mqtt = kind in ("proxy", "tls", "ws")
    for byte in OTHERS if before_mqtt else (*CONNECT_FLAGS, *OTHERS):
        with _open(kind, tmp_path, node.port) as sock:
            began = time.monotonic()
            sent = bytes((byte,))
            sock.sendall(b"\x82\x81\0\0\0\0" + sent if kind == "behind ws" else sent)
            answer = _until_closed(sock)
            assert time.monotonic() - began < AT_ONCE, (kind, byte)
            assert not answer or kind == "behind ws", (kind, byte, answer)  # a WebSocket says goodbye


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x00\x04MQT",
        b"\x00\x04MQTT",
        b"\x00\x04MQTX\x05\x02\x00\x00\x00\x00\x01x",
        b"\x00\x04mqtt\x04\x02\x00\x00\x00\x01x",
        b"\x00\x00\x05\x02\x00\x00\x00\x00\x01x",
        b"\xff\xffMQTT\x05",
        b"\x00\x04\xff\xff\xff\xff\x05\x02\x00\x00\x00\x00\x01x",
    ],
)
def test_a_connect_whose_version_cannot_be_known_gets_no_answer(start_node: StartNode, body: bytes) -> None:
    node = start_node()
    with RawClient(node.port) as client:
        client.send_bytes(bytes((0x10, len(body))) + body)
        assert client.receive_bytes() == b""
