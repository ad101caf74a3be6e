"""Clients that lose their server again and again and keep to the specification: the load of the crash suite.

A client's session state lives in the object and survives its connections, as it would in a device: a publisher sends
again what is not finished, with DUP and the same packet identifier [MQTT5-4.4.0-1]; a receiver remembers QoS 2
identifiers until PUBREL [MQTT5-4.3.3-10].
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol, cast

from tests.crash.ledger import Ledger
from tidegate.mqtt import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketReader,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Will,
    encode_packet,
)
from tidegate.mqtt.properties import Properties, Property

NEVER = 0xFFFFFFFF
RETRY = 0.02  # seconds between attempts to reach a server that is not there


class Endpoint:
    """Where the server is, and whether it is worth trying: closed from the kill to the next start."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.is_open = asyncio.Event()


class Client(asyncio.Protocol):
    """One persistent session. Subclasses say what to do with packets; `run` keeps it connected."""

    will: Will | None = None
    is_persistent = True

    def __init__(self, endpoint: Endpoint, ledger: Ledger, name: str, version: int) -> None:
        self.endpoint = endpoint
        self.ledger = ledger
        self.name = name
        self.version = version
        self.properties: Properties = {}
        self.connections = 0
        self.has_session = False  # the server has acknowledged something, so the session is its to keep
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.Event()
        self._reader = PacketReader(version)
        self._connack: asyncio.Future[Connack] | None = None

    @property
    def is_connected(self) -> bool:
        return self._transport is not None and self._connack is None

    # -- asyncio's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._reader = PacketReader(self.version)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        for packet in self._reader.feed(data):
            if isinstance(packet, Connack):
                assert self._connack is not None
                self._connack.set_result(packet)
                self._connack = None
                self._resume(packet)
            elif isinstance(packet, Disconnect):
                self.ledger.fault(f"{self.name}: the server said {packet!r}")
            else:
                self.on_packet(packet)
        self._reader.check()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._connack is not None and not self._connack.done():
            self._connack.cancel()
        self._connack = None
        self._lost.set()

    # -- a connection ---------------------------------------------------------------------------------------

    def send(self, packet: Packet) -> None:
        if self._transport is not None:
            self._transport.write(encode_packet(packet, self.version))

    def drop(self) -> None:
        """Cut the connection without a word; what the socket still holds is gone, too."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def leave(self) -> None:
        """DISCONNECT and close."""
        self.send(Disconnect())
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    async def connect(self) -> bool:
        """One attempt; True when the server accepted it."""
        await self.endpoint.is_open.wait()
        loop = asyncio.get_running_loop()
        self._lost.clear()
        answer = self._connack = loop.create_future()
        try:
            await loop.create_connection(lambda: self, "127.0.0.1", self.endpoint.port)
        except OSError:
            self._connack = None
            await asyncio.sleep(RETRY)
            return False
        properties = dict(self.properties)
        if self.version == 5 and self.is_persistent:
            properties[Property.SESSION_EXPIRY_INTERVAL] = NEVER
        self.send(
            Connect(
                client_id=self.name,
                clean_start=not self.is_persistent,
                protocol_level=self.version,
                will=self.will,
                properties=properties,
            )
        )
        try:
            await answer
        except asyncio.CancelledError:
            if answer.cancelled() and self._lost.is_set():
                return False  # the server died between the two
            raise
        return True

    def _resume(self, answer: Connack) -> None:
        if answer.reason_code != 0:
            self.ledger.fault(f"{self.name}: refused with {answer.reason_code!r}")
            return
        if self.has_session and self.is_persistent and not answer.session_present:
            self.ledger.fault(f"{self.name}: the server forgot the session")
        self.connections += 1
        self.on_connected(session_present=answer.session_present)

    async def run(self) -> None:
        """Stay connected until cancelled."""
        while True:
            if await self.connect():
                await self._lost.wait()

    async def wander(self, random: Random, longest: float) -> None:
        """Come and go: online for a while, away for a while, with and without goodbye."""
        while True:
            if not await self.connect():
                continue
            try:
                async with asyncio.timeout(random.uniform(0, longest)):
                    await self._lost.wait()
            except TimeoutError:
                if random.random() < 0.5:
                    self.leave()
                else:
                    self.drop()
                await self._lost.wait()
                await asyncio.sleep(random.uniform(0, longest))

    async def close(self) -> None:
        """End for good."""
        if self._transport is not None:
            self.drop()
            await self._lost.wait()

    def on_connected(self, *, session_present: bool) -> None:
        """The CONNACK is here."""

    def on_packet(self, packet: Packet) -> None:
        """Any packet but CONNACK."""


class Publisher(Client):
    """Publishes numbered messages to its own topics, up to `window` unfinished at a time, while `is_active`."""

    def __init__(
        self,
        endpoint: Endpoint,
        ledger: Ledger,
        name: str,
        version: int,
        qos: int,
        window: int,
        random: Random,
    ) -> None:
        super().__init__(endpoint, ledger, name, version)
        self.qos = qos
        self.window = window
        self.is_active = False
        self.topics = [f"load/{qos}/{name}/{letter}" for letter in "abc"]
        self._random = random
        self._next_identifier = 0
        self._unfinished: dict[int, Publish | Pubrel] = {}  # in the order of sending

    @property
    def is_idle(self) -> bool:
        return not self._unfinished

    def on_connected(self, *, session_present: bool) -> None:
        for packet in self._unfinished.values():
            if isinstance(packet, Publish):
                packet.dup = session_present
            self.send(packet)
        self.pump()

    def pump(self) -> None:
        while self.is_active and self.is_connected and len(self._unfinished) < self.window:
            topic = self._random.choice(self.topics)
            number = self.ledger.published[topic]
            self.ledger.published[topic] += 1
            identifier = self._next_identifier % 65_535 + 1
            self._next_identifier = identifier
            packet = self._unfinished[identifier] = Publish(
                topic=topic,
                payload=b"%d " % number + b"x" * self._random.randrange(200),
                qos=self.qos,
                packet_identifier=identifier,
            )
            self.send(packet)

    def on_packet(self, packet: Packet) -> None:
        match packet:
            case Puback(packet_identifier=identifier) if self.qos == 1:
                self._acknowledged(self._unfinished.pop(identifier), packet.reason_code)
            case Pubrec(packet_identifier=identifier):
                sent = self._unfinished[identifier]
                if isinstance(sent, Publish):
                    self._acknowledged(sent, packet.reason_code)
                self._unfinished[identifier] = release = Pubrel(packet_identifier=identifier)
                self.send(release)
            case Pubcomp(packet_identifier=identifier):
                del self._unfinished[identifier]
            case _:
                self.ledger.fault(f"{self.name}: unexpected {packet!r}")
        self.pump()

    def _acknowledged(self, packet: Publish | Pubrel, reason_code: int) -> None:
        assert isinstance(packet, Publish)
        if reason_code >= 0x80:
            self.ledger.fault(f"{self.name}: {packet.topic} refused with {reason_code:#x}")
        self.has_session = True
        self.ledger.acknowledged[packet.topic] += 1


class Sink(Protocol):
    def add(self, topic: str, number: int, qos: int) -> None: ...


class Subscriber(Client):
    """Receives at the QoS it asked for; numbered messages go to `sink`, others to `on_other`."""

    def __init__(
        self,
        endpoint: Endpoint,
        ledger: Ledger,
        name: str,
        version: int,
        subscriptions: dict[str, int],
        sink: Sink,
        on_other: Callable[[str, bytes], None] | None = None,
    ) -> None:
        super().__init__(endpoint, ledger, name, version)
        self.subscriptions = subscriptions
        self.sink = sink
        self.is_subscribed = asyncio.Event()
        self._on_other = on_other
        self._unreleased: set[int] = set()

    def on_connected(self, *, session_present: bool) -> None:
        if not self.is_subscribed.is_set():
            asked = [Subscription(topic_filter=name, qos=qos) for name, qos in self.subscriptions.items()]
            self.send(Subscribe(packet_identifier=1, subscriptions=asked))

    def on_packet(self, packet: Packet) -> None:
        match packet:
            case Publish(qos=2, packet_identifier=int(identifier)):
                if identifier not in self._unreleased:
                    self._unreleased.add(identifier)
                    self._take(packet)
                self.send(Pubrec(packet_identifier=identifier))
            case Publish(qos=1, packet_identifier=int(identifier)):
                self._take(packet)
                self.send(Puback(packet_identifier=identifier))
            case Pubrel(packet_identifier=identifier):
                self._unreleased.discard(identifier)
                self.send(Pubcomp(packet_identifier=identifier))
            case Suback():
                self.has_session = True
                self.is_subscribed.set()
            case Unsuback():
                pass
            case _:
                self.ledger.fault(f"{self.name}: unexpected {packet!r}")

    def _take(self, packet: Publish) -> None:
        if packet.topic.startswith("load/"):
            self.sink.add(packet.topic, int(packet.payload.split(b" ", 1)[0]), packet.qos)
        elif self._on_other is not None:
            self._on_other(packet.topic, packet.payload)
        else:
            self.ledger.fault(f"{self.name}: {packet.topic} was not asked for")
