"""MQTT 5 sections 4.1, 4.2, 4.4 and 4.5: session state, delivery after a reconnect, message receipt."""

from collections.abc import Callable

import pytest

from tests.conformance.conftest import Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import collect, messages_besides_marker, pass_time, payloads
from tests.conformance.v5.wire import publish
from tidegate.mqtt import (
    Pingreq,
    Property,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    encode_packet,
)

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}


def test_MQTT_4_1_0_1_a_session_does_not_expire_while_its_client_is_connected(join: Join, topic: str) -> None:
    client = join(properties={Property.SESSION_EXPIRY_INTERVAL: 1})
    client.subscribe(topic, qos=1)
    client.expect_nothing(1.5)
    client.publish(topic, b"still there", qos=1)
    client.expect(Publish, payload=b"still there")


def test_MQTT_4_1_0_2_a_session_is_discarded_when_its_expiry_has_passed(
    join: Join, dial: Dial, unique: Callable[[str], str], topic: str
) -> None:
    client = join("device", properties={Property.SESSION_EXPIRY_INTERVAL: 1})
    client.subscribe(topic, qos=1)
    client.disconnect()
    pass_time(2.2)
    client = dial()
    assert not client.connect(unique("device"), clean_start=False).session_present
    client.subscribe(f"{topic}/marker")
    client.publish(topic, qos=1)
    assert messages_besides_marker(client, f"{topic}/marker") == []


def test_MQTT_4_1_0_2_a_client_may_prolong_its_session_when_it_leaves(
    join: Join, dial: Dial, unique: Callable[[str], str]
) -> None:
    client = join("device", properties={Property.SESSION_EXPIRY_INTERVAL: 1})
    client.disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 60})
    pass_time(1.5)
    assert dial().connect(unique("device"), clean_start=False).session_present


def test_MQTT_4_1_0_2_a_session_without_expiry_ends_with_its_connection(
    join: Join, dial: Dial, unique: Callable[[str], str]
) -> None:
    join("device").disconnect()
    assert not dial().connect(unique("device"), clean_start=False).session_present


def test_MQTT_4_2_0_1_packets_cut_into_single_bytes_are_put_together(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic)
    for byte in publish(topic, b"byte by byte") + encode_packet(Pingreq(), 5):
        client.send_bytes(bytes((byte,)))
    client.expect(Publish, payload=b"byte by byte")


def test_MQTT_4_2_0_1_many_packets_in_one_piece_are_told_apart(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic)
    client.send_bytes(b"".join(publish(topic, b"%d" % number) for number in range(500)))
    assert payloads(collect(client, 500)) == [b"%d" % number for number in range(500)]


def test_MQTT_4_4_0_1_what_was_not_acknowledged_is_sent_again_after_a_reconnect(
    join: Join, topic: str
) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=2)
    publisher = join("publisher")
    for number, qos in enumerate((1, 2, 2)):
        publisher.publish(topic, b"%d" % number, qos=qos)
    one, two, three = collect(client, 3, acknowledge=False)
    assert three.packet_identifier is not None
    client.send(Pubrec(packet_identifier=three.packet_identifier))
    client.expect(Pubrel, packet_identifier=three.packet_identifier)
    client.close()
    client = join("device", clean_start=False, properties=KEEP)
    again = [client.receive() for _ in range(3)]
    assert again == [
        Publish(topic=topic, payload=b"0", qos=1, dup=True, packet_identifier=one.packet_identifier),
        Publish(topic=topic, payload=b"1", qos=2, dup=True, packet_identifier=two.packet_identifier),
        Pubrel(packet_identifier=three.packet_identifier),
    ]


@pytest.mark.parametrize("qos", [1, 2])
def test_MQTT_4_4_0_1_nothing_is_sent_again_while_the_connection_lasts(
    join: Join, topic: str, qos: int
) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=qos)
    join("publisher").publish(topic, qos=qos)
    client.expect(Publish, qos=qos)
    client.expect_nothing(1.0)
    assert client.barrier() == []


def test_MQTT_4_4_0_1_a_clean_start_sends_nothing_again(join: Join, topic: str) -> None:
    client = join("device", properties=KEEP)
    client.subscribe(topic, qos=1)
    join("publisher").publish(topic, qos=1)
    client.expect(Publish)
    client.close()
    client = join("device", clean_start=True, properties=KEEP)
    assert client.barrier() == []


@pytest.mark.parametrize("qos", [1, 2])
def test_MQTT_4_4_0_2_a_message_refused_by_the_client_is_not_sent_again(
    join: Join, topic: str, qos: int
) -> None:
    client = join("device", properties={**KEEP, Property.RECEIVE_MAXIMUM: 1})
    client.subscribe(topic, qos=qos)
    publisher = join("publisher")
    publisher.publish(topic, b"refused", qos=qos)
    publisher.publish(topic, b"next", qos=qos)
    message = client.expect(Publish, payload=b"refused")
    assert message.packet_identifier is not None
    refusal = Puback if qos == 1 else Pubrec
    client.send(
        refusal(packet_identifier=message.packet_identifier, reason_code=ReasonCode.PAYLOAD_FORMAT_INVALID)
    )
    client.acknowledge(client.expect(Publish, payload=b"next"))
    assert client.barrier() == []
    client.close()
    client = join("device", clean_start=False, properties=KEEP)
    assert client.barrier() == []


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_MQTT_4_5_0_1_a_message_reaches_every_session_with_a_matching_subscription(
    join: Join, topic: str, qos: int
) -> None:
    live = [join(f"live-{number}") for number in range(3)]
    for client, topic_filter in zip(live, (topic, f"{topic}/#", "+/" + topic.split("/", 1)[1]), strict=True):
        client.subscribe(topic_filter, qos=2)
    other = join("other")
    other.subscribe(f"{topic}/other")
    away = join("away", properties=KEEP)
    away.subscribe(topic, qos=2)
    away.disconnect()
    join("publisher").publish(topic, b"for all", qos=qos)
    for client in live:
        client.acknowledge(client.expect(Publish, payload=b"for all", qos=qos))
        assert client.barrier() == []
    assert other.barrier() == []
    if qos:
        away = join("away", clean_start=False, properties=KEEP)
        away.acknowledge(away.expect(Publish, payload=b"for all", qos=qos))


def test_MQTT_4_5_0_2_unknown_acknowledgements_do_not_disturb_a_session(join: Join, topic: str) -> None:
    client = join()
    client.send(Puback(packet_identifier=77))
    client.send(Pubcomp(packet_identifier=78))
    client.subscribe(topic)
    client.publish(topic, b"works")
    client.expect(Publish, payload=b"works")
