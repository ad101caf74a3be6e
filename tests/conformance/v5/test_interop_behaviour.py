"""Behaviour that other projects' interoperability suites look for, told as short stories over several packets.

Each covers several statements at once, which the other files show one by one.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from tests.conformance.conftest import BrokerWith, Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.rights import NoSecrets
from tests.conformance.v5.steps import (
    collect,
    expect_disconnect,
    messages_besides_marker,
    pass_time,
    payloads,
)
from tidegate.broker.hooks import Hooks
from tidegate.mqtt import (
    Property,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Subscription,
    Will,
)
from tidegate.testing.raw import RawClient

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}


def test_a_client_publishes_to_itself_at_each_qos(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=2)
    for qos in range(3):
        client.publish(topic, b"qos %d" % qos, qos=qos)
        message = client.expect(Publish, topic=topic, payload=b"qos %d" % qos, qos=qos)
        client.acknowledge(message)
    client.disconnect()


def test_retained_messages_of_each_qos_reach_a_wildcard_subscriber_and_can_be_cleared(
    join: Join, topic: str
) -> None:
    publisher = join("publisher")
    for qos in range(3):
        publisher.publish(f"{topic}/{qos}", b"kept %d" % qos, qos=qos, retain=True)
    first = join("first")
    first.subscribe(f"{topic}/+", qos=2)
    messages = collect(first, 3)
    assert sorted((m.topic[-1], m.payload, m.qos, m.retain) for m in messages) == [
        (str(qos), b"kept %d" % qos, qos, True) for qos in range(3)
    ]
    for qos in range(3):
        publisher.publish(f"{topic}/{qos}", b"", qos=qos, retain=True)
    second = join("second")
    second.subscribe(f"{topic}/#", qos=2)
    assert messages_besides_marker(second, f"{topic}/marker") == []


def test_a_subscriber_that_was_away_gets_what_it_missed_in_order(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(f"{topic}/#", qos=2)
    client.disconnect()
    publisher = join("publisher")
    for number in range(20):
        publisher.publish(f"{topic}/{number % 2}", b"%d" % number, qos=1 + number % 2)
    client = join("device", clean_start=False, properties=KEEP)
    messages = collect(client, 20)
    for qos in (1, 2):
        assert payloads([m for m in messages if m.qos == qos]) == [b"%d" % n for n in range(qos - 1, 20, 2)]
    assert client.barrier() == []


def test_a_will_reaches_a_subscriber_that_is_away(join: Join, topic: str) -> None:
    watcher = join("watcher", properties=KEEP)
    watcher.subscribe(topic, qos=1)
    live = join("live")
    live.subscribe(topic)
    watcher.disconnect()
    join("device", will=Will(topic=topic, payload=b"gone", qos=1)).close()
    live.expect(Publish, payload=b"gone")
    watcher = join("watcher", clean_start=False, properties=KEEP)
    watcher.expect(Publish, payload=b"gone", qos=1)


def test_a_taken_over_connection_with_clean_start_publishes_its_will(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    join("device", will=Will(topic=topic, payload=b"taken over"))
    join("device", clean_start=True)
    watcher.expect(Publish, payload=b"taken over")


def test_overlapping_subscriptions_deliver_once_or_once_for_each(join: Join, topic: str) -> None:
    client = join()
    client.subscribe_all(
        [Subscription(topic_filter=f"{topic}/#", qos=2), Subscription(topic_filter=f"{topic}/+", qos=1)]
    )
    client.publish(f"{topic}/x", b"overlap", qos=2)
    copies = [m.qos for m in messages_besides_marker(client, f"{topic}/marker") if m.payload == b"overlap"]
    assert sorted(copies) in ([2], [1, 2])


def test_keep_alive_ends_a_silent_client_and_its_will_is_published(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    client = join("device", keep_alive=1, will=Will(topic=topic, payload=b"expired"))
    started = time.monotonic()
    watcher.expect(Publish, payload=b"expired")
    assert 1.0 < time.monotonic() - started < 3.5
    expect_disconnect(client, ReasonCode.KEEP_ALIVE_TIMEOUT)


def test_dollar_topics_stay_out_of_wildcards_and_clients_cannot_write_to_sys(
    join: Join, unique: Callable[[str], str]
) -> None:
    client = join()
    client.subscribe("+/" + unique("x"))
    client.subscribe(unique("marker"))
    client.publish("$" + unique("private") + "/" + unique("x"), qos=1)
    assert messages_besides_marker(client, unique("marker")) == []
    client.subscribe("$SYS/" + unique("x"))
    client.publish("$SYS/" + unique("x"), b"forged", qos=1)
    assert messages_besides_marker(client, unique("marker")) == []


def test_unsubscribed_topics_stop_and_others_go_on(join: Join, topic: str) -> None:
    client = join()
    names = [f"{topic}/{name}" for name in "abc"]
    client.subscribe_all([Subscription(topic_filter=name, qos=1) for name in names])
    assert client.unsubscribe(names[0], names[2]).reason_codes == [0, 0]
    for name in names:
        client.publish(name, name.encode(), qos=0)
    client.expect(Publish, topic=names[1])
    assert client.barrier() == []


def test_a_client_without_identifier_is_given_one_that_it_can_come_back_with(dial: Dial, topic: str) -> None:
    first = dial()
    name = first.connect("", properties=KEEP).properties[Property.ASSIGNED_CLIENT_IDENTIFIER]
    first.subscribe(topic, qos=1)
    first.disconnect()
    second = dial()
    assert second.connect(name, clean_start=False, properties=KEEP).session_present
    second.publish(topic, b"mine", qos=1)
    second.expect(Publish, payload=b"mine")


def test_a_subscription_that_fails_leaves_the_others_of_its_packet(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(hooks=Hooks(authoriser=NoSecrets())))
    suback = client.subscribe_all(
        [Subscription(topic_filter=name, qos=1) for name in ("before", "secret", "after")]
    )
    assert suback.reason_codes == [1, ReasonCode.NOT_AUTHORIZED, 1]
    for name in ("secret", "before", "after"):
        client.publish(name, name.encode())
    assert payloads(collect(client, 2)) == [b"before", b"after"]


def test_an_interrupted_exchange_of_each_qos_is_taken_up_where_it_stopped(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=2)
    publisher = join("publisher")
    publisher.publish(topic, b"one", qos=1)
    publisher.publish(topic, b"two", qos=2)
    one, two = collect(client, 2, acknowledge=False)
    client.close()
    client = join("device", clean_start=False, properties=KEEP)
    client.acknowledge(
        client.expect(Publish, payload=b"one", dup=True, packet_identifier=one.packet_identifier)
    )
    client.expect(Publish, payload=b"two", dup=True, packet_identifier=two.packet_identifier)
    assert two.packet_identifier is not None
    client.send(Pubrec(packet_identifier=two.packet_identifier))
    client.expect(Pubrel, packet_identifier=two.packet_identifier)
    client.close()
    client = join("device", clean_start=False, properties=KEEP)
    client.expect(Pubrel, packet_identifier=two.packet_identifier)
    assert client.barrier() == []


def test_flow_control_holds_in_both_directions_at_once(broker_with: BrokerWith, join: Join) -> None:
    client = join(to=broker_with(receive_maximum=2), properties={Property.RECEIVE_MAXIMUM: 2})
    client.subscribe("t", qos=2)
    sent = 0
    received: list[bytes] = []
    while len(received) < 10:
        while sent < 10 and sent < len(received) + 2:
            client.publish("t", b"%d" % sent, qos=2)
            sent += 1
        waiting = [client.take(Publish)]
        waiting += [packet for packet in client.barrier() if isinstance(packet, Publish)]
        assert len(waiting) <= 2
        for message in waiting:
            client.acknowledge(message)
        received += payloads(waiting)
    assert received == [b"%d" % number for number in range(10)]


def test_packet_sizes_hold_in_both_directions(broker_with: BrokerWith, join: Join) -> None:
    server = broker_with(max_packet_size=500)
    small = join("small", to=server, properties={Property.MAXIMUM_PACKET_SIZE: 100})
    large = join("large", to=server)
    small.subscribe("#", qos=1)
    large.subscribe("#", qos=1)
    large.publish("a", bytes(300), qos=1)
    large.publish("b", bytes(30), qos=1)
    assert [message.topic for message in collect(large, 2)] == ["a", "b"]
    assert [message.topic for message in collect(small, 1)] == ["b"]
    large.send(Publish(topic="c", payload=bytes(600)))
    expect_disconnect(large, ReasonCode.PACKET_TOO_LARGE)
    assert small.barrier() == []


@pytest.mark.parametrize(("asked", "told"), [(0, 5), (60, 5), (5, None), (3, None)])
def test_a_server_keep_alive_is_told_to_clients_that_ask_for_more(
    broker_with: BrokerWith, dial: Dial, asked: int, told: int | None
) -> None:
    connack = dial(to=broker_with(server_keep_alive=5)).connect("x", keep_alive=asked)
    assert connack.properties.get(Property.SERVER_KEEP_ALIVE) == told


def test_a_session_expiry_above_that_of_the_server_is_lowered_and_told(
    broker_with: BrokerWith, dial: Dial
) -> None:
    connack = dial(to=broker_with(max_session_expiry=60)).connect("x", properties=KEEP)
    assert connack.properties[Property.SESSION_EXPIRY_INTERVAL] == 60


def test_a_delayed_will_comes_at_the_end_of_the_delay_or_of_the_session(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")

    def leave(name: str, delay: int, expiry: int) -> None:
        will = Will(topic=f"{topic}/{name}", payload=b"", properties={Property.WILL_DELAY_INTERVAL: delay})
        join(name, will=will, properties={Property.SESSION_EXPIRY_INTERVAL: expiry}).close()

    started = time.monotonic()
    leave("delay-first", 1, 60)
    leave("session-first", 60, 1)
    leave("at-once", 60, 0)
    watcher.expect(Publish, topic=f"{topic}/at-once")
    assert time.monotonic() - started < 0.9
    others = {watcher.expect(Publish).topic for _ in range(2)}
    assert others == {f"{topic}/delay-first", f"{topic}/session-first"}
    assert time.monotonic() - started > 0.9


def test_a_delayed_will_is_dropped_when_the_client_comes_back_in_time(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")
    will = Will(topic=f"{topic}/will", payload=b"", properties={Property.WILL_DELAY_INTERVAL: 1})
    join("device", will=will, properties=KEEP).close()
    join("device", clean_start=False, properties=KEEP)
    pass_time(1.3)
    assert messages_besides_marker(watcher, f"{topic}/marker") == []


def test_messages_expire_while_their_subscriber_is_away(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=2)
    client.disconnect()
    publisher = join("publisher")
    for number, seconds in enumerate((1, 10, 1, None)):
        properties = {} if seconds is None else {Property.MESSAGE_EXPIRY_INTERVAL: seconds}
        publisher.publish(topic, b"%d" % number, qos=1 + number % 2, properties=properties)
    pass_time(1.2)
    client = join("device", clean_start=False, properties=KEEP)
    one, three = collect(client, 2)
    assert (one.payload, three.payload) == (b"1", b"3")
    assert 7 <= one.properties[Property.MESSAGE_EXPIRY_INTERVAL] <= 9
    assert Property.MESSAGE_EXPIRY_INTERVAL not in three.properties
    assert client.barrier() == []


def test_the_expiry_of_a_will_starts_when_it_is_published(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    will = Will(topic=topic, payload=b"", properties={Property.MESSAGE_EXPIRY_INTERVAL: 100})
    client = join("device", will=will)
    client.expect_nothing(1.1)
    client.close()
    assert watcher.expect(Publish).properties[Property.MESSAGE_EXPIRY_INTERVAL] == 100


def test_subscription_options_work_together(join: Join, topic: str) -> None:
    client, other = join(), join("other")
    client.subscribe(
        f"{topic}/#",
        qos=1,
        no_local=True,
        retain_as_published=True,
        retain_handling=2,
        properties={Property.SUBSCRIPTION_IDENTIFIER: [5]},
    )
    client.publish(f"{topic}/x", b"own", qos=1, retain=True)
    other.publish(f"{topic}/x", b"theirs", qos=2, retain=True)
    message = client.expect(Publish, payload=b"theirs", qos=1, retain=True)
    assert message.properties == {Property.SUBSCRIPTION_IDENTIFIER: [5]}


def test_shared_subscriptions_get_no_retained_messages(join: Join, topic: str) -> None:
    client = join()
    client.publish(topic, b"kept", qos=1, retain=True)
    client.subscribe(f"$share/group/{topic}", qos=1)
    assert messages_besides_marker(client, topic) == []


def test_a_member_that_leaves_its_group_gets_no_more_messages(join: Join, topic: str) -> None:
    stays, leaves = join("stays"), join("leaves")
    for member in (stays, leaves):
        member.subscribe(f"$share/group/{topic}")
    assert leaves.unsubscribe(f"$share/group/{topic}").reason_codes == [0]
    publisher = join("publisher")
    for number in range(10):
        publisher.publish(topic, b"%d" % number)
    assert payloads(collect(stays, 10)) == [b"%d" % number for number in range(10)]
    assert leaves.barrier() == []


def test_a_request_is_answered_to_its_response_topic(join: Join, topic: str) -> None:
    worker, caller = join("worker"), join("caller")
    worker.subscribe(f"{topic}/requests", qos=1)
    caller.subscribe(f"{topic}/answers", qos=1)
    caller.publish(
        f"{topic}/requests",
        b"6 * 7",
        qos=1,
        properties={
            Property.RESPONSE_TOPIC: f"{topic}/answers",
            Property.CORRELATION_DATA: b"\x00\x01",
        },
    )
    request = worker.expect(Publish)
    worker.acknowledge(request)
    correlation = {Property.CORRELATION_DATA: request.properties[Property.CORRELATION_DATA]}
    worker.publish(request.properties[Property.RESPONSE_TOPIC], b"42", qos=1, properties=correlation)
    answer = caller.expect(Publish, payload=b"42")
    assert answer.properties == {Property.CORRELATION_DATA: b"\x00\x01"}


def test_aliases_of_publisher_and_subscriber_do_not_mix(join: Join, topic: str) -> None:
    publisher = join("publisher")
    plain = join("plain")
    aliased = join("aliased", properties={Property.TOPIC_ALIAS_MAXIMUM: 10})
    for client in (plain, aliased):
        client.subscribe(f"{topic}/#")
    for alias, name in ((5, "a"), (6, "b"), (5, ""), (6, ""), (5, "c"), (5, "")):
        publisher.send(Publish(topic=name and f"{topic}/{name}", properties={Property.TOPIC_ALIAS: alias}))
    expected = [f"{topic}/{name}" for name in "ababcc"]
    assert [message.topic for message in collect(plain, 6)] == expected
    names: dict[int, str] = {}
    seen = []
    for message in collect(aliased, 6):
        used = message.properties.get(Property.TOPIC_ALIAS)
        if used is not None and message.topic:
            names[used] = message.topic
        seen.append(message.topic or names[used or 0])
    assert seen == expected


def test_both_protocol_versions_talk_to_each_other(
    join: Join, dial: Dial, unique: Callable[[str], str]
) -> None:
    topic = unique("shared")
    new, old = join("new"), dial(4)
    old.connect(unique("old"))
    new.subscribe(topic, qos=2)
    old.subscribe(topic, qos=2)
    new.publish(topic, b"from 5", qos=2, properties={Property.USER_PROPERTY: [("a", "b")]})
    old.acknowledge(old.expect(Publish, payload=b"from 5", qos=2, properties={}))
    new.acknowledge(new.expect(Publish, payload=b"from 5"))
    old.publish(topic, b"from 3.1.1", qos=1)
    new.acknowledge(new.expect(Publish, payload=b"from 3.1.1", qos=1, properties={}))
    old.acknowledge(old.expect(Publish, payload=b"from 3.1.1"))


@pytest.mark.parametrize("seed", range(5))
def test_qos_2_delivers_exactly_once_whenever_either_end_loses_its_connection(
    join: Join, topic: str, seed: int
) -> None:
    random = Random(seed)
    total = 30
    subscriber = join("subscriber", properties=KEEP)
    subscriber.subscribe(topic, qos=2)
    publisher = join("publisher", properties=KEEP)
    for number in range(1, total + 1):
        # The publisher loses its connection behind PUBLISH, behind PUBREL, or not at all.
        message = Publish(topic=topic, payload=b"%d" % number, qos=2, packet_identifier=number)
        publisher.send(message)
        if random.random() < 0.3:
            publisher.close()
            publisher = join("publisher", clean_start=False, properties=KEEP)
            publisher.send(replace(message, dup=True))
        publisher.take(Pubrec, packet_identifier=number)
        publisher.send(Pubrel(packet_identifier=number))
        if random.random() < 0.3:
            publisher.close()
            publisher = join("publisher", clean_start=False, properties=KEEP)
            publisher.send(Pubrel(packet_identifier=number))
        publisher.take(Pubcomp, packet_identifier=number)

    def reconnect() -> RawClient:
        subscriber.close()
        return join("subscriber", clean_start=False, properties=KEEP)

    received: list[int] = []
    unreleased: set[int] = set()
    released = 0
    while released < total:
        packet = subscriber.receive()
        assert isinstance(packet, (Publish, Pubrel))
        identifier = packet.packet_identifier
        assert identifier is not None
        if isinstance(packet, Publish):
            if identifier not in unreleased:
                unreleased.add(identifier)
                received.append(int(packet.payload))
            answer: Pubrec | Pubcomp = Pubrec(packet_identifier=identifier)
        else:
            released += identifier in unreleased
            unreleased.discard(identifier)
            answer = Pubcomp(packet_identifier=identifier)
        if random.random() < 0.1:
            subscriber = reconnect()  # before the answer: the server has to send again
            continue
        subscriber.send(answer)
        if random.random() < 0.1:
            subscriber = reconnect()  # behind it: the server may or may not have seen it
    assert received == list(range(1, total + 1))
