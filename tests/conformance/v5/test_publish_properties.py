"""MQTT 5 section 3.3.2: topic name, aliases, and the properties of PUBLISH."""

import pytest

from tests.conformance.conftest import BrokerWith
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.rights import ReadOnly
from tests.conformance.v5.steps import (
    MALFORMED,
    PROTOCOL_ERROR,
    expect_disconnect,
    messages_besides_marker,
    pass_time,
)
from tests.conformance.v5.wire import frame, prefixed, publish
from tidegate.broker.hooks import Hooks
from tidegate.mqtt import Property, Puback, Publish, ReasonCode

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}


def test_MQTT_3_3_2_1_the_topic_name_comes_first_and_is_utf8(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(frame(0x30, b"\x00\x10" + b"short"))
    expect_disconnect(client, MALFORMED)


@pytest.mark.parametrize("name", ["a/+", "a/#", "#", "+", "a+b", "a#"])
def test_MQTT_3_3_2_2_a_topic_name_with_wildcards_is_refused(join: Join, name: str) -> None:
    client = join()
    client.send_bytes(publish(name))
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR, ReasonCode.TOPIC_NAME_INVALID)


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("{}/a/b", {"/a/b"}),
        ("{}/+/b", {"/a/b", "/c/b", "//b"}),
        ("{}/#", {"", "/a", "/a/b", "/c/b", "//b", "/a/b/c"}),
        ("{}/a/+", {"/a/b"}),
    ],
)
def test_MQTT_3_3_2_3_only_messages_that_match_the_filter_arrive(
    join: Join, topic: str, pattern: str, matching: set[str]
) -> None:
    client = join()
    client.subscribe(pattern.format(topic))
    marker = f"{topic}-marker"
    client.subscribe(marker)
    for suffix in ("", "/a", "/a/b", "/c/b", "//b", "/a/b/c"):
        client.publish(topic + suffix)
    client.publish(f"{topic}x/a/b")
    names = [message.topic for message in messages_besides_marker(client, marker)]
    assert sorted(names) == sorted(topic + suffix for suffix in matching)


def passes_unaltered(join: Join, topic: str, name: Property, value: object) -> None:
    """Live, retained and queued, at each QoS."""
    subscriber, publisher = join("subscriber"), join("publisher")
    offline = join("offline", properties=KEEP)
    offline.subscribe(topic, qos=2)
    offline.disconnect()
    subscriber.subscribe(topic, qos=2)
    for qos in range(3):
        publisher.publish(topic, b"x", qos=qos, retain=True, properties={name: value})
        message = subscriber.expect(Publish, qos=qos)
        assert message.properties == {name: value}
        subscriber.acknowledge(message)
    late = join("late")
    late.subscribe(topic)
    assert late.expect(Publish, retain=True).properties == {name: value}
    offline = join("offline", clean_start=False, properties=KEEP)
    assert offline.expect(Publish, qos=1).properties == {name: value}


def test_MQTT_3_3_2_4_payload_format_indicator_is_passed_on(join: Join, topic: str) -> None:
    passes_unaltered(join, topic, Property.PAYLOAD_FORMAT_INDICATOR, 1)


def test_MQTT_3_3_2_5_an_expired_message_is_not_delivered(join: Join, topic: str) -> None:
    device = join("device", properties=KEEP)
    device.subscribe(topic, qos=1)
    device.disconnect()
    publisher = join("publisher")
    publisher.publish(topic, b"short", qos=1, properties={Property.MESSAGE_EXPIRY_INTERVAL: 1})
    publisher.publish(topic, b"long", qos=1, properties={Property.MESSAGE_EXPIRY_INTERVAL: 600})
    pass_time(1.2)
    device = join("device", clean_start=False, properties=KEEP)
    device.acknowledge(device.expect(Publish, payload=b"long"))
    assert device.barrier() == []


