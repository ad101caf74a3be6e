"""A session that is about to leave its node: what happens to it, and around it, meanwhile."""

import asyncio

import pytest

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


@pytest.mark.parametrize("is_relieved", [False, True])
async def test_a_frozen_client_is_not_read_before_its_session_thaws(is_relieved: bool) -> None:
    async with cluster(1) as nodes:
        edge = nodes.edges[0]
        client = await nodes.client(edge, "c", receive_maximum=1, **PERSISTENT)
        await client.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        await unlink(nodes, edge)
        _freeze(edge, "c")
        session = _session(edge, "c")
        received = edge.broker.core.counters.bytes_received
        subscribing = asyncio.ensure_future(client.subscribe("u", qos=1))
        await asyncio.sleep(0)
        if is_relieved:  # as when its socket was full, and is not any more
            session.conn.pause_writing()
            session.conn.resume_writing()
        session.conn.resume_reading()
        publisher = await nodes.client(edge, "p")
        for _ in range(5):
            await publisher.publish("x", b"", qos=1)
        assert set(session.subscriptions) == {b"t"}
        assert session.paused
        assert edge.broker.core.counters.bytes_received > received
        member(edge).handover.on_thaw(next(iter(member(edge).peers.values())), {"client": "c"})
        async with asyncio.timeout(15):
            await subscribing
        assert session.quota == 1
        await publisher.publish("u", b"7", qos=1)
        assert await _numbers(client, 1) == [7]


async def test_a_frozen_client_is_left_alone_by_an_uplink_that_is_shared() -> None:
    async with cluster(1, cluster__uplink=0.2) as nodes:
        edge = nodes.edges[0]
        uplink = member(edge).uplink
        assert uplink is not None
        client = await nodes.client(edge, "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        busy = await nodes.client(edge, "busy")
        await busy.subscribe("load", callback=lambda message: None)
        await _known(nodes, "c", "e0")
        await unlink(nodes, edge)
        uplink.start()
        publisher = await nodes.client(edge, "p")

        async def load() -> None:
            while True:
                await publisher.publish("load", bytes(4_000), qos=1)

        loading = asyncio.ensure_future(load())
        session = _session(edge, "c")
        await wait_until(lambda: session in uplink._queues)
        _freeze(edge, "c")
        subscribing = asyncio.ensure_future(client.subscribe("u", qos=1))
        await wait_until(lambda: session not in uplink._queues)
        loading.cancel()
        await wait_until(lambda: not uplink.is_pacing)
        assert not session.conn.is_reading
        assert set(session.subscriptions) == {b"t"}
        uplink.stop()
        subscribing.cancel()
