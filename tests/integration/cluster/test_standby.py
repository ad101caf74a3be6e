"""A second edge has copies of persistent sessions, and goes on with them when the first is gone for good."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tidegate.client import Client
from tidegate.cluster.standby import BASE, SHADOW
from tidegate.cluster.takeover import next_in_ring
from tidegate.node import Node
from tidegate.settings import SettingsError, load_settings

PERSISTENT: dict[str, Any] = {
    "session_expiry_interval": 600,
    "clean_start": False,
    "reconnect": True,
    "reconnect_min_delay": 0.01,
    "reconnect_max_delay": 0.1,
}
STANDBY: dict[str, Any] = {"cluster__replication": "standby", "cluster__takeover": 0.5}


def _session(node: Node, client: str) -> Any:
    return node.broker.core.sessions.get(client)


def _waiting(node: Node, client: str) -> int:
    """Messages in the copy of a session."""
    return sum(
        each.queued_messages for name in (BASE, SHADOW) if (each := _session(node, name + client)) is not None
    )


async def _copied(nodes: Cluster, owner: int, client: str) -> None:
    """The session has a complete copy."""
    copier = member(nodes.edges[owner]).copier
    assert copier is not None
    await wait_until(lambda: client in copier.copies and copier.copies[client].is_complete)
    await nodes.settled()


async def _numbers(client: Client, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found.append(int((await anext(client.messages)).payload))
    return found


async def _vanish(node: Node) -> None:
    """As a power cut would: nobody is told, and nothing comes back."""
    cluster_node = member(node)
    await cluster_node.stop()
    for conn in list(node.broker.core.connections):
        conn.transport.abort()


def test_the_standby_is_the_next_in_a_ring() -> None:
    assert [next_in_ring(each, ["a", "b", "c"]) for each in "abc"] == ["b", "c", "a"]
    assert next_in_ring("a", ["a"]) == ""


def test_a_standby_without_a_data_folder_is_refused() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(
            None, (), {}, {"cluster.role": "head", "cluster.secret": "x", "cluster.replication": "standby"}
        )
    assert caught.value.key == "cluster.replication"


async def test_a_copy_has_what_the_client_has_not_acknowledged_and_nothing_else(tmp_path: Path) -> None:
    async with cluster(2, tmp_path, **STANDBY) as nodes:
        publisher = await nodes.client(nodes.head, "p")
        async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", **PERSISTENT) as client:
            await client.subscribe("t/#", qos=1)
        await _copied(nodes, 0, "c")
        for n in range(20):
            await publisher.publish("t/a", b"%d" % n, qos=1)
        await wait_until(lambda: _session(nodes.edges[0], "c").queued_messages == 20)
        await wait_until(lambda: _waiting(nodes.edges[1], "c") == 20)
        again = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        assert await _numbers(again, 20) == list(range(20))
        await wait_until(lambda: _waiting(nodes.edges[1], "c") == 0)
        shadows = member(nodes.edges[1]).shadows
        assert shadows is not None
        assert not shadows.shadows["c"].credits
        # What was there before the subscription changed is in the new base.
        await again.disconnect()
        for n in range(20, 25):
            await publisher.publish("t/a", b"%d" % n, qos=1)
        await wait_until(lambda: _waiting(nodes.edges[1], "c") == 5)


async def test_a_copy_keeps_no_messages_that_nobody_acknowledges(tmp_path: Path) -> None:
    async with cluster(2, tmp_path, features__queue_qos0=True, **STANDBY) as nodes:
        async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id="c", **PERSISTENT) as client:
            await client.subscribe("t", qos=1, identifier=7)
        await _copied(nodes, 0, "c")
        await wait_until(lambda: _session(nodes.edges[1], BASE + "c") is not None)
        publisher = await nodes.client(nodes.head, "p")
        for n in range(10):
            await publisher.publish("t", b"%d" % n, qos=n // 9)
        await wait_until(lambda: _session(nodes.edges[0], "c").queued_messages == 10)
        copy = _session(nodes.edges[1], SHADOW + "c")
        await wait_until(lambda: any(qos for _, qos, *_ in copy.pending or ()))  # the last has come
        assert _waiting(nodes.edges[1], "c") == 1


async def test_equal_messages_are_counted_not_confused(tmp_path: Path) -> None:
    async with cluster(2, tmp_path, **STANDBY) as nodes:
        publisher = await nodes.client(nodes.head, "p")
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        await _copied(nodes, 0, "c")
        for _ in range(10):
            await publisher.publish("t", b"7", qos=1)
        assert await _numbers(client, 10) == [7] * 10
        await wait_until(lambda: _waiting(nodes.edges[1], "c") == 0)
        await client.disconnect()
        for _ in range(3):
            await publisher.publish("t", b"7", qos=1)
        await wait_until(lambda: _waiting(nodes.edges[1], "c") == 3)


async def test_a_subscription_that_is_added_later_is_copied_with_what_waits(tmp_path: Path) -> None:
    async with cluster(2, tmp_path, **STANDBY) as nodes:
        publisher = await nodes.client(nodes.head, "p")
        client = await nodes.client(nodes.edges[0], "c", receive_maximum=1, manual_ack=True, **PERSISTENT)
        await client.subscribe("t", qos=1)
        await _copied(nodes, 0, "c")
        for n in range(5):
            await publisher.publish("t", b"%d" % n, qos=1)
        await wait_until(lambda: _waiting(nodes.edges[1], "c") == 5)
        await client.subscribe("u", qos=1)
        copier = member(nodes.edges[0]).copier
        assert copier is not None
        await _copied(nodes, 0, "c")
        await publisher.publish("u", b"5", qos=1)
        await wait_until(lambda: _waiting(nodes.edges[1], "c") == 6)


@pytest.mark.parametrize("qos", [1, 2])
async def test_sessions_of_an_edge_that_is_gone_go_on_elsewhere_and_nothing_is_lost(
    qos: int, tmp_path: Path
) -> None:
    async with cluster(3, tmp_path, **STANDBY) as nodes:
        publisher = await nodes.client(nodes.head, "p")
        servers = [f"127.0.0.1:{edge.broker.port}" for edge in nodes.edges]
        async with Client(servers[0], client_id="away", **PERSISTENT) as client:
            await client.subscribe("t", qos=qos)
        async with Client(servers[0], client_id="worker", **PERSISTENT) as worker:
            await worker.subscribe("$share/g/job", qos=qos)
        await _copied(nodes, 0, "away")
        await _copied(nodes, 0, "worker")
        for n in range(30):
            await publisher.publish("t", b"%d" % n, qos=qos)
            await publisher.publish("job", b"%d" % n, qos=qos)
        await wait_until(lambda: _session(nodes.edges[0], "worker").queued_messages == 30)
        await wait_until(lambda: _waiting(nodes.edges[1], "worker") == 30)
        await _vanish(nodes.edges[0])
        for n in range(30, 40):  # nobody is held because an edge is gone
            await publisher.publish("t", b"%d" % n, qos=qos)
        await wait_until(lambda: member(nodes.head).handover.owners.get("away") == "e1")
        for at, name, count in ((2, "away", 40), (1, "worker", 30)):
            again = await nodes.client(nodes.edges[at], name, **PERSISTENT)
            assert again.connack.session_present
            assert await _numbers(again, count) == list(range(count))
        takeover = member(nodes.head).takeover
        assert takeover is not None
        assert takeover.taken_over == 1
        assert "e0" not in member(nodes.head).reporter.nodes


async def test_an_edge_that_comes_back_after_all_gives_up_what_went_on_elsewhere(tmp_path: Path) -> None:
    async with cluster(2, tmp_path, **STANDBY) as nodes:
        old = nodes.edges[0]
        publisher = await nodes.client(nodes.head, "p")
        async with Client(f"127.0.0.1:{old.broker.port}", client_id="c", **PERSISTENT) as client:
            await client.subscribe("t", qos=1)
        await _copied(nodes, 0, "c")
        await publisher.publish("t", b"0", qos=1)
        await wait_until(lambda: _waiting(nodes.edges[1], "c") == 1)
        await _vanish(old)
        await wait_until(lambda: _session(nodes.edges[1], "c") is not None)
        member(old).start()
        await wait_until(lambda: _session(old, "c") is None)
        again = await nodes.client(nodes.edges[1], "c", **PERSISTENT)
        assert await _numbers(again, 1) == [0]
