"""Server References: how they are read, and which are not followed."""

import pytest

from tidegate.client import ConnectRefused, ServerDisconnected
from tidegate.client.redirect import redirection
from tidegate.mqtt import Property
from tidegate.net.addresses import parse_address


@pytest.mark.parametrize(
    "current, reference, expected",
    [
        ("mqtt://a:1", "b", "mqtt://b:1883"),
        ("mqtt://a:1", "b:2", "mqtt://b:2"),
        ("mqtts://a:1", "b", "mqtts://b:8883"),
        ("mqtts://a:1", "b:2", "mqtts://b:2"),
        ("mqtts://a:1", "mqtt://b:2", None),
        ("mqtts://a:1", "mqtt://b:2 mqtts://c:3", "mqtts://c:3"),
        ("mqtt://a:1", "mqtts://b", "mqtts://b:8883"),
        ("ws://a:1/path", "b:2", "ws://b:2/path"),
        ("wss://a/path", "[::1]", "wss://[::1]:443/path"),
        ("mqtt://a", "[::1]:7", "mqtt://[::1]:7"),
        ("mqtt://a", "http://b first:2, c:3", "mqtt://first:2"),
        ("unix:/run/a", "b:2", "mqtt://b:2"),
        ("mqtt://a", "", None),
        ("mqtt://a", "user:secret@b", None),
    ],
)
def test_a_reference_is_read_as_the_address_it_means(
    current: str, reference: str, expected: str | None
) -> None:
    properties = {Property.SERVER_REFERENCE: reference}
    for error in (ConnectRefused(0x9C, properties), ServerDisconnected(0x9D, properties)):
        found = redirection(error, parse_address(current))
        assert (None if found is None else str(found)) == expected


@pytest.mark.parametrize("reason_code", [0x88, 0x8E, 0x87])
def test_other_reasons_do_not_move_a_client(reason_code: int) -> None:
    error = ServerDisconnected(reason_code, {Property.SERVER_REFERENCE: "b"})
    assert redirection(error, parse_address("a")) is None
    assert redirection(None, parse_address("a")) is None
