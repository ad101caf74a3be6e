"""MQTT 5 between libraries: properties, requests and answers, aliases, shared subscriptions."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.interop.conftest import Harbour, Join
from tests.interop.matrix import KINDS, every_kind
from tests.interop.peers.base import Message, Properties, UserProperties
from tests.interop.reference import MARKER, collect
from tidegate.mqtt import Property, Publish
from tidegate.testing.raw import RawClient

USER = (("b", "1"), ("a", "2"), ("b", "3"), ("ключ", "значение"), ("a", ""))
# MQTT.js keeps pairs as a dictionary of lists, so it can neither show nor send the order between names.
GROUPED = {"mqttjs"}


@pytest.fixture
def reference(harbour: Harbour) -> Iterator[RawClient]:
    with closing(RawClient(harbour.port, timeout=20.0)) as client:
        client.connect()
        yield client


def grouped(pairs: UserProperties) -> UserProperties:
    """Pairs in order within their name, names in order of their first pair."""
    names = dict.fromkeys(name for name, _ in pairs)
    return tuple(pair for name in names for pair in pairs if pair[0] == name)


def as_seen_by(kind: str, pairs: UserProperties) -> UserProperties:
    return grouped(pairs) if kind in GROUPED else pairs


@every_kind
def test_properties_reach_a_subscriber_as_they_were_published(
    join: Join, reference: RawClient, topic: str, kind: str
) -> None:
    peer = join(kind, 5)
    peer.subscribe(topic, 1)
    reference.publish(
        topic,
        b"request",
        qos=1,
        properties={
            Property.PAYLOAD_FORMAT_INDICATOR: 1,
            Property.CONTENT_TYPE: "text/plain",
            Property.RESPONSE_TOPIC: f"{topic}/answer",
            Property.CORRELATION_DATA: b"7b",
            Property.MESSAGE_EXPIRY_INTERVAL: 3600,
            Property.USER_PROPERTY: list(USER),
        },
    )
    found = peer.inbox.take().properties
    assert found.user == as_seen_by(kind, USER)
    assert (found.payload_format_indicator, found.content_type) == (1, "text/plain")
    assert (found.response_topic, found.correlation_data) == (f"{topic}/answer", b"7b")
    assert found.message_expiry_interval is not None
    assert 3590 <= found.message_expiry_interval <= 3600


@every_kind
def test_properties_reach_the_broker_as_a_client_publishes_them(
    join: Join, reference: RawClient, topic: str, kind: str
) -> None:
    reference.subscribe(topic, qos=1)
    join(kind, 5).publish(
        topic,
        b"request",
        1,
        properties=Properties(
            user=USER,
            response_topic=f"{topic}/answer",
            correlation_data=b"7b",
            content_type="text/plain",
            payload_format_indicator=1,
            message_expiry_interval=3600,
        ),
    )
    message = reference.take(Publish)
    found = dict(message.properties)
    assert 3590 <= found.pop(Property.MESSAGE_EXPIRY_INTERVAL) <= 3600
    assert tuple(map(tuple, found.pop(Property.USER_PROPERTY))) == as_seen_by(kind, USER)
    assert found == {
        Property.PAYLOAD_FORMAT_INDICATOR: 1,
        Property.CONTENT_TYPE: "text/plain",
        Property.RESPONSE_TOPIC: f"{topic}/answer",
        Property.CORRELATION_DATA: b"7b",
    }


@pytest.mark.parametrize("asking", KINDS)
@pytest.mark.parametrize("answering", KINDS)
def test_a_request_is_answered_across_libraries(join: Join, topic: str, asking: str, answering: str) -> None:
    client = join(asking, 5, name="client")
    client.subscribe(f"{topic}/answers", 1)
    server = join(answering, 5, name="server")
    server.subscribe(f"{topic}/requests", 1)
    asked = Properties(response_topic=f"{topic}/answers", correlation_data=b"42")
    client.publish(f"{topic}/requests", b"how deep?", 1, properties=asked)

    request = server.inbox.take()
    assert request.properties.response_topic is not None
    answer = Properties(correlation_data=request.properties.correlation_data)
    server.publish(request.properties.response_topic, b"3.2 m", 1, properties=answer)
    received = client.inbox.take()
    assert (received.payload, received.properties.correlation_data) == (b"3.2 m", b"42")


@pytest.mark.parametrize("kind", ["paho", "gmqtt"])
def test_a_topic_alias_of_the_application_is_understood(
    join: Join, reference: RawClient, topic: str, kind: str
) -> None:
    reference.subscribe(f"{topic}/+", qos=1)
    peer = join(kind, 5)
    for alias, name in ((1, f"{topic}/one"), (2, f"{topic}/two")):
        peer.publish(name, b"named", 1, properties=Properties(topic_alias=alias))
    for alias in (1, 2, 1):
        peer.publish("", b"by alias", 1, properties=Properties(topic_alias=alias))
    peer.publish(f"{topic}/two", MARKER, 1)
    found = [(message.topic, message.payload) for message in collect(reference)]
    one, two = f"{topic}/one", f"{topic}/two"
    assert found == [
        (one, b"named"), (two, b"named"), (one, b"by alias"), (two, b"by alias"), (one, b"by alias")
    ]  # fmt: skip


def test_topic_aliases_that_mqttjs_assigns_are_understood(
    join: Join, reference: RawClient, topic: str
) -> None:
    reference.subscribe(f"{topic}/+", qos=1)
    peer = join("mqttjs", 5, topic_alias_maximum=4)
    # More topics than the broker allows aliases, so that some are given a second meaning.
    names = [f"{topic}/{number % 40}" for number in range(200)]
    for name in names:
        peer.publish(name, name.encode(), 1)
    peer.publish(f"{topic}/end", MARKER, 1)
    found = [(message.topic, message.payload.decode()) for message in collect(reference)]
    assert found == [(name, name) for name in names]


@pytest.mark.parametrize("kind", ["gmqtt", "mqttjs"])
def test_topic_aliases_of_the_broker_are_understood(
    join: Join, reference: RawClient, topic: str, kind: str
) -> None:
    peer = join(kind, 5, topic_alias_maximum=4)
    peer.subscribe(f"{topic}/+", 1)
    names = [f"{topic}/{number % 6}" for number in range(60)]
    for name in names:
        reference.publish(name, name.encode(), qos=1)
    reference.publish(f"{topic}/end", MARKER, qos=1)
    messages = peer.inbox.take_until(lambda message: message.payload == MARKER)[:-1]
    assert [(message.topic, message.payload.decode()) for message in messages] == [
        (name, name) for name in names
    ]


def test_a_shared_subscription_spreads_messages_over_libraries_without_doubles(
    join: Join, reference: RawClient, topic: str
) -> None:
    members = {kind: join(kind, 5, name=kind) for kind in KINDS}
    for peer in members.values():
        peer.subscribe(f"$share/crew/{topic}/work", 2)
        peer.subscribe(f"{topic}/end", 2)
    for number in range(120):
        reference.publish(f"{topic}/work", str(number).encode(), qos=2)
    reference.publish(f"{topic}/end", MARKER, qos=2)
    work: dict[str, list[Message]] = {
        kind: peer.inbox.take_until(lambda message: message.payload == MARKER)[:-1]
        for kind, peer in members.items()
    }
    counted = Counter(message.payload for messages in work.values() for message in messages)
    assert counted == Counter(str(number).encode() for number in range(120))
    assert all(work.values()), f"idle members: { {kind: len(found) for kind, found in work.items()} }"


def test_a_3_1_1_subscriber_gets_a_message_with_properties_without_them(
    join: Join, reference: RawClient, topic: str
) -> None:
    peer = join("paho", 4)
    peer.subscribe(topic, 1)
    reference.publish(topic, b"plain", qos=1, properties={Property.USER_PROPERTY: list(USER)})
    message = peer.inbox.take()
    assert (message.payload, message.properties) == (b"plain", Properties())
