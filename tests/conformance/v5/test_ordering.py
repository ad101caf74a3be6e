"""MQTT 5 section 4.6: the order of messages."""

import pytest

from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import collect, payloads
from tidegate.mqtt import Property, Puback, Publish, Pubrec, Pubrel
from tidegate.testing.raw import RawClient

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}
COUNT = 20
NUMBERS = [b"%d" % number for number in range(COUNT)]


def publish_numbers(client: RawClient, topic: str, qos: int) -> None:
    for number in NUMBERS:
        client.publish(topic, number, qos=qos)


@pytest.mark.parametrize("qos", [1, 2])
def test_MQTT_4_6_0_1_messages_are_sent_again_in_their_order(join: Join, topic: str, qos: int) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=qos)
    publish_numbers(join("publisher"), topic, qos)
    first = collect(client, COUNT, acknowledge=False)
    client.close()
    client = join("device", clean_start=False, properties=KEEP)
    again = collect(client, COUNT, acknowledge=False)
    assert payloads(again) == NUMBERS
    assert [m.packet_identifier for m in again] == [m.packet_identifier for m in first]


def test_MQTT_4_6_0_2_pubacks_come_in_the_order_of_the_messages(join: Join, topic: str) -> None:
    client = join()
    identifiers = [7, 3, 65_535, 1, 2]
    for identifier in identifiers:
        client.send(Publish(topic=topic, qos=1, packet_identifier=identifier))
    assert [client.expect(Puback).packet_identifier for _ in identifiers] == identifiers


def test_MQTT_4_6_0_3_pubrecs_come_in_the_order_of_the_messages(join: Join, topic: str) -> None:
    client = join()
    identifiers = [7, 3, 65_535, 1, 2]
    for identifier in identifiers:
        client.send(Publish(topic=topic, qos=2, packet_identifier=identifier))
    assert [client.expect(Pubrec).packet_identifier for _ in identifiers] == identifiers


def test_MQTT_4_6_0_4_pubrels_come_in_the_order_of_the_pubrecs(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=2)
    publish_numbers(join("publisher"), topic, 2)
    identifiers = [message.packet_identifier for message in collect(client, COUNT, acknowledge=False)]
    for identifier in identifiers:
        assert identifier is not None
        client.send(Pubrec(packet_identifier=identifier))
    assert [client.expect(Pubrel).packet_identifier for _ in identifiers] == identifiers


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_MQTT_4_6_0_5_messages_of_one_topic_and_qos_arrive_in_the_order_they_came(
    join: Join, topic: str, qos: int
) -> None:
    client = join("subscriber", properties={Property.RECEIVE_MAXIMUM: 3})
    client.subscribe(topic, qos=2)
    publish_numbers(join("publisher"), topic, qos)
    assert payloads(collect(client, COUNT)) == NUMBERS


@pytest.mark.parametrize("qos", [1, 2])
def test_MQTT_4_6_0_5_queued_messages_arrive_before_those_published_later(
    join: Join, topic: str, qos: int
) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=qos)
    client.disconnect()
    publisher = join("publisher")
    for number in NUMBERS[:10]:
        publisher.publish(topic, number, qos=qos)
    client = join("device", clean_start=False, properties={**KEEP, Property.RECEIVE_MAXIMUM: 2})
    for number in NUMBERS[10:]:
        publisher.publish(topic, number, qos=qos)
    assert payloads(collect(client, COUNT)) == NUMBERS


def test_MQTT_4_6_0_6_every_topic_is_ordered_whatever_matches_it(join: Join, topic: str) -> None:
    clients = []
    for number, topic_filter in enumerate((f"{topic}/a", f"{topic}/+", f"{topic}/#")):
        client = join(f"subscriber-{number}")
        client.subscribe(topic_filter, qos=1)
        clients.append(client)
    publish_numbers(join("publisher"), f"{topic}/a", 1)
    for client in clients:
        assert payloads(collect(client, COUNT)) == NUMBERS
