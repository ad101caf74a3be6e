"""Many packets that arrive in one piece must work as if they had come one by one.

A server that handles neighbours of one topic together has to notice where they differ: in flags, properties,
aliases, and in what each subscriber may be sent.
"""

from collections.abc import Callable

from tests.conformance.conftest import Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import collect, expect_disconnect, messages_besides_marker, payloads
from tests.conformance.v5.wire import frame, prefixed, publish
from tidegate.mqtt import Property, Puback, Publish, Pubrec, Pubrel, ReasonCode, Subscription
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.packets import Packet, Subscribe, Unsubscribe


def chunk(*packets: Packet) -> bytes:
    return b"".join(encode_packet(packet, 5) for packet in packets)


def test_a_retained_message_among_others_of_its_topic_is_kept(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic)
    client.send_bytes(publish(topic, b"a") + publish(topic, b"kept", first_byte=0x31) + publish(topic, b"b"))
    messages = collect(client, 3)
    assert payloads(messages) == [b"a", b"kept", b"b"]
    assert not any(message.retain for message in messages)
    late = join("late")
    late.subscribe(topic)
    assert late.expect(Publish, retain=True).payload == b"kept"


def test_an_empty_retained_message_among_others_of_its_topic_removes_the_retained_one(
    join: Join, topic: str
) -> None:
    client = join()
    client.publish(topic, b"old", qos=1, retain=True)
    client.send_bytes(publish(topic, b"a") + publish(topic, b"", first_byte=0x31) + publish(topic, b""))
    client.barrier()
    client.subscribe(topic)
    assert messages_besides_marker(client, topic) == []


def test_retain_as_published_tells_neighbours_apart(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, retain_as_published=True)
    client.send_bytes(publish(topic, b"0") + publish(topic, b"1", first_byte=0x31) + publish(topic, b"0"))
    assert [(m.payload, m.retain) for m in collect(client, 3)] == [(b"0", False), (b"1", True), (b"0", False)]


def test_properties_stay_with_their_message(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic)
    pairs = [{Property.USER_PROPERTY: [("n", str(number))]} if number % 3 else {} for number in range(9)]
    client.send_bytes(chunk(*(Publish(topic=topic, properties=properties) for properties in pairs)))
    assert [message.properties for message in collect(client, 9)] == pairs


def test_aliases_are_set_used_and_changed_within_a_chunk(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(f"{topic}/#")
    alias = {Property.TOPIC_ALIAS: 1}
    client.send_bytes(
        chunk(
            Publish(topic=f"{topic}/a"),
            Publish(topic=f"{topic}/a", properties=alias),
            Publish(topic="", properties=alias),
            Publish(topic="", properties=alias),
            Publish(topic=f"{topic}/b", properties=alias),
            Publish(topic="", properties=alias),
        )
    )
    messages = collect(client, 6)
    assert [message.topic[-1] for message in messages] == list("aaaabb")
    assert not any(message.properties for message in messages)


def test_messages_of_each_qos_are_answered_and_delivered_in_order(join: Join, topic: str) -> None:
    client, watcher = join(), join("watcher")
    watcher.subscribe(topic, qos=2)
    client.send_bytes(
        chunk(
            *(
                Publish(topic=topic, payload=b"%d" % n, qos=n % 3, packet_identifier=n if n % 3 else None)
                for n in range(9)
            )
        )
    )
    answers = [client.receive() for _ in range(6)]
    assert [type(answer) for answer in answers] == [Puback, Pubrec] * 3
    messages = collect(watcher, 9)
    assert [(int(message.payload), message.qos) for message in messages] == [(n, n % 3) for n in range(9)]


def test_a_subscription_takes_effect_between_two_messages(join: Join, topic: str) -> None:
    client = join()
    client.send_bytes(
        chunk(
            Publish(topic=topic, payload=b"before"),
            Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter=topic)]),
            Publish(topic=topic, payload=b"between"),
            Unsubscribe(packet_identifier=2, topic_filters=[topic]),
            Publish(topic=topic, payload=b"after"),
        )
    )
    messages = [packet for packet in client.barrier() if isinstance(packet, Publish)]
    assert payloads(messages) == [b"between"]


