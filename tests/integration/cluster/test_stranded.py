"""Moves whose nodes are away: nobody waits for ever, and what the head alone has is not thrown away."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, deafen, member, unlink, wait_until
from tests.integration.cluster.test_frozen import _freeze
from tests.integration.cluster.test_handover import PERSISTENT, _known, _numbers, _session
from tests.integration.cluster.test_standby import STANDBY, _copied, _vanish
from tidegate.client import Client
from tidegate.cluster import head_moves, transfer


async def _waiting(nodes: Cluster, count: int) -> None:
    """A session at the first edge, with so many messages."""
    async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", **PERSISTENT) as client:
        await client.subscribe("t", qos=1)
    await _known(nodes, "c", "e0")
    await nodes.settled()
    await _publish(nodes, range(count))
    await wait_until(lambda: _session(nodes.edges[0], "c").queued_messages == count)


async def _publish(nodes: Cluster, numbers: range) -> None:
    async with Client(f"127.0.0.1:{nodes.head.broker.port}") as publisher:
        for n in numbers:
            await publisher.publish("t", b"%d" % n, qos=1)


def _step(nodes: Cluster) -> str:
    move = member(nodes.head).handover.moving.get("c")
    return "" if move is None else move.step


@pytest.mark.parametrize("asks", ["e2", "head", "nobody"])
async def test_a_session_whose_new_edge_is_away_goes_to_another(
    asks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(3) as nodes:
        await _waiting(nodes, 5)
        await unlink(nodes, nodes.edges[1])
        moved = member(nodes.head).handover.move("c", "e1")
        await wait_until(lambda: _step(nodes) == "complete")
        await _publish(nodes, range(5, 8))
        if asks == "nobody":
            monkeypatch.setattr(head_moves, "OWNER_TIMEOUT", 0.1)
            async with asyncio.timeout(15):
                await moved
            await wait_until(lambda: not _step(nodes))
        node = {"e2": nodes.edges[2], "head": nodes.head}.get(asks, nodes.edges[0])
        again = await nodes.client(node, "c", **PERSISTENT)
        assert again.connack.session_present
        assert await _numbers(again, 8) == list(range(8))
        await wait_until(lambda: not _step(nodes))


async def test_a_session_waits_for_an_edge_when_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_moves, "OWNER_TIMEOUT", 0.1)
    async with cluster(2) as nodes:
        await _waiting(nodes, 5)
        await unlink(nodes, nodes.edges[1])
        edge = nodes.edges[0]
        moved = member(nodes.head).handover.move("c", "e1")
        await wait_until(lambda: _session(edge, "c") is None)
        await unlink(nodes, edge)
        async with asyncio.timeout(15):
            await moved  # whoever drains goes on
        member(edge).start()
        await wait_until(lambda: not _step(nodes) and _session(edge, "c") is not None)
        again = await nodes.client(edge, "c", **PERSISTENT)
        assert await _numbers(again, 5) == list(range(5))


async def test_what_an_edge_that_was_away_had_of_a_session_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(2) as nodes:
        await _waiting(nodes, 5)
        old = nodes.edges[0]
        head = member(nodes.head)
        link = head.named("e0")
        assert link is not None
        await unlink(nodes, old)
        moved = head.handover.move("c", "e1")
        about = transfer.about(_session(old, "c"))
        _freeze(old, "c")
        head.handover.on_frozen(link, {"client": "c", "about": about})  # its last word
        assert _step(nodes) == "collect"
        await _publish(nodes, range(5, 8))
        monkeypatch.setattr(head_moves, "OWNER_TIMEOUT", 0.1)
        async with asyncio.timeout(15):
            assert await moved
        again = await nodes.client(nodes.edges[1], "c", **PERSISTENT)
        assert await _numbers(again, 3) == [5, 6, 7]
        member(old).start()
        assert await _numbers(again, 5) == list(range(5))
        await wait_until(lambda: _session(old, "c") is None)
        assert head.handover.owners["c"] == "e1"
        assert not head.handover._pledged


async def test_a_session_that_is_on_the_heads_disk_goes_to_the_standby(tmp_path: Path) -> None:
    few: dict[str, Any] = {"store__memory_queue": 10, "limits__max_inflight": 10}
    async with cluster(2, tmp_path, **STANDBY, **few) as nodes:
        await _waiting(nodes, 5)
        await _copied(nodes, 0, "c")
        other = await nodes.client(nodes.edges[1], "other")
        await other.subscribe("x", qos=1, callback=lambda message: None)
        await nodes.settled()
        link = member(nodes.head).named("e1")
        assert link is not None
        deafen(nodes.edges[1])
        publisher = await nodes.client(nodes.head, "p")
        for _ in range(50):
            await publisher.publish("x", b"", qos=1)
        assert link.session.durable is not None
        assert link.session.durable.tail
        moved = member(nodes.head).handover.move("c", "e1")
        await wait_until(lambda: _step(nodes) == "install")
        await _vanish(nodes.edges[1])
        async with asyncio.timeout(15):
            assert await moved
        again = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        assert again.connack.session_present
        assert set(await _numbers(again, 5)) == set(range(5))
        assert not member(nodes.head).handover._pledged
