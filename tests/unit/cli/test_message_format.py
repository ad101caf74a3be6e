"""Patterns of `tidegate sub --format`."""

import json
from datetime import UTC, datetime

import pytest

from tidegate.cli.message_format import FormatError, as_json, compile_pattern, escape_controls
from tidegate.client import Message, Property

ARRIVED = datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC)
MESSAGE = Message(
    topic="a/b",
    payload=b'{"n": 1}',
    qos=1,
    retain=True,
    properties={
        Property.CONTENT_TYPE: "application/json",
        Property.USER_PROPERTY: [("k", "v"), ("k", "w")],
        Property.SUBSCRIPTION_IDENTIFIER: [3, 4],
        Property.CORRELATION_DATA: b"\xff",
    },
)


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("%t %p", b'a/b {"n": 1}'),
        ("%q%r%d%l", b"1108"),
        ("%x|%X", b"7b226e223a20317d|7B226E223A20317D"),
        ("%I", b"2026-03-04T05:06:07.890+00:00"),
        ("%U", b"1772600767.890000"),
        ("%P %C %S [%E%R%F]", b"k:v k:w application/json 3,4 []"),
        ("%D", b"\xff"),
        ("100%%\\t\\\\n", b"100%\t\\n"),
        ("", b""),
    ],
)
def test_each_letter_says_what_it_should(pattern: str, expected: bytes) -> None:
    assert compile_pattern(pattern)(MESSAGE, ARRIVED) == expected


@pytest.mark.parametrize("pattern, letter", [("%y", "y"), ("50%", "")])
def test_a_letter_without_meaning_is_refused(pattern: str, letter: str) -> None:
    with pytest.raises(FormatError) as caught:
        compile_pattern(pattern)
    assert caught.value.letter == letter


def test_json_holds_everything_and_binary_as_base64() -> None:
    found = json.loads(as_json(MESSAGE, ARRIVED))
    assert found["payload"] == '{"n": 1}'
    assert found["properties"]["user_property"] == [["k", "v"], ["k", "w"]]
    assert found["properties"]["correlation_data"] == "/w=="
    assert json.loads(compile_pattern("%J")(MESSAGE, ARRIVED))["payload"] == {"n": 1}
    binary = json.loads(as_json(Message(topic="t", payload=b"\xff\x00"), ARRIVED))
    assert binary["payload_base64"] == "/wA="
    assert "payload" not in binary


def test_a_terminal_is_not_steered_by_what_strangers_publish() -> None:
    assert escape_controls(b"\x1b[2J\tok\n\xc2\x9b\xc3\xa9") == b"\\x1b[2J\tok\n\\xc2\\x9b\xc3\xa9"