def test_no_local_holds_for_every_message_of_a_chunk(join: Join, topic: str) -> None:
    client, other = join(), join("other")
    client.subscribe(topic, no_local=True)
    other.subscribe(topic)
    client.send_bytes(publish(topic, b"own") * 5)
    assert payloads(collect(other, 5)) == [b"own"] * 5
    assert messages_besides_marker(client, topic, other) == []


def test_subscribers_of_every_kind_get_the_same_messages(
    join: Join, dial: Dial, unique: Callable[[str], str], topic: str
) -> None:
    subscribers = [
        join("plain"),
        join("aliased", properties={Property.TOPIC_ALIAS_MAXIMUM: 3}),
        join("small", properties={Property.MAXIMUM_PACKET_SIZE: 100}),
        join("identified"),
        dial(4),
    ]
    subscribers[-1].connect(unique("old"))
    for subscriber in subscribers:
        identifier = {Property.SUBSCRIPTION_IDENTIFIER: [9]} if "identified" in subscriber.client_id else {}
        subscriber.subscribe(topic, qos=1, properties=identifier)
    large = publish(topic, bytes(200))
    join("publisher").send_bytes(
        publish(topic, b"1") + publish(topic, b"2", properties=b"\x01\x01") + large + publish(topic, b"3")
    )
    for subscriber in subscribers:
        is_small = "small" in subscriber.client_id
        expected = [b"1", b"2", b"3"] if is_small else [b"1", b"2", bytes(200), b"3"]
        messages = collect(subscriber, len(expected))
        assert payloads(messages) == expected
        if "identified" in subscriber.client_id:
            assert all(m.properties[Property.SUBSCRIPTION_IDENTIFIER] == [9] for m in messages)
        if subscriber.version == 5:
            assert messages[1].properties[Property.PAYLOAD_FORMAT_INDICATOR] == 1


def test_a_normal_disconnect_at_the_end_of_a_chunk_loses_no_message(join: Join, topic: str) -> None:
    client, watcher = join(), join("watcher")
    watcher.subscribe(topic, qos=2)
    client.send_bytes(
        publish(topic, b"0") * 3
        + chunk(
            Publish(topic=topic, payload=b"1", qos=1, packet_identifier=1),
            Publish(topic=topic, payload=b"2", qos=2, packet_identifier=2),
            Pubrel(packet_identifier=2),
        )
        + b"\xe0\x00"
    )
    assert client.expect_closed() is None
    assert payloads(collect(watcher, 5)) == [b"0", b"0", b"0", b"1", b"2"]


def test_a_message_cut_at_every_byte_arrives_whole(join: Join, topic: str) -> None:
    client, watcher = join(), join("watcher")
    watcher.subscribe(topic)
    data = publish(topic, b"whole", properties=b"\x01\x01")
    for cut in range(1, len(data)):
        client.send_bytes(data + data[:cut])
        client.send_bytes(data[cut:] + data)
        for message in collect(watcher, 3):
            assert message.payload == b"whole"
            assert message.properties == {Property.PAYLOAD_FORMAT_INDICATOR: 1}


def test_an_unknown_alias_behind_good_messages_ends_the_connection_after_them(join: Join, topic: str) -> None:
    client, watcher = join(), join("watcher")
    watcher.subscribe(topic)
    client.send_bytes(publish(topic, b"good") * 3 + frame(0x30, prefixed("") + b"\x03\x23\x00\x05"))
    expect_disconnect(client, ReasonCode.PROTOCOL_ERROR, ReasonCode.TOPIC_ALIAS_INVALID)
    assert payloads(messages_besides_marker(watcher, topic)) == [b"good"] * 3
