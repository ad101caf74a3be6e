"""Every limit: what is refused, with which words, and that the neighbour notices nothing."""

import time

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tidegate.broker import Features, Limits, Listener
from tidegate.mqtt import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Pubrec,
    ReasonCode,
    Subscription,
    encode_packet,
)
from tidegate.mqtt.properties import Property
from tidegate.testing.raw import RawClient


def reason(ended: Disconnect | None) -> int | None:
    return None if ended is None else ended.reason_code


@pytest.mark.parametrize("version", [4, 5])
def test_max_connections_refuses_the_next_one_until_a_place_is_free(
    start_broker: StartBroker, dial: Dial, until: Until, version: int
) -> None:
    broker = start_broker(max_connections=2)
    first, second, third = (dial(broker, version) for _ in range(3))
    first.connect("1")
    second.connect("2")
    refusal = third.connect("3")
    assert refusal.reason_code == (
        ReasonCode.QUOTA_EXCEEDED if version == 5 else ReasonCode.SERVER_UNAVAILABLE
    )
    third.expect_closed()
    first.disconnect()
    until(lambda: broker.statistics()["connections"] == 1)
    assert dial(broker, version).connect("3").reason_code == ReasonCode.SUCCESS


def test_a_listener_has_a_maximum_of_its_own(start_broker: StartBroker, dial: Dial, until: Until) -> None:
    broker = start_broker(listeners=[Listener(port=0, max_connections=1), Listener(port=0)])
    narrow, wide = (endpoint.port for endpoint in broker.call(lambda: broker.broker.endpoints))
    first = dial(broker, port=narrow)
    first.connect("1")
    assert dial(broker, port=narrow).connect("2").reason_code == ReasonCode.QUOTA_EXCEEDED
    assert dial(broker, port=wide).connect("3").reason_code == ReasonCode.SUCCESS
    assert dial(broker, port=narrow).connect("3").reason_code == ReasonCode.QUOTA_EXCEEDED
    first.close()
    until(lambda: dial(broker, port=narrow).connect("4").reason_code == ReasonCode.SUCCESS)


@pytest.mark.parametrize(
    "end", ["disconnect", "gone", "malformed", "second connect", "bad second connect", "taken over"]
)
def test_every_way_to_end_gives_the_listener_its_place_back(
    start_broker: StartBroker, dial: Dial, until: Until, end: str
) -> None:
    broker = start_broker(listeners=[Listener(port=0, max_connections=1)])
    port = broker.call(lambda: broker.broker.endpoints)[0].port
    client = dial(broker, port=port)
    client.connect("c")
    if end == "disconnect":
        client.disconnect()
    elif end == "gone":
        client.close()
    elif end == "malformed":
        client.send_bytes(b"\xff\xff\xff\xff\xff\xff")
    elif end == "second connect":
        client.send(Connect(client_id="c"))
    elif end == "bad second connect":
        client.send_bytes(encode_packet(Connect(client_id="c"), 5).replace(b"MQTT\x05", b"MQTT\x09"))
    else:
        broker.call(lambda: broker.broker.core.open_session("c", True))
    until(lambda: broker.statistics()["connections"] == 0)
    until(lambda: dial(broker, port=port).connect("next").reason_code == ReasonCode.SUCCESS)
    assert sum(broker.statistics()["closes"].values()) == 1


@pytest.mark.parametrize("version", [4, 5])
def test_connection_rate_refuses_those_who_would_wait_too_long_and_then_admits_again(
    start_broker: StartBroker, dial: Dial, until: Until, version: int
) -> None:
    broker = start_broker(connection_rate=5, connection_wait=0)
    clients = [dial(broker, version) for _ in range(10)]
    for number, client in enumerate(clients):
        client.send(Connect(client_id=f"c{number}", protocol_level=version))
    codes = [client.expect(Connack, 10.0).reason_code for client in clients]
    too_fast = ReasonCode.CONNECTION_RATE_EXCEEDED if version == 5 else ReasonCode.SERVER_UNAVAILABLE
    assert codes[:5] == [ReasonCode.SUCCESS] * 5
    assert codes.count(too_fast) >= 3
    assert broker.statistics()["waiting_connects"] == 0
    until(lambda: dial(broker, version).connect("later").reason_code == ReasonCode.SUCCESS, 15.0)


