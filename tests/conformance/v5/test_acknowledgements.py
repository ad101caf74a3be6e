"""MQTT 5 sections 3.4 to 3.7: PUBACK, PUBREC, PUBREL and PUBCOMP, their reason codes and their size."""

import pytest

from tests.conformance.conftest import BrokerWith
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.rights import ReadOnly
from tests.conformance.v5.steps import MALFORMED, PROTOCOL_ERROR, expect_disconnect
from tests.conformance.v5.wire import receive_frames
from tidegate.broker.hooks import Hooks
from tidegate.mqtt import (
    Property,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
)

SMALL = 24
"""A Maximum Packet Size with room for a bare answer and for no explanation."""


def test_MQTT_3_4_2_1_puback_has_a_puback_reason_code(join: Join, topic: str) -> None:
    client = join()
    client.send(Publish(topic=topic, qos=1, packet_identifier=1))
    assert client.expect(Puback).reason_code in (ReasonCode.SUCCESS, ReasonCode.NO_MATCHING_SUBSCRIBERS)
    client.subscribe(topic)
    client.send(Publish(topic=topic, qos=1, packet_identifier=2))
    assert client.take(Puback).reason_code == ReasonCode.SUCCESS


def test_MQTT_3_4_2_1_a_message_that_is_not_allowed_is_refused_in_puback(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(hooks=Hooks(authoriser=ReadOnly())))
    client.send(Publish(topic="t", qos=1, packet_identifier=1))
    client.expect(Puback, reason_code=ReasonCode.NOT_AUTHORIZED)


def test_MQTT_3_5_2_1_pubrec_has_a_pubrec_reason_code(join: Join, topic: str) -> None:
    client = join()
    client.send(Publish(topic=topic, qos=2, packet_identifier=1))
    assert client.expect(Pubrec).reason_code in (ReasonCode.SUCCESS, ReasonCode.NO_MATCHING_SUBSCRIBERS)


def test_MQTT_3_5_2_1_a_message_that_is_not_allowed_is_refused_in_pubrec(
    broker_with: BrokerWith, join: Join
) -> None:
    client = join(to=broker_with(hooks=Hooks(authoriser=ReadOnly())))
    client.send(Publish(topic="t", qos=2, packet_identifier=1))
    client.expect(Pubrec, reason_code=ReasonCode.NOT_AUTHORIZED)


@pytest.mark.parametrize("first_byte", [0x60, 0x61, 0x63, 0x66, 0x6A])
def test_MQTT_3_6_1_1_a_pubrel_with_other_flags_closes_the_connection(join: Join, first_byte: int) -> None:
    client = join()
    client.send(Publish(topic="t", qos=2, packet_identifier=1))
    client.expect(Pubrec)
    client.send_bytes(bytes((first_byte,)) + b"\x02\x00\x01")
    expect_disconnect(client, MALFORMED)


def test_MQTT_3_6_2_1_pubrel_has_a_pubrel_reason_code(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=2)
    client.publish(topic, qos=2)
    message = client.expect(Publish, qos=2)
    assert message.packet_identifier is not None
    client.send(Pubrec(packet_identifier=message.packet_identifier))
    client.expect(Pubrel, packet_identifier=message.packet_identifier, reason_code=ReasonCode.SUCCESS)


WRONG_ANSWERS = [
    pytest.param(1, (), Pubrec, id="PUBREC-for-QoS-1"),
    pytest.param(1, (), Pubcomp, id="PUBCOMP-for-QoS-1"),
    pytest.param(2, (), Puback, id="PUBACK-for-QoS-2"),
    pytest.param(2, (), Pubcomp, id="PUBCOMP-before-PUBREC"),
    pytest.param(2, (Pubrec,), Puback, id="PUBACK-after-PUBREL"),
]


@pytest.mark.parametrize("expiry", [0, 300])
@pytest.mark.parametrize(("qos", "before", "wrong"), WRONG_ANSWERS)
def test_an_acknowledgement_of_another_qos_is_a_protocol_error(
    join: Join, topic: str, qos: int, before: tuple[type[Pubrec], ...], wrong: type[Puback], expiry: int
) -> None:
    client = join(properties={Property.SESSION_EXPIRY_INTERVAL: expiry})
    client.subscribe(topic, qos=qos)
    client.publish(topic, qos=qos)
    number = client.take(Publish, qos=qos).packet_identifier
    assert number is not None
    for kind in before:
        client.send(kind(packet_identifier=number))
        client.take(Pubrel)
    client.send(wrong(packet_identifier=number))
    expect_disconnect(client, PROTOCOL_ERROR)


@pytest.mark.parametrize("kind", [Puback, Pubcomp])
def test_an_acknowledgement_of_what_is_not_on_its_way_is_ignored(join: Join, kind: type[Puback]) -> None:
    client = join()
    client.send(kind(packet_identifier=77))
    assert client.barrier() == []


