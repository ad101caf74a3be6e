"""What a cluster's nodes say about links, moves and balancing: statistics, the metrics page, $SYS."""

import asyncio
import json
from urllib.request import urlopen

from tests.integration.cluster.nodes import cluster, member, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _connected, _known, _move
from tidegate.broker.metrics import serve_metrics
from tidegate.node import Node


async def _page(node: Node) -> dict[str, float]:
    """The metrics of a node as a page that is read from outside."""
    port, stop = serve_metrics("127.0.0.1", 0, node.settings.name, node.statistics)
    try:
        with await asyncio.to_thread(urlopen, f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        await asyncio.to_thread(stop)
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


async def test_links_and_moves_are_on_the_metrics_page_and_in_sys() -> None:
    async with cluster(2) as nodes:
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        for n in range(50):
            await publisher.publish("t", bytes(200), qos=n % 2)
        for _ in range(50):
            await anext(client.messages)
        assert await _move(nodes, "c", "e1")
        await _connected(nodes.edges[1], "c")
        await wait_until(lambda: member(nodes.edges[0]).links.statistics()["h"]["bytes_received"] > 10_000)
        edge = await _page(nodes.edges[0])
        link = 'node="h",role="head"'
        assert edge[f"tidegate_link_is_connected{{{link}}}"] == 1
        assert edge[f"tidegate_link_messages_received_total{{{link}}}"] >= 50
        assert edge[f"tidegate_link_bytes_sent_total{{{link}}}"] > 0
        assert edge[f"tidegate_link_reconnects_total{{{link}}}"] == 0
        assert edge[f"tidegate_link_queued{{{link}}}"] == 0
        assert (edge["tidegate_cluster_left_total"], edge["tidegate_cluster_came_total"]) == (1, 0)
        head = await _page(nodes.head)
        assert head["tidegate_cluster_moved_total"] == 1
        assert head['tidegate_balancing_step{step="idle"}'] == 1
        assert head['tidegate_balancing_step{step="migrate"}'] == 0
        assert head['tidegate_edge_state{node="e1"}'] == 0
        assert head['tidegate_link_is_connected{node="e1",role="edge"}'] == 1
        said = nodes.head.broker.core.retained.get(b"$SYS/cluster/links/e1")
        assert said is not None
        assert json.loads(said.payload)["is_connected"]
        await wait_until(lambda: member(nodes.head).reporter.nodes["e0"].get("sessions_left") == 1)


async def test_a_link_that_comes_back_is_counted_and_goes_on_counting() -> None:
    async with cluster(1) as nodes:
        links = member(nodes.edges[0]).links
        await wait_until(lambda: links.statistics()["h"]["bytes_received"] > 0)
        before = links.statistics()["h"]
        [peer] = links.peers.values()
        assert peer.session.conn is not None
        peer.session.conn.abort()
        await wait_until(lambda: links.statistics()["h"]["reconnects"] == 1)
        await nodes.settled()
        await wait_until(lambda: links.statistics()["h"]["bytes_received"] > before["bytes_received"])
        assert links.statistics()["h"]["messages_received"] > before["messages_received"]
