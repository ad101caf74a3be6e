"""Sections 3.6 and 4.3 of MQTT 3.1.1: the three delivery protocols, at both ends."""

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import Join, deliveries, expect_dropped, payloads, settle, vanish
from tidegate.mqtt import Puback, Pubcomp, Publish, Pubrec, Pubrel


@pytest.mark.parametrize("flags", [0x00, 0x01, 0x03, 0x06, 0x0A])
def test_MQTT_3_6_1_1_PUBREL_with_other_flags_than_0010_closes_the_connection(
    flags: int, join: Join, topic: str
) -> None:
    client = join()
    client.send(Publish(topic=topic, qos=2, packet_identifier=1))
    client.expect(Pubrec, packet_identifier=1)
    client.send_bytes(bytes([0x60 | flags, 2, 0, 1]))
    expect_dropped(client)


def test_MQTT_4_3_1_1_QoS_0_is_sent_with_QoS_0_and_DUP_0(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, 2)
    client.publish(topic, b"zero", 0)
    client.expect(Publish, payload=b"zero", qos=0, dup=False, packet_identifier=None)


def test_MQTT_4_3_2_1_QoS_1_is_sent_with_an_unused_identifier_and_DUP_0(join: Join, topic: str) -> None:
    client, publisher = join("client"), join("publisher")
    client.subscribe(topic, 1)
    for number in range(10):
        publisher.publish(topic, b"%d" % number, 1)
    messages = deliveries(client)
    assert [(message.qos, message.dup) for message in messages] == [(1, False)] * 10
    assert len({message.packet_identifier for message in messages}) == 10


def test_MQTT_4_3_2_1_QoS_1_stays_unacknowledged_until_PUBACK(join: Join, topic: str) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 1)
    join("publisher").publish(topic, b"one", 1)
    for turn in range(3):
        message = client.expect(Publish, payload=b"one", dup=turn > 0)
        if turn == 2:
            client.send(Puback(packet_identifier=message.packet_identifier or 0))
            settle(client)
        vanish(client)
        client = join("client", clean_start=False, session_present=True)
    settle(client)


def test_MQTT_4_3_2_2_QoS_1_is_answered_with_PUBACK(join: Join, topic: str) -> None:
    client = join()
    for identifier in (1, 256, 65_535):
        client.send(Publish(topic=topic, qos=1, packet_identifier=identifier))
        client.expect(Puback, packet_identifier=identifier)


@pytest.mark.parametrize("dup", [False, True])
def test_MQTT_4_3_2_2_after_PUBACK_the_same_identifier_is_a_new_publication(
    dup: bool, join: Join, topic: str
) -> None:
    watcher, client = join("watcher"), join("client")
    watcher.subscribe(topic, 1)
    client.publish(topic, b"first", 1, packet_identifier=1)
    client.publish(topic, b"second", 1, packet_identifier=1, dup=dup)
    assert payloads(watcher) == [b"first", b"second"]


def test_MQTT_4_3_3_1_QoS_2_is_sent_with_an_unused_identifier_and_DUP_0(join: Join, topic: str) -> None:
    client, publisher = join("client"), join("publisher")
    client.subscribe(topic, 2)
    for number in range(10):
        publisher.publish(topic, b"%d" % number, 2)
    messages = deliveries(client)
    assert [(message.qos, message.dup) for message in messages] == [(2, False)] * 10
    assert len({message.packet_identifier for message in messages}) == 10


def test_MQTT_4_3_3_1_PUBREC_is_answered_with_PUBREL_and_the_message_is_not_sent_again(
    join: Join, topic: str
) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 2)
    join("publisher").publish(topic, b"two", 2)
    identifier = client.expect(Publish, payload=b"two").packet_identifier or 0
    client.send(Pubrec(packet_identifier=identifier))
    client.expect(Pubrel, packet_identifier=identifier)
    vanish(client)
    client = join("client", clean_start=False, session_present=True)
    assert client.barrier() == [Pubrel(packet_identifier=identifier)]


