"""The bytes the load tool sends, against hand-made vectors and against the broker's own, separate codec."""

import pytest

from tidegate.load import packets
from tidegate.mqtt.decode import decode_packet
from tidegate.mqtt.packets import Connect, Publish, Subscribe


def split(data: bytes) -> list[tuple[int, bytes]]:
    """Cut a byte string into (first byte, body), the slow and obvious way."""
    out = []
    pos = 0
    while pos < len(data):
        length = packets.decode_length(data, pos + 1)
        assert length is not None
        size, body_at = length
        out.append((data[pos], data[body_at : body_at + size]))
        pos = body_at + size
    assert pos == len(data)
    return out


def test_connect_for_311_is_these_bytes() -> None:
    expected = b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02ab"
    assert packets.connect("ab", protocol=4, keep_alive=60) == expected


def test_connect_for_5_has_empty_properties() -> None:
    assert packets.connect("ab", protocol=5) == b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x02ab"


@pytest.mark.parametrize("protocol", [4, 5])
def test_connect_carries_credentials(protocol: int) -> None:
    data = packets.connect("id", protocol=protocol, username="user", password="secret")
    ((first_byte, body),) = split(data)
    packet = decode_packet(first_byte, body, protocol)
    assert isinstance(packet, Connect)
    assert (packet.client_id, packet.username, packet.password) == ("id", "user", b"secret")


@pytest.mark.parametrize("protocol", [4, 5])
def test_subscribe_is_understood_by_the_brokers_codec(protocol: int) -> None:
    ((first_byte, body),) = split(packets.subscribe(7, "a/+", qos=2, protocol=protocol))
    packet = decode_packet(first_byte, body, protocol)
    assert isinstance(packet, Subscribe)
    assert packet.packet_identifier == 7
    assert [(each.topic_filter, each.qos) for each in packet.subscriptions] == [("a/+", 2)]


@pytest.mark.parametrize("value, data", [(0, "00"), (127, "7f"), (128, "8001"), (2_097_152, "80808001")])
def test_lengths_are_variable_byte_integers(value: int, data: str) -> None:
    assert packets.encode_length(value).hex() == data
    assert packets.decode_length(bytes.fromhex(data), 0) == (value, len(data) // 2)


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("payload_bytes", [11, 64, 300])
def test_burst_holds_consecutive_messages_and_stamps_the_first(
    protocol: int, qos: int, payload_bytes: int
) -> None:
    burst = packets.Burst("t/0001", payload_bytes=payload_bytes, qos=qos, protocol=protocol, size=50)
    found = []
    # Starts just before the sequence number and the packet identifier wrap, and reuses the buffer.
    for start, count in ((65_520, 50), (65_570, 3)):
        found += split(bytes(burst.fill(count, start, 1_000 + start)))
    assert len(found) == 53
    for index, (first_byte, body) in enumerate(found):
        packet = decode_packet(first_byte, body, protocol)
        assert isinstance(packet, Publish)
        number = 65_520 + index
        assert packet.topic == "t/0001"
        assert packet.qos == qos
        assert len(packet.payload) == payload_bytes
        assert int.from_bytes(packet.payload[9:11], "big") == number % 65_536
        assert packet.packet_identifier == (number % 65_535 + 1 if qos else None)
        is_first = index in (0, 50)
        assert packet.payload[0] == is_first
        assert int.from_bytes(packet.payload[1:9], "big") == (1_000 + number if is_first else 0)


def test_acknowledgements_take_identifiers_by_columns() -> None:
    assert packets.acknowledgements(0x40, b"\x00\x12", b"\x01\x34") == b"\x40\x02\x00\x01\x40\x02\x12\x34"
