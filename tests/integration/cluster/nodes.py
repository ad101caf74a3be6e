"""A head and edges on one loop, joined by real links."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.client import Client
from tidegate.cluster.membership import ClusterNode
from tidegate.node import Node
from tidegate.settings import Settings, load_settings

WAIT = 15.0
SECRET = "a secret for tests"


async def wait_until(condition: Callable[[], bool], what: str = "") -> None:
    async with asyncio.timeout(WAIT):
        while not condition():
            await asyncio.sleep(0.01)


def settings(name: str, role: str, **changes: Any) -> Settings:
    given: dict[str, object] = {
        "name": name,
        "listeners.0.port": 0,
        "cluster.role": role,
        "cluster.secret": SECRET,
        "cluster.link_port": 0,
        "cluster.interval": 0.1,
        "cluster.redirect": False,
        "features.sys_interval": 0.0,
    }
    given |= {key.replace("__", "."): value for key, value in changes.items()}
    return load_settings(None, (), {}, given)


def member(node: Node) -> ClusterNode:
    assert node.cluster is not None
    return node.cluster


@dataclass
class Cluster:
    head: Node
    edges: list[Node]
    stack: AsyncExitStack
    clients: list[Client] = field(default_factory=list)

    async def client(self, node: Node, client_id: str, **options: Any) -> Client:
        made = Client(f"127.0.0.1:{node.broker.port}", client_id=client_id, **options)
        return await self.stack.enter_async_context(made)

    async def settled(self) -> None:
        """Every node knows what every other wants."""
        nodes = [self.head, *self.edges]
        await wait_until(lambda: all(member(node).is_linked for node in self.edges))
        await wait_until(lambda: all(member(node).is_settled for node in nodes))


@asynccontextmanager
async def cluster(edges: int = 2, data: Path | None = None, **changes: Any) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        folder = {} if data is None else {"data": str(data / "head")}
        head = await stack.enter_async_context(Node(settings("h", "head", **folder, **changes)))
        nodes = []
        for number in range(edges):
            folder = {} if data is None else {"data": str(data / f"e{number}")}
            edge = Node(
                settings(
                    f"e{number}", "edge", cluster__heads=[f"127.0.0.1:{head.link_port}"], **folder, **changes
                )
            )
            nodes.append(await stack.enter_async_context(edge))
        clients = await stack.enter_async_context(AsyncExitStack())
        found = Cluster(head, nodes, clients)
        await found.settled()
        yield found


async def unlink(nodes: Cluster, edge: Node) -> None:
    """Take an edge's link away until its `start`; what nodes say to each other waits."""
    peer = member(nodes.head).named(member(edge).name)
    assert peer is not None
    await member(edge).stop()
    for conn in [each for each in edge.broker.core.connections if each.listener.is_link]:
        conn.transport.abort()
    await wait_until(lambda: not peer.is_connected)


def deafen(edge: Node) -> None:
    """It hears nothing more from its head."""
    for conn in [each for each in edge.broker.core.connections if each.listener.is_link]:
        conn.transport.pause_reading()
