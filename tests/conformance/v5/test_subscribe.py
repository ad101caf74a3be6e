"""MQTT 5 sections 3.8 and 3.9: SUBSCRIBE, its options, and SUBACK."""

import pytest

from tests.conformance.conftest import BrokerWith
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.rights import NoSecrets
from tests.conformance.v5.steps import (
    MALFORMED,
    PROTOCOL_ERROR,
    expect_disconnect,
    messages_besides_marker,
)
from tests.conformance.v5.wire import frame, prefixed, receive_frames, subscribe
from tidegate.broker.hooks import Hooks
from tidegate.mqtt import Property, Publish, ReasonCode, Suback, Subscription
from tidegate.mqtt.packets import Subscribe

SMALL = 24
"""A Maximum Packet Size with room for a bare answer and for no explanation."""


@pytest.mark.parametrize("first_byte", [0x80, 0x81, 0x83, 0x86, 0x8A])
def test_MQTT_3_8_1_1_a_subscribe_with_other_flags_closes_the_connection(join: Join, first_byte: int) -> None:
    client = join()
    client.send_bytes(subscribe(("a", 0), first_byte=first_byte))
    expect_disconnect(client, MALFORMED)


@pytest.mark.parametrize("name", [b"a/\xff", b"\xc0\x80", b"a\xed\xb0\x80"])
def test_MQTT_3_8_3_1_a_filter_that_is_not_utf8_closes_the_connection(join: Join, name: bytes) -> None:
    client = join()
    client.send_bytes(subscribe((name, 0)))
    expect_disconnect(client, MALFORMED)


def test_MQTT_3_8_3_2_a_subscribe_without_filter_is_a_protocol_error(join: Join) -> None:
    client = join()
    client.send_bytes(subscribe())
    expect_disconnect(client, PROTOCOL_ERROR, MALFORMED)


def test_MQTT_3_8_3_3_no_local_keeps_own_messages_away(join: Join, topic: str) -> None:
    client, other = join(), join("other")
    client.subscribe(f"{topic}/#", no_local=True)
    other.subscribe(f"{topic}/#")
    client.publish(f"{topic}/own", b"own", qos=1)
    other.expect(Publish, payload=b"own")
    messages = messages_besides_marker(client, f"{topic}/marker", other)
    assert messages == []


def test_MQTT_3_8_3_3_no_local_follows_the_client_identifier_over_a_reconnect(join: Join, topic: str) -> None:
    keep = {Property.SESSION_EXPIRY_INTERVAL: 60}
    client = join("device", properties=keep)
    client.subscribe(f"{topic}/#", no_local=True)
    client.disconnect()
    client = join("device", clean_start=False, properties=keep)
    client.publish(f"{topic}/own", b"own", qos=1)
    assert messages_besides_marker(client, f"{topic}/marker", join("other")) == []


def test_MQTT_3_8_3_3_another_subscription_without_no_local_still_gets_own_messages(
    join: Join, topic: str
) -> None:
    client = join()
    client.subscribe(f"{topic}/#", qos=2, no_local=True, properties={Property.SUBSCRIPTION_IDENTIFIER: [1]})
    client.subscribe(f"{topic}/+", qos=0, properties={Property.SUBSCRIPTION_IDENTIFIER: [2]})
    client.publish(f"{topic}/own", b"own", qos=2)
    message = client.expect(Publish, payload=b"own", qos=0)
    assert message.properties == {Property.SUBSCRIPTION_IDENTIFIER: [2]}
    assert client.barrier() == []


def test_MQTT_3_8_3_4_no_local_on_a_shared_subscription_is_a_protocol_error(join: Join) -> None:
    client = join()
    client.send_bytes(subscribe(("$share/group/a", 0x04)))
    expect_disconnect(client, PROTOCOL_ERROR)


