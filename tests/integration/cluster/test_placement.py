"""Subscribers are sent where they belong; an edge is drained; load moves clients."""

import asyncio
import json
from typing import Any

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _known, _numbers, _session
from tidegate.client import Client, ConnectRefused, ServerDisconnected
from tidegate.cluster.agent import EdgeAgent
from tidegate.mqtt.codes import ReasonCode
from tidegate.node import Node


def _where(nodes: Cluster, client: str) -> str:
    for node in (nodes.head, *nodes.edges):
        session = _session(node, client)
        if session is not None and session.conn is not None:
            return node.settings.name
    return ""


async def test_a_subscriber_that_comes_to_the_head_is_sent_to_an_edge_and_gets_its_messages() -> None:
    async with cluster(2, cluster__redirect=True) as nodes:
        subscriber = await nodes.client(nodes.head, "s")
        await subscriber.subscribe("t", qos=1)
        assert _where(nodes, "s") in ("e0", "e1")
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        await publisher.publish("t", b"1", qos=1)
        assert await _numbers(subscriber, 1) == [1]
        assert _where(nodes, "p") == "h"


async def test_subscribers_of_one_topic_are_placed_together_and_other_topics_elsewhere() -> None:
    async with cluster(2, cluster__redirect=True) as nodes:
        for topic in ("a", "b"):
            for n in range(3):
                client = await nodes.client(nodes.head, f"{topic}{n}")
                await client.subscribe(topic)
        places = {topic: {_where(nodes, f"{topic}{n}") for n in range(3)} for topic in ("a", "b")}
        assert all(len(where) == 1 for where in places.values())
        assert places["a"] != places["b"]


async def test_they_come_together_also_later_and_on_edges_that_count_nothing() -> None:
    async with cluster(2, cluster__redirect=True) as nodes:
        balancer = member(nodes.head).balancer
        assert balancer is not None
        for n in range(3):
            for topic in ("a", "b"):
                client = await nodes.client(nodes.head, f"{topic}{n}")
                await client.subscribe(topic)
                where = _where(nodes, client.client_id)
                assert where == _where(nodes, f"{topic}0")
                await wait_until(lambda at=where, name=topic: name in balancer._views[at].bundles)  # type: ignore[misc]
        assert _where(nodes, "a0") != _where(nodes, "b0")


async def test_a_client_that_does_not_follow_is_served_where_it_is() -> None:
    async with cluster(1, cluster__redirect=True) as nodes:
        old = await nodes.client(nodes.head, "old", protocol_version=4)
        await old.subscribe("t")
        assert _where(nodes, "old") == "h"
        stubborn = Client(f"127.0.0.1:{nodes.head.broker.port}", client_id="stubborn", max_redirects=0)
        await stubborn.connect()
        with pytest.raises(ServerDisconnected) as caught:
            await stubborn.subscribe("t")
        assert caught.value.reason_code == ReasonCode.USE_ANOTHER_SERVER
        again = await nodes.client(nodes.head, "stubborn", max_redirects=0)
        await again.subscribe("t")
        assert _where(nodes, "stubborn") == "h"


async def _operate(nodes: Cluster, what: str, node: str) -> None:
    async with Client(f"unix:{nodes.head.operator_socket}") as operator:
        await operator.publish(f"$tide/cluster/{what}", node, qos=1)


def _said(node: Node, name: str) -> dict[str, Any]:
    message = node.broker.core.retained.get(f"$SYS/cluster/{name}".encode())
    return {} if message is None else json.loads(message.payload)


async def test_an_operator_sees_the_plan_and_drains_an_edge_without_loss() -> None:
    async with cluster(3) as nodes:
        clients = [await nodes.client(nodes.edges[0], f"c{n}", **PERSISTENT) for n in range(12)]
        for n, client in enumerate(clients):
            await client.subscribe(f"t/{n % 4}", qos=1)
            await _known(nodes, client.client_id, "e0")
        plain = await nodes.client(nodes.edges[0], "stays", protocol_version=4)
        await plain.subscribe("t/0")
        await nodes.settled()
        await _operate(nodes, "plan", "e0")
        await wait_until(lambda: bool(_said(nodes.head, "plan/e0")))
        plan = _said(nodes.head, "plan/e0")
        assert (plan["moves"], plan["stay"]) == (12, 1)
        assert set(plan["targets"]) == {"e1", "e2"}
        assert _where(nodes, "c0") == "e0"
        await _operate(nodes, "drain", "e0")
        publisher = await nodes.client(nodes.head, "p")
        for n in range(40):
            await publisher.publish(f"t/{n % 4}", b"%d" % n, qos=1)
        await wait_until(lambda: _said(nodes.head, "drain/e0").get("state") == "done")
        assert (_said(nodes.head, "drain/e0")["moved"], _said(nodes.head, "drain/e0")["failed"]) == (12, 0)
        await wait_until(lambda: all(_where(nodes, f"c{n}") in ("e1", "e2") for n in range(12)))
        assert _where(nodes, "stays") == "e0"
        for n, client in enumerate(clients):
            got = await _numbers(client, 10)
            while len(set(got)) < 10:
                got += await _numbers(client, 1)
            assert list(dict.fromkeys(got)) == list(range(n % 4, 40, 4))


