"""MQTT 5 sections 3.1.2.10 and 3.1.2.11: Keep Alive and the properties of CONNECT."""

import time
from collections.abc import Callable

import pytest

from tests.conformance.conftest import BrokerWith, Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import collect, expect_disconnect, messages_besides_marker
from tests.conformance.v5.wire import receive_frames
from tidegate.mqtt import (
    Connect,
    Pingreq,
    Pingresp,
    Property,
    Puback,
    Pubcomp,
    Publish,
    Pubrel,
    ReasonCode,
    Subscribe,
    Subscription,
)

EXPLANATIONS = {Property.REASON_STRING, Property.USER_PROPERTY}


def test_MQTT_3_1_2_22_a_silent_client_is_cut_off_after_one_and_a_half_keep_alive(join: Join) -> None:
    client = join(keep_alive=1)
    started = time.monotonic()
    expect_disconnect(client, ReasonCode.KEEP_ALIVE_TIMEOUT)
    assert 1.0 < time.monotonic() - started < 3.5


def test_MQTT_3_1_2_22_any_packet_restarts_the_keep_alive_clock(join: Join, topic: str) -> None:
    client = join(keep_alive=1)
    for number in range(4):
        client.expect_nothing(0.7)
        if number % 2:
            client.publish(topic, b"alive", qos=1)
        else:
            client.send(Pingreq())
            client.expect(Pingresp)


def test_MQTT_3_1_2_22_a_keep_alive_of_zero_never_expires(join: Join) -> None:
    client = join(keep_alive=0)
    client.expect_nothing(2.0)
    assert client.barrier() == []


def test_MQTT_3_1_2_23_the_session_outlives_the_connection_if_its_expiry_is_not_zero(
    dial: Dial, unique: Callable[[str], str]
) -> None:
    first, second, third = dial(), dial(), dial()
    name = unique("device")
    first.connect(name, properties={Property.SESSION_EXPIRY_INTERVAL: 60})
    first.close()
    assert second.connect(name, clean_start=False).session_present
    second.disconnect()
    assert not third.connect(name, clean_start=False).session_present


def test_MQTT_3_1_2_24_no_packet_exceeds_the_maximum_the_client_set(join: Join, topic: str) -> None:
    client = join("small", properties={Property.MAXIMUM_PACKET_SIZE: 100})
    client.subscribe(f"{topic}/#", qos=1)
    overhead = 2 + 2 + len(topic) + 2 + 2 + 1
    publisher = join("publisher")
    publisher.publish(f"{topic}/x", bytes(100 - overhead + 1), qos=1)
    publisher.publish(f"{topic}/y", bytes(100 - overhead), qos=1)
    (received,) = receive_frames(client, 1)
    assert len(received) == 100
    assert f"{topic}/y".encode() in received


@pytest.mark.parametrize("maximum", [1, 5, 10, 15])
def test_MQTT_3_1_2_24_a_client_too_small_for_its_connack_is_not_sent_it(dial: Dial, maximum: int) -> None:
    client = dial()
    client.send(Connect(client_id="", properties={Property.MAXIMUM_PACKET_SIZE: maximum}))
    assert len(client.receive_bytes()) <= maximum


def test_MQTT_3_1_2_24_a_suback_too_large_for_the_client_is_not_sent(join: Join, topic: str) -> None:
    client = join(properties={Property.MAXIMUM_PACKET_SIZE: 30})
    many = [Subscription(topic_filter=f"{topic}/{number}") for number in range(50)]
    client.send(Subscribe(packet_identifier=1, subscriptions=many))
    client.send(Pingreq())
    assert len(client.receive_bytes()) <= 30


def test_MQTT_3_1_2_25_a_message_too_large_for_the_client_counts_as_delivered(join: Join, topic: str) -> None:
    client = join("small", properties={Property.MAXIMUM_PACKET_SIZE: 128, Property.RECEIVE_MAXIMUM: 1})
    client.subscribe(topic, qos=2)
    publisher = join("publisher")
    for _ in range(3):
        publisher.publish(topic, bytes(200), qos=1)
        publisher.publish(topic, bytes(200), qos=2)
    publisher.publish(topic, b"fits", qos=1)
    message = client.expect(Publish, payload=b"fits")
    client.acknowledge(message)
    assert client.barrier() == []


def test_MQTT_3_1_2_25_a_message_too_large_to_be_sent_again_counts_as_delivered(
    join: Join, topic: str
) -> None:
    keep = {Property.SESSION_EXPIRY_INTERVAL: 60}
    client = join("device", properties=keep)
    client.subscribe(topic, qos=1)
    publisher = join("publisher")
    publisher.publish(topic, bytes(200), qos=1)
    client.expect(Publish)
    client.close()
    small = {**keep, Property.MAXIMUM_PACKET_SIZE: 100, Property.RECEIVE_MAXIMUM: 1}
    client = join("device", clean_start=False, properties=small)
    publisher.publish(topic, b"fits", qos=1)
    client.acknowledge(client.expect(Publish, payload=b"fits"))
    assert client.barrier() == []


