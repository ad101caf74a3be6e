"""E5.7 in the broker: its processor time for a message to a group of so many members, connected over sockets.

Most of it is reading, routing and writing, and the more members there are the fewer messages share a write. So the
rules are compared with round robin at the same number of members: the difference is what the choice costs.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tidegate.flow.load_report import NEGOTIATION, LoadReport
from tidegate.lab.brokers import BrokerProcess
from tidegate.lab.experiment import Context
from tidegate.load.usage import cpu_seconds, steal_seconds
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.packets import Connect, Publish, Subscribe, Subscription
from tidegate.mqtt.properties import Property

SIZES: Final = (3, 10, 100, 1000)
POLICIES: Final = ("round_robin", "thesis", "earliest_finish")
TOPIC: Final = "cost"
BATCH: Final = 4  # messages in one write,
EVERY: Final = 0.002  # so many seconds apart
SETTINGS: Final = ("backoff.policy=off", "priority.policy=off", "features.sys_interval=0")


def describe() -> dict[str, Any]:
    return {
        "messages": f"{BATCH / EVERY:g} a second at QoS 0, 100 bytes",
        "members": "raw sockets that reported once and only read",
        "settings": " ".join(SETTINGS),
    }


def _receive(sock: socket.socket, first: int) -> None:
    """Read until a packet of this kind has come whole; all that is awaited here are short."""
    data = b""
    while len(data) < 2 or len(data) < 2 + data[1]:
        chunk = sock.recv(4096)
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data += chunk
    if data[0] >> 4 != first:
        raise ConnectionError(f"unexpected packet {data!r}")


def _connect(port: int, client_id: str) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    properties = {Property.USER_PROPERTY: [NEGOTIATION]}
    sock.sendall(encode_packet(Connect(client_id=client_id, keep_alive=0, properties=properties), 5))
    _receive(sock, 2)
    return sock


@contextmanager
def _group(port: int, size: int) -> Iterator[selectors.BaseSelector]:
    """Members that have reported once and are read by the selector's user."""
    selector = selectors.DefaultSelector()
    sockets = []
    subscription = Subscription(topic_filter=f"$share/crowd/{TOPIC}", qos=0)
    ping = LoadReport(queue_length=0, processing_time=0.02, count=1, processed=0).encode_pingreq()
    try:
        for number in range(size):
            sock = _connect(port, f"member-{number}")
            sockets.append(sock)
            sock.sendall(encode_packet(Subscribe(packet_identifier=1, subscriptions=[subscription]), 5))
            _receive(sock, 9)
            sock.sendall(bytes((0xC0, len(ping))) + ping)
            _receive(sock, 13)
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ)
        yield selector
    finally:
        selector.close()
        for sock in sockets:
            sock.close()


def measure(policy: str, size: int, seconds: float) -> dict[str, Any]:
    """Microseconds of the broker for one message, and what an idle one takes subtracted."""
    with (
        BrokerProcess(settings=(*SETTINGS, f"features.shared_policy={policy}")) as broker,
        _group(broker.port, size) as selector,
        _connect(broker.port, "publisher") as publisher,
    ):
        packet = encode_packet(Publish(topic=TOPIC, payload=bytes(100)), 5)
        _drain(selector, 0.5)
        before = cpu_seconds(broker.pid)
        _drain(selector, 1.0)
        idle = cpu_seconds(broker.pid) - before
        stolen, before, began = steal_seconds(), cpu_seconds(broker.pid), time.monotonic()
        sent = received = 0
        for number in range(1, round(seconds / EVERY) + 1):
            publisher.sendall(packet * BATCH)
            sent += BATCH
            received += _drain(selector, began + number * EVERY - time.monotonic())
        deadline = time.monotonic() + 10.0
        while received < sent * len(packet) and time.monotonic() < deadline:
            received += _drain(selector, 0.02)
        cpu = cpu_seconds(broker.pid) - before
        elapsed = time.monotonic() - began
        steal = (steal_seconds() - stolen) / elapsed
    return {
        "policy": policy,
        "members": size,
        "messages": sent,
        "lost": sent - received // len(packet),
        "us": (cpu - idle * elapsed) / sent * 1e6,
        "steal": steal,
    }


def _drain(selector: selectors.BaseSelector, seconds: float) -> int:
    """Read for so long; how many bytes came."""
    received = 0
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0.0:
        for key, _ in selector.select(left):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            received += len(sock.recv(65_536))
    return received


def run(context: Context) -> list[dict[str, Any]]:
    sizes = SIZES[:2] if context.is_quick else SIZES
    seconds = 1.0 if context.is_quick else 4.0
    repetitions = 1 if context.is_quick else 2
    cases = [(policy, size) for _ in range(repetitions) for size in sizes for policy in POLICIES]
    return [measure(policy, size, seconds) for policy, size in context.follow("e5.7 broker", cases)]
