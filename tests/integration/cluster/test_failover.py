"""A head dies: edges go to the next one; when it is back, what it still had follows them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.integration.cluster.nodes import Cluster, member, settings, wait_until
from tidegate.client import Client
from tidegate.cluster.settings import Role
from tidegate.node import Node

PERSISTENT: dict[str, Any] = {
    "session_expiry_interval": 600,
    "clean_start": False,
    "reconnect": True,
    "reconnect_min_delay": 0.01,
    "reconnect_max_delay": 0.1,
}


@asynccontextmanager
async def two_heads(data: Path, edges: int = 2, **changes: Any) -> AsyncIterator[tuple[Cluster, Node]]:
    """A cluster whose edges know two heads; the first, which a test stops and may start again, is theirs."""
    common: dict[str, Any] = {"cluster__takeover": 0.5} | changes
    first = Node(settings("h1", "head", data=str(data / "h1"), **common))
    await first.start()
    async with AsyncExitStack() as stack:
        link = f"127.0.0.1:{first.link_port}"
        second = await stack.enter_async_context(
            Node(settings("h2", "head", data=str(data / "h2"), cluster__heads=[link], **common))
        )
        heads = [link, f"127.0.0.1:{second.link_port}"]
        nodes = []
        for n in range(edges):
            edge = Node(settings(f"e{n}", "edge", data=str(data / f"e{n}"), cluster__heads=heads, **common))
            nodes.append(await stack.enter_async_context(edge))
        clients = await stack.enter_async_context(AsyncExitStack())
        found = Cluster(first, nodes, clients)
        await found.settled()
        await wait_until(lambda: member(second).is_linked)
        yield found, second


async def _at(nodes: Cluster, head: Node) -> None:
    names = {member(edge).name for edge in nodes.edges}

    def here() -> bool:
        return names <= {peer.name for peer in member(head).peers.values() if peer.is_connected}

    await wait_until(here)
    await wait_until(lambda: all(member(edge).is_linked for edge in nodes.edges))
    await wait_until(lambda: member(head).is_settled)


async def _numbers(client: Client, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found.append(int((await anext(client.messages)).payload))
    return found


async def _until(client: Client, wanted: set[int]) -> None:
    """All of these arrive; what was in flight when the head died may come again."""
    while wanted:
        wanted -= set(await _numbers(client, 1))


async def test_edges_keep_serving_and_a_second_head_takes_over(tmp_path: Path) -> None:
    async with two_heads(tmp_path) as (nodes, second):
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        neighbour = await nodes.client(nodes.edges[0], "n")
        await wait_until(lambda: member(nodes.head).handover.owners.get("c") == "e0")
        await nodes.settled()
        publisher = await nodes.client(second, "p")
        await publisher.publish("r", b"kept", qos=1, retain=True)
        await publisher.publish("t", b"0", qos=1)
        assert await _numbers(client, 1) == [0]
        await nodes.head.stop()
        await neighbour.publish("t", b"1", qos=1)  # an edge serves its own without a head
        await _until(client, {1})
        for n in range(2, 12):  # no edge may be there yet: what is acknowledged arrives
            await publisher.publish("t", b"%d" % n, qos=1)
        await _at(nodes, second)
        await _until(client, set(range(2, 12)))
        await wait_until(lambda: member(second).handover.owners.get("c") == "e0")
        assert await member(second).handover.move("c", "e1")
        await wait_until(lambda: "c" in nodes.edges[1].broker.core.sessions)
        await publisher.publish("t", b"99", qos=1)
        await _until(client, {99})
        late = await nodes.client(nodes.edges[1], "late")
        await late.subscribe("r")
        assert (await anext(late.messages)).payload == b"kept"


async def test_what_waited_on_disk_for_a_dead_head_reaches_edges_that_come_late(tmp_path: Path) -> None:
    async with two_heads(tmp_path, edges=1, store__memory_queue=10) as (nodes, second):
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        await nodes.settled()
        link = next(peer for peer in member(second).peers.values() if peer.role is Role.HEAD)
        await wait_until(lambda: b"t" in link.session.subscriptions)
        await member(nodes.edges[0]).stop()
        await nodes.head.stop()
        publisher = await nodes.client(second, "p")
        for n in range(50):
            await publisher.publish("t", b"%d" % n, qos=1)
        assert link.session.durable is not None
        await wait_until(lambda: not link.session.subscriptions)  # it is given up
        member(nodes.edges[0]).start()
        await _until(client, set(range(50)))


async def test_a_session_that_was_leaving_when_the_head_died_stays(tmp_path: Path) -> None:
    async with two_heads(tmp_path) as (nodes, second):
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        await wait_until(lambda: member(nodes.head).handover.owners.get("c") == "e0")
        await nodes.settled()
        edge = member(nodes.edges[0])
        await nodes.head.stop()
        # Its last word was that it wants the session.
        edge.handover.on_freeze(next(iter(edge.peers.values())), {"client": "c"})
        assert edge.handover.is_leaving("c")
        await _at(nodes, second)
        await wait_until(lambda: not member(nodes.edges[0]).handover.is_leaving("c"))
        publisher = await nodes.client(second, "p")
        await publisher.publish("t", b"5", qos=1)
        assert await _numbers(client, 1) == [5]


async def test_a_session_that_had_left_when_the_head_died_comes_back(tmp_path: Path) -> None:
    async with two_heads(tmp_path) as (nodes, second):
        async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", **PERSISTENT) as client:
            await client.subscribe("t", qos=1)
        await wait_until(lambda: member(nodes.head).handover.owners.get("c") == "e0")
        await nodes.settled()
        publisher = await nodes.client(second, "p")
        for n in range(5):
            await publisher.publish("t", b"%d" % n, qos=1)
        await wait_until(lambda: nodes.edges[0].broker.core.sessions["c"].queued_messages == 5)
        # The edge's last word to the head that dies: nobody there hears it.
        edge = member(nodes.edges[0])
        await nodes.head.stop()
        peer = next(iter(edge.peers.values()))
        edge.handover.on_freeze(peer, {"client": "c"})
        edge.handover.on_cut(peer, {"client": "c"})
        assert "c" not in nodes.edges[0].broker.core.sessions
        await _at(nodes, second)
        await wait_until(lambda: "c" in nodes.edges[0].broker.core.sessions)
        again = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        assert await _numbers(again, 5) == list(range(5))
        await wait_until(lambda: not member(second).handover.moving)


async def test_a_head_that_is_back_hands_on_what_it_owes_the_edges(tmp_path: Path) -> None:
    async with two_heads(tmp_path, edges=1) as (nodes, second):
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        await nodes.settled()
        port = nodes.head.link_port
        link = member(nodes.head).named("e0")
        assert link is not None
        # What the head took when its edge was gone, and did not pass on before it died.
        await member(nodes.edges[0]).stop()
        assert link.session.conn is not None
        link.session.conn.transport.abort()
        await wait_until(lambda: not link.is_connected)
        publisher = await nodes.client(nodes.head, "p")
        for n in range(3):
            await publisher.publish("t", b"%d" % n, qos=1)
        await publisher.disconnect()
        await nodes.head.stop()
        member(nodes.edges[0]).start()
        await _at(nodes, second)
        again = settings("h1", "head", data=str(tmp_path / "h1"), cluster__link_port=port)
        async with Node(again) as head:
            assert await _numbers(client, 3) == [0, 1, 2]
            await wait_until(lambda: member(head).named("e0") is None)
            other = await nodes.client(head, "q")
            await nodes.settled()
            await wait_until(lambda: bool(head.broker.core.index.route(b"t").targets))
            await other.publish("t", b"3", qos=1)
            assert await _numbers(client, 1) == [3]