async def test_a_drained_edge_gets_no_new_clients_until_it_is_resumed() -> None:
    async with cluster(2, cluster__redirect=True) as nodes:
        await _operate(nodes, "drain", "e0")
        await wait_until(lambda: "e0" in member(nodes.head).statistics()["draining"])
        for n in range(4):
            client = await nodes.client(nodes.head, f"s{n}")
            await client.subscribe(f"t{n}")
            assert _where(nodes, f"s{n}") == "e1"
        await _operate(nodes, "resume", "e0")
        await wait_until(lambda: not member(nodes.head).statistics()["draining"])
        late = await nodes.client(nodes.head, "late")
        await late.subscribe("late")
        assert _where(nodes, "late") == "e0"


async def test_who_comes_back_to_a_drained_edge_is_told_again_where_its_session_is() -> None:
    async with cluster(2) as nodes:
        edge = nodes.edges[0]
        stubborn = Client(f"127.0.0.1:{edge.broker.port}", client_id="c", max_redirects=0, **PERSISTENT)
        await stubborn.connect()
        await stubborn.subscribe("t", qos=1)
        old = await nodes.client(nodes.edges[1], "old", protocol_version=4, clean_start=False)
        await old.subscribe("t", qos=1)
        await old.disconnect()
        await _known(nodes, "c", "e0")
        await wait_until(lambda: _said(nodes.head, "e0").get("drain") == "")
        await _operate(nodes, "drain", "e0")
        await wait_until(lambda: _said(nodes.head, "drain/e0").get("state") == "done")
        await wait_until(lambda: _said(nodes.head, "e0")["drain"] == "drained")
        for _ in range(2):  # as one that knows no Server Reference
            again = Client(f"127.0.0.1:{edge.broker.port}", client_id="c", max_redirects=0, **PERSISTENT)
            with pytest.raises(ConnectRefused) as caught:
                await again.connect()
            assert caught.value.reason_code == ReasonCode.USE_ANOTHER_SERVER
            assert (caught.value.server_reference or "").endswith(f":{nodes.edges[1].broker.port}")
        assert _session(nodes.edges[1], "c") is not None
        # MQTT 3.1.1 cannot be told: it is served.
        await nodes.client(edge, "old", protocol_version=4, clean_start=False)
        assert _where(nodes, "old") == "e0"
        assert _said(nodes.head, "drain/e0")["stay"] == 1
        await _operate(nodes, "resume", "e0")
        await wait_until(lambda: _said(nodes.head, "e0")["drain"] == "")
        await nodes.client(edge, "c", max_redirects=0, **PERSISTENT)
        assert _where(nodes, "c") == "e0"


async def test_an_edge_measures_what_its_topics_ask_for() -> None:
    async with cluster(1, cluster__uplink=8.0, cluster__budgets=["t/#=0.5"], cluster__interval=30.0) as nodes:
        edge = nodes.edges[0]
        subscribers = [await nodes.client(edge, f"s{n}") for n in range(3)]
        for subscriber in subscribers:
            await subscriber.subscribe("t/+", qos=1)
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        agent = member(edge).agent
        assert isinstance(agent, EdgeAgent)
        agent.view(1.0)
        for qos in (0, 1):
            for _ in range(10):
                await publisher.publish("t/a", bytes(100), qos=qos)
        for subscriber in subscribers:
            for _ in range(20):
                await anext(subscriber.messages)
        view = agent.view(2.0)
        bundle = view.bundles["t/a"]
        assert (bundle.subscribers, bundle.arriving) == (3, 30.0)
        assert 0.4 < bundle.budget <= 0.5  # less what the way takes
        assert agent.required("other") == 10.0
        await subscribers[0].subscribe("other", user_properties=(("tidegate-budget", "0.25"),))
        assert agent.required("other") == 0.25
        assert 100 < bundle.size_bytes < 120
        assert view.uplink == 8e6


async def test_clients_move_from_an_edge_whose_uplink_is_too_small() -> None:
    """The uplink is only said to be too small: what is measured is real, and so is the move."""
    async with cluster(2, cluster__balance="peer", cluster__uplink=0.5) as nodes:
        clients = [await nodes.client(nodes.edges[0], f"c{n}", **PERSISTENT) for n in range(8)]
        for n, client in enumerate(clients):
            await client.subscribe(f"t/{n}", qos=1, callback=lambda message: None)
            await _known(nodes, client.client_id, "e0")
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        balancer = member(nodes.head).balancer
        assert balancer is not None

        async def publish() -> None:
            while not balancer.overlay.history:
                # 600 bytes 16 times in about 0.1 s: over half a megabit a second.
                await asyncio.gather(*(publisher.publish(f"t/{n % 8}", bytes(600), qos=1) for n in range(16)))
                await asyncio.sleep(0.05)

        async with asyncio.timeout(30):
            await publish()
        [phase, *_] = balancer.overlay.history
        assert {move.source for move in phase.moves} == {"e0"}
        assert {move.target for move in phase.moves} == {"e1"}
        await wait_until(lambda: any(_where(nodes, f"c{n}") == "e1" for n in range(8)))
        assert not phase.is_timed_out


async def test_a_drain_that_has_nowhere_to_send_clients_says_so() -> None:
    async with cluster(1) as nodes:
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        await _operate(nodes, "drain", "e0")
        await wait_until(lambda: _said(nodes.head, "drain/e0").get("state") == "failed")


async def test_a_node_goes_on_after_an_error_in_its_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(1) as nodes:
        looks: list[int] = []

        def look(_: float) -> None:
            looks.append(1)
            raise ValueError("a mistake")

        monkeypatch.setattr(member(nodes.head), "look", look)
        await wait_until(lambda: len(looks) > 2)
