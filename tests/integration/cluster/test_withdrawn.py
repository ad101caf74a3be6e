"""Retained messages are on every node, and so is who left them: their rights count everywhere."""

from __future__ import annotations

from pathlib import Path

from tests.attack.conftest import ACCOUNTS, RIGHTS, write_accounts, write_rights
from tests.integration.cluster.nodes import Cluster, cluster, wait_until
from tidegate.node import Node

SECRET = RIGHTS + "\nuser guest\ntopic readwrite secret/#\n"


async def _leave(nodes: Cluster, node: Node, name: str, topic: str) -> None:
    client = await nodes.client(node, f"{name}-{topic}", username=name, password=name)
    await client.publish(topic, name.encode(), qos=1, retain=True)
    for each in (nodes.head, *nodes.edges):
        await wait_until(lambda each=each: each.broker.core.retained.get(topic.encode()) is not None)


async def _found(nodes: Cluster, node: Node) -> set[str]:
    client = await nodes.client(node, f"looks-{len(nodes.clients)}", username="owner", password="owner")
    found: set[str] = set()
    await client.subscribe("#", qos=1, callback=lambda message: found.add(message.topic))
    await client.publish("end", b"", qos=1)
    await wait_until(lambda: "end" in found)
    await client.disconnect()
    return found - {"end"}


def _accounts(folder: Path) -> dict[str, str]:
    return {
        "accounts__password_file": str(write_accounts(folder)),
        "accounts__rights_file": str(write_rights(folder, SECRET)),
    }


async def test_who_left_a_message_at_an_edge_is_asked_for_at_every_node(tmp_path: Path) -> None:
    async with cluster(2, **_accounts(tmp_path)) as nodes:
        await _leave(nodes, nodes.edges[0], "guest", "secret/a")
        await _leave(nodes, nodes.edges[0], "guest", "public/b")
        await _leave(nodes, nodes.head, "guest", "secret/c")
        await _leave(nodes, nodes.edges[1], "owner", "secret/d")
        everybody = (nodes.head, *nodes.edges)
        for node in everybody:
            assert await _found(nodes, node) == {"secret/a", "public/b", "secret/c", "secret/d"}
        write_rights(tmp_path, RIGHTS)
        for node in everybody:
            await node.reload(node.settings)
        for node in everybody:
            assert await _found(nodes, node) == {"public/b", "secret/d"}


async def test_who_takes_a_topic_over_is_its_author(tmp_path: Path) -> None:
    async with cluster(2, **_accounts(tmp_path)) as nodes:
        await _leave(nodes, nodes.edges[0], "guest", "secret/a")
        owner = await nodes.client(nodes.edges[1], "o", username="owner", password="owner")
        await owner.publish("secret/a", b"owner", qos=1, retain=True)
        key = b"secret/a"
        everybody = (nodes.head, *nodes.edges)
        for node in everybody:
            await wait_until(lambda node=node: _user(node, key) == "owner")
        await owner.publish("secret/a", b"again", qos=1, retain=True)
        for node in everybody:
            await wait_until(lambda node=node: _payload(node, key) == b"again")
            assert _user(node, key) == "owner"


async def test_messages_go_with_the_account_at_every_node(tmp_path: Path) -> None:
    async with cluster(2, **_accounts(tmp_path)) as nodes:
        await _leave(nodes, nodes.edges[0], "guest", "public/a")
        await _leave(nodes, nodes.edges[1], "owner", "public/b")
        write_accounts(tmp_path, tuple(name for name in ACCOUNTS if name != "guest"))
        for node in (nodes.head, *nodes.edges):
            await node.reload(node.settings)
        for node in (nodes.head, *nodes.edges):
            await wait_until(lambda node=node: node.broker.core.retained.get(b"public/a") is None)
            assert _user(node, b"public/b") == "owner"


def _user(node: Node, topic: bytes) -> str | None:
    message = node.broker.core.retained.get(topic)
    return None if message is None or message.author is None else message.author.user


def _payload(node: Node, topic: bytes) -> bytes:
    message = node.broker.core.retained.get(topic)
    return b"" if message is None else message.payload
