"""MQTT 5 section 4.3: the three delivery protocols, with the server as sender and as receiver."""

import pytest

from tests.conformance.conftest import BrokerWith
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.rights import ReadOnly
from tests.conformance.v5.steps import collect, messages_besides_marker, pass_time, payloads
from tidegate.broker.hooks import Hooks
from tidegate.mqtt import (
    Property,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
)

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}


def test_MQTT_4_3_1_1_qos_0_is_sent_once_without_dup(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic)
    client.publish(topic, b"once")
    client.expect(Publish, payload=b"once", qos=0, dup=False, packet_identifier=None)
    assert client.barrier() == []


def test_MQTT_4_3_2_1_each_new_message_of_qos_1_has_an_unused_identifier(join: Join, topic: str) -> None:
    client, publisher = join(), join("publisher")
    client.subscribe(topic, qos=1)
    publisher.publish(topic, qos=1)
    held = client.expect(Publish)
    for _ in range(5):
        publisher.publish(topic, qos=1)
        message = client.expect(Publish)
        assert message.packet_identifier not in (None, 0, held.packet_identifier)
        client.acknowledge(message)


def test_MQTT_4_3_2_2_a_new_message_of_qos_1_has_no_dup(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=1)
    client.publish(topic, qos=1)
    message = client.expect(Publish, qos=1, dup=False)
    assert message.packet_identifier


def test_MQTT_4_3_2_3_a_message_of_qos_1_is_kept_until_puback(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=1)
    join("publisher").publish(topic, b"kept", qos=1)
    client.expect(Publish)
    for _ in range(2):
        client.close()
        client = join("device", clean_start=False, properties=KEEP)
        message = client.expect(Publish, payload=b"kept", dup=True)
    client.acknowledge(message)
    assert client.barrier() == []
    client.close()
    assert join("device", clean_start=False, properties=KEEP).barrier() == []


def test_MQTT_4_3_2_4_a_message_of_qos_1_is_acknowledged_with_its_identifier(join: Join, topic: str) -> None:
    client = join()
    for identifier in (1, 2, 65_535):
        client.send(Publish(topic=topic, qos=1, packet_identifier=identifier))
    for identifier in (1, 2, 65_535):
        client.expect(Puback, packet_identifier=identifier)


@pytest.mark.parametrize("dup", [False, True])
def test_MQTT_4_3_2_5_an_identifier_used_again_after_puback_is_a_new_message(
    join: Join, topic: str, dup: bool
) -> None:
    client = join()
    client.subscribe(topic)
    client.publish(topic, b"first", qos=1, packet_identifier=5)
    client.publish(topic, b"second", qos=1, packet_identifier=5, dup=dup)
    assert payloads(collect(client, 2)) == [b"first", b"second"]


def test_MQTT_4_3_3_1_each_new_message_of_qos_2_has_an_unused_identifier(join: Join, topic: str) -> None:
    client, publisher = join(), join("publisher")
    client.subscribe(topic, qos=2)
    publisher.publish(topic, qos=2)
    held = client.expect(Publish)
    assert held.packet_identifier is not None
    client.send(Pubrec(packet_identifier=held.packet_identifier))
    client.expect(Pubrel)
    for _ in range(5):
        publisher.publish(topic, qos=2)
        message = client.expect(Publish)
        assert message.packet_identifier not in (None, 0, held.packet_identifier)
        client.acknowledge(message)


def test_MQTT_4_3_3_2_a_new_message_of_qos_2_has_no_dup(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=2)
    client.publish(topic, qos=2)
    message = client.expect(Publish, qos=2, dup=False)
    assert message.packet_identifier


def test_MQTT_4_3_3_3_a_message_of_qos_2_is_kept_until_pubrec(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=2)
    join("publisher").publish(topic, b"kept", qos=2)
    client.expect(Publish)
    for _ in range(2):
        client.close()
        client = join("device", clean_start=False, properties=KEEP)
        client.expect(Publish, payload=b"kept", qos=2, dup=True)


def test_MQTT_4_3_3_4_pubrec_is_answered_with_pubrel_of_the_same_identifier(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=2)
    client.publish(topic, qos=2)
    identifier = client.expect(Publish).packet_identifier
    assert identifier is not None
    for _ in range(2):
        client.send(Pubrec(packet_identifier=identifier))
        client.expect(Pubrel, packet_identifier=identifier, reason_code=ReasonCode.SUCCESS)


def test_MQTT_4_3_3_4_a_pubrec_that_refuses_gets_no_pubrel(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=2)
    client.publish(topic, qos=2)
    identifier = client.expect(Publish).packet_identifier
    assert identifier is not None
    client.send(Pubrec(packet_identifier=identifier, reason_code=ReasonCode.UNSPECIFIED_ERROR))
    assert client.barrier() == []


