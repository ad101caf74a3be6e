"""What `tidegate cluster` asks of a head, and how it is told that it asked somebody else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

from tidegate.client import Client, ConnectRefused, PublishRefused, SubscribeRefused, operators_way
from tidegate.errors import TidegateError
from tidegate.mqtt.codes import ReasonCode

Login: TypeAlias = tuple[str | None, str | None]
"""User name and password."""

NODES = "$SYS/cluster/nodes"  # only edges have it
ANSWER_SECONDS = 5.0  # a head begins to answer at once, except for a plan: it asks the edge first


class NotAHead(TidegateError):
    """The node that was asked is an edge."""

    def __init__(self, nodes: dict[str, dict[str, Any]]) -> None:
        super().__init__("that is an edge: name its head with --head")
        heads = [str(node.get("address")) for node in nodes.values() if node.get("role") == "head"]
        self.hint = f"its head is {heads[0].removeprefix('mqtt://')}" if heads else ""


@asynccontextmanager
async def connected(address: str, login: Login, **options: Any) -> AsyncIterator[Client]:
    """A client of a node; without a user name it comes as the operator of a node that runs here."""
    username, password = login
    if username is None:
        address = operators_way(address)
    try:
        async with Client(address, username=username, password=password, **options) as client:
            yield client
    except ConnectRefused as error:
        if error.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID:
            error.hint = "is that a head's link port? Name the port where clients connect"
        raise


async def order(head: str, what: str, node: str, answer: str, timeout: float, login: Login) -> dict[str, Any]:
    """Ask, and wait for an answer that is newer than the question; empty if there is none."""
    found: dict[str, Any] = {}
    deadline = asyncio.get_running_loop().time() + timeout
    patience = timeout if what == "plan" else min(timeout, ANSWER_SECONDS)
    async with connected(head, login, max_redirects=0, client_id="") as client:
        await client.subscribe(answer, retain_handling=2)
        try:
            await client.publish(f"$tide/cluster/{what}", node, qos=1)
        except PublishRefused:
            await _find_edge(client)  # an edge takes no orders
            raise
        try:
            async with asyncio.timeout(patience) as limit:
                async for message in client.messages:
                    found = json.loads(message.payload)
                    if found.get("state") != "running":
                        break
                    limit.reschedule(deadline)
        except TimeoutError:
            pass
    return found


async def _find_edge(client: Client) -> None:
    """Raise `NotAHead` if the node says that it is an edge."""
    with suppress(SubscribeRefused, TimeoutError):
        await client.subscribe(NODES)
        async with asyncio.timeout(1.0):
            async for message in client.messages:
                if message.topic == NODES:
                    raise NotAHead(json.loads(message.payload))
