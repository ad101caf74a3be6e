"""Clients are moved while nodes are killed: nothing lost, QoS 2 not doubled, order kept, every move ends."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tidegate.client import Client
from tidegate.cluster.local import LocalCluster

CLIENTS = 8
MESSAGES = 150
OPTIONS: dict[str, Any] = {
    "session_expiry_interval": 600,
    "clean_start": False,
    "reconnect": True,
    "reconnect_min_delay": 0.05,
    "reconnect_max_delay": 0.4,
    "operation_timeout": 90.0,
}


def _fix_ports(cluster: LocalCluster) -> list[str]:
    """The same ports after a kill; gives the addresses of all nodes."""
    for node in cluster.nodes:
        at = node.arguments.index("--port") + 1
        node.arguments[at] = node.addresses[0].rpartition(":")[2]
    cluster.head.arguments += ["--set", f"cluster.link_port={cluster.link.rpartition(':')[2]}"]
    return [node.addresses[0].removeprefix("mqtt://") for node in cluster.nodes]


@pytest.mark.parametrize("victim", [None, 0, 1, 2], ids=["nobody", "head", "old edge", "new edge"])
def test_a_drain_survives_a_kill(victim: int | None, tmp_path: Path) -> None:
    async def main(cluster: LocalCluster) -> None:
        addresses = _fix_ports(cluster)
        got: dict[str, list[int]] = {}
        ready: set[str] = set()

        def receiver(client_id: str) -> Any:
            def on_message(message: Any) -> None:
                number = int(message.payload)
                if number < 0:
                    ready.add(client_id)
                else:
                    got[client_id].append(number)

            return on_message

        async with asyncio.timeout(110), asyncio.TaskGroup() as group:
            clients = []
            for n in range(CLIENTS):
                client = Client(addresses[1], client_id=f"c{n}", **OPTIONS)
                got[f"c{n}"] = []
                await client.connect()
                await client.subscribe("t", qos=1 + n % 2, callback=receiver(f"c{n}"))
                clients.append(client)
            async with Client(addresses[0], client_id="p", **OPTIONS) as publisher:
                while len(ready) < CLIENTS:  # until the head knows who wants it
                    await publisher.publish("t", b"-1", qos=2)
                    await asyncio.sleep(0.05)

                async def publish() -> None:
                    for number in range(MESSAGES):
                        await publisher.publish("t", b"%d" % number, qos=2)

                publishing = group.create_task(publish())
                await publisher.publish("$tide/cluster/drain", "edge0", qos=1)
                if victim is not None:
                    while min(map(len, got.values())) < 5:  # in the midst of it
                        await asyncio.sleep(0.01)
                    node = cluster.nodes[victim]
                    await asyncio.to_thread(node.kill)
                    await asyncio.to_thread(node.start)
                await publishing
                while any(len(set(numbers)) < MESSAGES for numbers in got.values()):
                    await asyncio.sleep(0.05)
            for client in clients:
                await client.disconnect()
        for n in range(CLIENTS):
            numbers = got[f"c{n}"]
            firsts = list(dict.fromkeys(numbers))
            assert firsts == list(range(MESSAGES)), f"c{n}"
            if n % 2:  # QoS 2
                assert len(numbers) == MESSAGES, f"c{n}"
        if victim is None:
            async with Client(addresses[0], client_id="watch") as watcher:
                await watcher.subscribe("$SYS/cluster/drain/edge0")
                said = json.loads((await anext(watcher.messages)).payload)
                assert (said["state"], said["moved"], said["failed"]) == ("done", CLIENTS, 0)

    with LocalCluster(edges=2, data=tmp_path) as cluster:
        uvloop.run(main(cluster))
