"""Every library, over every transport it has: messages arrive, once, in order, as they were sent."""

import hashlib
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.interop.conftest import Harbour, Join
from tests.interop.matrix import every_kind, every_transport, every_version
from tests.interop.peers.base import Peer
from tests.interop.reference import MARKER, collect
from tidegate.mqtt import Publish
from tidegate.testing.raw import RawClient

COUNT = 40
LARGE = hashlib.shake_256(b"tide").digest(200_000)  # every byte value, and nothing a compressor could hide


@pytest.fixture
def reference(harbour: Harbour) -> Iterator[RawClient]:
    with closing(RawClient(harbour.port, timeout=20.0)) as client:
        client.connect()
        yield client


def payloads(qos: int) -> list[bytes]:
    return [f"{qos}/{number}".encode() for number in range(COUNT)]


def taken(peer: Peer) -> list[tuple[bytes, int]]:
    """Payload and QoS of what came before the marker."""
    messages = peer.inbox.take_until(lambda message: message.payload == MARKER)
    return [(message.payload, message.qos) for message in messages[:-1]]


@every_version
@every_transport
def test_what_a_client_publishes_arrives_once_in_order_at_every_qos(
    join: Join, reference: RawClient, topic: str, kind: str, transport: str, version: int
) -> None:
    reference.subscribe(topic, qos=2)
    peer = join(kind, version, transport)
    for qos in (0, 1, 2):
        for payload in payloads(qos):
            peer.publish(topic, payload, qos)
        peer.publish(topic, MARKER, qos)
        found = [(message.payload, message.qos, message.dup) for message in collect(reference)]
        assert found == [(payload, qos, False) for payload in payloads(qos)]


@every_version
@every_transport
def test_what_a_client_subscribes_to_arrives_once_in_order_at_every_qos(
    join: Join, reference: RawClient, topic: str, kind: str, transport: str, version: int
) -> None:
    peer = join(kind, version, transport)
    assert peer.subscribe(f"{topic}/+", 2) == 2
    for qos in (0, 1, 2):
        for payload in payloads(qos):
            reference.publish(f"{topic}/{qos}", payload, qos)
        reference.publish(f"{topic}/{qos}", MARKER, qos)
        assert taken(peer) == [(payload, qos) for payload in payloads(qos)]


@every_version
@every_transport
def test_a_large_message_goes_both_ways(
    join: Join, reference: RawClient, topic: str, kind: str, transport: str, version: int
) -> None:
    peer = join(kind, version, transport)
    peer.subscribe(f"{topic}/down", 1)
    reference.subscribe(f"{topic}/up", qos=2)
    peer.publish(f"{topic}/up", LARGE, 2)
    message = reference.take(Publish)
    reference.acknowledge(message)
    reference.publish(f"{topic}/down", LARGE, qos=1)
    assert (message.payload == LARGE, peer.inbox.take().payload == LARGE) == (True, True)


@every_version
@every_kind
def test_delivery_is_at_the_lower_of_the_two_qos(
    join: Join, reference: RawClient, topic: str, kind: str, version: int
) -> None:
    peer = join(kind, version)
    for granted in (0, 1):
        assert peer.subscribe(f"{topic}/{granted}", granted) == granted
        reference.publish(f"{topic}/{granted}", b"x", qos=2)
        assert peer.inbox.take().qos == granted


@every_version
@every_kind
def test_a_retained_message_waits_for_a_client(
    join: Join, reference: RawClient, topic: str, kind: str, version: int
) -> None:
    reference.publish(f"{topic}/down", b"kept", qos=1, retain=True)
    peer = join(kind, version)
    peer.subscribe(f"{topic}/down", 1)
    kept = peer.inbox.take()
    assert (kept.payload, kept.qos, kept.retain) == (b"kept", 1, True)
    reference.publish(f"{topic}/down", b"", qos=1, retain=True)
    cleared = peer.inbox.take()
    assert (cleared.payload, cleared.retain) == (b"", False)


@every_version
@every_kind
def test_a_client_sets_and_clears_a_retained_message(
    join: Join, reference: RawClient, topic: str, kind: str, version: int
) -> None:
    peer = join(kind, version)
    peer.publish(topic, b"first", 1, retain=True)
    peer.publish(topic, b"second", 1, retain=True)
    reference.subscribe(topic, qos=1)
    message = reference.take(Publish)
    reference.acknowledge(message)
    assert (message.payload, message.retain) == (b"second", True)
    reference.unsubscribe(topic)
    peer.publish(topic, b"", 1, retain=True)
    reference.subscribe(topic, qos=1)
    assert reference.barrier() == []


@every_version
@every_kind
def test_nothing_comes_after_unsubscribing(
    join: Join, reference: RawClient, topic: str, kind: str, version: int
) -> None:
    peer = join(kind, version)
    peer.subscribe(f"{topic}/left", 1)
    peer.subscribe(f"{topic}/kept", 1)
    reference.publish(f"{topic}/left", b"before", qos=1)
    peer.unsubscribe(f"{topic}/left")
    reference.publish(f"{topic}/left", b"after", qos=1)
    reference.publish(f"{topic}/kept", MARKER, qos=1)
    assert taken(peer) == [(b"before", 1)]


@every_version
def test_every_library_gets_what_every_library_sends(join: Join, topic: str, version: int) -> None:
    kinds = ("paho", "aiomqtt", "gmqtt", "mqttjs")
    peers = {kind: join(kind, version, name=kind) for kind in kinds}
    for peer in peers.values():
        peer.subscribe(f"{topic}/#", 2)
    for kind, peer in peers.items():
        for number in range(10):
            peer.publish(f"{topic}/{kind}", str(number).encode(), 2)
    peers["paho"].publish(f"{topic}/end", MARKER, 2)
    for peer in peers.values():
        messages = peer.inbox.take_until(lambda message: message.payload == MARKER)[:-1]
        by_sender = {kind: [m.payload for m in messages if m.topic == f"{topic}/{kind}"] for kind in kinds}
        assert by_sender == {kind: [str(number).encode() for number in range(10)] for kind in kinds}
        assert len(messages) == 40
