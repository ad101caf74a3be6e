"""Rights hold on every node of a cluster, and on every way that a message takes there."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.attack.conftest import ACCOUNTS, RIGHTS, write_accounts, write_rights
from tests.integration.cluster.nodes import Cluster, cluster
from tidegate.client import Client
from tidegate.node import Node


async def _client(nodes: Cluster, stack: AsyncExitStack, node: Node, name: str) -> Client:
    client = Client(f"127.0.0.1:{node.broker.port}", client_id=name, username=name, password=name)
    return await stack.enter_async_context(client)


@pytest.mark.parametrize("origin", ["head", "same edge", "other edge"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_shared_subscription_gives_no_rights_on_an_edge(qos: int, origin: str, tmp_path: Path) -> None:
    async def main() -> None:
        settings = {
            "accounts__password_file": str(write_accounts(tmp_path, ACCOUNTS)),
            "accounts__rights_file": str(write_rights(tmp_path, RIGHTS)),
        }
        async with cluster(2, **settings) as nodes, AsyncExitStack() as stack:
            place = {"head": nodes.head, "same edge": nodes.edges[0], "other edge": nodes.edges[1]}[origin]
            mallory = await _client(nodes, stack, nodes.edges[0], "mallory")
            owner = await _client(nodes, stack, place, "owner")
            got: list[bytes] = []
            heard: list[bytes] = []
            await mallory.subscribe("$share/g/#", qos=qos, callback=lambda message: got.append(message.payload))
            await owner.subscribe("$share/h/#", qos=qos, callback=lambda message: heard.append(message.payload))
            await nodes.settled()
            for number in range(10):
                await owner.publish("secret/a", b"secret", qos=qos)
                await owner.publish(f"public/{number}", b"public", qos=qos)
            async with asyncio.timeout(10):
                while len(got) < 10 or len(heard) < 20:
                    await asyncio.sleep(0.01)
            assert got == [b"public"] * 10  # what is secret came before it on the same way

    asyncio.run(main())
