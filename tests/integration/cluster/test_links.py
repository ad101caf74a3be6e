"""Messages between nodes: once over each link, with their QoS, retained and shared as on one node."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, settings, wait_until
from tidegate.client import Client, ConnectRefused
from tidegate.mqtt.packets import Will
from tidegate.node import Node


async def _take(client: Client, count: int) -> list[tuple[str, bytes, int, bool]]:
    found = []
    async with asyncio.timeout(15):
        while len(found) < count:
            message = await anext(client.messages)
            found.append((message.topic, message.payload, message.qos, message.retain))
    return found


def _kept(node: Node) -> int:
    return len(list(node.broker.core.retained.match(b"r/+")))


async def _nothing_more(client: Client, nodes: Cluster) -> None:
    """Whatever was on its way has arrived once a later message has."""
    await client.subscribe("marker/" + client.client_id)
    await nodes.settled()
    marker = await nodes.client(nodes.head, "marker-" + client.client_id)
    await marker.publish("marker/" + client.client_id, b"", qos=1)
    [(topic, *_)] = await _take(client, 1)
    assert topic == "marker/" + client.client_id


async def test_a_second_node_of_the_same_name_is_refused_while_the_first_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(1) as nodes:
        peer = member(nodes.head).named("e0")
        assert peer is not None and peer.session.conn is not None
        conn = peer.session.conn
        head = f"127.0.0.1:{nodes.head.link_port}"
        refused = nodes.head.broker.core.counters
        async with Node(settings("e0", "edge", cluster__heads=[head])) as double:
            await wait_until(lambda: refused.connects_refused > 1)
            assert peer.session.conn is conn
            errors = [record for record in caplog.records if record.levelno == logging.ERROR]
            assert [record.getMessage() for record in errors] == [
                "two nodes have the same name: the second is refused"
            ]
            await nodes.edges[0].stop()
            await wait_until(lambda: member(double).is_linked)


async def test_an_edge_that_copies_nothing_in_a_cluster_that_does_is_named(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with cluster(1, tmp_path, cluster__replication="standby") as nodes:
        head = f"127.0.0.1:{nodes.head.link_port}"
        async with Node(settings("other", "edge", cluster__heads=[head])):
            await wait_until(lambda: any("cluster.replication" in each.getMessage() for each in caplog.records))
        [found] = [each for each in caplog.records if "cluster.replication" in each.getMessage()]
        assert found.__dict__["node"] == "other"


async def test_nodes_count_what_is_their_clients(tmp_path: Path) -> None:
    async with cluster(2, tmp_path, cluster__replication="standby") as nodes:
        members = [member(node) for node in (nodes.head, *nodes.edges)]

        def counts() -> list[tuple[int, int, int]]:
            states = [each.reporter.state() for each in members]
            return [(each["clients"], each["sessions"], each["subscriptions"]) for each in states]

        assert counts() == [(0, 0, 0)] * 3
        client = await nodes.client(nodes.edges[0], "c", session_expiry_interval=60)
        await client.subscribe("a/#", qos=1)
        await wait_until(lambda: bool(members[2].statistics()["shadows"]))
        await nodes.settled()
        assert counts() == [(0, 0, 0), (1, 1, 1), (0, 0, 0)]


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
async def test_a_node_says_an_address_that_others_can_reach(host: str) -> None:
    async with cluster(1, listeners__0__host=host) as nodes:
        peer = member(nodes.head).named("e0")
        assert peer is not None
        await wait_until(lambda: bool(peer.address))
        assert peer.address == f"mqtt://127.0.0.1:{nodes.edges[0].broker.port}"
        nodes_seen = member(nodes.head).reporter.nodes
        await wait_until(lambda: nodes_seen.get("h", {}).get("address", "").startswith("mqtt://127.0.0.1:"))


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_reaches_subscribers_on_every_node_once(qos: int) -> None:
    async with cluster(2) as nodes:
        places = [nodes.head, *nodes.edges]
        subscribers = [await nodes.client(node, f"s{n}") for n, node in enumerate(places)]
        for subscriber in subscribers:
            await subscriber.subscribe("a/+", qos=2)
        await nodes.settled()
        for n, node in enumerate(places):
            publisher = await nodes.client(node, f"p{n}")
            await publisher.publish(f"a/{n}", b"x", qos=qos)
            for subscriber in subscribers:
                assert await _take(subscriber, 1) == [(f"a/{n}", b"x", qos, False)]
        for subscriber in subscribers:
            await _nothing_more(subscriber, nodes)


async def test_a_node_gets_only_what_it_subscribed_to_and_once_for_many() -> None:
    async with cluster(2) as nodes:
        crowd = [await nodes.client(nodes.edges[0], f"s{n}") for n in range(5)]
        for subscriber in crowd:
            await subscriber.subscribe("a", qos=1)
        await nodes.settled()
        publisher = await nodes.client(nodes.head, "p")
        before = [edge.broker.core.counters.publish_received for edge in nodes.edges]
        for _ in range(10):
            await publisher.publish("a", b"x", qos=1)
        for subscriber in crowd:
            assert len(await _take(subscriber, 10)) == 10
        links = [member(edge).peers["$link/head/head"].session for edge in nodes.edges]
        assert all(not link.inflight for link in links)
        after = [edge.broker.core.counters.publish_received for edge in nodes.edges]
        # Beside messages the nodes exchange their states.
        assert after[0] - before[0] >= 10
        assert nodes.head.broker.core.index.route(b"a").targets[0].session.client_id == "$link/edge/e0"
        assert len(nodes.head.broker.core.index.route(b"a").targets) == 1


async def test_unsubscribing_is_told_and_the_last_one_counts() -> None:
    async with cluster(1) as nodes:
        one, two = [await nodes.client(nodes.edges[0], name) for name in ("one", "two")]
        await one.subscribe("a")
        await two.subscribe("a")
        await nodes.settled()
        await one.unsubscribe("a")
        await nodes.settled()
        assert nodes.head.broker.core.index.route(b"a").targets
        await two.disconnect()
        await wait_until(lambda: not nodes.head.broker.core.index.route(b"a").targets)


async def test_retained_messages_are_on_every_node_and_can_be_removed_from_any() -> None:
    async with cluster(2) as nodes:
        publisher = await nodes.client(nodes.edges[0], "p")
        await publisher.publish("r/1", b"kept", qos=1, retain=True)
        retained = [node.broker.core.retained for node in (nodes.head, *nodes.edges)]
        await wait_until(lambda: all(each.get(b"r/1") for each in retained))
        late = await nodes.client(nodes.edges[1], "late")
        await late.subscribe("r/#", qos=1)
        assert await _take(late, 1) == [("r/1", b"kept", 1, True)]
        await nodes.settled()
        other = await nodes.client(nodes.head, "q")
        await other.publish("r/1", b"", qos=1, retain=True)
        await wait_until(lambda: not any(each.get(b"r/1") for each in retained))
        assert await _take(late, 1) == [("r/1", b"", 1, False)]


async def test_a_node_that_joins_later_gets_what_was_retained_before() -> None:
    async with cluster(0) as nodes:
        publisher = await nodes.client(nodes.head, "p")
        for n in range(450):
            await publisher.publish(f"r/{n}", b"x", retain=True)
        await wait_until(lambda: _kept(nodes.head) == 450)
        heads = f"127.0.0.1:{nodes.head.link_port}"
        async with Node(settings("late", "edge", cluster__heads=[heads])) as late:
            await wait_until(lambda: _kept(late) == 450)


async def test_a_will_is_published_on_every_node() -> None:
    async with cluster(2) as nodes:
        watcher = await nodes.client(nodes.edges[1], "w")
        await watcher.subscribe("will", qos=1)
        await nodes.settled()
        dying = Client(
            f"127.0.0.1:{nodes.edges[0].broker.port}",
            client_id="d",
            will=Will(topic="will", payload=b"gone", qos=1),
        )
        await dying.connect()
        await dying.disconnect(0x04)
        assert await _take(watcher, 1) == [("will", b"gone", 1, False)]


@pytest.mark.parametrize("origin", [0, 1, 2])
async def test_a_shared_subscription_spans_the_cluster_and_each_message_has_one_receiver(origin: int) -> None:
    async with cluster(2) as nodes:
        places = [nodes.head, *nodes.edges]
        members = [await nodes.client(node, f"m{n}{i}") for n, node in enumerate(places) for i in range(2)]
        got: list[bytes] = []
        for each in members:
            await each.subscribe("$share/g/job", qos=1, callback=lambda message: got.append(message.payload))
        plain = await nodes.client(nodes.edges[0], "plain")
        await plain.subscribe("job", qos=1)
        await nodes.settled()
        publisher = await nodes.client(places[origin], "p")
        for n in range(120):
            await publisher.publish("job", b"%d" % n, qos=1)
        await wait_until(lambda: len(got) >= 120)
        assert len(await _take(plain, 120)) == 120
        await _nothing_more(plain, nodes)
        assert sorted(got, key=int) == [b"%d" % n for n in range(120)]


async def test_a_message_for_a_group_that_does_not_want_it_reaches_nobody() -> None:
    async with cluster(1) as nodes:
        edge = member(nodes.edges[0])
        worker = await nodes.client(nodes.edges[0], "w")
        await worker.subscribe("$share/g/job/+", qos=1)
        await nodes.settled()
        link = edge.peers["$link/head/head"].session.conn
        assert link is not None
        identifier = edge.announcer.interest.identifier(("g", b"job/+"))
        assert edge.group_route(link, identifier, b"job/1").shared
        assert not edge.group_route(link, identifier, b"other").shared


async def test_every_node_says_how_the_cluster_is() -> None:
    async with cluster(2) as nodes:
        watcher = await nodes.client(nodes.head, "w")
        await watcher.subscribe("$SYS/cluster/+")
        await wait_until(lambda: {"h", "e0", "e1"} <= member(nodes.edges[1]).reporter.nodes.keys())
        names: set[str] = set()
        while not {"h", "e0", "e1", "balancing"} <= names:
            names |= {topic.rpartition("/")[2] for topic, *_ in await _take(watcher, 1)}
        assert names == {"h", "e0", "e1", "balancing"}
        assert member(nodes.edges[0]).statistics()["links"]["h"]["is_connected"]


async def test_a_wrong_secret_and_a_client_are_refused_on_the_link_and_a_node_elsewhere() -> None:
    async with cluster(1) as nodes:
        for port, client_id, password in (
            (nodes.head.link_port, "$link/edge/x", "wrong"),
            (nodes.head.link_port, "client", "a secret for tests"),
            (nodes.head.broker.port, "$link/edge/x", "a secret for tests"),
        ):
            with pytest.raises(ConnectRefused):
                await Client(
                    f"127.0.0.1:{port}", client_id=client_id, username="u", password=password
                ).connect()


async def test_clients_cannot_speak_for_nodes() -> None:
    async with cluster(1) as nodes:
        intruder = await nodes.client(nodes.head, "i")
        with pytest.raises(Exception, match=r"(?i)not authori"):
            await intruder.publish("$tide/link/state", b"{}", qos=1)


@pytest.mark.parametrize("side", ["head", "edge"])
async def test_a_lost_link_resumes_with_nothing_lost_and_nothing_doubled(side: str) -> None:
    async with cluster(2) as nodes:
        subscriber = await nodes.client(nodes.edges[1], "s")
        await subscriber.subscribe("a", qos=2)
        await nodes.settled()
        publisher = await nodes.client(nodes.edges[0] if side == "edge" else nodes.head, "p")
        links = [*nodes.head.broker.core.connections, *nodes.edges[0].broker.core.connections]
        for n in range(300):
            await publisher.publish("a", b"%d" % n, qos=2)
            if n % 60 == 30:
                for node in (nodes.head, *nodes.edges):
                    for conn in [c for c in node.broker.core.connections if c.listener.is_link]:
                        conn.abort()
        assert links
        assert [payload for _, payload, _, _ in await _take(subscriber, 300)] == [
            b"%d" % n for n in range(300)
        ]
        await nodes.settled()
        await _nothing_more(subscriber, nodes)


async def test_two_heads_are_joined_and_nothing_goes_in_circles() -> None:
    async with cluster(1) as left:
        other = Node(settings("h1", "head", cluster__heads=[f"127.0.0.1:{left.head.link_port}"]))
        async with other:
            far = Node(settings("f0", "edge", cluster__heads=[f"127.0.0.1:{other.link_port}"]))
            async with far:
                await wait_until(lambda: member(other).is_linked and member(far).is_linked)
                places = [left.head, left.edges[0], other, far]
                subscribers = [await left.client(node, f"s{n}") for n, node in enumerate(places)]
                for subscriber in subscribers:
                    await subscriber.subscribe("a", qos=1)
                await wait_until(
                    lambda: (
                        all(member(node).is_settled for node in places)
                        and len(left.head.broker.core.index.route(b"a").targets) == 3
                        and len(other.broker.core.index.route(b"a").targets) == 3
                    )
                )
                for n, node in enumerate(places):
                    publisher = await left.client(node, f"p{n}")
                    await publisher.publish("a", b"%d" % n, qos=1)
                    for subscriber in subscribers:
                        assert await _take(subscriber, 1) == [("a", b"%d" % n, 1, False)]
                keeper = await left.client(far, "keeper")
                await keeper.publish("r/far", b"kept", qos=1, retain=True)
                await wait_until(lambda: all(node.broker.core.retained.get(b"r/far") for node in places))
                last = await left.client(far, "last")
                await last.publish("a", b"end", qos=1)
                for subscriber in subscribers:
                    assert await _take(subscriber, 1) == [("a", b"end", 1, False)]
