"""MQTT 5 section 3.2: the CONNACK packet, its flags, reason codes and properties."""

import time
from collections.abc import Callable

import pytest

from tests.conformance.conftest import BrokerWith, Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import expect_disconnect, expect_refusal
from tests.conformance.v5.wire import receive_frames, receive_frames_until_closed
from tidegate.broker.hooks import ConnectRequest, Hooks, Verdict
from tidegate.mqtt import (
    Connack,
    Connect,
    Pingreq,
    Property,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Will,
    encode_packet,
)

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}


class Refuse:
    """An authenticator that lets nobody in and explains itself at length."""

    def authenticate(self, request: ConnectRequest) -> Verdict:
        return Verdict(reason_code=ReasonCode.NOT_AUTHORIZED, reason="because " * 50)


def test_MQTT_3_2_0_1_connack_is_the_first_packet_of_the_server(
    dial: Dial, unique: Callable[[str], str], topic: str
) -> None:
    client = dial()
    subscribe = Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter=topic)])
    client.send_bytes(
        b"".join(encode_packet(p, 5) for p in (Connect(client_id=unique("x")), Pingreq(), subscribe))
    )
    client.expect(Connack, reason_code=ReasonCode.SUCCESS)


def test_MQTT_3_2_0_1_connack_comes_before_queued_messages(
    dial: Dial, join: Join, unique: Callable[[str], str], topic: str
) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=1)
    client.disconnect()
    publisher = join("publisher")
    for _ in range(3):
        publisher.publish(topic, qos=1)
    client = dial()
    client.send(Connect(client_id=unique("device"), clean_start=False, properties=KEEP))
    client.expect(Connack, session_present=True)
    client.expect(Publish, topic=topic)


def test_MQTT_3_2_0_2_there_is_only_one_connack(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic)
    client.publish(topic, qos=2)
    assert not [packet for packet in client.barrier() if isinstance(packet, Connack)]


def test_MQTT_3_2_2_1_the_reserved_flags_are_zero(dial: Dial, unique: Callable[[str], str]) -> None:
    for clean_start, flags in ((True, 0), (False, 1)):
        client = dial()
        client.send(Connect(client_id=unique("device"), clean_start=clean_start, properties=KEEP))
        (connack,) = receive_frames(client, 1)
        assert connack[2] == flags


def test_MQTT_3_2_2_2_clean_start_gives_no_session_present(dial: Dial, unique: Callable[[str], str]) -> None:
    for _ in range(2):
        client = dial()
        assert not client.connect(unique("device"), clean_start=True, properties=KEEP).session_present
        client.disconnect()


def test_MQTT_3_2_2_3_session_present_says_whether_there_is_a_session(
    dial: Dial, unique: Callable[[str], str]
) -> None:
    first, second = dial(), dial()
    assert not first.connect(unique("device"), clean_start=False, properties=KEEP).session_present
    first.disconnect()
    assert second.connect(unique("device"), clean_start=False, properties=KEEP).session_present


def test_MQTT_3_2_2_6_a_refusal_has_no_session_present(
    join: Join, dial: Dial, unique: Callable[[str], str]
) -> None:
    join("device", properties=KEEP).disconnect()
    client = dial()
    unknown = {Property.AUTHENTICATION_METHOD: "no-such-method"}
    connack = client.connect(unique("device"), clean_start=False, properties=unknown)
    assert connack.reason_code >= 0x80
    assert not connack.session_present


def test_MQTT_3_2_2_7_the_server_closes_behind_a_refusal(dial: Dial) -> None:
    client = dial()
    connack = client.connect("x", properties={Property.AUTHENTICATION_METHOD: "no-such-method"})
    assert connack.reason_code >= 0x80
    assert client.expect_closed() is None


