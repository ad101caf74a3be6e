"""MQTT 5 sections 3.1.2.5 to 3.1.2.7 and 3.1.3.2 to 3.1.3.4: the Will Message."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.conftest import Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import (
    MALFORMED,
    expect_disconnect,
    expect_refusal,
    messages_besides_marker,
    pass_time,
)
from tests.conformance.v5.wire import connect, prefixed
from tidegate.mqtt import Properties, Property, Publish, ReasonCode, Will


def will_on(topic: str, **fields: Any) -> Will:
    return Will(topic=f"{topic}/will", payload=b"gone", **fields)


def test_MQTT_3_1_2_7_the_server_keeps_the_will_as_long_as_the_connection_lasts(
    join: Join, topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")
    device = join("device", will=will_on(topic))
    device.publish(f"{topic}/alive")
    watcher.expect(Publish, topic=f"{topic}/alive")
    assert messages_besides_marker(watcher, f"{topic}/marker") == []
    device.close()
    watcher.expect(Publish, topic=f"{topic}/will", payload=b"gone")


def test_MQTT_3_1_2_8_the_will_is_published_when_the_connection_breaks(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    join("device", will=will_on(topic)).close()
    watcher.expect(Publish, topic=f"{topic}/will", payload=b"gone", retain=False)


def test_MQTT_3_1_2_8_the_will_is_published_after_a_protocol_error(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    device = join("device", will=will_on(topic))
    device.send_bytes(b"\x00\x00")
    device.expect_closed()
    watcher.expect(Publish, topic=f"{topic}/will")


def test_MQTT_3_1_2_8_the_will_is_published_when_keep_alive_runs_out(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    device = join("device", keep_alive=1, will=will_on(topic))
    watcher.expect(Publish, topic=f"{topic}/will")
    expect_disconnect(device, ReasonCode.KEEP_ALIVE_TIMEOUT)


def test_MQTT_3_1_2_8_the_will_is_published_when_the_client_asks_for_it(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    device = join("device", will=will_on(topic))
    device.disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE)
    watcher.expect(Publish, topic=f"{topic}/will")


def test_MQTT_3_1_2_8_a_delayed_will_is_published_after_its_delay(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    will = will_on(topic, properties={Property.WILL_DELAY_INTERVAL: 1})
    device = join("device", will=will, properties={Property.SESSION_EXPIRY_INTERVAL: 60})
    broken_at = time.monotonic()
    device.close()
    watcher.expect(Publish, topic=f"{topic}/will")
    assert time.monotonic() - broken_at > 0.9


def test_MQTT_3_1_2_8_a_delayed_will_does_not_outlive_its_session(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    will = will_on(topic, properties={Property.WILL_DELAY_INTERVAL: 600})
    join("device", will=will).close()
    watcher.expect(Publish, topic=f"{topic}/will")


def test_MQTT_3_1_2_8_a_delayed_will_is_published_when_clean_start_ends_its_session(
    join: Join, topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    will = will_on(topic, properties={Property.WILL_DELAY_INTERVAL: 600})
    join("device", will=will, properties={Property.SESSION_EXPIRY_INTERVAL: 600}).close()
    join("device", clean_start=True)
    watcher.expect(Publish, topic=f"{topic}/will")


@pytest.mark.parametrize("reason_code", [0x80, 0x81, 0x93, 0x98])
def test_MQTT_3_1_2_8_the_will_is_published_when_the_client_leaves_with_an_error(
    join: Join, topic: str, reason_code: int
) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    join("device", will=will_on(topic)).disconnect(reason_code)
    watcher.expect(Publish, topic=f"{topic}/will")


def test_MQTT_3_1_2_8_a_take_over_publishes_a_will_without_delay(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    keep: Properties = {Property.SESSION_EXPIRY_INTERVAL: 60}
    join("device", will=will_on(topic), properties=keep)
    join("device", clean_start=False, properties=keep)
    watcher.expect(Publish, topic=f"{topic}/will")


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(prefixed("x"), id="nothing"),
        pytest.param(prefixed("x") + b"\0", id="properties-only"),
        pytest.param(prefixed("x") + b"\0" + prefixed("topic"), id="no-payload"),
    ],
)
def test_MQTT_3_1_2_9_a_will_flag_without_all_will_fields_is_malformed(dial: Dial, payload: bytes) -> None:
    client = dial()
    client.send_bytes(connect(payload, flags=0x06))
    expect_refusal(client, MALFORMED)


def test_MQTT_3_1_2_10_a_normal_disconnect_removes_the_will(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")
    join("device", will=will_on(topic)).disconnect()
    assert messages_besides_marker(watcher, f"{topic}/marker") == []


def test_MQTT_3_1_2_10_a_published_will_is_not_published_again(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")
    keep: Properties = {Property.SESSION_EXPIRY_INTERVAL: 60}
    join("device", will=will_on(topic), properties=keep).close()
    watcher.expect(Publish, topic=f"{topic}/will")
    again = join("device", clean_start=False, properties=keep)
    again.close()
    # The take-over below happens after the server has seen the connection above end.
    join("device", clean_start=False, properties=keep).disconnect()
    assert messages_besides_marker(watcher, f"{topic}/marker") == []


@pytest.mark.parametrize("flags", [0x0A, 0x12, 0x1A])
def test_MQTT_3_1_2_11_a_will_qos_without_will_flag_is_malformed(dial: Dial, flags: int) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x"), flags=flags))
    expect_refusal(client, MALFORMED)


def test_MQTT_3_1_2_12_a_will_qos_of_three_is_malformed(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x") + b"\0" + prefixed("topic") + prefixed("payload"), flags=0x1E))
    expect_refusal(client, MALFORMED)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_MQTT_3_1_2_12_the_will_is_published_with_its_qos(join: Join, topic: str, qos: int) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will", qos=2)
    join("device", will=will_on(topic, qos=qos)).close()
    watcher.expect(Publish, topic=f"{topic}/will", qos=qos)


def test_MQTT_3_1_2_13_will_retain_without_will_flag_is_malformed(dial: Dial) -> None:
    client = dial()
    client.send_bytes(connect(prefixed("x"), flags=0x22))
    expect_refusal(client, MALFORMED)


def test_MQTT_3_1_2_14_a_will_without_retain_is_not_retained(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")
    join("device", will=will_on(topic, retain=False)).close()
    watcher.expect(Publish, topic=f"{topic}/will")
    late = join("late")
    late.subscribe(f"{topic}/#")
    assert messages_besides_marker(late, f"{topic}/marker") == []


def test_MQTT_3_1_2_15_a_will_with_retain_is_retained(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    join("device", will=will_on(topic, retain=True)).close()
    watcher.expect(Publish, topic=f"{topic}/will", retain=False)
    late = join("late")
    late.subscribe(f"{topic}/will")
    late.expect(Publish, topic=f"{topic}/will", payload=b"gone", retain=True)


def test_MQTT_3_1_3_9_a_reconnect_within_the_will_delay_cancels_the_will(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")
    keep: Properties = {Property.SESSION_EXPIRY_INTERVAL: 60}
    will = will_on(topic, properties={Property.WILL_DELAY_INTERVAL: 1})
    join("device", will=will, properties=keep).close()
    join("device", clean_start=False, properties=keep)
    pass_time(1.3)
    assert messages_besides_marker(watcher, f"{topic}/marker") == []


def test_MQTT_3_1_3_9_a_take_over_cancels_a_delayed_will(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#")
    keep: Properties = {Property.SESSION_EXPIRY_INTERVAL: 60}
    will = will_on(topic, properties={Property.WILL_DELAY_INTERVAL: 1})
    first = join("device", will=will, properties=keep)
    join("device", clean_start=False, properties=keep)
    expect_disconnect(first, ReasonCode.SESSION_TAKEN_OVER)
    pass_time(1.3)
    assert messages_besides_marker(watcher, f"{topic}/marker") == []


def test_MQTT_3_1_3_10_the_user_properties_of_a_will_keep_their_order(join: Join, topic: str) -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "0"), ("", ""), ("a", "2")]
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/will")
    properties: Properties = {
        Property.USER_PROPERTY: pairs,
        Property.CONTENT_TYPE: "text/plain",
        Property.PAYLOAD_FORMAT_INDICATOR: 1,
        Property.RESPONSE_TOPIC: "answers",
        Property.CORRELATION_DATA: b"\x00\xff",
    }
    join("device", will=will_on(topic, properties=properties)).close()
    message = watcher.expect(Publish, topic=f"{topic}/will")
    assert message.properties == properties


@pytest.mark.parametrize("will_topic", [b"a\xff", b"a\0b", b"a\xed\xa0\x80"])
def test_MQTT_3_1_3_11_a_will_topic_that_is_not_utf8_is_refused(
    dial: Dial, unique: Callable[[str], str], will_topic: bytes
) -> None:
    client = dial()
    payload = prefixed(unique("x")) + b"\0" + prefixed(will_topic) + prefixed("gone")
    client.send_bytes(connect(payload, flags=0x06))
    expect_refusal(client, MALFORMED, ReasonCode.TOPIC_NAME_INVALID)