@pytest.mark.parametrize("options", [0x40, 0x80, 0xC0, 0xC1])
def test_MQTT_3_8_3_5_reserved_option_bits_close_the_connection(join: Join, options: int) -> None:
    client = join()
    client.send_bytes(subscribe(("a", options)))
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize("options", [0x03, 0x30])
def test_MQTT_3_8_3_5_a_qos_or_retain_handling_of_three_closes_the_connection(
    join: Join, options: int
) -> None:
    client = join()
    client.send_bytes(subscribe(("a", options)))
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR)


def test_MQTT_3_8_4_1_subscribe_is_answered_with_suback(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(subscribe((topic, 0)))
    client.expect(Suback)


def test_MQTT_3_8_4_2_suback_has_the_identifier_of_subscribe(join: Join, topic: str) -> None:
    client = join()
    for identifier in (1, 255, 256, 65_535):
        client.send_bytes(subscribe((topic, 0), identifier=identifier))
        client.expect(Suback, packet_identifier=identifier)


def test_MQTT_3_8_4_3_an_equal_filter_replaces_the_subscription(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=0, properties={Property.SUBSCRIPTION_IDENTIFIER: [1]})
    client.subscribe(
        topic, qos=2, retain_as_published=True, properties={Property.SUBSCRIPTION_IDENTIFIER: [2]}
    )
    client.publish(topic, b"once", qos=1, retain=True)
    message = client.expect(Publish, payload=b"once", qos=1, retain=True)
    assert message.properties == {Property.SUBSCRIPTION_IDENTIFIER: [2]}
    client.acknowledge(message)
    assert client.barrier() == []


def test_MQTT_3_8_4_4_replacing_a_subscription_sends_retained_messages_again(join: Join, topic: str) -> None:
    client = join()
    client.publish(topic, b"kept", qos=1, retain=True)
    for qos in (0, 1, 2):
        client.subscribe(topic, qos=qos)
        client.acknowledge(client.expect(Publish, payload=b"kept", retain=True))


def test_MQTT_3_8_4_4_replacing_a_subscription_loses_no_message(join: Join, topic: str) -> None:
    client, publisher = join(), join("publisher")
    client.subscribe(topic, qos=1)
    for number in range(30):
        publisher.send(Publish(topic=topic, payload=b"%d" % number, qos=1, packet_identifier=number + 1))
        if number % 3 == 0:
            client.send_bytes(subscribe((topic, 1), identifier=number + 100))
    seen: list[int] = []
    while len(seen) < 30:
        message = client.take(Publish)
        client.acknowledge(message)
        seen.append(int(message.payload))
    assert seen == list(range(30))


def test_MQTT_3_8_4_5_several_filters_work_like_several_subscribes_with_one_answer(
    join: Join, topic: str
) -> None:
    client = join()
    names = [f"{topic}/{number}" for number in range(5)]
    suback = client.subscribe_all([Subscription(topic_filter=name, qos=1) for name in names])
    assert suback.reason_codes == [1] * 5
    for name in names:
        client.publish(name, name.encode())
        client.expect(Publish, topic=name)
    assert client.barrier() == []


def test_MQTT_3_8_4_6_suback_has_a_reason_code_for_each_filter(join: Join, topic: str) -> None:
    client = join()
    for count in (1, 2, 50):
        subscriptions = [Subscription(topic_filter=f"{topic}/{number}") for number in range(count)]
        assert len(client.subscribe_all(subscriptions).reason_codes) == count


def test_MQTT_3_8_4_7_the_reason_code_tells_the_granted_qos(join: Join, topic: str) -> None:
    client = join()
    for qos in range(3):
        assert client.subscribe(topic, qos=qos).reason_codes == [qos]


@pytest.mark.parametrize(
    ("settings", "topic_filter", "properties", "reason_code"),
    [
        ({"hooks": Hooks(authoriser=NoSecrets())}, "secret", {}, ReasonCode.NOT_AUTHORIZED),
        (
            {"wildcard_subscription_available": False},
            "a/+",
            {},
            ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
        ),
        (
            {"shared_subscription_available": False},
            "$share/g/a",
            {},
            ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
        ),
        (
            {"subscription_identifiers_available": False},
            "a",
            {Property.SUBSCRIPTION_IDENTIFIER: [1]},
            ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
        ),
    ],
)
def test_MQTT_3_8_4_7_the_reason_code_tells_why_a_subscription_failed(
    broker_with: BrokerWith,
    join: Join,
    settings: dict[str, object],
    topic_filter: str,
    properties: dict[Property, object],
    reason_code: int,
) -> None:
    client = join(to=broker_with(**settings))
    assert client.subscribe(topic_filter, properties=properties).reason_codes == [reason_code]
    client.publish(topic_filter.replace("+", "x").removeprefix("$share/g/"), b"x", qos=1)
    assert client.barrier() == []


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_MQTT_3_8_4_8_messages_arrive_with_the_lower_of_both_qos(
    join: Join, topic: str, granted: int, published: int
) -> None:
    client = join()
    client.subscribe(topic, qos=granted)
    client.publish(topic, b"x", qos=published)
    client.expect(Publish, qos=min(granted, published))


def too_many_subscriptions(broker_with: BrokerWith, join: Join) -> bytes:
    """The SUBACK of a refusal that the server could explain, at a client with little room."""
    properties = {Property.MAXIMUM_PACKET_SIZE: SMALL, Property.USER_PROPERTY: [("k", "v" * 100)]}
    client = join(to=broker_with(max_subscriptions=1), properties=properties)
    client.subscribe("first")
    client.send_bytes(subscribe(("second", 0), identifier=2))
    (suback,) = receive_frames(client, 1)
    assert suback[-1] == ReasonCode.QUOTA_EXCEEDED
    return suback


def test_MQTT_3_9_2_1_a_reason_string_does_not_make_suback_too_large(
    broker_with: BrokerWith, join: Join
) -> None:
    assert len(too_many_subscriptions(broker_with, join)) <= SMALL


def test_MQTT_3_9_2_2_user_properties_do_not_make_suback_too_large(
    broker_with: BrokerWith, join: Join
) -> None:
    assert b"v" * 10 not in too_many_subscriptions(broker_with, join)


def test_MQTT_3_9_3_1_reason_codes_come_in_the_order_of_the_filters(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(hooks=Hooks(authoriser=NoSecrets())))
    wanted = [("a", 2), ("secret", 1), ("b", 0), ("secret", 2), ("c", 1)]
    suback = client.subscribe_all([Subscription(topic_filter=name, qos=qos) for name, qos in wanted])
    denied = ReasonCode.NOT_AUTHORIZED
    assert suback.reason_codes == [2, denied, 0, denied, 1]


def test_MQTT_3_9_3_2_every_reason_code_is_one_of_suback(broker_with: BrokerWith, join: Join) -> None:
    server = broker_with(
        hooks=Hooks(authoriser=NoSecrets()), max_subscriptions=3, shared_subscription_available=False
    )
    client = join(to=server)
    names = ["a", "secret", "$share/g/a", "b", "c", "d"]
    client.send(
        Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter=name) for name in names])
    )
    (suback,) = receive_frames(client, 1)
    defined = {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}
    codes = suback[-len(names) :]
    assert set(codes) <= defined
    assert list(codes) == [0, 0x87, 0x9E, 0, 0, 0x97]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(b"\x0b\x00", id="identifier-zero"),
        pytest.param(b"\x0b\x01\x0b\x02", id="identifier-twice"),
        pytest.param(b"\x23\x00\x01", id="property-of-publish"),
    ],
)
def test_MQTT_4_13_1_1_a_subscribe_with_impossible_properties_closes_the_connection(
    join: Join, properties: bytes
) -> None:
    client = join()
    body = b"\x00\x01" + bytes((len(properties),)) + properties + prefixed("a") + b"\0"
    client.send_bytes(frame(0x82, body))
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR)
