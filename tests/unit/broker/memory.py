"""The true broker without sockets: its `Handshake` on in-memory pairs, in the loop of the test.

Nothing here waits for time to pass: `settle` runs turns of the loop until nobody has anything left to do, so what a
test then sees is all there is.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Self, TypeVar, cast

from tidegate.broker import Broker
from tidegate.broker.connection import Connection
from tidegate.broker.handshake import Handshake
from tidegate.broker.hooks import Hooks
from tidegate.broker.listener import Listener
from tidegate.broker.session import Session
from tidegate.broker.settings import Features, Limits
from tidegate.mqtt import Connect, Packet, PacketReader, Publish, Subscribe, Subscription, encode_packet
from tidegate.net.memory import MemoryTransport, memory_pair

QUIET_TURNS = 6
"""Turns without a byte after which nothing is under way: the longest chain of `call_soon` is shorter."""
MOST_TURNS = 20_000

T = TypeVar("T")
P = TypeVar("P")


class Peer(asyncio.Protocol):
    """The client's end: keeps every byte and every packet, answers nothing by itself."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.received = bytearray()
        self.packets: list[Packet] = []
        self.is_lost = False
        self.transport: MemoryTransport
        self._reader = PacketReader(version)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(MemoryTransport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.packets.extend(self._reader.feed(data))
        self._reader.check()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def send(self, *packets: Packet) -> None:
        self.transport.write(b"".join(encode_packet(packet, self.version) for packet in packets))

    def subscribe(self, topic_filter: str, qos: int = 0, **options: Any) -> None:
        subscription = Subscription(topic_filter=topic_filter, qos=qos, **options)
        self.send(Subscribe(packet_identifier=1, subscriptions=[subscription]))

    def of(self, kind: type[P]) -> list[P]:
        return [packet for packet in self.packets if isinstance(packet, kind)]

    def messages(self) -> list[tuple[str, bytes, int]]:
        return [(packet.topic, packet.payload, packet.qos) for packet in self.of(Publish)]

    def forget(self) -> None:
        """Start again with nothing received."""
        self.received.clear()
        self.packets.clear()


class Room:
    """One broker without listeners."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.core = broker.core
        self.listener = Listener()
        self.peers: list[Peer] = []

    @classmethod
    async def open(
        cls, limits: Limits | None = None, features: Features | None = None, hooks: Hooks | None = None
    ) -> Self:
        broker = Broker(
            listeners=(),
            limits=limits or Limits(connection_rate=0),
            features=features or Features(sys_interval=0),
            hooks=hooks,
            random=Random(1),
        )
        await broker.start()
        return cls(broker)

    async def close(self) -> None:
        await self.broker.stop(timeout=0)

    def dial(self, version: int = 5) -> Peer:
        """A connection that has not said CONNECT."""
        peer = Peer(version)
        self.peers.append(peer)
        memory_pair(Handshake(self.core, self.listener), peer)
        return peer

    async def connect(self, client_id: str, version: int = 5, **fields: Any) -> Peer:
        peer = self.dial(version)
        peer.send(Connect(client_id=client_id, protocol_level=version, **fields))
        await self.settle()
        return peer

    def session(self, client_id: str) -> Session:
        return self.core.sessions[client_id]

    def connection(self, client_id: str) -> Connection:
        found = self.session(client_id).conn
        assert found is not None
        return found

    def _activity(self) -> tuple[int, ...]:
        counters = self.core.counters
        held = sum(len(conn.more or b"") for conn in self.core.connections)
        waiting = sum(peer.transport.get_write_buffer_size() for peer in self.peers)
        received = sum(len(peer.received) + peer.is_lost for peer in self.peers)
        return counters.bytes_received, counters.bytes_sent, counters.publish_sent, received, held, waiting

    async def settle(self) -> None:
        """Run the loop until nothing moves any more."""
        before = self._activity()
        quiet = 0
        for _ in range(MOST_TURNS):
            await asyncio.sleep(0)
            now = self._activity()
            quiet = quiet + 1 if now == before else 0
            before = now
            if quiet == QUIET_TURNS:
                return
        raise AssertionError("the loop never came to rest")

    async def turn(self) -> None:
        """One turn of the loop."""
        await asyncio.sleep(0)

    async def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        """Wait for something that a clock brings about."""
        deadline = self.core.now() + seconds
        while not condition():
            assert self.core.now() < deadline, "the condition did not come true in time"
            await asyncio.sleep(0.005)
        await self.settle()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; a callback that raised in the loop fails it."""
    faults: list[dict[str, Any]] = []

    async def guarded() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
        return await main

    result = asyncio.run(guarded())
    assert not faults, faults
    return result
