"""Screens for the demo's cluster, and the newsroom that fills them: `python -m tidegate.demo.crowd URL COUNT`.

Each screen reads one of four topics and notes which headlines it got. `burst` on the input makes two topics of one edge
five times as fast, more than the edge's uplink carries; `calm` ends that. `count` lets the newsroom pause until every
screen has everything, and says how many headlines did not arrive. A line of JSON for each thing that happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

from tidegate.client import Client

TOPICS: Final = tuple(f"news/{number}" for number in range(4))
# 40 screens, so 10 a topic: 0.25 Mbit/s a topic when calm, 1.2 in a burst. Edges have UPLINK: two calm topics fill a
# quarter of one, two that burst ask for a fifth more than it has, and the other edge has room for one of them.
UPLINK: Final = 2.0  # Mbit/s
SIZE_BYTES: Final = 1_000
CALM: Final = 3.0  # headlines a second and topic
BURST: Final = 15.0
BURSTING: Final = 2  # topics
COUNTING: Final = 15.0  # seconds that a headline may be on its way before it counts as lost
LOOK: Final = 0.05


class Screen:
    """One subscriber: the numbers of the headlines that it got, each once, since its first one."""

    def __init__(self, number: int) -> None:
        self.name = f"screen-{number:02d}"
        self.topic = TOPICS[number % len(TOPICS)]
        self.got: set[int] = set()
        self.first: int | None = None

    def take(self, text: str) -> None:
        number = int(text.split()[1])
        if self.first is None:
            self.first = number
        self.got.add(number)

    def lost(self, last: int) -> int:
        """How many are missing of those up to `last`."""
        return 0 if self.first is None else max(0, last - self.first + 1 - len(self.got))


class Crowd:
    """What its clients share."""

    def __init__(self, url: str, count: int) -> None:
        self.url = url
        self.screens = [Screen(number) for number in range(count)]
        self.sent = dict.fromkeys(TOPICS, 0)
        self.rates = dict.fromkeys(TOPICS, CALM)
        self.is_paused = False
        self.places: dict[str, list[str]] = {}  # by edge: the topics that it serves, as the head says
        self._told: set[int] = set()  # phases of balancing

    async def read(self, screen: Screen) -> None:
        # A session that outlives its connection is one that the head can move.
        client = Client(self.url, client_id=screen.name, session_expiry_interval=60, reconnect=True)
        async with client:
            await client.subscribe(screen.topic, qos=1)
            async for message in client.messages:
                screen.take(message.text)

    async def write(self, topic: str) -> None:
        """The newsroom's part for one topic; a headline that is not acknowledged is not followed by another."""
        async with Client(self.url, client_id=topic.replace("/", "room-"), reconnect=True) as client:
            due = time.monotonic()
            while True:
                if self.is_paused:
                    due = time.monotonic() + LOOK
                else:
                    self.sent[topic] += 1  # before it is sent: nobody has what is not counted
                    text = f"headline {self.sent[topic]} "
                    await client.publish(topic, text.ljust(SIZE_BYTES, "."), qos=1)
                    due = max(due + 1 / self.rates[topic], time.monotonic() - 1.0)
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def watch(self) -> None:
        """What the head says about its edges, and what it moved."""
        async with Client(self.url, client_id="crowd-watch", reconnect=True) as client:
            await client.subscribe("$SYS/cluster/balancing")
            async for message in client.messages:
                said = json.loads(message.payload)
                self.places = {
                    edge: sorted(each["topic"] for each in state["budgets"] if each["topic"] in TOPICS)
                    for edge, state in said["edges"].items()
                }
                self._tell_moves(said["phases"])

    def _tell_moves(self, phases: Iterable[dict[str, Any]]) -> None:
        for phase in phases:
            is_done = phase["is_over"] and not phase["is_timed_out"]
            if is_done and phase["moves"] and phase["number"] not in self._told:
                self._told.add(phase["number"])
                tell("moved", moves=phase["moves"])

    async def wait_ready(self) -> None:
        """Until every screen has something to show, and the head has seen every topic."""
        while any(screen.first is None for screen in self.screens) or not self._is_placed:
            await asyncio.sleep(LOOK)

    @property
    def _is_placed(self) -> bool:
        return {topic for topics in self.places.values() for topic in topics} == set(TOPICS)

    async def listen(self) -> None:
        """Orders, line by line; the end of the input is the end of the story."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := (await reader.readline()).decode().strip():
            if line == "burst":
                self.burst()
            elif line == "count":
                await self.count()
            else:
                self.rates = dict.fromkeys(TOPICS, CALM)
        os._exit(0)

    def burst(self) -> None:
        """On the edge that serves most topics."""
        edge = max(self.places, key=lambda name: (len(self.places[name]), name))
        topics = self.places[edge][:BURSTING]
        self.rates |= dict.fromkeys(topics, BURST)
        tell("burst", edge=edge, topics=topics)

    async def count(self) -> None:
        self.is_paused = True
        deadline = time.monotonic() + COUNTING
        while self.lost and time.monotonic() < deadline:
            await asyncio.sleep(LOOK)
        got = sum(len(screen.got) for screen in self.screens)
        tell("counted", headlines=sum(self.sent.values()), got=got, lost=self.lost)
        self.is_paused = False

    @property
    def lost(self) -> int:
        return sum(screen.lost(self.sent[screen.topic]) for screen in self.screens)


def tell(event: str, **words: object) -> None:
    print(json.dumps({"event": event, **words}), flush=True)


async def main(url: str, count: int) -> None:
    crowd = Crowd(url, count)
    async with asyncio.TaskGroup() as group:
        for screen in crowd.screens:
            group.create_task(crowd.read(screen))
        for topic in TOPICS:
            group.create_task(crowd.write(topic))
        group.create_task(crowd.watch())
        await crowd.wait_ready()
        print("ready", flush=True)
        group.create_task(crowd.listen())


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
