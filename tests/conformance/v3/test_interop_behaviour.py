"""What clients of MQTT 3.1.1 rely on in daily use, beyond single statements.

The situations are those that interoperability tests of brokers have long agreed on: retained messages,
offline queues, wills, overlapping subscriptions, keep alive, `$` topics, empty identifiers, failing
subscriptions, redelivery, flow control and large messages.
"""

from collections.abc import Callable

import pytest

from tests.conformance.v3.support import (
    BrokerWith,
    Join,
    Open,
    deliveries,
    expect_dropped,
    payloads,
    settle,
    vanish,
)
from tidegate.mqtt import Connack, Puback, Publish, Subscription, Will

Unique = Callable[[str], str]


def test_a_message_of_each_QoS_reaches_its_publisher_and_others(join: Join, topic: str) -> None:
    one, two = join("one"), join("two")
    for client in (one, two):
        client.subscribe(topic, 2)
    for qos in (0, 1, 2):
        one.publish(topic, b"qos %d" % qos, qos)
    for client in (one, two):
        for qos in (0, 1, 2):
            client.acknowledge(client.expect(Publish, payload=b"qos %d" % qos, qos=qos, retain=False))


def test_retained_messages_of_each_QoS_are_fetched_by_wildcard_and_cleared_by_empty_ones(
    join: Join, topic: str
) -> None:
    client = join()
    for qos in (0, 1, 2):
        client.publish(f"{topic}/{qos}", b"qos %d" % qos, qos, retain=True)
    client.subscribe(f"{topic}/+", 2)
    fetched = sorted((message.payload, message.qos, message.retain) for message in deliveries(client))
    assert fetched == [(b"qos 0", 0, True), (b"qos 1", 1, True), (b"qos 2", 2, True)]
    client.unsubscribe(f"{topic}/+")
    for qos in (0, 1, 2):
        client.publish(f"{topic}/{qos}", b"", qos, retain=True)
    client.subscribe(f"{topic}/+", 2)
    assert deliveries(client) == []


def test_messages_for_an_offline_client_wait_in_order_and_those_of_QoS_0_need_not(
    join: Join, topic: str
) -> None:
    client = join("client", clean_start=False)
    client.subscribe(f"{topic}/#", 2)
    client.disconnect()
    publisher = join("publisher")
    for qos in (0, 1, 2, 1):
        publisher.publish(f"{topic}/{qos}", b"qos %d" % qos, qos)
    client = join("client", clean_start=False, session_present=True)
    queued = payloads(client)
    assert [payload for payload in queued if payload != b"qos 0"] == [b"qos 1", b"qos 2", b"qos 1"]


def test_a_queue_longer_than_the_in_flight_window_is_delivered_in_full(
    join: Join, broker_with: BrokerWith
) -> None:
    broker = broker_with(max_inflight=5)
    client = join("client", to=broker, clean_start=False)
    client.subscribe("t", 1)
    client.disconnect()
    publisher = join("publisher", to=broker)
    for number in range(100):
        publisher.publish("t", b"%d" % number, 1)
    client = join("client", to=broker, clean_start=False, session_present=True)
    for number in range(100):
        message = client.expect(Publish, payload=b"%d" % number)
        client.send(Puback(packet_identifier=message.packet_identifier or 0))
    settle(client)


def test_a_client_that_does_not_acknowledge_gets_no_more_than_the_window(
    join: Join, broker_with: BrokerWith
) -> None:
    broker = broker_with(max_inflight=3)
    client, publisher = join("client", to=broker), join("publisher", to=broker)
    client.subscribe("t", 1)
    for number in range(10):
        publisher.publish("t", b"%d" % number, 1)
    first = deliveries(client)
    assert [message.payload for message in first] == [b"0", b"1", b"2"]
    client.send(Puback(packet_identifier=first[0].packet_identifier or 0))
    client.expect(Publish, payload=b"3")
    settle(client)


def test_a_will_reaches_a_subscriber_and_its_session_survives(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 2)
    client = join("mortal", clean_start=False, will=Will(topic=topic, payload=b"gone", qos=2))
    client.subscribe(f"{topic}/own", 1)
    vanish(client)
    watcher.acknowledge(watcher.expect(Publish, payload=b"gone", qos=2))
    client = join("mortal", clean_start=False, session_present=True)
    client.publish(f"{topic}/own", b"still subscribed", 1)
    assert payloads(client) == [b"still subscribed"]


def test_a_will_waits_for_an_offline_subscriber(join: Join, topic: str) -> None:
    watcher = join("watcher", clean_start=False)
    watcher.subscribe(topic, 1)
    online = join("online")
    online.subscribe(topic, 1)
    watcher.disconnect()
    vanish(join("mortal", will=Will(topic=topic, payload=b"gone", qos=1)))
    online.expect(Publish, payload=b"gone")
    assert payloads(join("watcher", clean_start=False, session_present=True)) == [b"gone"]


