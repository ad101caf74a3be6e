"""What nodes tell each other arrives: however much it is, and however full the queues are."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.nodes import cluster, member, unlink, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _known, _move, _numbers, _session
from tests.integration.cluster.test_standby import (
    test_sessions_of_an_edge_that_is_gone_go_on_elsewhere_and_nothing_is_lost as take_over,
)
from tidegate.broker.index import Subscription
from tidegate.client import Client
from tidegate.cluster import transfer
from tidegate.mqtt.properties import Property


@pytest.mark.parametrize("size", [9_000, 30])
async def test_a_session_with_much_in_it_moves_where_packets_are_small(size: int) -> None:
    async with cluster(2, limits__max_packet_size=10_000) as nodes:
        async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", **PERSISTENT) as client:
            await client.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        for n in range(40):
            await publisher.publish("t", b"%*d" % (size, n), qos=1)
        await wait_until(lambda: _session(nodes.edges[0], "c").queued_messages == 40)
        assert await _move(nodes, "c", "e1")
        again = await nodes.client(nodes.edges[1], "c", **PERSISTENT)
        assert await _numbers(again, 40) == list(range(40))


async def test_thousands_of_long_names_are_told_in_parts() -> None:
    async with cluster(1) as nodes:
        edge = nodes.edges[0]
        core = edge.broker.core
        head_link = "$link/edge/e0"
        for n in range(5_000):
            session, _ = core.open_session(f"{n}" + "x" * 1_000, clean_start=True)
            session.expiry, session.version = 600, 5
            name = b"%d/" % n + b"y" * 1_000
            session.subscriptions[name] = Subscription(session, name, 1)
            core.index.add(session.subscriptions[name])
        await nodes.settled()
        balancer = member(nodes.head).balancer
        assert balancer is not None
        found: dict[str, Any] = await balancer.pick("e0", None, None)
        assert len(found["clients"]) == 5_000
        assert not balancer._picked
        await unlink(nodes, edge)
        gone = core.sessions["7" + "x" * 1_000]
        core.end_session(gone)
        member(edge).start()
        sessions = nodes.head.broker.core.sessions
        await wait_until(lambda: len(sessions[head_link].subscriptions) == 4_999)
        await wait_until(lambda: len(member(nodes.head).handover.owners) == 4_999)
        assert sessions[head_link].conn is not None


@pytest.mark.parametrize("qos", [1])
async def test_sessions_are_adopted_in_parts(
    qos: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PART_BYTES", 1)
    await take_over(qos, tmp_path)


async def test_a_full_queue_drops_messages_of_clients_and_none_of_nodes() -> None:
    full: dict[str, Any] = {"features__queue_full": "drop", "limits__max_queued_messages": 5}
    async with cluster(2, **full) as nodes:
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        await nodes.settled()
        await unlink(nodes, nodes.edges[0])
        publisher = await nodes.client(nodes.head, "p")
        for n in range(20):
            await publisher.publish("t", b"%d" % n, qos=1)
        link = nodes.head.broker.core.sessions["$link/edge/e0"]
        assert link.dropped
        moved = member(nodes.head).handover.move("c", "e1")
        member(nodes.edges[0]).start()
        async with asyncio.timeout(15):
            assert await moved
        assert await _numbers(client, 5) == list(range(5))


async def test_what_a_client_may_send_passes_between_nodes_that_allow_their_own_clients_less() -> None:
    async with cluster(2) as nodes:
        for node in (nodes.head, nodes.edges[1]):
            core = node.broker.core
            core.limits = replace(core.limits, max_user_properties=10)
        subscriber = await nodes.client(nodes.edges[1], "s")
        got: list[int] = []
        await subscriber.subscribe(
            "t", callback=lambda message: got.append(len(message.properties[Property.USER_PROPERTY]))
        )
        await nodes.settled()
        publisher = await nodes.client(nodes.edges[0], "p")
        await publisher.publish("t", b"x", qos=1, properties={Property.USER_PROPERTY: [("a", "b")] * 20})
        await wait_until(lambda: got == [20])
