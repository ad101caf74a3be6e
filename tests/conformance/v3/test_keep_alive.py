"""Sections 3.1.2.10, 3.12 and 3.14 of MQTT 3.1.1: keep alive, PINGREQ and DISCONNECT."""

import time

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import Join, everything_until_closed, expect_dropped, payloads
from tidegate.mqtt import Disconnect, Packet, Pingreq, Pingresp, Publish, Subscribe, Subscription, Will
from tidegate.testing.raw import RawClient

SLACK = 2.0
"""Seconds a machine under load may be late."""


def test_MQTT_3_1_2_24_client_is_disconnected_after_one_and_a_half_keep_alive(join: Join) -> None:
    silent, without_keep_alive = join("silent", keep_alive=1), join("endless", keep_alive=0)
    started = time.monotonic()
    expect_dropped(silent)
    assert 1.4 < time.monotonic() - started < 1.5 + SLACK
    assert without_keep_alive.barrier() == []


@pytest.mark.parametrize("kind", ["PINGREQ", "PUBLISH", "SUBSCRIBE"])
def test_MQTT_3_1_2_24_any_control_packet_keeps_a_client_alive(kind: str, join: Join, topic: str) -> None:
    client = join(keep_alive=1)
    packets: dict[str, Packet] = {
        "PINGREQ": Pingreq(),
        "PUBLISH": Publish(topic=topic),
        "SUBSCRIBE": Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter=topic)]),
    }
    started = time.monotonic()
    while time.monotonic() - started < 2.5:
        client.send(packets[kind])
        assert not _has_hung_up(client, 0.3)
    client.inbox.clear()
    assert client.barrier() == []


def test_MQTT_3_1_2_24_bytes_of_an_unfinished_packet_do_not_keep_a_client_alive(join: Join) -> None:
    client = join(keep_alive=1)
    started = time.monotonic()
    for byte in b"\x30\x7f\x00\x7d" + bytes(60):
        client.send_bytes(bytes([byte]))
        if _has_hung_up(client, 0.3):
            break
        assert time.monotonic() - started < 1.5 + SLACK


def _has_hung_up(client: RawClient, seconds: float) -> bool:
    """Listen for so long; the clock is what these tests are about."""
    try:
        client.expect_closed(seconds)
    except AssertionError:
        return False
    return True


def test_MQTT_3_12_4_1_PINGREQ_is_answered_with_PINGRESP(join: Join) -> None:
    client = join()
    for _ in range(3):
        client.send(Pingreq())
    for _ in range(3):
        client.expect(Pingresp)


def test_MQTT_3_14_1_1_reserved_bits_of_DISCONNECT_disconnect_the_client_and_leave_its_will(
    join: Join, topic: str
) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    for flags in (0x01, 0x02, 0x04, 0x08):
        client = join("client", will=Will(topic=topic, payload=b"gone"))
        client.send_bytes(bytes([0xE0 | flags, 0]))
        expect_dropped(client)
        watcher.expect(Publish, payload=b"gone")


def test_MQTT_3_14_4_2_packets_behind_DISCONNECT_are_not_processed(join: Join, topic: str) -> None:
    watcher, client = join("watcher"), join("client")
    watcher.subscribe(topic)
    client.send_bytes(b"\xe0\x00" + wire.publish(topic, b"late", flags=0x02, packet_identifier=1))
    assert everything_until_closed(client) == b""
    watcher.publish(topic, b"marker", 1)
    assert payloads(watcher) == [b"marker"]


def test_MQTT_3_14_4_3_DISCONNECT_discards_the_will(join: Join, topic: str) -> None:
    watcher = join("watcher")
    watcher.subscribe(topic)
    client = join("client", will=Will(topic=topic, payload=b"gone", qos=1, retain=True))
    client.disconnect()
    watcher.publish(topic, b"marker", 1)
    assert payloads(watcher) == [b"marker"]
    late = join("late")
    late.subscribe(topic)
    assert payloads(late) == []


def test_the_server_closes_after_DISCONNECT_if_the_client_does_not(join: Join) -> None:
    client = join()
    client.send(Disconnect())
    expect_dropped(client)