def test_MQTT_3_1_2_25_another_subscriber_still_gets_the_large_message(join: Join, topic: str) -> None:
    small = join("small", properties={Property.MAXIMUM_PACKET_SIZE: 128})
    large = join("large")
    small.subscribe(f"{topic}/#")
    large.subscribe(f"{topic}/#")
    large.publish(f"{topic}/x", bytes(500))
    large.expect(Publish, payload=bytes(500))
    assert messages_besides_marker(small, f"{topic}/marker", large) == []


def test_MQTT_3_1_2_26_aliases_stay_within_the_maximum_of_the_client(join: Join, topic: str) -> None:
    client = join("subscriber", properties={Property.TOPIC_ALIAS_MAXIMUM: 2})
    client.subscribe(f"{topic}/#")
    publisher = join("publisher")
    expected = [f"{topic}/{number % 5}" for number in range(20)]
    for name in expected:
        publisher.publish(name)
    names: dict[int, str] = {}
    seen = []
    for message in collect(client, 20):
        alias = message.properties.get(Property.TOPIC_ALIAS)
        if alias is not None:
            assert 1 <= alias <= 2
            if message.topic:
                names[alias] = message.topic
        seen.append(message.topic or names[alias or 0])
    assert seen == expected


@pytest.mark.parametrize("properties", [{}, {Property.TOPIC_ALIAS_MAXIMUM: 0}])
def test_MQTT_3_1_2_27_a_client_without_alias_maximum_gets_no_aliases(
    join: Join, topic: str, properties: dict[Property, int]
) -> None:
    client = join("subscriber", properties=properties)
    client.subscribe(topic)
    publisher = join("publisher")
    for _ in range(10):
        publisher.publish(topic)
    for message in collect(client, 10):
        assert message.topic == topic
        assert Property.TOPIC_ALIAS not in message.properties


@pytest.mark.parametrize("properties", [{}, {Property.REQUEST_RESPONSE_INFORMATION: 0}])
def test_MQTT_3_1_2_28_response_information_is_only_given_on_request(
    broker_with: BrokerWith, dial: Dial, properties: dict[Property, int]
) -> None:
    server = broker_with(response_information="answers/%c")
    assert Property.RESPONSE_INFORMATION not in dial(to=server).connect("a", properties=properties).properties
    asking = dial(to=server).connect("b", properties={Property.REQUEST_RESPONSE_INFORMATION: 1})
    assert asking.properties[Property.RESPONSE_INFORMATION] == "answers/b"


def test_MQTT_3_1_2_29_explanations_are_left_out_if_the_client_does_not_want_them(
    join: Join, topic: str
) -> None:
    client = join(properties={Property.REQUEST_PROBLEM_INFORMATION: 0})
    client.send(
        Subscribe(
            packet_identifier=1,
            subscriptions=[Subscription(topic_filter=topic), Subscription(topic_filter="$share/g/" + topic)],
        )
    )
    client.send(Pubrel(packet_identifier=99))
    client.send(Publish(topic=f"{topic}/none", qos=1, packet_identifier=2))
    client.send(Publish(topic=f"{topic}/none", qos=2, packet_identifier=3))
    packets = [*client.barrier(), client.unsubscribe(f"{topic}/never")]
    assert len(packets) == 5
    for packet in packets:
        properties = getattr(packet, "properties", {})
        assert not EXPLANATIONS & set(properties), packet


def test_MQTT_3_1_2_29_user_properties_of_messages_still_arrive(join: Join, topic: str) -> None:
    client = join(properties={Property.REQUEST_PROBLEM_INFORMATION: 0})
    client.subscribe(topic)
    client.publish(topic, properties={Property.USER_PROPERTY: [("a", "b")]})
    message = client.expect(Publish)
    assert message.properties[Property.USER_PROPERTY] == [("a", "b")]


def test_MQTT_3_1_2_30_packets_behind_a_connect_with_an_unknown_method_are_not_answered(
    dial: Dial, unique: Callable[[str], str], topic: str
) -> None:
    client = dial()
    client.send(Connect(client_id=unique("x"), properties={Property.AUTHENTICATION_METHOD: "no-such-method"}))
    client.send(Publish(topic=topic, qos=1, packet_identifier=1))
    client.expect_closed()
    assert not any(isinstance(packet, (Puback, Pubcomp)) for packet in client.inbox)
