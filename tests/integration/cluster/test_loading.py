"""A queue that is on disk comes into memory as a whole, whoever else takes from it and whatever comes meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.nodes import cluster, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _away, _numbers, _session
from tidegate.broker.store import Store
from tidegate.cluster.moves import load_all

FEW: dict[str, Any] = {"store__memory_queue": 10}


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Store.load

    async def late(store: Store, session: Any, after: int, limit: int) -> Any:
        page = await load(store, session, after, limit)
        await asyncio.sleep(0.05)
        return page

    monkeypatch.setattr(Store, "load", late)


@pytest.mark.usefixtures("slow_disk")
async def test_two_who_load_and_messages_that_come_meanwhile(tmp_path: Path) -> None:
    async with cluster(1, tmp_path, **FEW) as nodes:
        await _away(nodes, 60)
        session = _session(nodes.edges[0], "c")
        assert session.durable.tail == 50
        loading = [asyncio.create_task(load_all(session)) for _ in range(2)]
        publisher = await nodes.client(nodes.head, "q")
        for n in range(60, 90):
            await publisher.publish("t", b"%d" % n, qos=1)
        async with asyncio.timeout(10):
            await asyncio.gather(*loading)
            await wait_until(lambda: session.queued_messages == 90)
            await load_all(session)
        assert [int(delivery[0].payload) for delivery in session.pending] == list(range(90))
        assert (session.durable.tail, session.durable.tail_bytes) == (0, 0)
        assert session.durable.fresh is None


@pytest.mark.usefixtures("slow_disk")
async def test_a_client_that_comes_while_its_queue_is_loaded_gets_all_of_it(tmp_path: Path) -> None:
    async with cluster(1, tmp_path, **FEW) as nodes:
        await _away(nodes, 60)
        loading = asyncio.create_task(load_all(_session(nodes.edges[0], "c")))
        await asyncio.sleep(0)
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        async with asyncio.timeout(10):
            assert await _numbers(client, 60) == list(range(60))
            await loading
