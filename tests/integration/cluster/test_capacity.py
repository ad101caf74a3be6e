"""Capacities that nobody gave: measured where there is evidence, and nothing is moved without."""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _known, _session
from tests.integration.cluster.test_placement import _where
from tidegate.client import Client
from tidegate.cluster.agent import UNKNOWN, EdgeAgent
from tidegate.flow.balance import Metric
from tidegate.node import Node

SO_MAX_PACING_RATE = 47  # Linux: bytes a second that the kernel sends on a connection
PAYLOAD = bytes(20_000)


def _agent(node: Node) -> EdgeAgent:
    agent = member(node).agent
    assert agent is not None
    return agent


async def _subscribers(nodes: Cluster, count: int, **options: Any) -> list[Client]:
    found = []
    for n in range(count):
        client = await nodes.client(nodes.edges[0], f"c{n}", **PERSISTENT, **options)
        await client.subscribe(f"t/{n}", qos=0)
        await _known(nodes, client.client_id, "e0")
        found.append(client)
    await nodes.settled()
    return found


def _narrow(conn: Any, rate: int) -> None:
    """A connection over which the network takes no more than so many bytes a second."""
    sock = conn.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, rate)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)


async def _publish_until(nodes: Cluster, count: int, is_done: Callable[[], bool]) -> None:
    publisher = await nodes.client(nodes.head, "p")
    async with asyncio.timeout(30):
        while not is_done():
            for n in range(count):
                await publisher.publish(f"t/{n}", PAYLOAD)
            await asyncio.sleep(0.005)


async def _read(client: Client) -> None:
    async for _ in client.messages:
        pass


async def test_an_uplink_that_is_too_small_is_measured_and_its_topics_are_counted() -> None:
    async with cluster(1, features__queue_full="drop", cluster__interval=0.2) as nodes:
        clients = await _subscribers(nodes, 3)
        agent = _agent(nodes.edges[0])
        assert not agent.is_counting
        for client in clients:
            _narrow(_session(nodes.edges[0], client.client_id).conn, 1_000_000)
        reading = [asyncio.ensure_future(_read(client)) for client in clients]
        await _publish_until(nodes, 3, lambda: bool(agent.probe.capacity) and agent.is_counting)
        assert 8e6 < agent.probe.capacity < 40e6  # 3 times 1 MB/s is 24; a socket sends 53 kB at once
        assert agent.view(0.1).uplink == agent.probe.capacity
        for each in reading:
            each.cancel()


async def test_clients_that_do_not_read_are_no_evidence() -> None:
    async with cluster(1, features__queue_full="drop") as nodes:
        await _subscribers(nodes, 3, receive_queue_size=1)
        edge = nodes.edges[0].broker.core
        agent = _agent(nodes.edges[0])
        looks = 0

        def has_looked() -> bool:
            """Ten times at sockets that are full."""
            nonlocal looks
            if len(edge.blocked) == 3:
                agent.probe.look(edge, 0.1)
                looks += 1
            return looks >= 10

        await _publish_until(nodes, 3, has_looked)
        assert agent.probe.capacity == 0.0
        assert not agent.is_counting


async def test_a_node_that_is_not_backed_up_costs_nothing_and_moves_nobody() -> None:
    async with cluster(2) as nodes:
        clients = await _subscribers(nodes, 2)
        reading = [asyncio.ensure_future(_read(client)) for client in clients]
        began = time.monotonic()
        await _publish_until(nodes, 2, lambda: time.monotonic() - began > 1.0)
        assert nodes.edges[0].broker.core.publish_observers == ()
        balancer = member(nodes.head).balancer
        assert balancer is not None
        assert not balancer.overlay.history
        assert balancer._views["e0"].uplink == UNKNOWN
        for each in reading:
            each.cancel()


async def test_a_processor_that_is_too_busy_moves_clients() -> None:
    """The edge's loop really works; only its processor is said to be smaller than it is."""
    async with cluster(2, cluster__interval=0.2) as nodes:
        clients = await _subscribers(nodes, 4)
        reading = [asyncio.ensure_future(_read(client)) for client in clients]
        agent = _agent(nodes.edges[0])
        agent.matching.size = 1e-3
        agent.matching.window = 0.5
        balancer = member(nodes.head).balancer
        assert balancer is not None
        await _publish_until(nodes, 4, lambda: bool(balancer.overlay.history))
        [phase, *_] = balancer.overlay.history
        assert phase.metric is Metric.MATCHING
        await wait_until(lambda: any(_where(nodes, f"c{n}") == "e1" for n in range(4)))
        for each in reading:
            each.cancel()


@pytest.mark.parametrize("is_narrow", [False, True])
async def test_a_head_measures_the_way_to_an_edge(is_narrow: bool) -> None:
    async with cluster(1, features__queue_full="drop", cluster__interval=0.2) as nodes:
        clients = await _subscribers(nodes, 2)
        reading = [asyncio.ensure_future(_read(client)) for client in clients]
        links = member(nodes.head).links
        peer = links.named("e0")
        assert peer is not None
        if is_narrow:
            _narrow(peer.session.conn, 1_000_000)
        balancer = member(nodes.head).balancer
        assert balancer is not None
        began = time.monotonic()
        if is_narrow:
            await _publish_until(nodes, 2, lambda: balancer._views["e0"].downlink < UNKNOWN)
            assert 3e6 < links.meter.capacity(peer) < 16e6
            await wait_until(lambda: _agent(nodes.edges[0]).is_counting)
        else:
            await _publish_until(nodes, 2, lambda: time.monotonic() - began > 1.0)
            assert links.meter.capacity(peer) == 0.0
        for each in reading:
            each.cancel()
