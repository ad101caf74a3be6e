"""Clients that change what the server keeps (retained messages, subscriptions, wills), and the check after a start.

Each change has three moments: asked for, acknowledged, and between the two, when either state is right. The check
after a start compares with what was acknowledged before the kill.
"""

import asyncio
from collections import Counter
from random import Random

from tests.crash.clients import Client, Endpoint
from tests.crash.ledger import Ledger
from tidegate.mqtt import (
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)

CHECK_DEADLINE = 20.0
PAUSE = 0.002  # seconds between changes, so that they do not crowd out the load


class RetainedWriter(Client):
    """Sets and clears retained messages, one change at a time."""

    def __init__(self, endpoint: Endpoint, ledger: Ledger, name: str, version: int, random: Random) -> None:
        super().__init__(endpoint, ledger, name, version)
        self.values: dict[str, bytes] = {f"keep/{name}/{number}": b"" for number in range(20)}
        self.changing: tuple[str, bytes] | None = None
        self.changes = 0
        self.is_active = False
        self._random = random

    def allowed(self, topic: str) -> set[bytes]:
        known = {self.values[topic]}
        if self.changing is not None and self.changing[0] == topic:
            known.add(self.changing[1])
        return known

    def on_connected(self, *, session_present: bool) -> None:
        self._change()

    def _change(self) -> None:
        if not self.is_connected:
            return
        if self.changing is None:
            if not self.is_active:
                return
            value = b"" if self._random.random() < 0.3 else b"%d" % self.changes
            self.changing = (self._random.choice(list(self.values)), value)
        topic, payload = self.changing
        self.send(Publish(topic=topic, payload=payload, qos=1, retain=True, packet_identifier=1))

    def on_packet(self, packet: Packet) -> None:
        if isinstance(packet, Puback) and self.changing is not None:
            topic, payload = self.changing
            self.values[topic] = payload
            self.changing = None
            self.changes += 1
            asyncio.get_running_loop().call_later(PAUSE, self._change)


class SubscriptionWriter(Client):
    """Subscribes and unsubscribes, one change at a time; takes the probes that the check publishes."""

    def __init__(self, endpoint: Endpoint, ledger: Ledger, name: str, version: int, random: Random) -> None:
        super().__init__(endpoint, ledger, name, version)
        self.filters: dict[str, bool] = {f"churn/{name}/{number}": False for number in range(10)}
        self.changing: tuple[str, bool] | None = None
        self.changes = 0
        self.probes: Counter[tuple[str, bytes]] = (
            Counter()
        )  # owed to us, because the server said somebody gets it
        self.is_active = False
        self._random = random

    def on_connected(self, *, session_present: bool) -> None:
        self._change()

    def _change(self) -> None:
        if not self.is_connected:
            return
        if self.changing is None:
            if not self.is_active:
                return
            name = self._random.choice(list(self.filters))
            self.changing = (name, not self.filters[name])
        name, is_there = self.changing
        if is_there:
            asked = [Subscription(topic_filter=name, qos=1)]
            self.send(Subscribe(packet_identifier=1, subscriptions=asked))
        else:
            self.send(Unsubscribe(packet_identifier=1, topic_filters=[name]))

    def on_packet(self, packet: Packet) -> None:
        match packet:
            case Suback() | Unsuback() if self.changing is not None:
                name, self.filters[name] = self.changing
                self.changing = None
                self.changes += 1
                self.has_session = True
                asyncio.get_running_loop().call_later(PAUSE, self._change)
            case Publish(packet_identifier=int(identifier)):
                self.probes.pop((packet.topic, packet.payload), None)
                self.send(Puback(packet_identifier=identifier))


