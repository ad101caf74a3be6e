"""What nodes keep below $tide/ is theirs alone."""

import json
from pathlib import Path

import pytest

from tests.integration.cluster.nodes import cluster, member, settings, wait_until
from tests.integration.cluster.test_placement import _operate, _said
from tidegate.broker.message import Message
from tidegate.client import Client, ConnectRefused, SubscribeRefused
from tidegate.mqtt.packets import Will
from tidegate.node import Node


async def test_clients_neither_read_nor_write_what_nodes_keep() -> None:
    async with cluster(1) as nodes:
        for node in (nodes.head, *nodes.edges):
            intruder = await nodes.client(node, "i")
            for topic in ("$tide/move/c", "$tide/fallen/e0", "$tide/other"):
                with pytest.raises(Exception, match=r"(?i)not authori"):
                    await intruder.publish(topic, b"[", qos=1, retain=True)
            for topic_filter in ("$tide/#", "$tide/move/+", "$share/g/$tide/move/c"):
                with pytest.raises(SubscribeRefused):
                    await intruder.subscribe(topic_filter)
            assert not list(node.broker.core.retained.match(b"$tide/#"))
            await intruder.disconnect()


async def test_an_edge_takes_no_orders() -> None:
    async with cluster(1) as nodes:
        operator = await nodes.client(nodes.edges[0], "o")
        with pytest.raises(Exception, match=r"(?i)not authori"):
            await operator.publish("$tide/cluster/plan", b"e0", qos=1)


async def test_no_will_speaks_for_an_operator_or_in_its_way() -> None:
    async with cluster(1) as nodes:
        will = Will(topic="$tide/cluster/plan", payload=b"e0")
        with pytest.raises(ConnectRefused):
            await Client(f"127.0.0.1:{nodes.head.broker.port}", client_id="w", will=will).connect()
        nodes.head.broker.core.publish(Message(b"$tide/cluster/plan", b"e0"))
        await _operate(nodes, "plan", "e0")
        await wait_until(lambda: bool(_said(nodes.head, "plan/e0")))


async def test_records_are_kept_also_where_no_more_retained_messages_are() -> None:
    async with cluster(1, limits__max_retained=0) as nodes:
        handover = member(nodes.head).handover
        handover._keep_record("c", {"step": "frozen"})
        assert list(nodes.head.broker.core.retained.match(b"$tide/move/#"))


async def test_a_node_starts_with_records_that_make_no_sense(tmp_path: Path) -> None:
    given = settings("h", "head", data=str(tmp_path))
    bad = (b"{", b"[]", b"5", json.dumps({"step": "install"}).encode(), json.dumps({"step": "parked"}).encode())
    async with Node(given) as node:
        for number, payload in enumerate(bad):
            node.broker.core.retained.keep(Message(b"$tide/move/%d" % number, payload, 1, True))
        node.broker.core.retained.keep(Message(b"$tide/fallen/e0", b"{", 1, True))
    async with Node(given) as again:
        assert not member(again).handover.moving
        assert len(list(again.broker.core.retained.match(b"$tide/move/#"))) == len(bad)