def test_MQTT_4_3_3_1_QoS_2_stays_unacknowledged_until_PUBREC(join: Join, topic: str) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 2)
    join("publisher").publish(topic, b"two", 2)
    identifier = client.expect(Publish, payload=b"two").packet_identifier
    vanish(client)
    client = join("client", clean_start=False, session_present=True)
    client.acknowledge(client.expect(Publish, payload=b"two", packet_identifier=identifier, dup=True))
    settle(client)
    vanish(client)
    settle(join("client", clean_start=False, session_present=True))


def test_MQTT_4_3_3_2_QoS_2_is_answered_with_PUBREC_and_PUBREL_with_PUBCOMP(join: Join, topic: str) -> None:
    client = join()
    for identifier in (1, 256, 65_535):
        client.send(Publish(topic=topic, qos=2, packet_identifier=identifier))
        client.expect(Pubrec, packet_identifier=identifier)
        client.send(Pubrel(packet_identifier=identifier))
        client.expect(Pubcomp, packet_identifier=identifier)


def test_MQTT_4_3_3_2_until_PUBREL_the_same_identifier_is_the_same_message(join: Join, topic: str) -> None:
    watcher, client = join("watcher"), join("client")
    watcher.subscribe(topic, 2)
    for turn in range(3):
        client.send(Publish(topic=topic, payload=b"once", qos=2, packet_identifier=9, dup=turn > 0))
        client.expect(Pubrec, packet_identifier=9)
    client.send(Pubrel(packet_identifier=9))
    client.expect(Pubcomp, packet_identifier=9)
    assert payloads(watcher) == [b"once"]


def test_MQTT_4_3_3_2_after_PUBCOMP_the_same_identifier_is_a_new_publication(join: Join, topic: str) -> None:
    watcher, client = join("watcher"), join("client")
    watcher.subscribe(topic, 2)
    client.publish(topic, b"first", 2, packet_identifier=9)
    client.publish(topic, b"second", 2, packet_identifier=9)
    assert payloads(watcher) == [b"first", b"second"]


def test_MQTT_4_3_3_2_a_repeated_PUBREL_is_answered_with_PUBCOMP(join: Join, topic: str) -> None:
    client = join()
    client.publish(topic, b"x", 2, packet_identifier=9)
    client.send(Pubrel(packet_identifier=9))
    client.expect(Pubcomp, packet_identifier=9)


def test_QoS_1_and_QoS_2_identifiers_of_both_directions_do_not_collide(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, 2)
    for identifier in range(1, 6):
        client.send_bytes(wire.publish(topic, b"%d" % identifier, flags=0x04, packet_identifier=identifier))
        client.take(Pubrec, packet_identifier=identifier)
        client.send(Pubrel(packet_identifier=identifier))
        client.take(Pubcomp, packet_identifier=identifier)
        client.acknowledge(client.take(Publish, payload=b"%d" % identifier))
    settle(client)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("qos", "has_pubrec", "wrong"),
    [
        pytest.param(1, False, Pubrec, id="PUBREC-for-QoS-1"),
        pytest.param(1, False, Pubcomp, id="PUBCOMP-for-QoS-1"),
        pytest.param(2, False, Puback, id="PUBACK-for-QoS-2"),
        pytest.param(2, False, Pubcomp, id="PUBCOMP-before-PUBREC"),
        pytest.param(2, True, Puback, id="PUBACK-after-PUBREL"),
    ],
)
def test_an_acknowledgement_of_another_qos_disconnects_the_client(
    join: Join, topic: str, qos: int, has_pubrec: bool, wrong: type[Puback], clean: bool
) -> None:
    client = join(clean_start=clean)
    client.subscribe(topic, qos)
    client.publish(topic, b"x", qos)
    number = client.take(Publish, qos=qos).packet_identifier
    assert number is not None
    if has_pubrec:
        client.send(Pubrec(packet_identifier=number))
        client.take(Pubrel)
    client.send(wrong(packet_identifier=number))
    expect_dropped(client)
