"""Clients leave at the right moment: ours when they are connected elsewhere, others when nothing waits for them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _connected, _known, _move, _numbers, _session
from tidegate.client import Client, ServerDisconnected
from tidegate.mqtt.codes import ReasonCode
from tidegate.net.tls import client_context
from tidegate.testing.certificates import Authority

PLAIN: dict[str, Any] = {"session_expiry_interval": 600, "clean_start": False, "max_redirects": 0}


async def test_our_client_is_connected_to_its_new_edge_before_it_leaves_the_old_one() -> None:
    async with cluster(2) as nodes:
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=2)
        await _known(nodes, "c", "e0")
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        overlaps: list[bool] = []

        async def watch() -> None:
            while True:
                old = _session(nodes.edges[0], "c")
                is_served = old is not None and old.conn is not None and old.quota > 0
                overlaps.append(is_served and bool(nodes.edges[1].broker.core.door))
                await asyncio.sleep(0)

        async def publish() -> None:
            for n in range(300):
                await publisher.publish("t", b"%d" % n, qos=2)

        watching = asyncio.ensure_future(watch())
        publishing = asyncio.ensure_future(publish())
        assert await _move(nodes, "c", "e1")
        await _connected(nodes.edges[1], "c")
        watching.cancel()
        assert any(overlaps)
        assert client.statistics()["connected_ahead"] == 1
        assert nodes.edges[1].broker.core.counters.connections_total == 2  # the link, and the one it used
        assert await _numbers(client, 300) == list(range(300))
        await publishing


async def test_a_server_that_waits_no_longer_for_connect_is_dialled_again() -> None:
    async with cluster(2) as nodes:
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        await nodes.settled()
        connection = client._connection
        new = nodes.edges[1].broker
        connection._on_moving(f"127.0.0.1:{new.port}")
        await wait_until(lambda: bool(new.core.door))
        for handshake in list(new.core.door):
            handshake.abort()
        await wait_until(lambda: not connection._spare._links)
        assert client.is_connected
        assert await _move(nodes, "c", "e1")
        await _connected(nodes.edges[1], "c")


async def test_a_spare_that_is_not_used_goes_with_its_client() -> None:
    async with cluster(2) as nodes:
        new = nodes.edges[1].broker
        async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", **PERSISTENT) as client:
            client._connection._on_moving(f"127.0.0.1:{new.port}")
            await wait_until(lambda: bool(new.core.door))
        await wait_until(lambda: not new.core.door)


async def _plain_with_a_message(nodes: Cluster) -> tuple[Client, Any]:
    """Not of ours: it offers nothing, follows nobody, and has not acknowledged its message."""
    client = Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", manual_ack=True, **PLAIN)
    await client.connect()
    await client.subscribe("t", qos=1)
    await _known(nodes, "c", "e0")
    await nodes.settled()
    publisher = await nodes.client(nodes.head, "p")
    await publisher.publish("t", b"1", qos=1)
    return client, await anext(client.messages)


async def _sent_away(client: Client) -> None:
    with pytest.raises(ServerDisconnected) as caught:
        async with asyncio.timeout(10):
            await client.wait_closed()
    assert caught.value.reason_code == ReasonCode.USE_ANOTHER_SERVER


async def test_another_client_is_sent_on_when_nothing_waits_for_it() -> None:
    async with cluster(2) as nodes:
        farewell = member(nodes.edges[0]).farewell
        farewell.patience = 60.0
        client, message = await _plain_with_a_message(nodes)
        moving = asyncio.ensure_future(_move(nodes, "c", "e1"))
        await wait_until(lambda: "c" in farewell._leaving)
        await client.publish("elsewhere", b"x", qos=1)  # it is served as before
        assert not moving.done()
        message.ack()
        assert await moving
        await _sent_away(client)
        again = await nodes.client(nodes.edges[1], "c", **PLAIN)
        assert again.connack.session_present
        assert _session(nodes.edges[1], "c").queued_messages == 0  # so nothing comes twice
        await client.disconnect()


async def test_another_client_is_not_waited_for_without_end_and_loses_nothing() -> None:
    async with cluster(2) as nodes:
        member(nodes.edges[0]).farewell.patience = 0.1
        client, _ = await _plain_with_a_message(nodes)
        assert await _move(nodes, "c", "e1")
        await _sent_away(client)
        again = await nodes.client(nodes.edges[1], "c", **PLAIN)
        assert await _numbers(again, 1) == [1]
        await client.disconnect()


async def test_an_edge_that_forgot_what_it_waited_for_is_asked_again() -> None:
    async with cluster(2) as nodes:
        edge = member(nodes.edges[0])
        edge.farewell.patience = 60.0
        client, _ = await _plain_with_a_message(nodes)
        moving = asyncio.ensure_future(_move(nodes, "c", "e1"))
        await wait_until(lambda: "c" in edge.farewell._leaving)
        edge.farewell._leaving.clear()
        [peer] = edge.peers.values()
        assert peer.session.conn is not None
        peer.session.conn.abort()
        assert await moving
        await _sent_away(client)
        await client.disconnect()


@pytest.mark.parametrize("kind", ["ws", "tls", "wss"])
async def test_over_websocket_and_tls_as_well(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    issued = authority.issue("localhost")
    settings: dict[str, Any] = {"listeners__0__type": kind}
    if kind != "ws":
        settings |= {
            "listeners__0__certfile": str(issued.certificate),
            "listeners__0__keyfile": str(issued.key),
        }
    async with cluster(2, **settings) as nodes:
        address = str(nodes.edges[0].broker.endpoints[0])
        context = None
        if kind != "ws":
            context = client_context(authority.certificate, alpn=("http/1.1",) if kind == "wss" else ("mqtt",))
        async with Client(address, client_id="c", ssl=context, **PERSISTENT) as client:
            await client.subscribe("t", qos=1)
            await _known(nodes, "c", "e0")
            assert await _move(nodes, "c", "e1")
            await _connected(nodes.edges[1], "c")
            assert client.statistics()["connected_ahead"] == 1
