"""Sections 4.8 and 7 of MQTT 3.1.1: what a protocol violation does, and to whom."""

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import Join, expect_dropped, payloads

VIOLATIONS = {
    "CONNACK from a client": b"\x20\x02\x00\x00",
    "SUBACK from a client": b"\x90\x03\x00\x01\x00",
    "UNSUBACK from a client": b"\xb0\x02\x00\x01",
    "PINGRESP from a client": b"\xd0\x00",
    "reserved packet type 0": b"\x00\x00",
    "reserved packet type 15": b"\xf0\x00",
    "second CONNECT": wire.connect("again"),
    "PUBACK too long": b"\x40\x03\x00\x01\x00",
    "PUBACK too short": b"\x40\x01\x00",
    "PUBREC of identifier 0": b"\x50\x02\x00\x00",
    "PINGREQ with a body": b"\xc0\x01\x00",
    "DISCONNECT with a body": b"\xe0\x01\x00",
    "Remaining Length of five bytes": b"\x30\xff\xff\xff\xff\x01",
    "PUBLISH that ends in its topic name": b"\x30\x03\x00\x09a",
    "SUBSCRIBE that ends in its filter": b"\x82\x06\x00\x01\x00\x09ab",
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_MQTT_4_8_0_1_a_protocol_violation_closes_the_connection_it_came_on(
    violation: str, join: Join, topic: str
) -> None:
    bystander, client = join("bystander"), join("client")
    bystander.subscribe(topic, 1)
    client.send_bytes(VIOLATIONS[violation])
    expect_dropped(client)
    bystander.publish(topic, b"unharmed", 1)
    assert payloads(bystander) == [b"unharmed"]


def test_MQTT_4_8_0_1_packets_before_a_violation_are_processed_and_those_behind_it_are_not(
    join: Join, topic: str
) -> None:
    bystander, client = join("bystander"), join("client")
    bystander.subscribe(topic, 1)
    before = wire.publish(topic, b"before", flags=0x02, packet_identifier=1)
    behind = wire.publish(topic, b"behind", flags=0x02, packet_identifier=2)
    client.send_bytes(before + b"\xf0\x00" + behind)
    client.expect_closed()
    bystander.publish(topic, b"marker", 1)
    assert payloads(bystander) == [b"before", b"marker"]


@pytest.mark.parametrize("data", [b"\x40\x02\x12\x34", b"\x50\x02\x12\x34", b"\x70\x02\x12\x34"])
def test_an_acknowledgement_of_an_unknown_identifier_does_not_end_the_connection(
    data: bytes, join: Join
) -> None:
    client = join()
    client.send_bytes(data)
    for packet in client.barrier():  # a PUBREL that ends an exchange the client believes in is allowed
        assert data[0] == 0x50
        assert packet.packet_identifier == 0x1234  # type: ignore[union-attr]


def test_MQTT_7_1_1_1_the_server_speaks_over_TCP_however_the_stream_is_cut(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(topic, 1)
    for byte in wire.publish(topic, b"byte by byte", flags=0x02, packet_identifier=1):
        client.send_bytes(bytes([byte]))
    client.send_bytes(b"".join(wire.publish(topic, b"%d" % number) for number in range(20)))
    got = [packet.payload for packet in client.barrier() if hasattr(packet, "payload")]
    assert got == [b"byte by byte", *(b"%d" % number for number in range(20))]
