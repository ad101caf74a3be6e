"""Sessions move from node to node: nothing lost, nothing doubled, in order."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tidegate.client import Client
from tidegate.net.errors import DialError
from tidegate.node import Node
from tidegate.testing.ports import free_port

PERSISTENT: dict[str, Any] = {
    "session_expiry_interval": 600,
    "clean_start": False,
    "reconnect": True,
    "reconnect_min_delay": 0.01,
    "reconnect_max_delay": 0.1,
}


async def _move(nodes: Cluster, client: str, target: str) -> bool:
    async with asyncio.timeout(15):
        return await member(nodes.head).handover.move(client, target)


async def _known(nodes: Cluster, client: str, edge: str) -> None:
    await wait_until(lambda: member(nodes.head).handover.owners.get(client) == edge)


async def _connected(node: Node, client: str) -> None:
    await wait_until(lambda: _session(node, client) is not None and _session(node, client).conn is not None)


def _session(node: Node, client: str) -> Any:
    return node.broker.core.sessions.get(client)


async def _numbers(client: Client, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found.append(int((await anext(client.messages)).payload))
    return found


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_session_that_is_away_moves_with_its_queue(
    qos: int, is_durable: bool, tmp_path: Path
) -> None:
    async with cluster(2, tmp_path if is_durable else None) as nodes:
        async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", **PERSISTENT) as client:
            await client.subscribe("t/#", qos=qos)
        await _known(nodes, "c", "e0")
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        for n in range(50):
            await publisher.publish("t/a", b"%d" % n, qos=qos)
        await wait_until(lambda: _session(nodes.edges[0], "c").queued_messages == 50)
        assert await _move(nodes, "c", "e1")
        assert _session(nodes.edges[0], "c") is None
        for n in range(50, 60):
            await publisher.publish("t/a", b"%d" % n, qos=qos)
        again = await nodes.client(nodes.edges[1], "c", **PERSISTENT)
        assert again.connack.session_present
        assert await _numbers(again, 60) == list(range(60))
        await wait_until(lambda: not nodes.head.broker.core.index.route(b"t/a").targets[1:])
        assert nodes.head.broker.core.index.route(b"t/a").targets[0].session.client_id == "$link/edge/e1"


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("origin", ["head", "old", "new"])
async def test_a_connected_client_is_sent_on_while_messages_flow(
    origin: str, is_durable: bool, tmp_path: Path
) -> None:
    async with cluster(2, tmp_path if is_durable else None) as nodes:
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=2)
        await _known(nodes, "c", "e0")
        await nodes.settled()
        at = {"head": nodes.head, "old": nodes.edges[0], "new": nodes.edges[1]}[origin]
        publisher = await nodes.client(at, "p")
        count = 400

        async def publish() -> None:
            for start in range(0, count, 10):
                await asyncio.gather(
                    *(publisher.publish("t", b"%d" % n, qos=2) for n in range(start, start + 10))
                )

        async def move() -> None:
            # To the publisher's own node the last messages of a move may come behind later ones.
            for target in ("e1",) if origin == "old" else ("e1", "e0", "e1"):
                await asyncio.sleep(0)
                assert await _move(nodes, "c", target)
                await _connected(nodes.edges[int(target[1])], "c")

        publishing = asyncio.ensure_future(publish())
        moving = asyncio.ensure_future(move())
        got = await _numbers(client, count)
        await publishing
        await moving
        assert sorted(got) == list(range(count))
        if origin != "new":
            assert got == list(range(count))
        last = await nodes.client(nodes.head, "last")
        await last.publish("t", b"%d" % count, qos=2)
        assert await _numbers(client, 1) == [count]


async def _away(nodes: Cluster, count: int) -> None:
    """The session of a client, at the first edge, with so many messages."""
    async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", **PERSISTENT) as client:
        await client.subscribe("t", qos=1)
    await _known(nodes, "c", "e0")
    publisher = await nodes.client(nodes.head, "p")
    await nodes.settled()
    for n in range(count):
        await publisher.publish("t", b"%d" % n, qos=1)
    await wait_until(lambda: _session(nodes.edges[0], "c").queued_messages == count)


async def test_a_client_that_follows_nobody_finds_its_session_where_it_comes() -> None:
    async with cluster(2) as nodes:
        await _away(nodes, 5)
        again = await nodes.client(nodes.edges[1], "c", **PERSISTENT, max_redirects=0)
        assert again.connack.session_present
        assert await _numbers(again, 5) == list(range(5))
        assert _session(nodes.edges[0], "c") is None


async def test_a_client_that_comes_to_another_edge_is_sent_to_its_session() -> None:
    async with cluster(2) as nodes:
        await _away(nodes, 5)
        again = await nodes.client(nodes.edges[1], "c", **PERSISTENT)
        assert again.connack.session_present
        assert await _numbers(again, 5) == list(range(5))
        assert _session(nodes.edges[0], "c").conn is not None


async def test_a_client_that_cannot_get_to_its_session_is_given_it_where_it_comes() -> None:
    """It was sent there, and comes back: somebody is between it and that edge."""
    async with cluster(2) as nodes:
        await _away(nodes, 5)
        edge = member(nodes.head).named("e0")
        assert edge is not None
        edge.address = f"127.0.0.1:{free_port()}"
        with pytest.raises(DialError):
            await nodes.client(nodes.edges[1], "c", **PERSISTENT)
        again = await nodes.client(nodes.edges[1], "c", **PERSISTENT)
        assert again.connack.session_present
        assert await _numbers(again, 5) == list(range(5))
        assert _session(nodes.edges[0], "c") is None


async def test_a_client_that_comes_to_the_head_is_sent_to_its_session() -> None:
    async with cluster(1) as nodes:
        async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", **PERSISTENT) as client:
            await client.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        again = await nodes.client(nodes.head, "c", **PERSISTENT)
        assert again.connack.session_present
        assert _session(nodes.edges[0], "c").conn is not None


async def test_a_new_session_elsewhere_ends_the_old_one() -> None:
    async with cluster(2) as nodes:
        await nodes.client(nodes.edges[0], "c", session_expiry_interval=600)
        await _known(nodes, "c", "e0")
        await nodes.client(nodes.edges[1], "c")
        await wait_until(lambda: _session(nodes.edges[0], "c") is None)


async def test_nobody_waits_for_a_session_that_does_not_exist() -> None:
    async with cluster(1) as nodes:
        fresh = await nodes.client(nodes.edges[0], "never seen", **PERSISTENT)
        assert not fresh.connack.session_present
        assert not await _move(nodes, "nobody", "e0")


async def test_many_sessions_move_at_once_under_load() -> None:
    async with cluster(2) as nodes:
        clients = [await nodes.client(nodes.edges[0], f"c{n}", **PERSISTENT) for n in range(30)]
        for client in clients:
            await client.subscribe("t", qos=1)
            await _known(nodes, client.client_id, "e0")
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        moves: list[Callable[[], Any]] = [lambda n=n: _move(nodes, f"c{n}", "e1") for n in range(30)]  # type: ignore[misc]

        async def publish() -> None:
            for n in range(100):
                await publisher.publish("t", b"%d" % n, qos=1)

        results = await asyncio.gather(publish(), *(move() for move in moves))
        assert all(results[1:])
        for client in clients:
            got = await _numbers(client, 100)
            # QoS 1: what was in flight may come twice, nothing is missing, and firsts are in order.
            while len(set(got)) < 100:
                got += await _numbers(client, 1)
            assert list(dict.fromkeys(got)) == list(range(100))
        assert member(nodes.head).handover.moved == 30
        assert not member(nodes.head).handover.moving
