"""Sections 3.1.2.4, 4.1, 4.4 and 4.5 of MQTT 3.1.1: what a session keeps, and for how long."""

from tests.conformance.v3.support import Join, deliveries, payloads, vanish
from tidegate.mqtt import Puback, Pubcomp, Publish, Pubrec, Pubrel


def test_MQTT_3_1_2_4_clean_session_0_resumes_the_session(join: Join, topic: str) -> None:
    client = join(clean_start=False)
    client.subscribe(topic, 1)
    client.disconnect()
    client = join(clean_start=False, session_present=True)
    client.publish(topic, b"subscribed before", 1)
    assert payloads(client) == [b"subscribed before"]


def test_MQTT_3_1_2_4_clean_session_0_keeps_the_session_when_the_network_fails(
    join: Join, topic: str
) -> None:
    client = join(clean_start=False)
    client.subscribe(topic, 1)
    vanish(client)
    client = join(clean_start=False, session_present=True)
    client.publish(topic, b"subscribed before", 1)
    assert payloads(client) == [b"subscribed before"]


def test_MQTT_3_1_2_5_messages_of_QoS_1_and_2_are_stored_for_a_disconnected_session(
    join: Join, topic: str
) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 2)
    client.disconnect()
    publisher = join("publisher")
    publisher.publish(topic, b"one", 1)
    publisher.publish(topic, b"two", 2)
    publisher.publish(topic, b"three", 1)
    client = join("client", clean_start=False, session_present=True)
    stored = [(message.payload, message.qos, message.dup) for message in deliveries(client)]
    assert stored == [(b"one", 1, False), (b"two", 2, False), (b"three", 1, False)]


def test_MQTT_3_1_2_6_clean_session_1_discards_the_session_before(join: Join, topic: str) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 1)
    client.disconnect()
    publisher = join("publisher")
    publisher.publish(topic, b"stored", 1)
    client = join("client", clean_start=True, session_present=False)
    publisher.publish(topic, b"not subscribed any more", 1)
    assert payloads(client) == []


def test_MQTT_3_1_2_6_clean_session_1_leaves_nothing_for_the_session_after(join: Join, topic: str) -> None:
    client = join("client", clean_start=True)
    client.subscribe(topic, 1)
    publisher = join("publisher")
    publisher.publish(topic, b"in flight", 1)
    client.expect(Publish, payload=b"in flight")
    client.disconnect()
    publisher.publish(topic, b"too late", 1)
    client = join("client", clean_start=False, session_present=False)
    publisher.publish(topic, b"not subscribed", 1)
    assert payloads(client) == []


def test_MQTT_3_1_2_7_retained_messages_outlive_the_session_of_their_publisher(
    join: Join, topic: str
) -> None:
    publisher = join("publisher", clean_start=True)
    publisher.publish(topic, b"kept", 1, retain=True)
    publisher.disconnect()
    join("publisher", clean_start=True).disconnect()
    late = join("late")
    late.subscribe(topic)
    assert payloads(late) == [b"kept"]


def test_MQTT_4_1_0_1_the_server_keeps_received_QoS_2_identifiers_in_the_session(
    join: Join, topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 2)
    publisher = join("publisher", clean_start=False)
    publisher.send(Publish(topic=topic, payload=b"once", qos=2, packet_identifier=5))
    publisher.expect(Pubrec, packet_identifier=5)
    vanish(publisher)
    publisher = join("publisher", clean_start=False, session_present=True)
    publisher.send(Publish(topic=topic, payload=b"once", qos=2, packet_identifier=5, dup=True))
    publisher.expect(Pubrec, packet_identifier=5)
    publisher.send(Pubrel(packet_identifier=5))
    publisher.expect(Pubcomp, packet_identifier=5)
    assert payloads(watcher) == [b"once"]


def test_MQTT_4_1_0_2_a_session_lasts_as_long_as_its_connection(join: Join, topic: str) -> None:
    client = join(clean_start=True)
    client.subscribe(topic, 1)
    for number in range(20):
        join(f"other-{number}").disconnect()
    client.publish(topic, b"still there", 1)
    assert payloads(client) == [b"still there"]


def test_MQTT_4_4_0_1_unacknowledged_messages_are_sent_again_with_their_identifiers(
    join: Join, topic: str
) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 2)
    publisher = join("publisher")
    publisher.publish(topic, b"one", 1)
    publisher.publish(topic, b"two", 2)
    before = deliveries(client)
    vanish(client)
    client = join("client", clean_start=False, session_present=True)
    again = deliveries(client)
    assert [message.packet_identifier for message in again] == [
        message.packet_identifier for message in before
    ]
    assert [(message.payload, message.qos, message.dup) for message in again] == [
        (b"one", 1, True),
        (b"two", 2, True),
    ]


def test_MQTT_4_4_0_1_an_unacknowledged_PUBREL_is_sent_again(join: Join, topic: str) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 2)
    join("publisher").publish(topic, b"two", 2)
    identifier = client.expect(Publish, payload=b"two").packet_identifier or 0
    client.send(Pubrec(packet_identifier=identifier))
    client.expect(Pubrel, packet_identifier=identifier)
    vanish(client)
    client = join("client", clean_start=False, session_present=True)
    client.expect(Pubrel, packet_identifier=identifier)
    client.send(Pubcomp(packet_identifier=identifier))
    assert client.barrier() == []
    vanish(client)
    assert join("client", clean_start=False, session_present=True).barrier() == []


def test_MQTT_4_4_0_1_acknowledged_messages_are_not_sent_again(join: Join, topic: str) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 1)
    publisher = join("publisher")
    for payload in (b"acknowledged", b"open"):
        publisher.publish(topic, payload, 1)
    first = client.expect(Publish, payload=b"acknowledged")
    client.send(Puback(packet_identifier=first.packet_identifier or 0))
    assert payloads(client) == [b"open"]
    vanish(client)
    client = join("client", clean_start=False, session_present=True)
    assert payloads(client) == [b"open"]


def test_MQTT_4_5_0_1_a_message_is_added_to_every_session_with_a_matching_subscription(
    join: Join, topic: str
) -> None:
    filters = {"exact": topic, "plus": f"{topic.partition('/')[0]}/+", "hash": f"{topic}/#"}
    for name, topic_filter in filters.items():
        client = join(name, clean_start=False)
        client.subscribe(topic_filter, 1)
        client.disconnect()
    online = join("online")
    online.subscribe(topic, 1)
    join("publisher").publish(topic, b"to all", 1)
    assert payloads(online) == [b"to all"]
    for name in filters:
        assert payloads(join(name, clean_start=False, session_present=True)) == [b"to all"]
