"""A room with back-off and priority settings, publishers whose habits are known, and numbered messages."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.unit.broker.memory import Peer, Room
from tidegate.broker import Broker
from tidegate.broker.flow_settings import Backoff, FlowSettings
from tidegate.broker.hooks import Hooks
from tidegate.broker.settings import Features, Limits
from tidegate.flow.backoff import Prior
from tidegate.mqtt import Puback, Pubcomp, Publish, Pubrec, Pubrel

ALWAYS = FlowSettings(backoff=Backoff(always=True, floor_rate=0))


async def open_room(
    flow: FlowSettings = ALWAYS, hooks: Hooks | None = None, features: Features | None = None, **limits: Any
) -> Room:
    broker = Broker(
        listeners=(),
        limits=Limits(**({"connection_rate": 0} | limits)),
        features=features or Features(sys_interval=0),
        hooks=hooks,
        flow=flow,
    )
    await broker.start()
    return Room(broker)


def known(room: Room, **rates: float) -> None:
    """As if a policy snapshot had told these clients' rates: like clocks, so that twice the rate is found soon."""
    gate = room.core.gate
    assert gate is not None
    gate.priors = {name: Prior(rate=rate, dispersion=0.05) for name, rate in rates.items()}


async def seconds_until(condition: Callable[[], bool], limit: float = 10.0) -> float:
    """How long it takes until the condition holds."""
    clock = asyncio.get_running_loop().time
    began = clock()
    while not condition():
        assert clock() - began < limit, "the condition did not come true in time"
        await asyncio.sleep(0.001)
    return clock() - began


def message(number: int, qos: int = 0, topic: str = "t", size: int = 0, **fields: Any) -> Publish:
    """`number` is the first word of the payload, and makes the packet identifier."""
    return Publish(
        topic=topic,
        payload=b"%d " % number + bytes(size),
        qos=qos,
        packet_identifier=number % 65_535 + 1 if qos else None,
        **fields,
    )


def numbers(peer: Peer) -> list[int]:
    """Of all messages received, in their order."""
    return [int(packet.payload.split(b" ")[0]) for packet in peer.of(Publish)]


async def reader(room: Room, topic_filter: str = "t", qos: int = 2, version: int = 5) -> Peer:
    peer = await room.connect("reader", version)
    peer.subscribe(topic_filter, qos=qos)
    await room.settle()
    peer.forget()
    return peer


async def acknowledge_all(room: Room, peer: Peer) -> None:
    """Finish every handshake of the messages that came up to now."""
    for packet in peer.of(Publish):
        if packet.qos == 1:
            peer.send(Puback(packet_identifier=packet.packet_identifier or 0))
        elif packet.qos == 2:
            peer.send(Pubrec(packet_identifier=packet.packet_identifier or 0))
    await room.settle()
    peer.send(*(Pubcomp(packet_identifier=packet.packet_identifier) for packet in peer.of(Pubrel)))
    await room.settle()
