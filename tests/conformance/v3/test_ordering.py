"""Section 4.6 of MQTT 3.1.1: the order of messages and of acknowledgements."""

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import Join, deliveries, payloads, vanish
from tidegate.mqtt import Puback, Publish, Pubrec, Pubrel

COUNT = 30


def test_MQTT_4_6_0_1_messages_are_sent_again_in_their_original_order(join: Join, topic: str) -> None:
    client, publisher = join("client", clean_start=False), join("publisher")
    client.subscribe(topic, 2)
    for number in range(COUNT):
        publisher.publish(topic, b"%d" % number, 1 + number % 2)
    before = deliveries(client)
    assert [message.payload for message in before] == [b"%d" % number for number in range(COUNT)]
    for message in before[3::5]:  # holes, so that the order is not that of a fresh table
        if message.qos == 1:
            client.send(Puback(packet_identifier=message.packet_identifier or 0))
        else:
            client.acknowledge(message)
    done = {message.payload for message in before[3::5]}
    client.barrier()
    vanish(client)
    client = join("client", clean_start=False, session_present=True)
    assert payloads(client) == [message.payload for message in before if message.payload not in done]


@pytest.mark.parametrize(
    "qos, acknowledgement",
    [
        pytest.param(1, Puback, id="MQTT-4.6.0-2 PUBACK"),
        pytest.param(2, Pubrec, id="MQTT-4.6.0-3 PUBREC"),
    ],
)
def test_MQTT_4_6_0_6_acknowledgements_come_in_the_order_of_the_messages(
    qos: int, acknowledgement: type, join: Join, topic: str
) -> None:
    client = join()
    identifiers = [(number * 7919) % 65_535 + 1 for number in range(COUNT)]
    client.send_bytes(
        b"".join(wire.publish(topic, b"x", flags=qos << 1, packet_identifier=each) for each in identifiers)
    )
    for identifier in identifiers:
        client.expect(acknowledgement, packet_identifier=identifier)


def test_MQTT_4_6_0_6_PUBREL_packets_come_in_the_order_of_the_PUBREC_packets(join: Join, topic: str) -> None:
    client, publisher = join("client"), join("publisher")
    client.subscribe(topic, 2)
    for number in range(COUNT):
        publisher.publish(topic, b"%d" % number, 2)
    identifiers = [message.packet_identifier or 0 for message in deliveries(client)]
    shuffled = identifiers[::2] + identifiers[1::2][::-1]
    for identifier in shuffled:
        client.send(Pubrec(packet_identifier=identifier))
    for identifier in shuffled:
        client.expect(Pubrel, packet_identifier=identifier)


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_MQTT_4_6_0_5_every_topic_is_ordered_by_default(
    published: int, granted: int, join: Join, topic: str
) -> None:
    client, publisher = join("client"), join("publisher")
    client.subscribe(topic, granted)
    expected = [b"%d" % number for number in range(COUNT)]
    publisher.send_bytes(
        b"".join(
            wire.publish(
                topic, payload, flags=published << 1, packet_identifier=number if published else None
            )
            for number, payload in enumerate(expected, start=1)
        )
    )
    if published == 2:  # a server may pass a message on as late as its PUBREL
        for number in range(1, COUNT + 1):
            publisher.expect(Pubrec, packet_identifier=number)
            publisher.send(Pubrel(packet_identifier=number))
    got = []
    for payload in expected:
        message = client.expect(Publish, payload=payload)
        got.append(message)
        if message.qos == 1:
            client.send(Puback(packet_identifier=message.packet_identifier or 0))
    assert {message.qos for message in got} == {min(published, granted)}


def test_MQTT_4_6_0_6_messages_of_each_publisher_keep_their_order_through_queue_and_reconnect(
    join: Join, topic: str
) -> None:
    client = join("client", clean_start=False)
    client.subscribe(f"{topic}/#", 1)
    client.disconnect()
    publishers = [join("one"), join("two")]
    for number in range(COUNT):
        for name, publisher in zip("ab", publishers, strict=True):
            publisher.publish(f"{topic}/{name}", b"%s%d" % (name.encode(), number), 1)
    client = join("client", clean_start=False, session_present=True)
    received: dict[str, list[bytes]] = {"a": [], "b": []}
    for _ in range(2 * COUNT):
        message = client.expect(Publish)
        client.acknowledge(message)
        received[message.topic[-1]].append(message.payload)
    for name in "ab":
        assert received[name] == [b"%s%d" % (name.encode(), number) for number in range(COUNT)]
