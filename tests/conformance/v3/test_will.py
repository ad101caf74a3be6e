"""Section 3.1.2.5 of MQTT 3.1.1: when a will is published, and when it is not."""

from tests.conformance.v3 import wire
from tests.conformance.v3.support import (
    Join,
    Open,
    connect_bytes,
    everything_until_closed,
    expect_dropped,
    payloads,
    vanish,
)
from tidegate.mqtt import Publish, Will


def will(topic: str, *, qos: int = 1, retain: bool = False) -> Will:
    return Will(topic=topic, payload=b"gone", qos=qos, retain=retain)


def test_MQTT_3_1_2_8_the_will_is_published_when_the_network_connection_closes(
    join: Join, topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 1)
    mortal = join("mortal", will=will(topic))
    assert payloads(watcher) == []
    vanish(mortal)
    watcher.expect(Publish, topic=topic, payload=b"gone", qos=1)


def test_MQTT_3_1_2_8_the_will_is_published_when_the_keep_alive_runs_out(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 1)
    mortal = join("mortal", will=will(topic), keep_alive=1)
    watcher.expect(Publish, topic=topic, payload=b"gone")
    expect_dropped(mortal)


def test_MQTT_3_1_2_8_the_will_is_published_when_the_server_closes_for_a_protocol_error(
    join: Join, topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 1)
    mortal = join("mortal", will=will(topic))
    mortal.send_bytes(wire.publish("wild/#"))
    watcher.expect(Publish, topic=topic, payload=b"gone")
    expect_dropped(mortal)


def test_MQTT_3_1_2_8_the_will_is_published_when_another_client_takes_over(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 1)
    first = join("mortal", will=will(topic))
    join("mortal")
    expect_dropped(first)
    watcher.expect(Publish, topic=topic, payload=b"gone")


def test_MQTT_3_1_2_8_the_will_is_stored_only_when_the_connection_is_accepted(
    join: Join, open_connection: Open, topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 1)
    rejected = open_connection()
    rejected.send_bytes(connect_bytes("", clean_start=False, will=will(topic)))
    assert everything_until_closed(rejected) == b"\x20\x02\x00\x02"
    watcher.publish(topic, b"marker", 1)
    assert payloads(watcher) == [b"marker"]


def test_MQTT_3_1_2_10_the_will_is_published_once(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 1)
    vanish(join("mortal", clean_start=False, will=will(topic)))
    watcher.acknowledge(watcher.expect(Publish, payload=b"gone"))
    vanish(join("mortal", clean_start=False, session_present=True))
    join("mortal", clean_start=False, session_present=True).disconnect()
    watcher.publish(topic, b"marker", 1)
    assert payloads(watcher) == [b"marker"]


def test_MQTT_3_1_2_10_the_will_is_removed_by_DISCONNECT(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 1)
    join("mortal", clean_start=False, will=will(topic)).disconnect()
    vanish(join("mortal", clean_start=False, session_present=True))
    join("mortal", clean_start=False, session_present=True)
    watcher.publish(topic, b"marker", 1)
    assert payloads(watcher) == [b"marker"]


def test_MQTT_3_1_2_12_without_will_flag_nothing_is_published(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(f"{topic}/#", 1)
    vanish(join("mortal"))
    with_will = join("other", will=will(f"{topic}/other"))
    vanish(with_will)  # a will that comes shows that the server had time for one
    watcher.expect(Publish, topic=f"{topic}/other")
    assert payloads(watcher) == []


def test_MQTT_3_1_2_16_a_will_without_will_retain_is_not_retained(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 1)
    vanish(join("mortal", will=will(topic, retain=False)))
    watcher.expect(Publish, payload=b"gone", retain=False)
    late = join("late")
    late.subscribe(topic, 1)
    assert payloads(late) == []


def test_MQTT_3_1_2_17_a_will_with_will_retain_is_retained(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic, 1)
    vanish(join("mortal", will=will(topic, retain=True)))
    watcher.expect(Publish, payload=b"gone", retain=False)
    late = join("late")
    late.subscribe(topic, 1)
    late.expect(Publish, topic=topic, payload=b"gone", qos=1, retain=True)


def test_a_will_with_an_empty_message_is_published(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    vanish(join("mortal", will=Will(topic=topic, payload=b"")))
    watcher.expect(Publish, topic=topic, payload=b"")
