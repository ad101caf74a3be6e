"""MQTT 5 section 4.9: the send quota."""

import pytest

from tests.conformance.v5.conftest import Join
from tidegate.mqtt import Pingreq, Pingresp, Property, Puback, Pubcomp, Publish, Pubrec, Pubrel, ReasonCode
from tidegate.testing.raw import RawClient


def limited(join: Join, topic: str, maximum: int, count: int, qos: int) -> RawClient:
    """A subscriber with this Receive Maximum, and `count` messages published to it."""
    client = join("subscriber", properties={Property.RECEIVE_MAXIMUM: maximum})
    client.subscribe(topic, qos=qos)
    publisher = join("publisher")
    for number in range(count):
        publisher.publish(topic, b"%d" % number, qos=qos)
    return client


@pytest.mark.parametrize("maximum", [1, 2, 5])
def test_MQTT_4_9_0_1_the_first_quota_is_not_above_receive_maximum(
    join: Join, topic: str, maximum: int
) -> None:
    client = limited(join, topic, maximum, 8, 1)
    assert len(client.barrier()) == maximum


def test_MQTT_4_9_0_1_every_connection_starts_with_its_own_quota(join: Join, topic: str) -> None:
    keep = {Property.SESSION_EXPIRY_INTERVAL: 60}
    client = join("device", properties={**keep, Property.RECEIVE_MAXIMUM: 5})
    client.subscribe(topic, qos=1)
    publisher = join("publisher")
    for _ in range(8):
        publisher.publish(topic, qos=1)
    assert len(client.barrier()) == 5
    client.close()
    client = join("device", clean_start=False, properties={**keep, Property.RECEIVE_MAXIMUM: 2})
    assert len(client.barrier()) == 2


def test_MQTT_4_9_0_2_puback_gives_one_message_back_to_the_quota(join: Join, topic: str) -> None:
    client = limited(join, topic, 1, 3, 1)
    for number in range(3):
        message = client.expect(Publish, payload=b"%d" % number)
        assert client.barrier() == []
        client.acknowledge(message)


def test_MQTT_4_9_0_2_pubcomp_gives_one_message_back_to_the_quota(join: Join, topic: str) -> None:
    client = limited(join, topic, 1, 2, 2)
    identifier = client.expect(Publish, payload=b"0").packet_identifier
    assert identifier is not None
    client.send(Pubrec(packet_identifier=identifier))
    client.expect(Pubrel)
    assert client.barrier() == []
    client.send(Pubcomp(packet_identifier=identifier))
    client.expect(Publish, payload=b"1")


def test_MQTT_4_9_0_2_a_pubrec_that_refuses_gives_one_message_back_to_the_quota(
    join: Join, topic: str
) -> None:
    client = limited(join, topic, 1, 2, 2)
    identifier = client.expect(Publish, payload=b"0").packet_identifier
    assert identifier is not None
    client.send(Pubrec(packet_identifier=identifier, reason_code=ReasonCode.UNSPECIFIED_ERROR))
    client.expect(Publish, payload=b"1")


def test_MQTT_4_9_0_2_acknowledgements_of_nothing_do_not_raise_the_quota(join: Join, topic: str) -> None:
    client = limited(join, topic, 1, 4, 1)
    identifier = client.expect(Publish).packet_identifier
    assert identifier is not None
    client.send(Puback(packet_identifier=identifier + 100))
    client.send(Pubcomp(packet_identifier=identifier + 101))
    assert client.barrier() == []
    client.send(Puback(packet_identifier=identifier))
    client.send(Puback(packet_identifier=identifier))
    assert len(client.barrier()) == 1


def test_MQTT_4_9_0_2_messages_of_qos_0_are_not_held_by_the_quota(join: Join, topic: str) -> None:
    client = limited(join, topic, 1, 2, 1)
    client.expect(Publish, payload=b"0")
    client.subscribe(f"{topic}/free")
    client.publish(f"{topic}/free", b"free")
    client.expect(Publish, payload=b"free", qos=0)


def test_MQTT_4_9_0_3_other_packets_are_answered_while_the_quota_is_used_up(join: Join, topic: str) -> None:
    client = limited(join, topic, 1, 3, 1)
    client.expect(Publish)
    client.send(Pingreq())
    client.expect(Pingresp)
    client.send(Publish(topic=f"{topic}/own", qos=2, packet_identifier=1000))
    client.expect(Pubrec, packet_identifier=1000)
    client.send(Pubrel(packet_identifier=1000))
    client.expect(Pubcomp, packet_identifier=1000)
    assert client.subscribe(f"{topic}/more").reason_codes == [0]
    assert client.unsubscribe(f"{topic}/more").reason_codes == [0]
