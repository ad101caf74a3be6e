"""Clients move from edge to edge and back, under load, while nodes are killed: `python -m bench.soak migration`.

A head and two edges with data folders; every client is subscribed to one of some topics, at QoS 1 and 2 in turn. Each
round drains the edge that has them. At a random moment of it one node, the old edge, the new edge or the head, is
killed and started again. At the end of a round every client must have got every message of its topic: QoS 1
none lost, QoS 2 none lost or doubled, in order.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import uvloop

from tidegate.client import Client, Message, operators_way
from tidegate.cluster.local import LocalCluster, NodeProcess
from tidegate.errors import TidegateError

TOPICS = 50
QUIET_SECONDS = 3.0  # a drain that says nothing for so long was forgotten with its head, or its answer missed
ROUND_SECONDS = 60.0  # of a drain with a kill, and of what is on its way after it
VICTIMS = ("old edge", "new edge", "head", "nobody")
CLIENT: dict[str, Any] = {
    "session_expiry_interval": 3_600,
    "clean_start": False,
    "reconnect": True,
    "reconnect_min_delay": 0.05,
    "reconnect_max_delay": 1.0,
    "operation_timeout": 120.0,
    "receive_queue_size": 5_000,
    "reports": "off",
}


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of it. `disordered`: clients that got a first copy of a message after a later one."""

    clients: int
    rounds: int
    seconds: float = 0.0
    kills: dict[str, int] = field(default_factory=dict)
    published: int = 0
    delivered: int = 0
    lost: int = 0
    doubled_qos2: int = 0
    repeated_qos1: int = 0
    disordered: int = 0
    unfinished: int = 0
    longest_round: float = 0.0


class Subscriber:
    """Counts what it gets of its topic, without keeping it."""

    def __init__(self, number: int, address: str) -> None:
        self.topic = number % TOPICS
        self.qos = 1 + number % 2
        self.seen: set[int] = set()
        self.last = -1
        self.repeated = 0
        self.disordered = 0
        self.is_ready = False
        self.client = Client(address, client_id=f"c{number}", **CLIENT)

    def take(self, message: Message) -> None:
        number = int(message.payload)
        if number < 0:
            self.is_ready = True
        elif number in self.seen:
            self.repeated += 1
        else:
            self.seen.add(number)
            self.disordered += number < self.last
            self.last = max(self.last, number)


def addresses_of(cluster: LocalCluster) -> list[str]:
    """Of all nodes, also after a kill."""
    return [node.addresses[0].removeprefix("mqtt://") for node in cluster.nodes]


