"""MQTT 5 section 3.3.4: how messages are answered, delivered, identified and limited."""

import pytest

from tests.conformance.conftest import BrokerWith
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import (
    MALFORMED,
    PROTOCOL_ERROR,
    expect_disconnect,
    messages_besides_marker,
)
from tests.conformance.v5.wire import publish
from tidegate.mqtt import (
    Pingreq,
    Pingresp,
    Property,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
)


def test_MQTT_3_3_4_1_each_qos_has_its_answer(join: Join, topic: str) -> None:
    client = join()
    client.publish(topic, qos=0)
    assert client.barrier() == []
    client.send(Publish(topic=topic, qos=1, packet_identifier=10))
    client.expect(Puback, packet_identifier=10)
    client.send(Publish(topic=topic, qos=2, packet_identifier=11))
    client.expect(Pubrec, packet_identifier=11)
    client.send(Pubrel(packet_identifier=11))
    client.expect(Pubcomp, packet_identifier=11, reason_code=ReasonCode.SUCCESS)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 2), (1, 2)])
def test_MQTT_3_3_4_2_overlapping_subscriptions_deliver_with_the_highest_qos(
    join: Join, topic: str, low: int, high: int
) -> None:
    client = join()
    client.subscribe(f"{topic}/#", qos=low)
    client.subscribe(f"{topic}/+", qos=high)
    client.publish(f"{topic}/x", b"message", qos=2)
    messages = messages_besides_marker(client, f"{topic}/marker")
    assert max(message.qos for message in messages if message.payload == b"message") == high


def test_MQTT_3_3_4_3_the_subscription_identifier_comes_with_the_message(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, properties={Property.SUBSCRIPTION_IDENTIFIER: [268_435_455]})
    client.publish(topic, b"live", retain=True)
    assert client.expect(Publish).properties == {Property.SUBSCRIPTION_IDENTIFIER: [268_435_455]}
    client.subscribe(topic, properties={Property.SUBSCRIPTION_IDENTIFIER: [7]})
    message = client.expect(Publish, payload=b"live", retain=True)
    assert message.properties == {Property.SUBSCRIPTION_IDENTIFIER: [7]}
    client.subscribe(topic, retain_handling=2)
    client.publish(topic, b"without")
    assert client.expect(Publish, payload=b"without").properties == {}


def test_MQTT_3_3_4_3_queued_messages_carry_their_subscription_identifier(join: Join, topic: str) -> None:
    keep = {Property.SESSION_EXPIRY_INTERVAL: 60}
    client = join("device", properties=keep)
    client.subscribe(topic, qos=1, properties={Property.SUBSCRIPTION_IDENTIFIER: [42]})
    client.disconnect()
    join("publisher").publish(topic, qos=1)
    client = join("device", clean_start=False, properties=keep)
    assert client.expect(Publish).properties == {Property.SUBSCRIPTION_IDENTIFIER: [42]}


def test_MQTT_3_3_4_4_one_copy_carries_the_identifiers_of_all_matching_subscriptions(
    join: Join, topic: str
) -> None:
    client = join()
    client.subscribe(f"{topic}/#", qos=1, properties={Property.SUBSCRIPTION_IDENTIFIER: [1]})
    client.subscribe(f"{topic}/+", qos=1, properties={Property.SUBSCRIPTION_IDENTIFIER: [2]})
    client.subscribe(f"{topic}/a", qos=1)
    client.subscribe(f"{topic}/b", qos=1, properties={Property.SUBSCRIPTION_IDENTIFIER: [3]})
    client.publish(f"{topic}/a", b"x")
    message = client.expect(Publish)
    assert sorted(message.properties[Property.SUBSCRIPTION_IDENTIFIER]) == [1, 2]
    assert client.barrier() == []


def test_MQTT_3_3_4_5_the_copies_together_name_each_matching_subscription_once(
    join: Join, topic: str
) -> None:
    client = join()
    client.subscribe(f"{topic}/#", properties={Property.SUBSCRIPTION_IDENTIFIER: [1]})
    client.subscribe(f"$share/group/{topic}/#", properties={Property.SUBSCRIPTION_IDENTIFIER: [2]})
    client.publish(f"{topic}/a")
    client.publish(f"{topic}/end")
    client.take(Publish, topic=f"{topic}/end")
    named: list[int] = []
    for packet in client.barrier():
        assert isinstance(packet, Publish)
        if packet.topic == f"{topic}/a":
            named += packet.properties[Property.SUBSCRIPTION_IDENTIFIER]
    assert sorted(named) == [1, 2]


