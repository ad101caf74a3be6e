"""Section 3.1.2 of MQTT 3.1.1: Connect Flags must agree with each other and with the payload."""

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import Join, Open, expect_dropped, payloads, vanish
from tidegate.mqtt import Publish, Will

WILL = ("topic", b"payload")


def test_MQTT_3_1_2_9_a_will_flag_needs_will_topic_and_will_message(open_connection: Open) -> None:
    for fields in ((), ("topic",)):
        client = open_connection()
        client.send_bytes(wire.connect("c", *fields, flags=0x06))
        expect_dropped(client)


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_MQTT_3_1_2_9_will_QoS_and_will_retain_are_used(
    qos: int, retain: bool, join: Join, topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 2)
    vanish(join("mortal", will=Will(topic=topic, payload=b"gone", qos=qos, retain=retain)))
    watcher.acknowledge(watcher.expect(Publish, payload=b"gone", qos=qos, retain=False))
    late = join("late")
    late.subscribe(topic, 2)
    assert payloads(late) == ([b"gone"] if retain else [])


@pytest.mark.parametrize("flags", [0x0A, 0x12, 0x22, 0x2A, 0x32])
def test_MQTT_3_1_2_11_will_QoS_or_will_retain_without_will_flag_closes_the_connection(
    flags: int, open_connection: Open
) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", flags=flags))
    expect_dropped(client)


def test_MQTT_3_1_2_11_will_fields_without_will_flag_close_the_connection(open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", *WILL, flags=0x02))
    expect_dropped(client)


@pytest.mark.parametrize("qos", [1, 2, 3])
def test_MQTT_3_1_2_13_will_QoS_must_be_0_without_will_flag(qos: int, open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", flags=0x02 | qos << 3))
    expect_dropped(client)


def test_MQTT_3_1_2_14_will_QoS_3_closes_the_connection(open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", *WILL, flags=0x1E))
    expect_dropped(client)


def test_MQTT_3_1_2_15_will_retain_must_be_0_without_will_flag(open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", flags=0x22))
    expect_dropped(client)


def test_MQTT_3_1_2_18_a_user_name_without_its_flag_closes_the_connection(open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", "user", flags=0x02))
    expect_dropped(client)


def test_MQTT_3_1_2_19_a_user_name_flag_without_user_name_closes_the_connection(
    open_connection: Open,
) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", flags=0x82))
    expect_dropped(client)


def test_MQTT_3_1_2_20_a_password_without_its_flag_closes_the_connection(open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", "user", b"password", flags=0x82))
    expect_dropped(client)


def test_MQTT_3_1_2_21_a_password_flag_without_password_closes_the_connection(open_connection: Open) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", "user", flags=0xC2))
    expect_dropped(client)


def test_MQTT_3_1_2_22_a_password_flag_without_user_name_flag_closes_the_connection(
    open_connection: Open,
) -> None:
    client = open_connection()
    client.send_bytes(wire.connect("c", b"password", flags=0x42))
    expect_dropped(client)
