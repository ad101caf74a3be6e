"""Whatever clients send, and however many of them, others have their turn: measured by a process of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.attack.victim import Victim
from bench.attack.wires import BINARY, PING_FRAME, Way, discard, frame
from bench.attack.witness import Witness
from tidegate.load import packets
from tidegate.mqtt import Packet, Publish, Subscribe, Subscription, encode_packet

BOUND = 1_000_000_000
RATE = 10_000_000  # bytes a second of all connections together
SECONDS = 1.2
MOST = 0.1  # seconds of nearly every ping
WORST = 0.5


def _v4(*given: Packet) -> bytes:
    return b"".join(encode_packet(each, 4) for each in given)


def _subscribe(topic_filter: str) -> Subscribe:
    return Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter=topic_filter, qos=0)])


CHUNKS = {
    "pings": b"\xc0\0" * 30_000,
    "releases": b"\x62\x02\0\1" * 15_000,
    "acknowledgements": b"\x40\x02\0\1" * 15_000,
    "subscriptions": _v4(*(_subscribe(f"+/{number % 500}/#") for number in range(4_000))),
    "retained messages of many topics": _v4(
        *(Publish(topic=f"a{chr(65 + number % 26)}", payload=b"x", retain=True) for number in range(7_000))
    ),
    "messages of topics nobody else has": _v4(*(Publish(topic=f"x/{n}", payload=b"") for n in range(5_000))),
    "messages at QoS 1": _v4(*(Publish(topic="a", payload=b"", qos=1, packet_identifier=n) for n in range(1, 6_000))),
}


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    with Victim(tmp_path, BOUND) as started:
        yield started


def _flood(socks: list[socket.socket], chunk: bytes, seconds: float = SECONDS) -> None:
    """As much of the chunk as each takes, in turns; what is left of it goes first the next time."""
    left = dict.fromkeys(socks, b"")
    for sock in socks:
        sock.setblocking(False)
    began = time.monotonic()
    sent = 0
    while time.monotonic() - began < seconds:
        for sock in list(left):
            data = left[sock] or chunk
            try:
                count = sock.send(data)
            except BlockingIOError:
                count = 0
            except OSError:
                del left[sock]
                continue
            left[sock] = data[count:]
            sent += count
            discard(sock)
            time.sleep(max(0.0, min(began + sent / RATE - time.monotonic(), 0.1)))
        if not left:
            return


def _connected(way: Way, count: int) -> list[socket.socket]:
    socks = []
    for number in range(count):
        sock = way.dial()
        sock.sendall(way.wrap(packets.connect(f"a{number}", protocol=4)))
        assert sock.recv(100)  # CONNACK
        socks.append(sock)
    return socks


def _check(witness: Witness) -> None:
    witness.end()
    pings = sorted(seconds for _, seconds in witness.pings)
    assert pings[-1] < WORST
    assert pings[int(len(pings) * 0.95)] < MOST


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("name", CHUNKS)
def test_small_packets_without_end(name: str, count: int, victim: Victim) -> None:
    socks = _connected(victim.ways["tcp"], count)
    with Witness(victim.port) as witness:
        _flood(socks, CHUNKS[name])
        _check(witness)
    for sock in socks:
        sock.close()


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("kind", [PING_FRAME, BINARY], ids=["pings", "empty messages"])
def test_small_websocket_frames_without_end(kind: int, count: int, victim: Victim) -> None:
    socks = _connected(victim.ways["ws"], count)
    with Witness(victim.port) as witness:
        _flood(socks, frame(b"", kind) * 20_000)
        _check(witness)
    for sock in socks:
        sock.close()


def test_small_websocket_frames_of_somebody_who_has_not_said_connect(victim: Victim) -> None:
    socks = [victim.ways["ws"].dial() for _ in range(5)]
    with Witness(victim.port) as witness:
        _flood(socks, frame(b"") * 40_000)
        _check(witness)
    for sock in socks:
        sock.close()


def test_every_way_leads_to_the_node(victim: Victim) -> None:
    for way in victim.ways.values():
        (sock,) = _connected(way, 1)
        sock.sendall(way.wrap(b"\xc0\0"))
        assert b"\xd0\0" in sock.recv(100)
        sock.close()
