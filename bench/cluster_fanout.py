"""Fan-out of one node beside one head with three edges: 10 publishers, 200 subscribers, 64 bytes, QoS 0.

    python -m bench.cluster_fanout [--seconds 6] [--out FILE]

Subscribers are read by two processes, publishers write from one. Publishers keep a window: no more than so many
messages are on their way, by what subscribers have got. Beside deliveries per second the processor time of all
brokers and of the load generator is taken, because on a small machine they share the same cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from tidegate.cluster.local import LocalCluster, NodeProcess

PUBLISHERS = 10
SUBSCRIBERS = 200
READERS = 2
PAYLOAD = bytes(64)
WINDOW = 20_000  # enough that nobody waits for it
TOPIC = b"fan"


def _connect(port: int, name: str) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    client_id = name.encode()
    # MQTT 5: links speak it, and a message of the same version is forwarded as it came.
    body = b"\0\4MQTT\5\2\0\0\0" + len(client_id).to_bytes(2, "big") + client_id
    sock.sendall(bytes((0x10, len(body))) + body)
    assert sock.recv(1_024)[0] == 0x20
    return sock


def _read(ports: list[int], number: int, counts: Any, stop: Any) -> None:
    """Subscribe with a share of all subscribers, and count the bytes they get."""
    chooser = selectors.DefaultSelector()
    for n in range(number, SUBSCRIBERS, READERS):
        sock = _connect(ports[n % len(ports)], f"s{n}")
        body = b"\0\1\0" + len(TOPIC).to_bytes(2, "big") + TOPIC + b"\0"
        sock.sendall(bytes((0x82, len(body))) + body)
        sock.recv(1_024)
        sock.setblocking(False)
        chooser.register(sock, selectors.EVENT_READ, n)
    counts[READERS + number] = 1
    total = 0
    buffer = bytearray(1 << 18)
    while not stop.value:
        for key, _ in chooser.select(0.2):
            total += key.fileobj.recv_into(buffer)  # type: ignore[union-attr]
        counts[number] = total


def _cpu(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(
    publish_port: int, subscribe_ports: list[int], pids: list[int], seconds: float
) -> dict[str, float]:
    context = multiprocessing.get_context("fork")
    counts = context.Array("q", 2 * READERS, lock=False)
    stop = context.Value("i", 0)
    readers = [
        context.Process(target=_read, args=(subscribe_ports, number, counts, stop))
        for number in range(READERS)
    ]
    for reader in readers:
        reader.start()
    while not all(counts[READERS:]):
        time.sleep(0.05)
    time.sleep(1.5)  # until the head knows what the edges want
    body = len(TOPIC).to_bytes(2, "big") + TOPIC + b"\0" + PAYLOAD
    packet = bytes((0x30, len(body))) + body
    batch = packet * 50
    sockets = [_connect(publish_port, f"p{n}") for n in range(PUBLISHERS)]
    sent = 0
    each = len(packet) * SUBSCRIBERS

    def pump(until: float) -> None:
        nonlocal sent
        while time.monotonic() < until:
            if sent - sum(counts[:READERS]) / each > WINDOW:
                time.sleep(0.0005)
                continue
            for sock in sockets:
                sock.sendall(batch)
            sent += 50 * PUBLISHERS

    try:
        pump(time.monotonic() + 1.0)
        everyone = [*pids, *(reader.pid or 0 for reader in readers), os.getpid()]
        before, began = sum(counts[:READERS]), time.monotonic()
        brokers, all_of_us = _cpu(pids), _cpu(everyone)
        pump(began + seconds)
        elapsed = time.monotonic() - began
        delivered = (sum(counts[:READERS]) - before) / len(packet)
        brokers, all_of_us = _cpu(pids) - brokers, _cpu(everyone) - all_of_us
    finally:
        stop.value = 1
        for sock in sockets:
            sock.close()
        for reader in readers:
            reader.join(5)
            reader.kill()
    return {
        "deliveries_per_second": delivered / elapsed,
        "broker_cores": brokers / elapsed,
        "load_cores": (all_of_us - brokers) / elapsed,
        "broker_us_per_delivery": brokers / delivered * 1e6 if delivered else 0.0,
    }


def _port(node: NodeProcess) -> int:
    return int(node.addresses[0].rpartition(":")[2])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"cores": os.cpu_count(), "publishers": PUBLISHERS, "subscribers": SUBSCRIBERS}
    with tempfile.TemporaryDirectory() as folder:
        node = NodeProcess("single", ["--port", "0", "--log-level", "warning"], "", Path(folder) / "log")
        node.start()
        try:
            result["single"] = measure(_port(node), [_port(node)], [node.pid], options.seconds)
        finally:
            node.stop()
    with LocalCluster(edges=3) as cluster:
        ports = [_port(edge) for edge in cluster.edges]
        pids = [each.pid for each in cluster.nodes]
        result["cluster"] = measure(_port(cluster.head), ports, pids, options.seconds)
    result["ratio"] = result["cluster"]["deliveries_per_second"] / result["single"]["deliveries_per_second"]
    text = json.dumps(result, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