@pytest.mark.parametrize(
    ("fields", "reason_code"),
    [
        ({"client_id": ""}, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        ({"properties": {Property.AUTHENTICATION_METHOD: "x"}}, ReasonCode.BAD_AUTHENTICATION_METHOD),
        ({"will": Will(topic="t", payload=b"", qos=2)}, ReasonCode.QOS_NOT_SUPPORTED),
        ({"will": Will(topic="t", payload=b"", retain=True)}, ReasonCode.RETAIN_NOT_SUPPORTED),
    ],
)
def test_MQTT_3_2_2_8_each_refusal_has_a_connect_reason_code(
    broker_with: BrokerWith, dial: Dial, fields: dict[str, object], reason_code: int
) -> None:
    server = broker_with(allow_zero_length_client_id=False, maximum_qos=1, retain_available=False)
    client = dial(to=server)
    client.send(Connect(**{"client_id": "x", **fields}))  # type: ignore[arg-type]
    client.expect(Connack, reason_code=reason_code, session_present=False)


@pytest.mark.parametrize("maximum_qos", [0, 1])
def test_MQTT_3_2_2_9_a_server_with_less_than_qos_2_says_so(
    broker_with: BrokerWith, dial: Dial, maximum_qos: int
) -> None:
    connack = dial(to=broker_with(maximum_qos=maximum_qos)).connect("x")
    assert connack.properties[Property.MAXIMUM_QOS] == maximum_qos


def test_MQTT_3_2_2_9_a_server_with_qos_2_does_not_send_maximum_qos(
    dial: Dial, unique: Callable[[str], str]
) -> None:
    assert Property.MAXIMUM_QOS not in dial().connect(unique("x")).properties


@pytest.mark.parametrize("maximum_qos", [0, 1])
def test_MQTT_3_2_2_10_subscriptions_of_any_qos_are_accepted_with_what_there_is(
    broker_with: BrokerWith, join: Join, maximum_qos: int
) -> None:
    client = join(to=broker_with(maximum_qos=maximum_qos))
    codes = client.subscribe_all(
        [Subscription(topic_filter=f"t/{qos}", qos=qos) for qos in range(3)]
    ).reason_codes
    assert codes == [min(qos, maximum_qos) for qos in range(3)]


def test_MQTT_3_2_2_11_a_message_above_maximum_qos_closes_the_connection(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(maximum_qos=1))
    client.send(Publish(topic="t", qos=2, packet_identifier=1))
    expect_disconnect(client, ReasonCode.QOS_NOT_SUPPORTED)


def test_MQTT_3_2_2_12_a_will_above_maximum_qos_is_refused(broker_with: BrokerWith, dial: Dial) -> None:
    client = dial(to=broker_with(maximum_qos=0))
    client.send(Connect(client_id="x", will=Will(topic="t", payload=b"", qos=1)))
    assert expect_refusal(client, ReasonCode.QOS_NOT_SUPPORTED)


def test_MQTT_3_2_2_13_a_retained_will_is_refused_where_retain_is_not_available(
    broker_with: BrokerWith, dial: Dial
) -> None:
    client = dial(to=broker_with(retain_available=False))
    client.send(Connect(client_id="x", will=Will(topic="t", payload=b"", retain=True)))
    assert expect_refusal(client, ReasonCode.RETAIN_NOT_SUPPORTED)


def test_MQTT_3_2_2_14_a_retained_message_closes_the_connection_where_retain_is_not_available(
    broker_with: BrokerWith, dial: Dial
) -> None:
    client = dial(to=broker_with(retain_available=False))
    assert client.connect("x").properties[Property.RETAIN_AVAILABLE] == 0
    client.send(Publish(topic="t", retain=True))
    expect_disconnect(client, ReasonCode.RETAIN_NOT_SUPPORTED)


def test_MQTT_3_2_2_15_a_packet_above_the_maximum_of_the_server_closes_the_connection(
    broker_with: BrokerWith, dial: Dial
) -> None:
    server = broker_with(max_packet_size=1000)
    client = dial(to=server)
    assert client.connect("x").properties[Property.MAXIMUM_PACKET_SIZE] == 1000
    header = len(encode_packet(Publish(topic="t", payload=bytes(500)), 5)) - 500
    client.subscribe("t")
    client.publish("t", bytes(1000 - header))
    client.expect(Publish)
    client.send(Publish(topic="t", payload=bytes(1000 - header + 1)))
    expect_disconnect(client, ReasonCode.PACKET_TOO_LARGE)


def test_MQTT_3_2_2_16_an_assigned_identifier_belongs_to_no_other_session(dial: Dial) -> None:
    connacks = [dial().connect("", properties=KEEP) for _ in range(10)]
    names = {connack.properties[Property.ASSIGNED_CLIENT_IDENTIFIER] for connack in connacks}
    assert len(names) == 10
    assert not any(connack.session_present for connack in connacks)


def test_MQTT_3_2_2_17_an_alias_above_the_maximum_of_the_server_closes_the_connection(
    broker_with: BrokerWith, dial: Dial
) -> None:
    client = dial(to=broker_with(max_topic_alias=3))
    assert client.connect("x").properties[Property.TOPIC_ALIAS_MAXIMUM] == 3
    client.send(Publish(topic="t", properties={Property.TOPIC_ALIAS: 4}))
    expect_disconnect(client, ReasonCode.TOPIC_ALIAS_INVALID)


def test_MQTT_3_2_2_18_any_alias_closes_the_connection_of_a_server_without_them(
    broker_with: BrokerWith, dial: Dial
) -> None:
    client = dial(to=broker_with(max_topic_alias=0))
    assert client.connect("x").properties.get(Property.TOPIC_ALIAS_MAXIMUM, 0) == 0
    client.send(Publish(topic="t", properties={Property.TOPIC_ALIAS: 1}))
    expect_disconnect(client, ReasonCode.TOPIC_ALIAS_INVALID)


@pytest.mark.parametrize("maximum", [5, 20, 100])
def test_MQTT_3_2_2_19_a_reason_string_does_not_make_connack_too_large(
    broker_with: BrokerWith, dial: Dial, maximum: int
) -> None:
    client = dial(to=broker_with(hooks=Hooks(authenticator=Refuse())))
    client.send(Connect(client_id="x", properties={Property.MAXIMUM_PACKET_SIZE: maximum}))
    frames = receive_frames_until_closed(client)
    assert all(len(frame) <= maximum for frame in frames), frames
    assert [frame[3] for frame in frames] == [ReasonCode.NOT_AUTHORIZED]


@pytest.mark.parametrize("maximum", [5, 30])
def test_MQTT_3_2_2_20_a_refusal_has_no_user_property_that_makes_it_too_large(
    broker_with: BrokerWith, dial: Dial, maximum: int
) -> None:
    client = dial(to=broker_with(allow_zero_length_client_id=False))
    properties = {Property.MAXIMUM_PACKET_SIZE: maximum, Property.USER_PROPERTY: [("k", "v" * 50)]}
    client.send(Connect(client_id="", properties=properties))
    frames = receive_frames_until_closed(client)
    assert [frame[3] for frame in frames] == [ReasonCode.CLIENT_IDENTIFIER_NOT_VALID]
    assert len(frames[0]) <= maximum


def test_MQTT_3_2_2_21_a_client_told_a_server_keep_alive_is_cut_off_by_it(
    broker_with: BrokerWith, dial: Dial
) -> None:
    client = dial(to=broker_with(server_keep_alive=1))
    connack = client.connect("x", keep_alive=600)
    assert connack.properties[Property.SERVER_KEEP_ALIVE] == 1
    started = time.monotonic()
    expect_disconnect(client, ReasonCode.KEEP_ALIVE_TIMEOUT)
    assert time.monotonic() - started < 3.5


def test_MQTT_3_2_2_22_without_server_keep_alive_that_of_the_client_rules(
    broker_with: BrokerWith, dial: Dial
) -> None:
    client = dial(to=broker_with(server_keep_alive=600))
    connack = client.connect("x", keep_alive=1)
    assert Property.SERVER_KEEP_ALIVE not in connack.properties
    expect_disconnect(client, ReasonCode.KEEP_ALIVE_TIMEOUT)


def test_MQTT_3_2_2_7_a_will_of_a_refused_client_is_never_published(
    dial: Dial, join: Join, unique: Callable[[str], str], topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    client = dial()
    client.connect(
        unique("refused"),
        will=Will(topic=topic, payload=b"will"),
        properties={Property.AUTHENTICATION_METHOD: "no-such-method"},
    )
    client.expect_closed()
    watcher.publish(topic, b"marker")
    watcher.expect(Publish, payload=b"marker")


def test_MQTT_3_2_2_8_a_full_server_says_so(broker_with: BrokerWith, dial: Dial) -> None:
    server = broker_with(max_connections=1)
    assert dial(to=server).connect("first").reason_code == ReasonCode.SUCCESS
    second = dial(to=server)
    second.send(Connect(client_id="second"))
    busy = (ReasonCode.SERVER_BUSY, ReasonCode.QUOTA_EXCEEDED, ReasonCode.SERVER_UNAVAILABLE)
    assert expect_refusal(second, *busy)