def test_clients_over_the_connection_rate_wait_for_their_turn(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(connection_rate=10)
    clients = [dial(broker) for _ in range(14)]
    started = time.monotonic()
    for number, client in enumerate(clients):
        client.send(Connect(client_id=f"c{number}"))
        client.send(Pingreq())
    for client in clients:
        client.expect(Connack, reason_code=ReasonCode.SUCCESS)
        client.expect(Pingresp)
    assert time.monotonic() - started > 0.25
    assert broker.statistics()["waiting_connects"] == 0


def test_a_connection_rate_below_one_a_second_still_admits_somebody(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(connection_rate=0.9)
    assert dial(broker).connect("c").reason_code == ReasonCode.SUCCESS


def test_clients_that_wait_for_their_turn_cannot_together_exceed_max_connections(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(connection_rate=3, max_connections=4)
    clients = [dial(broker) for _ in range(4)]
    for number, client in enumerate(clients[:3]):
        client.connect(f"c{number}")
    late = [dial(broker) for _ in range(3)]
    for number, client in enumerate(late):
        client.send(Connect(client_id=f"late{number}"))
    codes = sorted(client.expect(Connack, 10.0).reason_code for client in late)
    assert codes == [ReasonCode.SUCCESS, ReasonCode.QUOTA_EXCEEDED, ReasonCode.QUOTA_EXCEEDED]


@pytest.mark.parametrize("version", [4, 5])
def test_max_packet_size_is_announced_and_enforced_from_the_header_on(
    start_broker: StartBroker, dial: Dial, version: int
) -> None:
    broker = start_broker(max_packet_size=1_000)
    client = dial(broker, version)
    connack = client.connect("c")
    if version == 5:
        assert connack.properties[Property.MAXIMUM_PACKET_SIZE] == 1_000
    client.subscribe("t")
    packet = encode_packet(Publish(topic="t", payload=bytes(900)), version)
    exact = encode_packet(Publish(topic="t", payload=bytes(900 + 1_000 - len(packet))), version)
    assert len(exact) == 1_000
    client.send_bytes(exact)
    client.expect(Publish)
    client.send_bytes(
        encode_packet(Publish(topic="t", payload=bytes(901 + 1_000 - len(packet))), version)[:3]
    )
    ended = client.expect_closed()
    assert reason(ended) == (ReasonCode.PACKET_TOO_LARGE if version == 5 else None)


def test_max_connect_size_ends_a_connect_that_is_longer(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(max_connect_size=300)
    client = dial(broker)
    client.send(Connect(client_id="x" * 400))
    assert client.expect_closed() is None
    assert dial(broker).connect("y" * 200).reason_code == ReasonCode.SUCCESS


def test_topics_with_too_many_levels_are_refused(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(max_topic_levels=3)
    client = dial(broker)
    client.connect("c")
    codes = client.subscribe_all(
        [Subscription(topic_filter=name) for name in ("a/b/c", "a/b/c/d", "#")]
    ).reason_codes
    assert codes == [0, ReasonCode.TOPIC_FILTER_INVALID, 0]
    client.publish("a/b/c", b"fits")
    client.expect(Publish)
    client.publish("a/b/c/d", b"does not")
    assert reason(client.expect_closed()) == ReasonCode.TOPIC_NAME_INVALID


@pytest.mark.parametrize("version", [4, 5])
def test_max_subscriptions_refuses_new_filters_and_lets_old_ones_be_replaced(
    start_broker: StartBroker, dial: Dial, version: int
) -> None:
    broker = start_broker(max_subscriptions=2)
    client = dial(broker, version)
    client.connect("c")
    asked = [Subscription(topic_filter=name, qos=1) for name in ("a", "b", "c", "a")]
    refused = ReasonCode.QUOTA_EXCEEDED if version == 5 else ReasonCode.UNSPECIFIED_ERROR
    assert client.subscribe_all(asked).reason_codes == [1, 1, refused, 1]
    client.unsubscribe("a")
    assert client.subscribe("c").reason_codes == [0]
    assert broker.statistics()["subscriptions"] == 2


def test_max_sessions_counts_those_who_are_away_and_lets_them_come_back(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(max_sessions=2)
    lasting = {Property.SESSION_EXPIRY_INTERVAL: 3_600}
    for name in ("1", "2"):
        client = dial(broker)
        client.connect(name, properties=lasting)
        client.disconnect()
    assert dial(broker).connect("3").reason_code == ReasonCode.QUOTA_EXCEEDED
    assert dial(broker).connect("").reason_code == ReasonCode.QUOTA_EXCEEDED
    assert dial(broker).connect("2", clean_start=False, properties=lasting).session_present


def test_max_retained_keeps_the_first_ones_and_still_delivers_the_rest(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(max_retained=2, sys_interval=0)
    client = dial(broker)
    client.connect("c")
    client.subscribe("t/#", qos=1)
    for number in range(3):
        client.publish(f"t/{number}", b"live", qos=1, retain=True)
        client.take(Publish, topic=f"t/{number}")
    assert broker.statistics()["retained"] == 2
    late = dial(broker)
    late.connect("late")
    late.subscribe("t/#")
    assert sorted(late.take(Publish).topic for _ in range(2)) == ["t/0", "t/1"]
    client.publish("t/0", b"", qos=1, retain=True)
    client.publish("t/2", b"now", qos=1, retain=True)
    assert broker.statistics()["retained"] == 2


def test_connect_timeout_ends_a_connection_that_says_nothing_or_dribbles(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(connect_timeout=0.4)
    silent, dribbling, good = dial(broker), dial(broker), dial(broker)
    good.connect("good")
    started = time.monotonic()
    packet = encode_packet(Connect(client_id="slow"), 5)
    dribbling.send_bytes(packet[:5])
    assert silent.expect_closed() is None
    assert dribbling.expect_closed() is None
    assert 0.3 < time.monotonic() - started < 3.0
    assert good.barrier() == []
    assert broker.statistics()["handshakes"] == 0


def dribble(client: RawClient, data: bytes, until_closed: float) -> None:
    """A byte now and then: signs of life, but never a packet."""
    deadline = time.monotonic() + until_closed
    for byte in data:
        client.send_bytes(bytes((byte,)))
        try:
            client._fill(time.monotonic() + 0.05)
        except TimeoutError:
            pass
        except ConnectionError:
            return
        assert time.monotonic() < deadline, "still open"


def test_packet_timeout_ends_a_client_that_never_completes_its_packet(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(packet_timeout=0.5)
    client, good = dial(broker), dial(broker)
    client.connect("c")
    good.connect("good")
    dribble(client, encode_packet(Publish(topic="t", payload=bytes(500)), 5), 4.0)
    assert [p.reason_code for p in client.inbox if isinstance(p, Disconnect)] == [ReasonCode.MALFORMED_PACKET]
    assert broker.statistics()["closes"] == {"client did not complete a packet": 1}
    assert good.barrier() == []


def test_receive_maximum_is_announced_and_one_message_more_ends_the_connection(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(receive_maximum=3)
    client = dial(broker)
    assert client.connect("c").properties[Property.RECEIVE_MAXIMUM] == 3
    for number in range(1, 5):
        client.send(Publish(topic="t", qos=2, packet_identifier=number))
    assert reason(client.expect_closed()) == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    assert len([p for p in client.inbox if isinstance(p, Pubrec)]) == 3


def test_keep_alive_ends_a_silent_client(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker()
    client, other = dial(broker), dial(broker)
    client.connect("c", keep_alive=1)
    other.connect("other", keep_alive=0)
    started = time.monotonic()
    assert reason(client.expect_closed()) == ReasonCode.KEEP_ALIVE_TIMEOUT
    assert 1.4 < time.monotonic() - started < 3.5
    assert other.barrier() == []


def test_new_limits_rule_without_a_restart(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker()
    first = dial(broker)
    first.connect("1")
    broker.call(lambda: broker.broker.apply(Limits(max_connections=1, max_subscriptions=1), Features()))
    assert dial(broker).connect("2").reason_code == ReasonCode.QUOTA_EXCEEDED
    asked = [Subscription(topic_filter="a"), Subscription(topic_filter="b")]
    assert first.subscribe_all(asked).reason_codes == [0, ReasonCode.QUOTA_EXCEEDED]


def test_a_client_keeps_the_packet_size_it_was_promised_when_limits_change(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker()
    client = dial(broker)
    client.connect("c")
    client.subscribe("t")
    broker.call(lambda: broker.broker.apply(Limits(max_packet_size=500), Features()))
    client.publish("t", bytes(1_000))
    client.expect(Publish)


def test_many_small_clients_come_and_go_and_nothing_is_left(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(sys_interval=0)
    for number in range(100):
        client = dial(broker, 4 + number % 2)
        client.connect(f"c{number}")
        client.subscribe(f"t/{number}", qos=number % 3)
        client.subscribe("t/+")
        client.publish(f"t/{number}", b"x", qos=0)
        client.take(Publish, topic=f"t/{number}")
        if number % 3:
            client.disconnect()
        else:
            client.close()
    until(lambda: broker.statistics()["connections"] == 0)
    left = broker.statistics()
    assert (left["sessions"], left["subscriptions"], left["queued_bytes"], left["handshakes"]) == (0, 0, 0, 0)
    core = broker.broker.core
    assert broker.call(lambda: (len(core.unfinished), len(core.blocked), len(core.closing))) == (0, 0, 0)