def test_MQTT_3_3_2_5_a_message_that_expires_while_it_waits_for_quota_is_not_delivered(
    join: Join, topic: str
) -> None:
    client = join("subscriber", properties={Property.RECEIVE_MAXIMUM: 1})
    client.subscribe(topic, qos=1)
    publisher = join("publisher")
    publisher.publish(topic, b"sent", qos=1)
    publisher.publish(topic, b"waits", qos=1, properties={Property.MESSAGE_EXPIRY_INTERVAL: 1})
    publisher.publish(topic, b"last", qos=1)
    message = client.expect(Publish, payload=b"sent")
    client.expect_nothing(1.2)
    client.acknowledge(message)
    client.expect(Publish, payload=b"last")


def test_MQTT_3_3_2_5_an_expired_retained_message_is_gone(join: Join, topic: str) -> None:
    client = join()
    client.publish(topic, b"x", qos=1, retain=True, properties={Property.MESSAGE_EXPIRY_INTERVAL: 1})
    pass_time(1.2)
    client.subscribe(topic)
    assert messages_besides_marker(client, topic) == []


def test_MQTT_3_3_2_6_the_time_a_message_waited_is_taken_from_its_expiry(join: Join, topic: str) -> None:
    device = join("device", properties=KEEP)
    device.subscribe(topic, qos=1)
    device.disconnect()
    publisher = join("publisher")
    publisher.publish(topic, b"x", qos=1, retain=True, properties={Property.MESSAGE_EXPIRY_INTERVAL: 100})
    pass_time(1.1)
    device = join("device", clean_start=False, properties=KEEP)
    assert 97 <= device.expect(Publish).properties[Property.MESSAGE_EXPIRY_INTERVAL] <= 99
    publisher.subscribe(topic)
    assert 97 <= publisher.expect(Publish).properties[Property.MESSAGE_EXPIRY_INTERVAL] <= 99


def test_MQTT_3_3_2_6_a_message_that_did_not_wait_keeps_its_expiry(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic)
    client.publish(topic, properties={Property.MESSAGE_EXPIRY_INTERVAL: 100})
    assert 99 <= client.expect(Publish).properties[Property.MESSAGE_EXPIRY_INTERVAL] <= 100


