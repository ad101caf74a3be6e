"""What the broker keeps for a client that is away, and what it says when one is lost."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.interop.conftest import Harbour, Join
from tests.interop.matrix import every_kind, every_transport, every_version
from tests.interop.peers.base import Will
from tests.interop.reference import MARKER
from tidegate.mqtt import Publish
from tidegate.testing.raw import RawClient

COUNT = 25
KEPT = 600  # seconds; longer than any test


@pytest.fixture
def reference(harbour: Harbour) -> Iterator[RawClient]:
    with closing(RawClient(harbour.port, timeout=20.0)) as client:
        client.connect()
        yield client


@every_version
@every_kind
def test_a_persistent_session_gets_what_came_while_it_was_away(
    make: Join, reference: RawClient, topic: str, kind: str, version: int
) -> None:
    # In 3.1.1 one flag says both "begin anew" and "forget me afterwards", so there it must be off.
    first = make(kind, version, name="away", clean_start=version == 5, session_expiry=KEPT)
    assert first.connect() is False
    first.subscribe(f"{topic}/+", 2)
    first.disconnect()
    for number in range(COUNT):
        reference.publish(f"{topic}/1", str(number).encode(), qos=1)
        reference.publish(f"{topic}/2", str(number).encode(), qos=2)
    reference.publish(f"{topic}/2", MARKER, qos=2)

    second = make(kind, version, name="away", clean_start=False, session_expiry=KEPT)
    assert second.connect() is True
    messages = second.inbox.take_until(lambda message: message.payload == MARKER)[:-1]
    expected = [str(number).encode() for number in range(COUNT)]
    assert [message.payload for message in messages if message.qos == 1] == expected
    assert [message.payload for message in messages if message.qos == 2] == expected


@every_version
@every_kind
def test_a_clean_start_finds_nothing_of_the_old_session(
    make: Join, reference: RawClient, topic: str, kind: str, version: int
) -> None:
    first = make(kind, version, name="anew", clean_start=False, session_expiry=KEPT)
    first.connect()
    first.subscribe(f"{topic}/old", 1)
    first.disconnect()
    second = make(kind, version, name="anew", clean_start=True)
    assert second.connect() is False
    second.subscribe(f"{topic}/new", 1)
    reference.publish(f"{topic}/old", b"not for you", qos=1)
    reference.publish(f"{topic}/new", MARKER, qos=1)
    assert second.inbox.take().payload == MARKER


@every_version
@every_transport
def test_the_will_of_a_lost_client_is_published(
    join: Join, harbour: Harbour, reference: RawClient, topic: str, kind: str, transport: str, version: int
) -> None:
    reference.subscribe(topic, qos=2)
    peer = join(kind, version, transport, will=Will(topic=topic, payload=b"lost", qos=1, retain=True))
    peer.drop()
    message = reference.take(Publish)
    assert (message.payload, message.qos, message.retain) == (b"lost", 1, False)
    with closing(RawClient(harbour.port)) as late:
        late.connect()
        late.subscribe(topic)
        late.take(Publish, payload=b"lost", retain=True)


@every_version
@every_transport
def test_the_will_of_a_client_that_says_goodbye_is_not_published(
    join: Join, reference: RawClient, topic: str, kind: str, transport: str, version: int
) -> None:
    reference.subscribe(topic)
    peer = join(kind, version, transport, will=Will(topic=topic, payload=b"lost"))
    peer.subscribe(topic)
    reference.publish(topic, b"first")
    peer.inbox.take()
    peer.disconnect()
    # A clean session ends with its DISCONNECT: once a new one for the same name is there, it is certain that
    # the old one published nothing.
    join(kind, version, transport)
    reference.publish(topic, MARKER)
    assert [reference.take(Publish).payload for _ in range(2)] == [b"first", MARKER]


@every_version
@every_kind
def test_a_client_that_comes_twice_takes_its_session_over(
    join: Join, make: Join, reference: RawClient, topic: str, kind: str, version: int
) -> None:
    join(kind, version, name="twice", clean_start=False, session_expiry=KEPT).subscribe(topic, 1)
    second = make(kind, version, name="twice", clean_start=False, session_expiry=KEPT)
    assert second.connect() is True
    reference.publish(topic, b"for the second", qos=1)
    assert second.inbox.take().payload == b"for the second"
