"""The console's one connection to the node: reads its reports, measures a round trip, and comes back when it is lost.

What costs the node anything is asked for only while a browser shows it: `ask` a subject, and its topics are subscribed
to for some seconds. The pulse alone is always read, so that charts have a past.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from tidegate.client import Client, Message, SubscribeRefused
from tidegate.console import feed as topics
from tidegate.console.cluster import ClusterView
from tidegate.console.feed import Feed
from tidegate.console.history import GroupsHistory, NodeHistory
from tidegate.console.latency import Latency
from tidegate.console.publishers import PublisherTable
from tidegate.console.rpc import RpcView
from tidegate.errors import TidegateError

log = logging.getLogger("tidegate.console")

PULSE: Final = "$SYS/tide/pulse"
ALL_PUBLISHERS: Final = "$SYS/tide/publishers/all"
POLICY_VERSION: Final = "$SYS/tide/policy/version"
CLUSTER: Final = "$SYS/cluster/#"
ASKED_FOR: Final = 5.0  # seconds that a subject stays wanted after a browser asked
FIRST_DELAY, LONGEST_DELAY = 0.3, 3.0  # seconds between two attempts to connect
PROBE_INTERVAL: Final = 1.0

MakeClient = Callable[[], Client]


class NodeWatch:
    """Everything the console knows of its node. `run` until cancelled; all else reads."""

    def __init__(self, make_client: MakeClient, namespace: str = "main") -> None:
        self._make_client = make_client
        self.client: Client | None = None
        self.address = ""
        self.problem = "connecting"
        self.refused: list[str] = []  # topic filters that the console has no right to
        self.feed = Feed()
        self.pulse: dict[str, Any] = {}
        self.pulse_at = 0.0  # when it came, by our clock; 0: none in this life
        self.began_at = 0.0  # when this life began
        # The same for people, by the wall clock: when the latest pulse came, and since when there is no connection; 0:
        # there is one.
        self.pulse_wall = 0.0
        self.lost_at = time.time()
        self.history = NodeHistory()
        self.groups = GroupsHistory()
        self.table = PublisherTable()
        self.cluster = ClusterView()
        self.rpc = RpcView(namespace)
        self.policy_version = ""
        self.latency = Latency()
        self._asked: dict[str, float] = {}
        self._subscribed: dict[str, None] = {}  # filters, in their order
        self._probe_topic = f"tidegate/probe/{secrets.token_hex(8)}"
        self._subjects: dict[str, tuple[str, ...]] = {
            "reports": (topics.PUBLISHERS, topics.QUEUES, topics.GROUPS, topics.ACCOUNTS),
            "publishers": (topics.PUBLISHERS, ALL_PUBLISHERS),
            "rpc": self.rpc.topics,
        }

    @property
    def is_connected(self) -> bool:
        return self.client is not None and self.client.is_connected

    def ask(self, *subjects: str) -> None:
        """Somebody looks at these now."""
        until = time.monotonic() + ASKED_FOR
        for subject in subjects:
            self._asked[subject] = until

    async def run(self) -> None:
        """Connect, read, and again, until cancelled."""
        delay = FIRST_DELAY
        told = ""
        while True:
            began = time.monotonic()
            try:
                await self._one_life()
                self.problem = "the node ended the connection"
            except TidegateError as error:
                hint = getattr(error, "hint", "")
                self.problem = f"{error}{f' ({hint})' if hint else ''}"
            except OSError as error:
                self.problem = f"{self.address}: {error.strerror or error}"
            except Exception as error:  # a fault of ours must not be the end of all looking
                log.exception("the console failed, and begins anew")
                self.problem = f"{type(error).__name__}: {error}"
            if time.monotonic() - began > LONGEST_DELAY:
                delay = FIRST_DELAY
                told = ""
            if self.problem != told:  # once for each reason, not every few seconds
                told = self.problem
                log.warning("not connected to the node", extra={"why": self.problem})
            await asyncio.sleep(delay)
            delay = min(LONGEST_DELAY, delay * 2)

    async def _one_life(self) -> None:
        client = self._make_client()
        self.address = str(client.endpoint)
        tasks: list[asyncio.Task[None]] = []
        try:
            async with client:
                self._begin(client)
                tasks.append(asyncio.create_task(self._read(client)))
                await self._subscribe(client, *topics.TOPICS[4:], topics.LOAD, PULSE, POLICY_VERSION, CLUSTER)
                self.problem = ""
                tasks += [asyncio.create_task(work(client)) for work in (self._follow_demand, self._probe)]
                # Whichever ends, ends this life: none of them does while all is well.
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            if self.client is not None:  # another attempt that fails does not make it later
                self.lost_at = time.time()
            self.client = None
            self.latency.forget_probe()
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, client: Client) -> None:
        """Counters and clients of another life would be mixed with this one's."""
        self.client = client
        self.feed = Feed()
        self.cluster.clear()
        self.rpc.clear()
        self.table.clear()
        self.refused = []
        self.pulse_at = 0.0
        self.began_at = time.monotonic()
        self.lost_at = 0.0
        self._subscribed = {}
        self.policy_version = ""

    async def _subscribe(self, client: Client, *filters: str) -> None:
        """What is refused is remembered, and shown as a gap with its reason."""
        try:
            await client.subscribe(*filters)
        except SubscribeRefused as error:
            self.refused += [
                name
                for name, code in zip(error.topic_filters, error.reason_codes, strict=True)
                if code >= 0x80 and name not in self.refused
            ]

    async def _follow_demand(self, client: Client) -> None:
        while True:
            before, self._subscribed = self._subscribed, self._wanted()
            new = [name for name in self._subscribed if name not in before]
            if new:
                await self._subscribe(client, *new)
            old = [name for name in before if name not in self._subscribed and name in client.subscriptions]
            if old:
                await client.unsubscribe(*old)
            await asyncio.sleep(0.2)

    def _wanted(self) -> dict[str, None]:
        """The topics of all subjects that somebody looks at; two may have one in common."""
        now = time.monotonic()
        return {
            name: None
            for subject, filters in self._subjects.items()
            if self._asked.get(subject, 0.0) > now
            for name in filters
        }

    async def _probe(self, client: Client) -> None:
        """Publish to ourselves once a second; without the right to that topic there is no latency to show."""
        is_allowed = True
        try:
            await client.subscribe(self._probe_topic)
        except SubscribeRefused:
            is_allowed = False
        while True:
            probe = self.latency.next_probe(time.perf_counter()) if is_allowed else None
            if probe is not None:
                await client.publish(self._probe_topic, probe)
            await asyncio.sleep(PROBE_INTERVAL)

    async def _read(self, client: Client) -> None:
        """Anybody may publish: a message that we cannot bear is left out."""
        async for message in client.messages:
            try:
                self._take(message)
            except Exception:
                log.exception("a message was left out", extra={"topic": message.topic[:200]})

    def _take(self, message: Message) -> None:
        topic = message.topic
        if topic == self._probe_topic:
            self.latency.on_probe(message.payload, time.perf_counter())
            return
        if topic.startswith("$SYS/cluster/"):
            self.cluster.take(topic, message.payload, time.time())
        elif topic.startswith(self.rpc.root):
            self.rpc.take(topic, message.payload, time.time())
        elif topic == POLICY_VERSION:
            self.policy_version = message.payload.decode(errors="replace")
        elif topic in (PULSE, ALL_PUBLISHERS):
            self._take_document(topic, message.payload)
        else:
            self.feed.take(topic, message.payload, time.monotonic(), is_retained=message.retain)
            if topic == topics.PUBLISHERS:
                self.table.take_top(self.feed.publishers, self.feed.total(topics.PUBLISHERS))
            elif topic == topics.GROUPS and topic in self.feed.documents:
                self.groups.take(self.feed.documents[topic])

    def _take_document(self, topic: str, payload: bytes) -> None:
        try:
            document = json.loads(payload)
        except (ValueError, RecursionError):
            return
        if not isinstance(document, dict):
            return
        if topic == ALL_PUBLISHERS:
            self.table.take_page(document)
            return
        self.pulse, self.pulse_at, self.pulse_wall = document, time.monotonic(), time.time()
        if isinstance(document.get("policy"), str) and document["policy"]:
            self.policy_version = document["policy"]
        load = document.get("load")
        if isinstance(load, dict):
            self.feed.documents[topics.LOAD] = load
        self.history.take(document, self.latency.current(time.perf_counter()))
