import pytest

from tidegate.net.addresses import Endpoint, parse_address
from tidegate.net.errors import AddressError


@pytest.mark.parametrize(
    "text, expected",
    [
        ("mqtt://h:1", Endpoint(scheme="mqtt", host="h", port=1)),
        ("mqtt://h", Endpoint(scheme="mqtt", host="h", port=1883)),
        ("mqtt://h/", Endpoint(scheme="mqtt", host="h", port=1883)),
        ("tcp://h", Endpoint(scheme="mqtt", host="h", port=1883)),
        ("h", Endpoint(scheme="mqtt", host="h", port=1883)),
        ("h:77", Endpoint(scheme="mqtt", host="h", port=77)),
        (" [::1]:77 ", Endpoint(scheme="mqtt", host="::1", port=77)),
        ("mqtts://h", Endpoint(scheme="mqtts", host="h", port=8883, tls=True)),
        ("ssl://h:0", Endpoint(scheme="mqtts", host="h", port=0, tls=True)),
        ("ws://h", Endpoint(scheme="ws", host="h", port=80, path="/mqtt", websocket=True)),
        ("ws://h/", Endpoint(scheme="ws", host="h", port=80, path="/", websocket=True)),
        ("ws://h:8083/a/b?c=d", Endpoint(scheme="ws", host="h", port=8083, path="/a/b?c=d", websocket=True)),
        ("wss://h", Endpoint(scheme="wss", host="h", port=443, path="/mqtt", tls=True, websocket=True)),
        ("unix:/run/x.sock", Endpoint(scheme="unix", path="/run/x.sock")),
        ("unix:///run/x.sock", Endpoint(scheme="unix", path="/run/x.sock")),
        ("unix:x.sock", Endpoint(scheme="unix", path="x.sock")),
    ],
)
def test_address_is_understood(text: str, expected: Endpoint):
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "http://h",
        "mqtt://",
        "mqtt://:1883",
        "mqtt://h:port",
        "mqtt://h:65536",
        "mqtt://h:-1",
        "mqtt://[::1",
        "mqtt://h/path",
        "mqtt://h?query",
        "mqtt://h#fragment",
        "mqtt://a b",
        "mqtt://h\x07",
        "mqtt://user:secret@h",
        "unix:",
        "unix:/run/",
    ],
)
def test_address_that_makes_no_sense_is_refused_with_a_hint(text: str):
    with pytest.raises(AddressError) as caught:
        parse_address(text)
    assert caught.value.problem
    assert caught.value.hint


def test_password_in_an_address_is_not_repeated_in_the_error():
    with pytest.raises(AddressError) as caught:
        parse_address("mqtt://user:secret@h")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["mqtt://h:1", "mqtts://[::1]:8883", "ws://h:80/mqtt", "wss://h:443/a?b", "unix:/run/x.sock"]
)
def test_endpoint_prints_as_the_address_it_came_from(text: str):
    assert str(parse_address(text)) == text
