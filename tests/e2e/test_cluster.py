"""Clusters as processes: started by one command, killed and started again."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import uvloop

from tidegate.client import Client
from tidegate.cluster.local import LocalCluster

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


def _tidegate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=ENVIRONMENT,
    )


def test_one_command_starts_a_cluster_and_ctrl_c_stops_it() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "cluster", "up", "--edges", "2", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().split() for _ in range(4)]
        assert [line[0] for line in lines] == ["head", "edge0", "edge1", "cluster"]
        head, *edges = [line[1].removeprefix("mqtt://") for line in lines[:3]]

        async def main() -> None:
            async with (
                Client(head, client_id="p") as publisher,
                Client(edges[0], client_id="s0") as first,
                Client(edges[1], client_id="s1") as second,
            ):
                for client in (first, second):
                    await client.subscribe("t", qos=1)
                async with asyncio.timeout(20):
                    for client in (first, second):
                        waiting = asyncio.ensure_future(anext(client.messages))
                        while not waiting.done():  # until the head knows who wants it
                            await publisher.publish("t", b"x", qos=1)
                            await asyncio.sleep(0.05)
                        assert waiting.result().payload == b"x"

        uvloop.run(main())
        found = _tidegate("cluster", "status", edges[0], "--json")
        assert found.returncode == 0, found.stderr
        nodes = {node["name"]: node for node in map(json.loads, found.stdout.splitlines())}
        assert {"head", "edge0", "edge1"} == nodes.keys()
        assert {node["role"] for node in nodes.values()} == {"head", "edge"}
        pids = [int(line[3]) for line in lines[:3]]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        for pid in pids:
            assert not Path(f"/proc/{pid}").exists()
    finally:
        process.terminate()  # it stops its nodes; a kill would leave them
        process.wait(30)
        process.stdout.close()


def test_a_role_without_what_it_needs_is_refused_in_two_lines() -> None:
    for arguments, word in (
        (("serve", "--role", "head"), "secret"),
        (("serve", "--role", "edge", "--set", "cluster.secret=x"), "head"),
        (("serve", "--role", "tail"), "role"),
    ):
        found = _tidegate(*arguments)
        assert found.returncode == 78
        assert word in found.stderr
        assert "hint:" in found.stderr


def test_status_of_a_single_node_says_that_there_is_no_cluster() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tidegate", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[3].removeprefix("mqtt://")
        found = _tidegate("cluster", "status", address, "--timeout", "0.5")
        process.terminate()
    assert found.returncode == 1
    assert "nothing about a cluster" in found.stderr


def test_killed_nodes_come_back_and_no_acknowledged_message_is_lost_or_doubled(tmp_path: Path) -> None:
    """Publisher on one edge, subscriber on another; head and both edges are killed in turn."""
    options = {"session_expiry_interval": 600, "clean_start": False, "reconnect": True, "reconnect_min_delay": 0.05}
    options |= {"reconnect_max_delay": 0.3, "operation_timeout": 60.0}
    count = 300

    async def main(cluster: LocalCluster) -> None:
        addresses = [node.addresses[0].removeprefix("mqtt://") for node in cluster.nodes]
        async with Client(addresses[2], client_id="s", **options) as subscriber:  # type: ignore[arg-type]
            await subscriber.subscribe("t", qos=2)
            async with Client(addresses[1], client_id="p", **options) as publisher:  # type: ignore[arg-type]
                got: list[int] = []

                async def receive() -> None:
                    async for message in subscriber.messages:
                        if message.payload != b"-1":
                            got.append(int(message.payload))
                        else:
                            probes.set()

                probes = asyncio.Event()
                receiving = asyncio.ensure_future(receive())
                async with asyncio.timeout(100):
                    while not probes.is_set():  # until the way is known
                        await publisher.publish("t", b"-1", qos=2)
                        await asyncio.sleep(0.05)
                    for number in range(count):
                        await publisher.publish("t", b"%d" % number, qos=2)
                        if number in (50, 120, 200):
                            node = cluster.nodes[(50, 120, 200).index(number)]
                            await asyncio.to_thread(node.kill)
                            await asyncio.to_thread(node.start)
                    while len(got) < count:
                        await asyncio.sleep(0.05)
                receiving.cancel()
                assert got == list(range(count))

    with LocalCluster(edges=2, data=tmp_path) as cluster:
        uvloop.run(main(cluster))


def test_a_second_head_takes_over_when_the_first_is_killed(tmp_path: Path) -> None:
    options = {"session_expiry_interval": 600, "clean_start": False, "reconnect": True, "operation_timeout": 60.0}

    async def main(cluster: LocalCluster) -> None:
        _, second, edge, _ = [node.addresses[0].removeprefix("mqtt://") for node in cluster.nodes]
        got: set[int] = set()
        async with (
            Client(edge, client_id="s", **options) as subscriber,  # type: ignore[arg-type]
            Client(second, client_id="p", **options) as publisher,  # type: ignore[arg-type]
            asyncio.timeout(60),
        ):
            await subscriber.subscribe("t", qos=1, callback=lambda message: got.add(int(message.payload)))
            while -1 not in got:  # until the way from head to head to edge is known
                await publisher.publish("t", b"-1", qos=1)
                await asyncio.sleep(0.05)
            for number in range(60):
                await publisher.publish("t", b"%d" % number, qos=1)
                if number == 20:
                    cluster.head.kill()
            while not set(range(60)) <= got:
                await asyncio.sleep(0.05)

    with LocalCluster(edges=2, heads=2, data=tmp_path) as cluster:
        uvloop.run(main(cluster))
        found = _tidegate("cluster", "status", cluster.nodes[1].addresses[0].removeprefix("mqtt://"), "--json")
        nodes = {node["name"]: node for node in map(json.loads, found.stdout.splitlines())}
        assert {"head2", "edge0", "edge1"} <= nodes.keys()
