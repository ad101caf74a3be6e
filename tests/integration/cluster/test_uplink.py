"""An edge whose uplink is too small: what is urgent goes first, what is late is given up, nothing else is lost."""

import asyncio
import json
import time
from collections import Counter
from typing import Any

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tidegate.client import Client

EDGE: dict[str, Any] = {
    "cluster__uplink": 0.8,  # Mbit/s: 100 messages of a kilobyte a second
    "cluster__budgets": ["urgent=2", "tolerant=60", "hopeless=0.3"],
    "cluster__balance": "deadline",
}


async def _subscribers(nodes: Cluster, topics: list[str], qos: int) -> dict[str, Client]:
    found = {}
    for topic in topics:
        found[topic] = await nodes.client(nodes.edges[0], topic)
        await found[topic].subscribe(topic, qos=qos)
    await nodes.settled()
    return found


async def _publish(nodes: Cluster, topics: list[str], seconds: float, rate: float, qos: int) -> Counter[str]:
    """So many messages a second on each topic, of the time they were sent at."""
    publisher = await nodes.client(nodes.head, "p")
    sent: Counter[str] = Counter()
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        due = int((time.monotonic() - began) * rate) + 1
        for topic in topics:
            while sent[topic] < due:
                sent[topic] += 1
                text = repr(time.monotonic()).encode()
                await publisher.publish(topic, text.ljust(1_000), qos=qos)
        await asyncio.sleep(0.01)
    return sent


async def _delays(client: Client, count: int) -> list[float]:
    found = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found.append(time.monotonic() - float((await anext(client.messages)).payload))
    return found


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_topic_that_may_wait_takes_the_shortage_and_loses_nothing(qos: int) -> None:
    async with cluster(1, **EDGE) as nodes:
        clients = await _subscribers(nodes, ["urgent", "tolerant"], qos)
        got: dict[str, list[float]] = {topic: [] for topic in clients}

        async def read(topic: str) -> None:
            async for message in clients[topic].messages:
                got[topic].append(time.monotonic() - float(message.payload))

        reading = [asyncio.ensure_future(read(topic)) for topic in clients]
        sent = await _publish(nodes, list(clients), 1.5, 80, qos)  # 160 a second where there is room for 100
        uplink = member(nodes.edges[0]).uplink
        assert uplink is not None
        assert uplink.is_pacing
        waiting = {topic: nodes.edges[0].broker.core.sessions[topic] for topic in clients}
        depths = {topic: each.backlog_bytes + each.pending_bytes for topic, each in waiting.items()}
        assert depths["tolerant"] > 5 * max(depths["urgent"], 1_000)
        await wait_until(lambda: all(len(got[topic]) == sent[topic] for topic in clients))
        for each in reading:
            each.cancel()
        urgent, tolerant = (sorted(got[topic]) for topic in ("urgent", "tolerant"))
        assert urgent[len(urgent) // 2] < tolerant[len(tolerant) // 2] / 2
        assert uplink.shed == 0


async def test_what_is_late_anyway_is_given_up_and_counted() -> None:
    async with cluster(1, **EDGE) as nodes:
        clients = await _subscribers(nodes, ["hopeless"], 0)
        sent = await _publish(nodes, ["hopeless"], 1.5, 200, 0)
        uplink = member(nodes.edges[0]).uplink
        assert uplink is not None
        await wait_until(lambda: not uplink.is_pacing)
        session = nodes.edges[0].broker.core.sessions["hopeless"]
        assert 0 < uplink.shed == session.dropped
        assert len(await _delays(clients["hopeless"], sent["hopeless"] - uplink.shed)) > 60


async def test_with_the_published_policy_topics_share_fairly() -> None:
    settings = EDGE | {"cluster__balance": "paper"}
    async with cluster(1, **settings) as nodes:
        await _subscribers(nodes, ["urgent", "tolerant"], 1)
        await _publish(nodes, ["urgent", "tolerant"], 1.2, 100, 1)
        waiting = [nodes.edges[0].broker.core.sessions[topic] for topic in ("urgent", "tolerant")]
        one, other = (each.pending_bytes for each in waiting)
        assert min(one, other) > 0.5 * max(one, other) > 0


async def test_acknowledgements_and_retained_messages_pass_while_clients_are_paced() -> None:
    async with cluster(1, **EDGE) as nodes:
        await _subscribers(nodes, ["tolerant"], 0)
        publisher = await nodes.client(nodes.head, "r")
        for n in range(5):
            await publisher.publish(f"kept/{n}", b"x", qos=1, retain=True)
        flood = asyncio.ensure_future(_publish(nodes, ["tolerant"], 1.5, 200, 0))
        uplink = member(nodes.edges[0]).uplink
        assert uplink is not None
        await wait_until(lambda: uplink.is_pacing)
        client = await nodes.client(nodes.edges[0], "c")
        await client.publish("elsewhere", b"x", qos=2)
        await client.subscribe("kept/#", qos=1)
        async with asyncio.timeout(10):
            for _ in range(5):
                await anext(client.messages)
        await flood


async def test_the_head_says_what_is_left_of_the_budgets() -> None:
    async with cluster(1, **EDGE) as nodes:
        await _subscribers(nodes, ["urgent", "tolerant"], 1)
        watcher = await nodes.client(nodes.head, "watcher")
        await watcher.subscribe("$SYS/cluster/balancing")
        publishing = asyncio.ensure_future(_publish(nodes, ["urgent", "tolerant"], 4.0, 80, 1))
        budgets: list[dict[str, Any]] = []
        async with asyncio.timeout(30):
            while len(budgets) < 2:
                said = json.loads((await anext(watcher.messages)).payload)
                budgets = said["edges"].get("e0", {}).get("budgets", [])
        await publishing
        found = {each["topic"]: each for each in budgets}
        assert found["urgent"]["budget"] == pytest.approx(2, abs=0.2)
        assert found["tolerant"]["budget"] == pytest.approx(60, abs=0.2)
        assert all(each["subscribers"] == 1 for each in budgets)