def test_MQTT_3_3_4_6_a_subscription_identifier_from_a_client_closes_the_connection(
    join: Join, topic: str
) -> None:
    client = join()
    client.send_bytes(publish(topic, properties=b"\x0b\x01"))
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR)


def test_MQTT_3_3_4_7_more_unacknowledged_messages_than_receive_maximum_close_the_connection(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(receive_maximum=2))
    for identifier in (1, 2):
        client.send(Publish(topic="t", qos=2, packet_identifier=identifier))
        client.expect(Pubrec, packet_identifier=identifier)
    client.send(Publish(topic="t", qos=2, packet_identifier=3))
    expect_disconnect(client, ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)


def test_MQTT_3_3_4_7_acknowledged_messages_do_not_count_towards_receive_maximum(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(receive_maximum=1))
    for _ in range(5):
        client.publish("t", qos=2)
        client.publish("t", qos=1)
    assert client.barrier() == []


def test_MQTT_3_3_4_7_a_message_sent_again_after_a_reconnect_counts_once(
    broker_with: BrokerWith, join: Join
) -> None:
    server = broker_with(receive_maximum=1)
    keep = {Property.SESSION_EXPIRY_INTERVAL: 60}
    client = join("device", to=server, properties=keep)
    client.send(Publish(topic="t", qos=2, packet_identifier=9))
    client.expect(Pubrec, packet_identifier=9)
    client.close()
    client = join("device", to=server, clean_start=False, properties=keep)
    client.send(Publish(topic="t", qos=2, packet_identifier=9, dup=True))
    client.expect(Pubrec, packet_identifier=9)
    client.send(Pubrel(packet_identifier=9))
    client.expect(Pubcomp, packet_identifier=9, reason_code=ReasonCode.SUCCESS)
    client.publish("t", qos=2)
    assert client.barrier() == []


def test_MQTT_3_3_4_8_packets_other_than_publish_are_answered_at_receive_maximum(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(receive_maximum=1))
    client.send(Publish(topic="t", qos=2, packet_identifier=60_000))
    client.expect(Pubrec)
    assert client.subscribe("other").reason_codes == [0]
    client.publish("other", b"qos 0 is free")
    client.expect(Publish, payload=b"qos 0 is free")
    assert client.unsubscribe("other").reason_codes == [0]


@pytest.mark.parametrize("maximum", [1, 3])
@pytest.mark.parametrize("qos", [1, 2])
def test_MQTT_3_3_4_9_the_server_keeps_to_the_receive_maximum_of_the_client(
    join: Join, topic: str, maximum: int, qos: int
) -> None:
    client = join("subscriber", properties={Property.RECEIVE_MAXIMUM: maximum})
    client.subscribe(topic, qos=qos)
    publisher = join("publisher")
    for number in range(10):
        publisher.publish(topic, b"%d" % number, qos=qos)
    seen = 0
    while seen < 10:
        waiting = [client.take(Publish)]
        waiting += [packet for packet in client.barrier() if isinstance(packet, Publish)]
        assert len(waiting) <= maximum
        for message in waiting:
            assert message.payload == b"%d" % seen
            client.acknowledge(message)
            seen += 1
    assert client.barrier() == []


def test_MQTT_3_3_4_10_the_server_sends_other_packets_at_receive_maximum(join: Join, topic: str) -> None:
    client = join("subscriber", properties={Property.RECEIVE_MAXIMUM: 1})
    client.subscribe(topic, qos=1)
    publisher = join("publisher")
    for _ in range(3):
        publisher.publish(topic, qos=1)
    client.expect(Publish)
    client.send(Pingreq())
    client.expect(Pingresp)
    assert client.subscribe(f"{topic}/other").reason_codes == [0]
    assert client.publish(f"{topic}/other", b"own", qos=1) is not None
    client.expect(Publish, payload=b"own", qos=0)
    assert client.unsubscribe(f"{topic}/other").reason_codes == [0]