class Soak:
    """One run on a running cluster."""

    def __init__(
        self, cluster: LocalCluster, *, clients: int, rate: float, seed: int, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._addresses = addresses_of(cluster)
        self._rate = rate
        self._random = Random(seed)
        self._say = say
        self.subscribers = [Subscriber(n, self._addresses[1]) for n in range(clients)]
        self._published = [0] * TOPICS
        self._drains: dict[str, dict[str, Any]] = {}
        self._plans: dict[str, dict[str, Any]] = {}
        self.outcome = Outcome(clients=clients, rounds=0)

    async def run(self, victims: list[str]) -> Outcome:
        began = time.monotonic()
        topics = sorted({each.topic for each in self.subscribers})
        async with (
            Client(self._addresses[0], client_id="publisher", **CLIENT) as publisher,
            Client(self._addresses[0], client_id="watcher", max_redirects=0, **CLIENT) as watcher,
            Client(operators_way(self._addresses[0]), client_id="operator", **CLIENT) as operator,
        ):
            await watcher.subscribe("$SYS/cluster/drain/+", callback=self._noter(self._drains))
            await watcher.subscribe("$SYS/cluster/plan/+", callback=self._noter(self._plans))
            for at in range(0, len(self.subscribers), 50):
                await asyncio.gather(*(self._join(each) for each in self.subscribers[at : at + 50]))
            while not all(each.is_ready for each in self.subscribers):
                for topic in topics:
                    await publisher.publish(f"t/{topic}", b"-1", qos=1)
                await asyncio.sleep(0.2)
            publishing = asyncio.ensure_future(self._publish(publisher, topics))
            try:
                for number, victim in enumerate(victims):
                    await self._round(operator, number, victim)
            finally:
                publishing.cancel()
                await asyncio.gather(publishing, return_exceptions=True)
            try:
                await self._settle()
            except TimeoutError:
                self.outcome.unfinished += 1
                self._say_missing()
        outcome = self.outcome
        outcome.seconds = round(time.monotonic() - began, 1)
        self._count()
        await asyncio.gather(*(each.client.disconnect() for each in self.subscribers), return_exceptions=True)
        return outcome

    @staticmethod
    def _noter(table: dict[str, dict[str, Any]]) -> Callable[[Message], None]:
        def note(message: Message) -> None:
            if message.payload:
                value = json.loads(message.payload)
                table[value["node"]] = value

        return note

    async def _join(self, subscriber: Subscriber) -> None:
        await subscriber.client.connect()
        await subscriber.client.subscribe(f"t/{subscriber.topic}", qos=subscriber.qos, callback=subscriber.take)

    async def _publish(self, publisher: Client, topics: list[int]) -> None:
        """So many messages a second on each topic; a number counts as published when the head has it."""
        while True:
            for topic in topics:
                due = time.monotonic() + 1.0 / (self._rate * len(topics))
                number = self._published[topic]
                await publisher.publish(f"t/{topic}", b"%d" % number, qos=2)
                self._published[topic] = number + 1
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _round(self, operator: Client, number: int, victim: str) -> None:
        old, new = (self._cluster.edges[number % 2], self._cluster.edges[1 - number % 2])
        began = time.monotonic()
        wanted = self._random.randrange(len(self.subscribers))
        asked = time.time()
        await operator.publish("$tide/cluster/resume", new.name, qos=1)
        await operator.publish("$tide/cluster/drain", old.name, qos=1)
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                if victim != "nobody":
                    await self._drained(operator, old.name, wanted, asked)
                    node = {"old edge": old, "new edge": new, "head": self._cluster.head}[victim]
                    await self._kill(node)
                    self.outcome.kills[victim] = self.outcome.kills.get(victim, 0) + 1
                await self._finish(operator, old.name)
                await self._settle()
        except TimeoutError:
            self.outcome.unfinished += 1
            self._say_missing()
        self.outcome.rounds += 1
        elapsed = time.monotonic() - began
        self.outcome.longest_round = round(max(self.outcome.longest_round, elapsed), 1)
        missing = sum(len(each.seen) < self._published[each.topic] for each in self.subscribers)
        self._say(f"round {number + 1}: {victim} killed, {elapsed:.1f} s, {missing} clients wait for messages")

    async def _drained(self, operator: Client, name: str, wanted: int, asked: float) -> None:
        """Until so many have moved. A head that has just come back refuses while the edge is not linked again, and
        the watcher may have been away when the answer came: then it is asked for again."""
        while True:
            state = self._drains.get(name, {})
            is_answered = state.get("at", 0.0) >= asked
            if is_answered and (state["moved"] >= wanted or state["state"] == "done"):
                return
            is_refused = is_answered and state["state"] in ("refused", "failed")
            if is_refused or time.time() - asked > QUIET_SECONDS:
                await asyncio.sleep(0.3)
                asked = time.time()
                await operator.publish("$tide/cluster/drain", name, qos=1)
            await asyncio.sleep(0.005)

    async def _kill(self, node: NodeProcess) -> None:
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.start)

    async def _finish(self, operator: Client, name: str) -> None:
        """Until nobody is left on the edge that could be moved; a drain that the head forgot is asked for again."""
        while True:
            asked = time.time()
            await operator.publish("$tide/cluster/plan", name, qos=1)
            deadline = time.monotonic() + QUIET_SECONDS  # the watcher may have been away when the answer came
            while self._plans.get(name, {}).get("at", 0.0) < asked and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
            plan = self._plans.get(name, {})
            if plan.get("at", 0.0) >= asked and not plan["reason"] and plan["moves"] == 0:
                return
            state = self._drains.get(name, {})
            is_running = state.get("state") == "running" and time.time() - state["at"] < QUIET_SECONDS
            if not is_running:
                await operator.publish("$tide/cluster/drain", name, qos=1)
            await asyncio.sleep(0.3)

    async def _settle(self) -> None:
        """Every client has got what was published before now."""
        wanted = list(self._published)
        async with asyncio.timeout(ROUND_SECONDS):
            while any(len(each.seen) < wanted[each.topic] for each in self.subscribers):
                await asyncio.sleep(0.05)

    def _say_missing(self) -> None:
        for each in self.subscribers:
            missing = sorted(set(range(self._published[each.topic])) - each.seen)
            if missing:
                state = "connected" if each.client.is_connected else "not connected"
                self._say(
                    f"{each.client.client_id} at QoS {each.qos}, {state}, waits for {len(missing)} of "
                    f"{self._published[each.topic]} messages, the first {missing[:5]}"
                )

    def _count(self) -> None:
        outcome = self.outcome
        outcome.published = sum(self._published)
        for each in self.subscribers:
            outcome.delivered += len(each.seen)
            # One may have been on its way when publishing ended.
            outcome.lost += len(set(range(self._published[each.topic])) - each.seen)
            outcome.disordered += each.disordered > 0
            if each.qos == 2:
                outcome.doubled_qos2 += each.repeated
            else:
                outcome.repeated_qos1 += each.repeated


def run(
    *, clients: int, rounds: int, rate: float, seed: int, say: Callable[[str], None], data: Path | None = None
) -> Outcome:
    random = Random(seed)
    victims = [random.choice(VICTIMS[:3]) for _ in range(rounds)]
    return run_victims(clients=clients, victims=victims, rate=rate, seed=seed, say=say, data=data)


def run_victims(
    *,
    clients: int,
    victims: list[str],
    rate: float,
    seed: int,
    say: Callable[[str], None],
    data: Path | None = None,
) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="tidegate-migration-", dir=data) as folder:
        settings = ("limits.connection_rate=0", "limits.address_connection_rate=0")
        with LocalCluster(edges=2, data=Path(folder), settings=settings) as cluster:
            soak = Soak(cluster, clients=clients, rate=rate, seed=seed, say=say)
            try:
                return uvloop.run(soak.run(victims))
            except (TimeoutError, TidegateError) as error:
                say(f"ended early: {error!r}")
                soak.outcome.unfinished += 1
                soak._count()
                return soak.outcome


__all__ = ["Outcome", "Soak", "addresses_of", "run", "run_victims"]
