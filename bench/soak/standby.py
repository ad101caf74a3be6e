"""An edge is killed for good, its folder with it, and its standby goes on: `python -m bench.soak standby`.

A head and three edges with one standby copy of every session. All clients are on the first edge, at QoS 1, half of them
away. Messages are published all the while. Once the edge is dead nobody starts it again. Connected clients know the
addresses of the other edges, those that were away come to any of them. Every message that was acknowledged to its
publisher must arrive.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import uvloop

from tidegate.client import Client, Message
from tidegate.cluster.local import LocalCluster

SETTINGS = (
    "cluster.replication=standby",
    "cluster.takeover=3",
    "limits.connection_rate=0",
    "limits.address_connection_rate=0",
)
OPTIONS: dict[str, Any] = {
    "session_expiry_interval": 3_600,
    "clean_start": False,
    "reconnect": True,
    "reconnect_min_delay": 0.1,
    "reconnect_max_delay": 1.0,
    "operation_timeout": 60.0,
    "reports": "off",
}
AT_ONCE = 20
RATE = 100.0  # messages a second, each for every client: with 200 of them 20 000 durable deliveries a second
BEFORE = (1.0, 3.0)  # seconds of load until the kill
AFTER = 8.0  # at least so many after it


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Of all rounds. `longest_gap`: from the kill until the last client had a message that was published after it."""

    clients: int
    rounds: int = 0
    published: int = 0
    delivered: int = 0
    lost: int = 0
    repeated: int = 0
    new_sessions: int = 0
    longest_gap: float = 0.0


class Subscriber:
    def __init__(self, number: int, addresses: list[str]) -> None:
        self.name = f"c{number}"
        self.seen: set[int] = set()
        self.repeated = 0
        self.after = 0  # the first number that counts as published after the kill
        self.back_at: float | None = None
        self.client = self.make(addresses)

    def make(self, addresses: list[str]) -> Client:
        return Client(addresses[0], client_id=self.name, servers=tuple(addresses[1:]), **OPTIONS)

    async def read(self) -> None:
        """Of a client that comes back: what waited for it belongs to no subscription that it made."""
        async for message in self.client.messages:
            self.take(message)

    def take(self, message: Message) -> None:
        number = int(message.payload)
        self.repeated += number in self.seen
        self.seen.add(number)
        if self.after and number >= self.after and self.back_at is None:
            self.back_at = time.monotonic()


async def _round(
    cluster: LocalCluster, data: Path, clients: int, random: Random, after: float, outcome: Outcome
) -> None:
    head, *edges = [node.addresses[0].removeprefix("mqtt://") for node in cluster.nodes]
    subscribers = [Subscriber(n, edges) for n in range(clients)]
    for at in range(0, clients, 50):
        part = subscribers[at : at + 50]
        await asyncio.gather(*(each.client.connect() for each in part))
        await asyncio.gather(*(each.client.subscribe("t", qos=1, callback=each.take) for each in part))
    await asyncio.sleep(2.0)  # until every session has its copy: two round trips, and one look
    away = subscribers[1::2]
    await asyncio.gather(*(each.client.disconnect() for each in away))
    published = 0
    reading: list[asyncio.Task[None]] = []

    async def publish(publisher: Client) -> None:
        """A few at a time, since each is acknowledged after a commit; `published` counts the acknowledged."""
        nonlocal published
        while True:
            due = time.monotonic() + AT_ONCE / RATE
            numbers = range(published, published + AT_ONCE)
            await asyncio.gather(*(publisher.publish("t", b"%d" % number, qos=1) for number in numbers))
            published += AT_ONCE
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async with Client(head, client_id="publisher", **OPTIONS) as publisher:
        publishing = asyncio.ensure_future(publish(publisher))
        await asyncio.sleep(random.uniform(*BEFORE))
        await asyncio.to_thread(cluster.edges[0].kill)
        killed = time.monotonic()
        shutil.rmtree(data / cluster.edges[0].name)
        for each in subscribers:
            each.after = published + AT_ONCE
        connected = subscribers[0::2]
        async with asyncio.timeout(60):
            while any(each.back_at is None for each in connected):
                await asyncio.sleep(0.01)
        gap = max((each.back_at or killed) - killed for each in connected)
        await asyncio.sleep(max(0.0, killed + after - time.monotonic()))
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        for number, each in enumerate(away):
            rest = edges[1:]
            each.client = each.make([rest[number % 2]])
            await each.client.connect()
            outcome.new_sessions += not each.client.connack.session_present
            reading.append(asyncio.ensure_future(each.read()))
        deadline = time.monotonic() + 60.0
        wanted = set(range(published))
        while any(wanted - each.seen for each in subscribers) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
    for task in reading:
        task.cancel()
    outcome.rounds += 1
    outcome.published += published
    outcome.longest_gap = round(max(outcome.longest_gap, gap), 2)
    for each in subscribers:
        outcome.lost += len(wanted - each.seen)
        outcome.delivered += len(each.seen)
        outcome.repeated += each.repeated
    await asyncio.gather(*(each.client.disconnect() for each in subscribers), return_exceptions=True)


def run(
    *, clients: int, rounds: int, seed: int, say: Callable[[str], None], after: float = AFTER
) -> Outcome:
    random = Random(seed)
    outcome = Outcome(clients=clients)
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="tidegate-standby-") as folder:
            data = Path(folder)
            with LocalCluster(edges=3, data=data, settings=SETTINGS) as cluster:
                uvloop.run(_round(cluster, data, clients, random, after, outcome))
        say(
            f"round {number + 1}: {outcome.lost} lost of {outcome.delivered:,}, all back after "
            f"{outcome.longest_gap:.1f} s at most"
        )
    return outcome