class Mortal(Client):
    """Connects with a will that names this life; a retained message tells that the will is on disk."""

    def __init__(
        self, endpoint: Endpoint, ledger: Ledger, name: str, version: int, is_persistent: bool
    ) -> None:
        super().__init__(endpoint, ledger, name, version)
        self.is_persistent = is_persistent
        self.life = 0
        self.owed: set[bytes] = set()
        self.came: Counter[bytes] = Counter()
        self._is_sure = False

    def be_born(self) -> None:
        """Before a connection: a new will."""
        self.life += 1
        self.will = Will(topic=f"wills/{self.name}", payload=b"%d" % self.life, qos=2)
        self._is_sure = False

    def on_connected(self, *, session_present: bool) -> None:
        self.send(
            Publish(
                topic=f"alive/{self.name}", payload=b"%d" % self.life, qos=1, retain=True, packet_identifier=1
            )
        )

    def on_packet(self, packet: Packet) -> None:
        if isinstance(packet, Puback):
            self.has_session = self._is_sure = True

    def die(self) -> None:
        """The server was killed with us connected: the will of a sure life is owed, exactly once."""
        if self._is_sure:
            self.owed.add(b"%d" % self.life)

    async def run(self) -> None:
        while True:
            await self.endpoint.is_open.wait()
            self.be_born()
            if await self.connect():
                await self._lost.wait()

    def on_will(self, payload: bytes) -> None:
        self.came[payload] += 1
        if self.came[payload] > 1:
            self.ledger.duplicates += 1
            self.ledger.fault(f"{self.name}: will {payload!r} came {self.came[payload]} times")

    def missing(self) -> list[bytes]:
        return [life for life in self.owed if not self.came[life]]


class Checker(Client):
    """A passer-by that looks at what a started server has kept."""

    is_persistent = False

    def __init__(self, endpoint: Endpoint, ledger: Ledger) -> None:
        super().__init__(endpoint, ledger, "checker", 5)
        self._packets: asyncio.Queue[Packet] = asyncio.Queue()

    def on_packet(self, packet: Packet) -> None:
        self._packets.put_nowait(packet)

    async def check(
        self, retained: list[RetainedWriter], subscribed: list[SubscriptionWriter], cycle: int
    ) -> None:
        async with asyncio.timeout(CHECK_DEADLINE):
            while not await self.connect():
                pass
            found = await self._retained()
            for writer in retained:
                for topic in writer.values:
                    if found.pop(topic, b"") not in writer.allowed(topic):
                        self.ledger.fault(f"after start {cycle}: {topic} is not what was acknowledged")
            for topic in found:
                if not topic.startswith("alive/"):
                    self.ledger.fault(f"after start {cycle}: {topic} is retained and should not be")
            for owner in subscribed:
                await self._subscriptions(owner, cycle)
        await self.close()

    async def _retained(self) -> dict[str, bytes]:
        """All retained messages; a second filter's answer comes after the first one's and marks its end."""
        marker = "alive/checker"
        self.send(Publish(topic=marker, payload=b"end", qos=1, retain=True, packet_identifier=1))
        await self._take(Puback)
        asked = [Subscription(topic_filter="keep/#", qos=0), Subscription(topic_filter=marker, qos=0)]
        self.send(Subscribe(packet_identifier=2, subscriptions=asked))
        found: dict[str, bytes] = {}
        while True:
            packet = await self._packets.get()
            if isinstance(packet, Publish):
                if packet.topic == marker:
                    return found
                found[packet.topic] = packet.payload

    async def _subscriptions(self, owner: SubscriptionWriter, cycle: int) -> None:
        for name, is_there in owner.filters.items():
            payload = b"probe %d" % cycle
            self.send(Publish(topic=name, payload=payload, qos=1, packet_identifier=3))
            answer = await self._take(Puback)
            is_matched = answer.reason_code != 0x10  # No matching subscribers
            if is_matched:
                owner.probes[name, payload] += 1
            if is_matched != is_there and (owner.changing is None or owner.changing[0] != name):
                self.ledger.fault(f"after start {cycle}: subscription {name} is {is_matched}, not {is_there}")

    async def _take(self, kind: type[Puback]) -> Puback:
        while True:
            packet = await self._packets.get()
            if isinstance(packet, kind):
                return packet


__all__ = ["Checker", "Mortal", "RetainedWriter", "SubscriptionWriter"]
