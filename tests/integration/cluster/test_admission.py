"""When no edge has room, new subscribers are refused whose budget could not be kept, and nobody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tests.integration.cluster.test_placement import _where
from tidegate.client import Client, SubscribeRefused
from tidegate.flow.balance import Metric
from tidegate.mqtt.codes import ReasonCode

SMALL: dict[str, Any] = {
    "cluster__uplink": 0.5,
    "cluster__budgets": ["urgent=1", "full=5", "calm=60"],
    "cluster__redirect": True,
    "cluster__shed": False,
}


@asynccontextmanager
async def _overloaded(edges: int = 1, **settings: Any) -> AsyncIterator[tuple[Cluster, asyncio.Event]]:
    """A cluster whose first edge is asked for more than its uplink carries, until the event is set."""
    async with cluster(edges, **SMALL | settings) as nodes:
        subscriber = await nodes.client(nodes.edges[0], "first")
        await subscriber.subscribe("full", qos=0, callback=lambda message: None)
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        is_over = asyncio.Event()

        async def publish() -> None:
            while not is_over.is_set():
                await publisher.publish("full", bytes(5_000))  # some 4 Mbit/s
                await asyncio.sleep(0.01)

        publishing = asyncio.ensure_future(publish())
        try:
            yield nodes, is_over
        finally:
            is_over.set()
            await publishing


async def _refused(client: Client, topic: str) -> bool:
    try:
        await client.subscribe(topic)
    except SubscribeRefused as error:
        return set(error.reason_codes) == {ReasonCode.QUOTA_EXCEEDED}
    await client.unsubscribe(topic)
    return False


async def test_a_subscriber_whose_budget_no_edge_could_keep_is_refused() -> None:
    async with _overloaded() as (nodes, is_over):
        head, edge = member(nodes.head), member(nodes.edges[0])
        await wait_until(lambda: edge.admission.closed < 10.0)
        at_head = await nodes.client(nodes.head, "h")
        assert await _refused(at_head, "full")
        assert _where(nodes, "h") == "h"  # not sent to where it would be refused
        at_edge = await nodes.client(nodes.edges[0], "e")
        assert await _refused(at_edge, "calm")  # it would have to wait behind what is more urgent
        assert head.statistics()["refused"] + edge.statistics()["refused"] == 2
        # What must be there sooner goes before; groups and $SYS ask for nothing more.
        assert not await _refused(at_edge, "urgent")
        assert not await _refused(at_edge, "$share/g/full")
        assert not await _refused(at_edge, "$SYS/#")
        await at_edge.subscribe("calm", user_properties=(("tidegate-budget", "0.5"),))
        await at_edge.subscribe("calm", qos=1)  # it is subscribed, so it is not new
        is_over.set()
        await wait_until(lambda: edge.admission.closed > 60.0)
        assert not await _refused(await nodes.client(nodes.edges[0], "later"), "calm")


async def test_an_edge_that_has_room_takes_them() -> None:
    async with _overloaded(2) as (nodes, _):
        balancer = member(nodes.head).balancer
        assert balancer is not None
        await wait_until(lambda: "full" in balancer._views["e0"].bundles)
        await nodes.settled()
        client = await nodes.client(nodes.head, "c")
        await client.subscribe("calm")
        assert _where(nodes, "c") == "e1"


@pytest.mark.parametrize("settings", [{"cluster__admission": False}, {"cluster__uplink": 0.0}])
async def test_nobody_is_refused_where_it_is_off_or_no_capacity_is_known(settings: dict[str, Any]) -> None:
    async with _overloaded(**settings) as (nodes, _):
        agent = member(nodes.edges[0]).agent
        assert agent is not None
        agent.count_for_a_while()
        balancer = member(nodes.head).balancer
        assert balancer is not None
        await wait_until(lambda: balancer._views["e0"].uplink_bits > 1e6)
        for node in (nodes.head, nodes.edges[0]):
            client = await nodes.client(node, f"c-{node.settings.name}")
            assert not await _refused(client, "calm")


async def test_what_a_newcomer_asks_for_itself_counts_also_at_an_edge() -> None:
    """Two subscribers fill either edge to 80 %: there is no room for a third, though there is some."""
    small = SMALL | {"cluster__uplink": 1.0, "cluster__interval": 0.4, "cluster__balance": "off"}
    async with cluster(2, **small) as nodes:
        publisher = await nodes.client(nodes.head, "p")
        is_over = asyncio.Event()

        async def publish() -> None:
            began, sent = asyncio.get_running_loop().time(), 0
            while not is_over.is_set():
                while sent < (asyncio.get_running_loop().time() - began) * 50:
                    await publisher.publish("full", bytes(1_000))  # 0.4 Mbit/s
                    sent += 1
                await asyncio.sleep(0.01)

        publishing = asyncio.ensure_future(publish())
        balancer = member(nodes.head).balancer
        assert balancer is not None
        for n in range(4):
            client = await nodes.client(nodes.edges[n % 2], f"s{n}")
            await client.subscribe("full", qos=0, callback=lambda message: None)
        for name in ("e0", "e1"):
            await wait_until(lambda name=name: 0.7 < balancer._views[name].utilisation(Metric.UPLINK) < 0.9)
        await wait_until(lambda: all("full" in member(edge).admission.rates for edge in nodes.edges))
        for n in range(2):
            assert await _refused(await nodes.client(nodes.edges[n], f"late{n}"), "full")
            assert not await _refused(await nodes.client(nodes.edges[n], f"other{n}"), "quiet")
        is_over.set()
        await publishing


async def test_those_that_come_at_once_count_before_the_head_has_counted_them() -> None:
    async with cluster(1, cluster__interval=60.0) as nodes:
        clients = [await nodes.client(nodes.edges[0], f"c{n}") for n in range(3)]
        await wait_until(lambda: bool(member(nodes.edges[0]).reporter.nodes))  # the head has spoken
        admission = member(nodes.edges[0]).admission
        admission.rates, admission.rooms = {"t": 4e5}, [(0.0, 1e6)]
        for client in clients[:2]:
            await client.subscribe("t")
        assert await _refused(clients[2], "t")
        assert not await _refused(clients[2], "other")
