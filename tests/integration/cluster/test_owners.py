"""One client, one session: also for those that begin anew while their session is on its way, or its node away."""

import asyncio

from tests.integration.cluster.nodes import Cluster, cluster, deafen, member, unlink, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _known, _numbers, _session
from tidegate.client import Client

ANEW = PERSISTENT | {"clean_start": True, "reconnect": False}


async def _leave_a_session(nodes: Cluster, at: int = 0) -> None:
    port = nodes.edges[at].broker.port
    async with Client(f"127.0.0.1:{port}", client_id="c", **PERSISTENT) as client:
        await client.subscribe("t", qos=1)
    await _known(nodes, "c", f"e{at}")
    await nodes.settled()


async def _has_only(nodes: Cluster, where: str) -> None:
    """The session is at one node, where its client is connected, and the head knows."""
    handover = member(nodes.head).handover
    await wait_until(lambda: "c" not in handover.moving)
    places = {member(node).name: node for node in (nodes.head, *nodes.edges)}
    for name, node in places.items():
        if name != where:
            await wait_until(lambda node=node: _session(node, "c") is None)  # type: ignore[misc]
    assert _session(places[where], "c").conn is not None
    assert handover.owners.get("c", "h") == where
    assert not _session(places[where], "c").subscriptions


async def test_who_begins_anew_at_a_third_node_during_a_move_has_one_session() -> None:
    async with cluster(3) as nodes:
        await _leave_a_session(nodes)
        deafen(nodes.edges[1])
        handover = member(nodes.head).handover
        moved = handover.move("c", "e1")
        await wait_until(lambda: handover.moving["c"].step == "install")
        await unlink(nodes, nodes.edges[1])
        await nodes.client(nodes.edges[2], "c", **ANEW)
        await _known(nodes, "c", "e2")
        member(nodes.edges[1]).start()
        async with asyncio.timeout(15):
            await moved
        await _has_only(nodes, "e2")


async def test_who_begins_anew_where_its_session_is_going_keeps_the_new_one() -> None:
    async with cluster(2) as nodes:
        await _leave_a_session(nodes)
        publisher = await nodes.client(nodes.head, "p")
        await publisher.publish("t", b"1", qos=1)
        deafen(nodes.edges[1])
        handover = member(nodes.head).handover
        moved = handover.move("c", "e1")
        await wait_until(lambda: handover.moving["c"].step == "install")
        await unlink(nodes, nodes.edges[1])
        await nodes.client(nodes.edges[1], "c", **ANEW)
        member(nodes.edges[1]).start()
        async with asyncio.timeout(15):
            await moved
        await _has_only(nodes, "e1")
        assert not _session(nodes.edges[1], "c").queued_messages


async def test_who_begins_anew_before_its_session_is_frozen_has_one_session() -> None:
    async with cluster(3) as nodes:
        await _leave_a_session(nodes)
        await unlink(nodes, nodes.edges[0])
        moved = member(nodes.head).handover.move("c", "e1")
        await nodes.client(nodes.edges[2], "c", **ANEW)
        await _known(nodes, "c", "e2")
        member(nodes.edges[0]).start()
        async with asyncio.timeout(15):
            assert not await moved
        await _has_only(nodes, "e2")


async def test_who_begins_anew_at_the_head_ends_the_session_at_an_edge() -> None:
    async with cluster(1) as nodes:
        await _leave_a_session(nodes)
        await nodes.client(nodes.head, "c", **ANEW)
        await _has_only(nodes, "h")


async def test_a_client_that_cannot_be_sent_on_finds_its_session_at_the_head() -> None:
    old = {"protocol_version": 4, "clean_start": False}
    async with cluster(1) as nodes:
        async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", **old) as client:
            await client.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        for n in range(5):
            await publisher.publish("t", b"%d" % n, qos=1)
        again = await nodes.client(nodes.head, "c", **old)
        assert again.connack.session_present
        await publisher.publish("t", b"5", qos=1)
        assert await _numbers(again, 6) == list(range(6))
        assert _session(nodes.edges[0], "c") is None
        assert "c" not in member(nodes.head).handover.owners
        await again.disconnect()
        back = await nodes.client(nodes.edges[0], "c", **old)
        assert back.connack.session_present


async def test_an_edge_that_is_back_gives_up_a_session_that_went_on_elsewhere() -> None:
    async with cluster(2) as nodes:
        await _leave_a_session(nodes)
        await unlink(nodes, nodes.edges[0])
        await nodes.client(nodes.edges[1], "c", **ANEW)
        await _known(nodes, "c", "e1")
        member(nodes.edges[0]).start()
        await _has_only(nodes, "e1")


async def test_an_edge_that_is_back_names_what_it_has_and_the_rest_is_forgotten() -> None:
    async with cluster(1) as nodes:
        await _leave_a_session(nodes)
        await unlink(nodes, nodes.edges[0])
        core = nodes.edges[0].broker.core
        core.end_session(core.sessions["c"])
        member(nodes.edges[0]).start()
        await wait_until(lambda: "c" not in member(nodes.head).handover.owners)
