"""What clients do while a standby takes over the sessions of an edge that is gone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tests.integration.cluster.test_standby import (
    PERSISTENT,
    STANDBY,
    _copied,
    _numbers,
    _session,
    _vanish,
    _waiting,
)
from tidegate.broker.store import Store
from tidegate.client import Client

FEW: dict[str, Any] = {"store__memory_queue": 10, **STANDBY}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The copy of the session `slow` is read when it is set."""
    load, is_ready = Store.load, asyncio.Event()

    async def late(store: Store, session: Any, after: int, limit: int) -> Any:
        if session.client_id == "$copy/slow":
            await is_ready.wait()
        return await load(store, session, after, limit)

    monkeypatch.setattr(Store, "load", late)
    return is_ready


async def _copies(nodes: Cluster, names: list[str]) -> Client:
    """Sessions at the first edge that the second has copies of; `slow` has a queue on disk."""
    publisher = await nodes.client(nodes.head, "p")
    for name in names:
        async with Client(f"127.0.0.1:{nodes.edges[0].broker.port}", client_id=name, **PERSISTENT) as client:
            await client.subscribe(f"t/{name}", qos=1)
        await _copied(nodes, 0, name)
    for n in range(30):
        await publisher.publish("t/slow", b"%d" % n, qos=1)
    await wait_until(lambda: _waiting(nodes.edges[1], "slow") == 30)
    return publisher


async def test_a_session_that_moves_on_before_the_others_are_adopted_is_where_it_went(
    tmp_path: Path, disk: asyncio.Event
) -> None:
    async with cluster(3, tmp_path, **FEW) as nodes:
        publisher = await _copies(nodes, ["c", "slow"])
        await publisher.publish("t/c", b"0", qos=1)
        await wait_until(lambda: _waiting(nodes.edges[1], "c") == 1)
        await _vanish(nodes.edges[0])
        await wait_until(lambda: _session(nodes.edges[1], "c") is not None)
        elsewhere = f"127.0.0.1:{nodes.edges[2].broker.port}"
        async with Client(elsewhere, client_id="c", max_redirects=0, **PERSISTENT) as client:
            assert client.connack.session_present
            assert await _numbers(client, 1) == [0]
        await publisher.publish("t/c", b"1", qos=1)
        await wait_until(lambda: _session(nodes.edges[2], "c").queued_messages == 1)
        disk.set()
        await wait_until(lambda: _session(nodes.edges[1], "slow") is not None)
        takeover = member(nodes.head).takeover
        assert takeover is not None
        await wait_until(lambda: not takeover._adopted)  # the last was told of
        again = await nodes.client(nodes.head, "c", **PERSISTENT)
        assert again.connack.session_present
        assert await _numbers(again, 1) == [1]


async def test_a_client_that_began_anew_gets_nothing_of_its_old_session(
    tmp_path: Path, disk: asyncio.Event
) -> None:
    async with cluster(2, tmp_path, **FEW) as nodes:
        await _copies(nodes, ["slow"])
        await _vanish(nodes.edges[0])
        shadows = member(nodes.edges[1]).shadows
        assert shadows is not None
        await wait_until(lambda: "slow" in shadows._adopting)
        options = PERSISTENT | {"clean_start": True}
        async with Client(
            f"127.0.0.1:{nodes.edges[1].broker.port}", client_id="slow", **options
        ) as client:
            await client.subscribe("other", qos=1)
        disk.set()
        await wait_until(lambda: "slow" not in shadows._adopting)
        session = _session(nodes.edges[1], "slow")
        assert session.queued_messages == 0
        assert list(session.subscriptions) == [b"other"]