def test_MQTT_4_3_3_5_pubrel_is_kept_until_pubcomp(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=2)
    join("publisher").publish(topic, qos=2)
    identifier = client.expect(Publish).packet_identifier
    assert identifier is not None
    client.send(Pubrec(packet_identifier=identifier))
    client.expect(Pubrel)
    for _ in range(2):
        client.close()
        client = join("device", clean_start=False, properties=KEEP)
        client.expect(Pubrel, packet_identifier=identifier)
    client.send(Pubcomp(packet_identifier=identifier))
    assert client.barrier() == []
    client.close()
    assert join("device", clean_start=False, properties=KEEP).barrier() == []


def test_MQTT_4_3_3_6_after_pubrel_the_message_is_not_sent_again(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=2)
    join("publisher").publish(topic, qos=2)
    identifier = client.expect(Publish).packet_identifier
    assert identifier is not None
    client.send(Pubrec(packet_identifier=identifier))
    client.expect(Pubrel)
    client.close()
    client = join("device", clean_start=False, properties=KEEP)
    assert client.barrier() == [Pubrel(packet_identifier=identifier)]


def test_MQTT_4_3_3_7_a_message_once_sent_does_not_expire(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=2)
    join("publisher").publish(topic, b"sent", qos=2, properties={Property.MESSAGE_EXPIRY_INTERVAL: 1})
    client.expect(Publish)
    client.close()
    pass_time(1.3)
    client = join("device", clean_start=False, properties=KEEP)
    client.expect(Publish, payload=b"sent", dup=True)


def test_MQTT_4_3_3_8_a_message_of_qos_2_is_answered_with_pubrec(join: Join, topic: str) -> None:
    client = join()
    for identifier in (1, 300, 65_535):
        client.send(Publish(topic=topic, qos=2, packet_identifier=identifier))
        client.expect(Pubrec, packet_identifier=identifier)


def test_MQTT_4_3_3_9_an_identifier_used_again_after_a_refusal_is_a_new_message(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(hooks=Hooks(authoriser=ReadOnly()), receive_maximum=1))
    for _ in range(3):
        client.send(Publish(topic="t", qos=2, packet_identifier=5))
        client.expect(Pubrec, packet_identifier=5, reason_code=ReasonCode.NOT_AUTHORIZED)


def test_MQTT_4_3_3_10_until_pubrel_a_message_of_qos_2_is_delivered_once(join: Join, topic: str) -> None:
    client, watcher = join("device", properties=KEEP), join("watcher")
    watcher.subscribe(topic)
    client.send(Publish(topic=topic, payload=b"once", qos=2, packet_identifier=9))
    client.expect(Pubrec, packet_identifier=9)
    client.send(Publish(topic=topic, payload=b"once", qos=2, packet_identifier=9, dup=True))
    client.expect(Pubrec, packet_identifier=9)
    client.close()
    client = join("device", clean_start=False, properties=KEEP)
    client.send(Publish(topic=topic, payload=b"once", qos=2, packet_identifier=9, dup=True))
    client.expect(Pubrec, packet_identifier=9)
    client.send(Pubrel(packet_identifier=9))
    client.expect(Pubcomp, packet_identifier=9)
    assert payloads(messages_besides_marker(watcher, topic)) == [b"once"]


def test_MQTT_4_3_3_11_pubrel_is_answered_with_pubcomp(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.send(Publish(topic=topic, qos=2, packet_identifier=9))
    client.expect(Pubrec)
    client.close()
    client = join("device", clean_start=False, properties=KEEP)
    client.send(Pubrel(packet_identifier=9))
    client.expect(Pubcomp, packet_identifier=9, reason_code=ReasonCode.SUCCESS)
    client.send(Pubrel(packet_identifier=9))
    client.expect(Pubcomp, packet_identifier=9)


def test_MQTT_4_3_3_12_an_identifier_used_again_after_pubcomp_is_a_new_message(
    join: Join, topic: str
) -> None:
    client = join()
    client.subscribe(topic)
    client.publish(topic, b"first", qos=2, packet_identifier=5)
    client.publish(topic, b"second", qos=2, packet_identifier=5)
    assert payloads(collect(client, 2)) == [b"first", b"second"]


def test_MQTT_4_3_3_13_the_handshake_goes_on_when_the_message_has_expired(join: Join, topic: str) -> None:
    client = join()
    properties = {Property.MESSAGE_EXPIRY_INTERVAL: 1}
    client.send(Publish(topic=topic, qos=2, packet_identifier=9, properties=properties))
    client.expect(Pubrec)
    client.expect_nothing(1.3)
    client.send(Pubrel(packet_identifier=9))
    client.expect(Pubcomp, packet_identifier=9, reason_code=ReasonCode.SUCCESS)
