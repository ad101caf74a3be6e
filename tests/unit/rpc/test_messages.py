"""What travels is what was sent; anything else is malformed, and nothing but malformed."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.rpc.errors import Malformed
from tidegate.rpc.messages import (
    Reply,
    Request,
    Task,
    decode_replies,
    decode_requests,
    decode_task,
    encode_replies,
    encode_requests,
    reply_size,
    request_size,
)
from tidegate.rpc.outcome import Outcome

REQUEST = Request(
    correlation="a.1.t",
    key="k",
    device="esl",
    type="shelf-label",
    method="image",
    fields={"price": "1.99"},
    token=7,
    deadline=12.5,
    sent=10.0,
    reply_to="anna",
)
TASK = Task(id="t1", kind="price", body={"devices": ["a"]}, created=1.0, deadline=60.0)


def test_bundles_come_back_as_they_were() -> None:
    reply = Reply(correlation="a.1.t", device="esl", outcome=Outcome.NACK, reason="low battery", gateway="g")
    assert decode_requests(encode_requests([REQUEST, REQUEST])) == [REQUEST, REQUEST]
    assert decode_replies(encode_replies([reply])) == [reply]
    assert decode_task(TASK.encode()) == TASK


def test_what_a_newer_version_adds_to_a_task_is_left_out() -> None:
    content = json.loads(TASK.encode()) | {"colour": "red"}
    assert decode_task(json.dumps(content).encode()) == TASK


WRONG = [b"", b"\xff", b"{}", b"1", b"[1]", b"[[]]", b'[["a"]]', b"[" * 100_000, b'{"id":1}', b"null"]


@pytest.mark.parametrize("payload", WRONG, ids=lambda payload: repr(payload[:12]))
@pytest.mark.parametrize("decode", [decode_requests, decode_replies, decode_task])
def test_rubbish_is_malformed(decode, payload: bytes) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Malformed):
        decode(payload)


@pytest.mark.parametrize("position", range(11))
def test_every_part_of_a_request_is_checked(position: int) -> None:
    rows = json.loads(encode_requests([REQUEST]))
    rows[0][position] = None
    with pytest.raises(Malformed):
        decode_requests(json.dumps(rows).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"priority": "urgent"},
        {"attempt": "1"},
        {"attempt": 0},
        {"attempt": -9999},
        {"body": []},
        {"created": True},
        {"not_before": 1e12},
        {"deadline": float("inf")},
        {"created": float("nan")},
        {"deadline": 10**400},
    ],
)
def test_every_part_of_a_task_is_checked(change: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        decode_task(json.dumps(json.loads(TASK.encode()) | change).encode())


@pytest.mark.parametrize("position", [7, 8])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1e300", "1" + "0" * 400])
def test_a_moment_that_never_comes_is_malformed(position: int, number: str) -> None:
    rows = json.loads(encode_requests([REQUEST]))
    rows[0][position] = "here"
    with pytest.raises(Malformed):
        decode_requests(json.dumps(rows).replace('"here"', number).encode())


@pytest.mark.parametrize("number", ["NaN", "1e999"])
def test_fields_that_no_gateway_could_read_are_malformed(number: str) -> None:
    payload = encode_requests([REQUEST]).replace(b'"1.99"', number.encode())
    with pytest.raises(Malformed):
        decode_requests(payload)


@pytest.mark.parametrize("position", [0, 1, 2, 3, 4, 9])
def test_half_a_character_in_a_request_is_malformed(position: int) -> None:
    rows = json.loads(encode_requests([REQUEST]))
    rows[0][position] = "\ud800"
    with pytest.raises(Malformed):
        decode_requests(json.dumps(rows).encode())
    rows[0][position] = "\u00e9\U0001f3f7"
    assert len(decode_requests(json.dumps(rows).encode())) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"price": "1.99"},
        {"price": "\x01" * 30},
        {"text": "\u20ac" * 900},
        {f"field{n}": "\x00" * 1000 for n in range(10)},
        {"n" * 5000: 1},
    ],
)
def test_the_size_of_a_request_is_not_taken_for_less(fields: dict[str, object]) -> None:
    request = replace(REQUEST, fields=fields)
    size = len(encode_requests([request]))
    assert size <= request_size(request) <= size + 6 * size + 400
    reply = Reply(correlation="a.1.t", device="esl", outcome=Outcome.ACK, data=fields)
    assert len(encode_replies([reply])) <= reply_size(reply)


def test_an_unknown_outcome_is_malformed() -> None:
    rows = [["a", "b", "perhaps", "", "", {}]]
    with pytest.raises(Malformed):
        decode_replies(json.dumps(rows).encode())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=50)
@given(json_values)
def test_any_json_is_understood_or_malformed(value: object) -> None:
    payload = json.dumps(value).encode()
    for decode in (decode_requests, decode_replies, decode_task):
        try:
            decode(payload)
        except Malformed:
            pass
