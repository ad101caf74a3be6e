"""Heads that are joined: one link between two, and the same retained messages on both."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.nodes import member, settings, wait_until
from tests.integration.cluster.test_failover import _numbers
from tidegate.client import Client
from tidegate.cluster import dialer
from tidegate.node import Node
from tidegate.testing.ports import free_port


def _heads(data: Path | None = None) -> list[Node]:
    """Two that name each other, not yet started."""
    ports = [free_port(), free_port()]
    found = []
    for n in (0, 1):
        more: dict[str, Any] = {} if data is None else {"data": str(data / f"h{n}")}
        heads = [f"127.0.0.1:{ports[1 - n]}"]
        found.append(
            Node(settings(f"h{n}", "head", cluster__link_port=ports[n], cluster__heads=heads, **more))
        )
    return found


def _is_joined(nodes: list[Node]) -> bool:
    """By one link, which the smaller name has dialled."""
    heads = [[peer for peer in member(node).peers.values() if peer.is_connected] for node in nodes]
    return all(len(peers) == 1 for peers in heads) and heads[0][0].is_dialled and not heads[1][0].is_dialled


@asynccontextmanager
async def joined(nodes: list[Node]) -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        for node in nodes:
            await stack.enter_async_context(node)
        await wait_until(lambda: _is_joined(nodes))
        await wait_until(lambda: all(member(node).is_linked for node in nodes))
        yield stack


async def test_heads_that_name_each_other_do_not_complain(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "LONGEST", 0.2)
    nodes = _heads()
    async with joined(nodes):
        before = nodes[0].broker.core.counters.connects_refused
        caplog.clear()
        await wait_until(lambda: nodes[0].broker.core.counters.connects_refused > before + 2)
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_every_head_shows_the_others_and_whose_the_edges_are() -> None:
    nodes = _heads()
    async with joined(nodes) as stack:
        links = [f"127.0.0.1:{node.link_port}" for node in nodes]
        edges = [Node(settings(f"e{n}", "edge", cluster__heads=[links[n], links[1 - n]])) for n in range(2)]
        for edge in edges:
            await stack.enter_async_context(edge)

        def seen(node: Node) -> dict[str, Any]:
            kept = node.broker.core.retained.match(b"$SYS/cluster/+")
            values = [json.loads(each.payload) for each in kept if each.topic != b"$SYS/cluster/balancing"]
            return {each["name"]: (each.get("head"), each["linked"]) for each in values}

        everything = {"h0": (None, True), "h1": (None, True), "e0": ("h0", True), "e1": ("h1", True)}
        for node in nodes:
            await wait_until(lambda node=node: seen(node) == everything)  # type: ignore[misc]
        await wait_until(lambda: member(edges[0]).reporter.nodes.keys() == everything.keys())
        await nodes[1].stop()
        moved = everything | {"h1": (None, False), "e1": ("h0", True)}
        await wait_until(lambda: seen(nodes[0]) == moved)


async def _client(stack: AsyncExitStack, node: Node, name: str) -> Client:
    made = Client(f"127.0.0.1:{node.broker.port}", client_id=name, max_redirects=0)
    return await stack.enter_async_context(made)


@pytest.mark.parametrize("first", [0, 1])
async def test_heads_that_name_each_other_have_one_link(first: int) -> None:
    nodes = _heads()
    order = [nodes[first], nodes[1 - first]]
    async with AsyncExitStack() as stack:
        for node in order:
            await stack.enter_async_context(node)
        await wait_until(lambda: _is_joined(nodes) and all(member(node).is_linked for node in nodes))
        subscribers = [await _client(stack, node, f"s{n}") for n, node in enumerate(nodes)]
        for subscriber in subscribers:
            await subscriber.subscribe("t", qos=1)
        await wait_until(lambda: all(len(n.broker.core.index.route(b"t").targets) == 2 for n in nodes))
        publishers = [await _client(stack, node, f"p{n}") for n, node in enumerate(nodes)]
        for n in range(20):
            await publishers[n % 2].publish("t", b"%d" % n, qos=1)
        for link in [conn for conn in nodes[0].broker.core.connections if conn.listener.is_link]:
            link.abort()
        for n in range(20, 40):
            await publishers[n % 2].publish("t", b"%d" % n, qos=1)
        await wait_until(lambda: _is_joined(nodes))
        for subscriber in subscribers:
            assert sorted(await _numbers(subscriber, 40)) == list(range(40))
        for n, publisher in enumerate(publishers):
            await publisher.publish("t", b"%d" % (40 + n), qos=1)
        for subscriber in subscribers:
            assert sorted(await _numbers(subscriber, 2)) == [40, 41]


async def test_a_head_that_is_back_takes_what_was_retained_and_removed_meanwhile(tmp_path: Path) -> None:
    nodes = _heads(tmp_path)

    def values(node: Node) -> dict[bytes, bytes]:
        return {message.topic: message.payload for message in node.broker.core.retained.match(b"r/#")}

    async with joined(nodes) as stack:
        publisher = await _client(stack, nodes[1], "p")
        for topic in ("r/changed", "r/removed", "r/same"):
            await publisher.publish(topic, b"old", qos=1, retain=True)
        await wait_until(lambda: len(values(nodes[0])) == 3)
        await nodes[0].stop()
        link = next(iter(member(nodes[1]).peers.values()))
        await wait_until(lambda: not link.is_connected)
        await publisher.publish("r/changed", b"new", qos=1, retain=True)
        await publisher.publish("r/removed", b"", qos=1, retain=True)
        # The link forgets what it owes, as it does for a head that was away for long.
        link.session.inflight, link.session.pending = {}, None
        again = Node(nodes[0].settings)
        wanted = {b"r/changed": b"new", b"r/same": b"old"}
        async with again:
            await wait_until(lambda: values(again) == wanted)
            late = await _client(stack, again, "late")
            await late.publish("r/late", b"x", qos=1, retain=True)  # behind all that it had to say
            await wait_until(lambda: b"r/late" in values(nodes[1]))
            assert values(nodes[1]) == wanted | {b"r/late": b"x"}
            assert values(again) == wanted | {b"r/late": b"x"}
