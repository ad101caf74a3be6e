"""The kernel keeps the bandwidth of a namespace; where there can be none, the experiment says why."""

import subprocess
import sys

import pytest

from tidegate.lab.cluster.namespaces import Network, why_not

SERVER = """
import socket, sys, time
server = socket.create_server((sys.argv[1], 9999))
print("ready", flush=True)
conn, _ = server.accept()
began, size = time.monotonic(), 0
while data := conn.recv(65536):
    size += len(data)
print(size * 8 / (time.monotonic() - began) / 1e6)
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 9999)) as sock:
    for _ in range(1_000):
        sock.sendall(bytes(400))
"""


@pytest.mark.skipif(bool(why_not()), reason=f"no network namespaces: {why_not()}")
def test_a_cable_carries_as_much_as_it_should() -> None:
    with Network({"a": 4.0, "b": None}) as network:
        server = subprocess.Popen(
            [*network.inside("b"), sys.executable, "-c", SERVER, network.addresses["b"]],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "ready\n"
            command = [*network.inside("a"), sys.executable, "-c", CLIENT, network.addresses["b"]]
            subprocess.run(command, check=True, timeout=30)
            rate = float(server.stdout.readline())
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
    assert 2.0 < rate < 6.5  # 400 kB, of which the first 32 kB may go at once