def test_a_pubrec_that_comes_again_is_answered_again(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, qos=2)
    client.publish(topic, qos=2)
    number = client.take(Publish, qos=2).packet_identifier
    assert number is not None
    for _ in range(2):
        client.send(Pubrec(packet_identifier=number))
        client.take(Pubrel, packet_identifier=number, reason_code=ReasonCode.SUCCESS)


def test_MQTT_3_6_2_1_a_pubrec_the_server_does_not_know_gets_not_found(join: Join) -> None:
    client = join()
    client.send(Pubrec(packet_identifier=1234))
    not_found = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    client.expect(Pubrel, packet_identifier=1234, reason_code=not_found)


def test_MQTT_3_7_2_1_pubcomp_has_a_pubcomp_reason_code(join: Join, topic: str) -> None:
    client = join()
    done = client.publish(topic, qos=2)
    assert done is not None
    assert done.reason_code == ReasonCode.SUCCESS


def test_MQTT_3_7_2_1_a_pubrel_the_server_does_not_know_gets_not_found(join: Join) -> None:
    client = join()
    client.send(Pubrel(packet_identifier=4321))
    not_found = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    client.expect(Pubcomp, packet_identifier=4321, reason_code=not_found)


@pytest.mark.parametrize("first_byte", [0x40, 0x50, 0x62, 0x70])
def test_MQTT_3_4_2_1_an_undefined_reason_code_from_the_client_closes_the_connection(
    join: Join, first_byte: int
) -> None:
    client = join()
    client.send_bytes(bytes((first_byte,)) + b"\x03\x00\x01\x01")
    expect_disconnect(client, MALFORMED, PROTOCOL_ERROR)


def answers_of_a_small_client(broker_with: BrokerWith, join: Join, *sent: bytes) -> list[bytes]:
    """What a server that refuses to take messages answers to a client with little room."""
    server = broker_with(hooks=Hooks(authoriser=ReadOnly()))
    properties = {Property.MAXIMUM_PACKET_SIZE: SMALL, Property.USER_PROPERTY: [("k", "v" * 100)]}
    client = join(to=server, properties=properties)
    client.send_bytes(b"".join(sent))
    frames = receive_frames(client, len(sent))
    assert all(len(frame) <= SMALL for frame in frames)
    return frames


REFUSED_QOS_1 = b"\x32\x06\x00\x01t\x00\x07\x00"
REFUSED_QOS_2 = b"\x34\x06\x00\x01t\x00\x08\x00"
UNKNOWN_PUBREC = b"\x50\x02\x00\x09"
UNKNOWN_PUBREL = b"\x62\x02\x00\x0a"


def test_MQTT_3_4_2_2_a_reason_string_does_not_make_puback_too_large(
    broker_with: BrokerWith, join: Join
) -> None:
    (puback,) = answers_of_a_small_client(broker_with, join, REFUSED_QOS_1)
    assert puback[0] == 0x40


def test_MQTT_3_4_2_3_user_properties_do_not_make_puback_too_large(
    broker_with: BrokerWith, join: Join
) -> None:
    for puback in answers_of_a_small_client(broker_with, join, REFUSED_QOS_1, REFUSED_QOS_1):
        assert puback[0] == 0x40


def test_MQTT_3_5_2_2_a_reason_string_does_not_make_pubrec_too_large(
    broker_with: BrokerWith, join: Join
) -> None:
    (pubrec,) = answers_of_a_small_client(broker_with, join, REFUSED_QOS_2)
    assert pubrec[0] == 0x50


def test_MQTT_3_5_2_3_user_properties_do_not_make_pubrec_too_large(
    broker_with: BrokerWith, join: Join
) -> None:
    for pubrec in answers_of_a_small_client(broker_with, join, REFUSED_QOS_2, REFUSED_QOS_2):
        assert pubrec[0] == 0x50


def test_MQTT_3_6_2_2_a_reason_string_does_not_make_pubrel_too_large(
    broker_with: BrokerWith, join: Join
) -> None:
    (pubrel,) = answers_of_a_small_client(broker_with, join, UNKNOWN_PUBREC)
    assert pubrel[0] == 0x62


def test_MQTT_3_6_2_3_user_properties_do_not_make_pubrel_too_large(
    broker_with: BrokerWith, join: Join
) -> None:
    for pubrel in answers_of_a_small_client(broker_with, join, UNKNOWN_PUBREC, UNKNOWN_PUBREC):
        assert pubrel[0] == 0x62


def test_MQTT_3_7_2_2_a_reason_string_does_not_make_pubcomp_too_large(
    broker_with: BrokerWith, join: Join
) -> None:
    (pubcomp,) = answers_of_a_small_client(broker_with, join, UNKNOWN_PUBREL)
    assert pubcomp[0] == 0x70


def test_MQTT_3_7_2_3_user_properties_do_not_make_pubcomp_too_large(
    broker_with: BrokerWith, join: Join
) -> None:
    for pubcomp in answers_of_a_small_client(broker_with, join, UNKNOWN_PUBREL, UNKNOWN_PUBREL):
        assert pubcomp[0] == 0x70