def test_MQTT_3_3_2_7_aliases_of_a_client_end_with_its_connection(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.publish(topic, qos=1, properties={Property.TOPIC_ALIAS: 1})
    client.disconnect()
    client = join("device", clean_start=False, properties=KEEP)
    client.send(Publish(topic="", properties={Property.TOPIC_ALIAS: 1}))
    expect_disconnect(client, PROTOCOL_ERROR, ReasonCode.TOPIC_ALIAS_INVALID)


def test_MQTT_3_3_2_7_the_server_starts_anew_with_aliases_after_a_reconnect(join: Join, topic: str) -> None:
    properties = {**KEEP, Property.TOPIC_ALIAS_MAXIMUM: 5}
    publisher = join("publisher")
    for clean_start in (True, False):
        device = join("device", clean_start=clean_start, properties=properties)
        device.subscribe(topic)
        publisher.publish(topic)
        assert device.expect(Publish).topic == topic
        device.disconnect()


def test_MQTT_3_3_2_8_an_alias_of_zero_closes_the_connection(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(publish(topic, properties=b"\x23\x00\x00"))
    expect_disconnect(client, PROTOCOL_ERROR, ReasonCode.TOPIC_ALIAS_INVALID)


def test_MQTT_3_3_2_9_an_alias_above_the_maximum_closes_the_connection(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(max_topic_alias=2))
    client.publish("t", qos=1, properties={Property.TOPIC_ALIAS: 2})
    client.send(Publish(topic="t", properties={Property.TOPIC_ALIAS: 3}))
    expect_disconnect(client, ReasonCode.TOPIC_ALIAS_INVALID)


def test_MQTT_3_3_2_11_the_server_keeps_to_the_alias_maximum_of_the_client(join: Join, topic: str) -> None:
    client = join("subscriber", properties={Property.TOPIC_ALIAS_MAXIMUM: 1})
    client.subscribe(f"{topic}/#", qos=1)
    publisher = join("publisher")
    for number in range(10):
        publisher.publish(f"{topic}/{number % 3}", qos=number % 2)
    for _ in range(10):
        message = client.take(Publish)
        client.acknowledge(message)
        assert message.properties.get(Property.TOPIC_ALIAS, 1) == 1


def test_MQTT_3_3_2_12_every_alias_up_to_the_maximum_is_accepted(broker_with: BrokerWith, join: Join) -> None:
    server = broker_with(max_topic_alias=5)
    publisher, subscriber = join("publisher", to=server), join("subscriber", to=server)
    subscriber.subscribe("#")
    for alias in range(1, 6):
        publisher.publish(f"topic/{alias}", properties={Property.TOPIC_ALIAS: alias})
    for alias in range(1, 6):
        publisher.send(Publish(topic="", qos=0, properties={Property.TOPIC_ALIAS: alias}))
    publisher.send(Publish(topic="renamed", properties={Property.TOPIC_ALIAS: 3}))
    publisher.send(Publish(topic="", qos=1, packet_identifier=9, properties={Property.TOPIC_ALIAS: 3}))
    publisher.expect(Puback, packet_identifier=9)
    expected = [f"topic/{alias}" for alias in (1, 2, 3, 4, 5, 1, 2, 3, 4, 5)] + ["renamed", "renamed"]
    for name in expected:
        message = subscriber.expect(Publish, topic=name)
        assert Property.TOPIC_ALIAS not in message.properties


def test_MQTT_3_3_2_12_an_alias_of_a_message_that_is_refused_is_known_all_the_same(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(hooks=Hooks(authoriser=ReadOnly())))
    for identifier, name in ((1, "t"), (2, "")):
        alias = {Property.TOPIC_ALIAS: 1}
        client.send(Publish(topic=name, qos=1, packet_identifier=identifier, properties=alias))
        client.expect(Puback, packet_identifier=identifier, reason_code=ReasonCode.NOT_AUTHORIZED)


def test_MQTT_3_3_2_13_a_response_topic_that_is_not_utf8_is_malformed(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(publish(topic, properties=b"\x08" + prefixed(b"a\xff")))
    expect_disconnect(client, MALFORMED)


@pytest.mark.parametrize("answer", ["a/+", "#", "a/#"])
def test_MQTT_3_3_2_14_a_response_topic_with_wildcards_closes_the_connection(
    join: Join, topic: str, answer: str
) -> None:
    client = join()
    client.send_bytes(publish(topic, properties=b"\x08" + prefixed(answer)))
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR, ReasonCode.TOPIC_NAME_INVALID)


def test_MQTT_3_3_2_15_the_response_topic_is_passed_on(join: Join, topic: str) -> None:
    passes_unaltered(join, topic, Property.RESPONSE_TOPIC, "answers/here")


def test_MQTT_3_3_2_16_correlation_data_is_passed_on(join: Join, topic: str) -> None:
    passes_unaltered(join, topic, Property.CORRELATION_DATA, bytes(range(256)))


def test_MQTT_3_3_2_17_user_properties_are_passed_on(join: Join, topic: str) -> None:
    passes_unaltered(join, topic, Property.USER_PROPERTY, [("a", "1"), ("ä", "ö"), ("", "")])


def test_MQTT_3_3_2_18_user_properties_keep_their_order(join: Join, topic: str) -> None:
    pairs = [("z", "1"), ("a", "2"), ("z", "0"), ("m", ""), ("a", "2")]
    passes_unaltered(join, topic, Property.USER_PROPERTY, pairs)


def test_MQTT_3_3_2_19_a_content_type_that_is_not_utf8_closes_the_connection(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(publish(topic, properties=b"\x03" + prefixed(b"\xed\xa0\x80")))
    expect_disconnect(client, MALFORMED)


def test_MQTT_3_3_2_20_the_content_type_is_passed_on(join: Join, topic: str) -> None:
    passes_unaltered(join, topic, Property.CONTENT_TYPE, "text/plain; charset=utf-8")
