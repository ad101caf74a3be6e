"""Publishes at QoS 1: `python -m bench.spark.feed PORT MESSAGES WINDOW RATE`, as fast as acknowledged if the rate is 0.

A generator must not be the limit of what it measures, so this one speaks MQTT 5 over a bare socket: all packets are
made before the first is sent, and acknowledgements are counted by their length. Payloads are
`{"event_id": n, "value": …}`, padded to 64 bytes. When all is acknowledged it prints when it began (`time.monotonic`),
the seconds it took, and those of CPU.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time

TOPICS = 100
PAYLOAD_BYTES = 64
STEP = 500
PREFIX = "bench/spark"


def payload(number: int) -> bytes:
    return f'{{"event_id":{number},"value":{number % 97 / 8}'.encode().ljust(PAYLOAD_BYTES - 1) + b"}"


def packets(first: int, count: int) -> bytes:
    parts = []
    for number in range(first, first + count):
        topic = f"{PREFIX}/{number % TOPICS:02d}".encode()
        body = (
            struct.pack("!H", len(topic))
            + topic
            + struct.pack("!HB", number % 65_535 + 1, 0)
            + payload(number)
        )
        parts.append(bytes((0x32, len(body))) + body)
    return b"".join(parts)


def feed(port: int, messages: int, window: int, rate: int) -> tuple[float, float, float]:
    blocks = [packets(first, min(STEP, messages - first)) for first in range(0, messages, STEP)]
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Another name each time: the broker would hold one who was slower a moment ago to what is normal for it.
    name = f"feeder-{os.getpid()}".encode()
    body = b"\0\4MQTT\5\2\0\0\0" + struct.pack("!H", len(name)) + name
    link.sendall(bytes((0x10, len(body))) + body)
    connack = link.recv(4096)
    if connack[0] != 0x20 or connack[3] != 0:
        raise SystemExit("the broker refused the feeder")
    began, cpu_before = time.monotonic(), time.process_time()
    sent = acknowledged_bytes = 0
    while acknowledged_bytes < 4 * messages:
        while sent < messages and sent - acknowledged_bytes // 4 <= window - STEP:
            if rate and (early := began + sent / rate - time.monotonic()) > 0:
                time.sleep(early)
            link.sendall(blocks[sent // STEP])
            sent = min(sent + STEP, messages)
        data = link.recv(65_536)
        if not data:
            raise SystemExit("the broker closed the feeder's connection")
        acknowledged_bytes += len(data)  # PUBACK packets of four bytes, and nothing else
    seconds = time.monotonic() - began
    link.close()
    return began, seconds, time.process_time() - cpu_before


if __name__ == "__main__":
    print(*feed(*map(int, sys.argv[1:5])))
