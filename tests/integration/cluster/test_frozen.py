"""A session that is about to leave its node: what happens to it, and around it, meanwhile."""

import asyncio

from tests.integration.cluster.nodes import cluster, member, unlink, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _known, _numbers, _session
from tidegate.node import Node


def _freeze(edge: Node, client: str) -> None:
    """As if the head asked for it, whose link is away."""
    node = member(edge)
    node.handover.on_freeze(next(iter(node.peers.values())), {"client": client})
    assert node.handover.is_leaving(client)


async def test_a_frozen_session_that_ends_takes_nothing_from_others() -> None:
    async with cluster(1) as nodes:
        edge = nodes.edges[0]
        leaving = await nodes.client(edge, "leaving")
        staying = await nodes.client(edge, "staying")
        for client in (leaving, staying):
            await client.subscribe("t", qos=1)
            await client.subscribe("w/+", qos=1)
        await nodes.settled()
        await unlink(nodes, edge)
        _freeze(edge, "leaving")
        _session(edge, "leaving").conn.transport.abort()
        await wait_until(lambda: _session(edge, "leaving") is None)
        publisher = await nodes.client(edge, "p")
        await publisher.publish("t", b"1", qos=1)
        await publisher.publish("w/x", b"2", qos=1)
        assert await _numbers(staying, 2) == [1, 2]
        assert not member(edge).handover.is_leaving("leaving")
        member(edge).start()
        await nodes.settled()
        await staying.disconnect()
        await wait_until(lambda: not len(member(edge).announcer.interest))


async def test_a_move_of_a_session_that_ended_meanwhile_is_given_up() -> None:
    async with cluster(2) as nodes:
        edge = nodes.edges[0]
        client = await nodes.client(edge, "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        await unlink(nodes, edge)
        handover = member(nodes.head).handover
        moved = handover.move("c", "e1")
        _freeze(edge, "c")
        nodes.edges[0].broker.core.end_session(_session(edge, "c"))
        member(edge).start()
        async with asyncio.timeout(15):
            assert not await moved
        assert "c" not in handover.moving
        assert "c" not in handover.owners
        assert not list(nodes.head.broker.core.retained.match(b"$tide/move/#"))