def test_overlapping_subscriptions_deliver_a_message_once_or_once_for_each(join: Join, topic: str) -> None:
    client = join()
    client.subscribe_all(
        [Subscription(topic_filter=f"{topic}/#", qos=2), Subscription(topic_filter=f"{topic}/+", qos=1)]
    )
    client.publish(f"{topic}/a", b"overlap", 2)
    got = [message.qos for message in deliveries(client)]
    assert got == [2] or sorted(got) == [1, 2]


def test_a_silent_client_is_cut_off_and_its_will_is_published(join: Join, topic: str) -> None:
    watcher = join("watcher", keep_alive=0)
    watcher.subscribe(topic)
    silent = join("silent", keep_alive=1, will=Will(topic=topic, payload=b"keep alive expired"))
    watcher.expect(Publish, payload=b"keep alive expired")
    expect_dropped(silent)


def test_SYS_topics_do_not_leak_into_wildcards(join: Join, broker_with: BrokerWith) -> None:
    broker = broker_with(sys_interval=0.05)
    wild, system = join("wild", to=broker), join("system", to=broker)
    wild.subscribe("#")
    wild.subscribe("+/#")
    system.subscribe("$SYS/#")
    system.expect(Publish)
    assert deliveries(wild) == []


def test_an_empty_identifier_is_accepted_with_clean_session_only(open_connection: Open) -> None:
    client = open_connection()
    assert client.connect("", clean_start=True) == Connack()
    refused = open_connection()
    assert refused.connect("", clean_start=False).reason_code != 0
    expect_dropped(refused)


def test_a_failing_subscription_is_told_and_the_others_work(join: Join, broker_with: BrokerWith) -> None:
    client = join(to=broker_with(max_subscriptions=2))
    filters = [Subscription(topic_filter=name, qos=1) for name in "abc"]
    assert client.subscribe_all(filters).reason_codes == [1, 1, 0x80]
    for name in "abc":
        client.publish(name, name.encode(), 1)
    assert payloads(client) == [b"a", b"b"]


@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_messages_come_again_and_new_ones_follow(qos: int, join: Join, topic: str) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 2)
    publisher = join("publisher")
    for payload in (b"0", b"1", b"2"):
        publisher.publish(topic, payload, qos)
    assert payloads(client) == [b"0", b"1", b"2"]
    vanish(client)
    publisher.publish(topic, b"3", qos)
    client = join("client", clean_start=False, session_present=True)
    for payload in (b"0", b"1", b"2"):
        client.acknowledge(client.take(Publish, payload=payload, dup=True))
    client.acknowledge(client.take(Publish, payload=b"3"))
    settle(client)
    vanish(client)
    settle(join("client", clean_start=False, session_present=True))


def test_unsubscribing_from_one_of_several_filters_leaves_the_others(join: Join, topic: str) -> None:
    client = join()
    for name in "abc":
        client.subscribe(f"{topic}/{name}", 1)
    client.unsubscribe(f"{topic}/b")
    for name in "abc":
        client.publish(f"{topic}/{name}", name.encode(), 1)
    assert payloads(client) == [b"a", b"c"]


def test_a_session_that_is_taken_over_again_and_again_loses_nothing(join: Join, topic: str) -> None:
    client = join("client", clean_start=False)
    client.subscribe(topic, 1)
    publisher = join("publisher")
    for number in range(20):
        publisher.publish(topic, b"%d" % number, 1)
        before, client = client, join("client", clean_start=False, session_present=True)
        before.expect_closed()
    assert payloads(client) == [b"%d" % number for number in range(20)]


def test_a_large_message_is_delivered_whole_and_one_above_the_limit_ends_the_connection(
    join: Join, broker_with: BrokerWith
) -> None:
    broker = broker_with(max_packet_size=100_000)
    client = join(to=broker)
    client.subscribe("t", 1)
    header = 2 + len("t") + 2
    largest = bytes(100_000 - 4 - header)
    client.publish("t", largest, 1)
    client.acknowledge(client.expect(Publish, payload=largest))
    client.send(Publish(topic="t", payload=largest + b"x", qos=1, packet_identifier=9))
    expect_dropped(client)


def test_messages_reach_each_of_a_hundred_subscribers_once(join: Join, topic: str) -> None:
    subscribers = [join(f"subscriber-{number}") for number in range(100)]
    for subscriber in subscribers:
        subscriber.subscribe_all(
            [Subscription(topic_filter=f"{topic}/{number}", qos=1) for number in range(5)]
        )
    publisher = join("publisher")
    for number in range(5):
        publisher.publish(f"{topic}/{number}", b"%d" % number, 1)
    for subscriber in subscribers:
        assert payloads(subscriber) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_client_of_MQTT_3_1_is_served_like_one_of_3_1_1(
    open_connection: Open, unique: Unique, topic: str
) -> None:
    client = open_connection()
    identifier = unique("old").encode()
    body = b"\x00\x06MQIsdp\x03\x02\x00\x3c" + len(identifier).to_bytes(2, "big") + identifier
    client.send_bytes(bytes([0x10, len(body)]) + body)
    client.expect(Connack, session_present=False, reason_code=0)
    client.subscribe(topic, 1)
    client.publish(topic, b"3.1", 1)
    assert payloads(client) == [b"3.1"]
