"""MQTT 5 section 4.13: what happens to a client that breaks the protocol."""

import pytest

from tests.conformance.conftest import Dial
from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import expect_disconnect, expect_refusal, messages_besides_marker, payloads
from tests.conformance.v5.wire import publish
from tests.malformed import CASES, Case
from tidegate.mqtt import Publish

# The answer to an unknown protocol may have the form of another version; see the tests of [MQTT5-3.1.2-1].
V5 = [case for case in CASES if case.version == 5 and case.reason_code != 0x84]
FIRST = [case for case in V5 if case.stage == "connect"]
LATER = [case for case in V5 if case.stage == "connected"]


@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_MQTT_4_13_1_1_a_malformed_start_closes_the_connection(dial: Dial, case: Case) -> None:
    client = dial()
    client.send_bytes(case.data)
    expect_refusal(client, case.reason_code)


@pytest.mark.parametrize("case", LATER, ids=lambda case: case.name)
def test_MQTT_4_13_1_1_a_malformed_packet_closes_the_connection_with_its_reason(
    join: Join, case: Case
) -> None:
    client = join()
    client.send_bytes(case.data)
    expect_disconnect(client, case.reason_code)


@pytest.mark.parametrize("case", LATER, ids=lambda case: case.name)
def test_MQTT_4_13_1_1_a_malformed_packet_behind_good_ones_closes_the_connection(
    join: Join, topic: str, case: Case
) -> None:
    client, watcher = join(), join("watcher")
    watcher.subscribe(topic)
    good = publish(topic, b"good")
    # A PUBLISH gets two of its own topic in front, which a server may be tempted to handle as one.
    alike = publish("a", b"alike") * 2 if case.data[0] >> 4 == 3 else b""
    client.send_bytes(good + good + alike + case.data + good)
    expect_disconnect(client, case.reason_code)
    assert payloads(messages_besides_marker(watcher, topic)) == [b"good", b"good"]


@pytest.mark.parametrize("data", [b"\x20\x03\x00\x00\x00", b"\x90\x04\x00\x01\x00\x00", b"\xd0\x00"])
def test_MQTT_4_13_1_1_a_packet_only_a_server_sends_closes_the_connection(join: Join, data: bytes) -> None:
    client = join()
    client.send_bytes(data)
    expect_disconnect(client, 0x81, 0x82)


@pytest.mark.parametrize(
    "data", [b"\x00\x00", b"\x36\x03\x00\x01a", b"\xc1\x00", b"\x30\xff\xff\xff\xff\x7f"]
)
def test_MQTT_4_13_2_1_a_disconnect_for_an_error_is_followed_by_the_end(join: Join, data: bytes) -> None:
    client = join()
    client.send_bytes(data)
    disconnect = client.expect_closed()
    assert disconnect is not None
    assert disconnect.reason_code >= 0x80


def test_MQTT_4_13_2_1_the_fault_of_one_client_does_not_touch_others(join: Join, topic: str) -> None:
    good, bad = join("good"), join("bad")
    good.subscribe(topic)
    bad.subscribe(topic)
    bad.send_bytes(b"\xff\xff\xff\xff\xff")
    expect_disconnect(bad, 0x81, 0x82)
    good.publish(topic, b"unharmed")
    good.expect(Publish, payload=b"unharmed")
