"""Clients of the flood experiment, each kind in a process of its own.

`flooders` send as fast as their sockets take it, ping all the while, and drain what one subscriber gets of it.
`sensors` send one small QoS 1 message a second each, spread evenly; one subscriber notes when each arrives.
Both print one JSON line. The sensors' process says `ready` first: nothing is measured before everybody is connected.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import time
from dataclasses import dataclass, field
from random import Random

from tidegate.lab.stalls import come_first
from tidegate.load import packets

KEEP_ALIVE = 10  # seconds
PING_INTERVAL = 2.0
BURST = 64  # messages in one write
STAMP = struct.Struct(">QI")  # time in ns and number


def open_client(port: int, client_id: str, *, keep_alive: int, protocol: int = 4) -> socket.socket:
    """Connect and wait for CONNACK."""
    sock = socket.create_connection(("127.0.0.1", port), 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(packets.connect(client_id, protocol=protocol, keep_alive=keep_alive))
    answer = sock.recv(4, socket.MSG_WAITALL)
    if len(answer) < 4 or answer[3]:
        raise ConnectionError(f"{client_id} was refused: {answer!r}")
    return sock


def split(buffer: bytearray) -> list[tuple[int, bytes]]:
    """Take the whole packets out of a buffer: first byte and body."""
    found = []
    pos = 0
    while True:
        known = packets.decode_length(bytes(buffer[pos + 1 : pos + 5]), 0)
        if known is None or len(buffer) < pos + 1 + known[1] + known[0]:
            break
        length, width = known
        begin = pos + 1 + width
        found.append((buffer[pos], bytes(buffer[begin : begin + length])))
        pos = begin + length
    del buffer[:pos]
    return found


@dataclass(slots=True)
class Flooder:
    """One that sends as fast as it can; a PINGREQ goes between two bursts."""

    sock: socket.socket
    qos: int
    burst: memoryview
    count: int
    left: memoryview = field(default_factory=lambda: memoryview(b""))
    sent: int = 0
    unacknowledged: int = 0
    pings: int = 0
    answers: int = 0
    pinged_at: float = 0.0
    worst_answer: float = 0.0
    next_ping: float = 0.0
    is_open: bool = True
    inbox: bytearray = field(default_factory=bytearray)

    def may_send(self) -> bool:
        return not self.qos or self.unacknowledged < 1_000

    def on_writable(self, now: float) -> None:
        if not len(self.left):
            if now >= self.next_ping and self.pings == self.answers:
                self.left = memoryview(packets.PINGREQ_PACKET)
                self.next_ping = now + PING_INTERVAL
                self.pinged_at = now
                self.pings += 1
            elif self.may_send():
                self.left = self.burst
                self.sent += self.count
                self.unacknowledged += self.count if self.qos else 0
            else:
                return
        try:
            self.left = self.left[self.sock.send(self.left) :]
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False

    def on_readable(self, now: float) -> None:
        try:
            data = self.sock.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.is_open = False
            return
        self.inbox += data
        for first, _ in split(self.inbox):
            if first == packets.PINGRESP:
                self.answers += 1
                self.worst_answer = max(self.worst_answer, now - self.pinged_at)
            elif first == packets.PUBACK:
                self.unacknowledged -= 1


def flood(port: int, count: int, seconds: float, qos: int) -> dict[str, object]:
    """Flood for so long, with one subscriber that takes it all."""
    drain = open_client(port, "flood-reader", keep_alive=0)
    drain.sendall(packets.subscribe(1, "flood/+", qos=0, protocol=4))
    drain.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(drain, selectors.EVENT_READ)
    flooders: dict[socket.socket, Flooder] = {}
    for index in range(count):
        packet = [
            packets.publish(f"flood/{index}", bytes(64), qos=qos, protocol=4, packet_identifier=1 + number)
            for number in range(BURST)
        ]
        sock = open_client(port, f"flooder-{index}", keep_alive=KEEP_ALIVE)
        sock.setblocking(False)
        flooders[sock] = Flooder(sock, qos, memoryview(b"".join(packet)), BURST)
        selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
    drained = 0
    began = now = time.monotonic()
    while now < began + seconds and any(each.is_open for each in flooders.values()):
        for key, events in selector.select(0.05):
            source = key.fileobj
            assert isinstance(source, socket.socket)
            flooder = flooders.get(source)
            if flooder is None:
                drained += len(_receive(source))
                continue
            if events & selectors.EVENT_READ:
                flooder.on_readable(now)
            if events & selectors.EVENT_WRITE and flooder.is_open:
                flooder.on_writable(now)
            wanted = selectors.EVENT_READ
            may_ping = now >= flooder.next_ping and flooder.pings == flooder.answers
            if len(flooder.left) or flooder.may_send() or may_ping:
                wanted |= selectors.EVENT_WRITE
            if not flooder.is_open:
                selector.unregister(source)
            elif wanted != key.events:
                selector.modify(source, wanted)
        now = time.monotonic()
    every = list(flooders.values())
    for sock in (drain, *flooders):
        sock.close()
    waiting = [now - each.pinged_at for each in every if each.pings > each.answers]
    return {
        "sent": sum(each.sent for each in every),
        "drained_bytes": drained,
        "open": sum(each.is_open for each in every),
        "pings": sum(each.pings for each in every),
        "answers": sum(each.answers for each in every),
        "worst_answer": max([each.worst_answer for each in every] + waiting),
    }


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1_048_576)
    except OSError:
        return b""


def sense(port: int, count: int, seconds: float, seed: int) -> dict[str, object]:
    """One QoS 1 message a second from each sensor; the time from sending to arrival, in ms, of every message."""
    random = Random(seed)
    reader = open_client(port, "sensor-reader", keep_alive=0)
    reader.sendall(packets.subscribe(1, "sensor/+", qos=1, protocol=4))
    reader.recv(5, socket.MSG_WAITALL)
    reader.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(reader, selectors.EVENT_READ)
    sensors = []
    for index in range(count):
        sock = open_client(port, f"sensor-{index}", keep_alive=60)
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ)
        sensors.append(sock)
    print("ready", flush=True)
    began = now = time.monotonic()
    due = sorted((began + random.random(), index) for index in range(count))
    at = 0
    sent = acknowledged = received = duplicates = 0
    latencies: list[tuple[float, float]] = []
    seen: set[tuple[int, int]] = set()
    inbox = bytearray()
    end = began + seconds
    grace = end + 10.0
    while now < end or ((acknowledged < sent or received < sent) and now < grace):
        while now < end and due[at][0] <= now:
            _, index = due[at]
            payload = STAMP.pack(time.monotonic_ns(), index)
            number = sent % 65_535 + 1
            sensors[index].send(
                packets.publish(f"sensor/{index}", payload, qos=1, protocol=4, packet_identifier=number)
            )
            sent += 1
            due[at] = (due[at][0] + 1.0, index)
            at = (at + 1) % count
        wait = max(0.0, min(0.1, due[at][0] - time.monotonic())) if now < end else 0.1
        for key, _ in selector.select(wait):
            source = key.fileobj
            assert isinstance(source, socket.socket)
            data = _receive(source)
            if source is not reader:
                acknowledged += len(data) // 4
                continue
            arrived = time.monotonic_ns()
            inbox += data
            for _, body in split(inbox):
                topic_end = 2 + int.from_bytes(body[:2], "big")
                stamp, index = STAMP.unpack(body[topic_end + 2 :])
                reader.send(b"\x40\x02" + body[topic_end : topic_end + 2])
                if (stamp, index) in seen:
                    duplicates += 1
                    continue
                seen.add((stamp, index))
                received += 1
                latencies.append((stamp / 1e9 - began, (arrived - stamp) / 1e6))
        now = time.monotonic()
    for sock in (reader, *sensors):
        sock.close()
    return {
        "began": began,
        "sent": sent,
        "acknowledged": acknowledged,
        "received": received,
        "duplicates": duplicates,
        "latencies": [(round(at, 4), round(ms, 4)) for at, ms in latencies],
    }


def main(arguments: list[str]) -> None:
    role, port, count, seconds, option, cpu = arguments
    if int(cpu) >= 0:
        os.sched_setaffinity(0, {int(cpu)})
    if role == "sensors":
        come_first()
    work = flood if role == "flooders" else sense
    print(json.dumps(work(int(port), int(count), float(seconds), int(option))), flush=True)
