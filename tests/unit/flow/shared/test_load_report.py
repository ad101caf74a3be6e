"""The load report on the wire: whatever arrives, there is a report or none, and never an exception."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.flow.load_report import LoadReport, parse_pingreq, parse_value

numbers = st.integers(0, 1 << 53)
reports = st.builds(
    LoadReport,
    queue_length=numbers,
    processing_time=st.integers(0, 10**9).map(lambda us: us / 1e6),
    count=st.none() | numbers,
    processed=st.none() | numbers,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_the_example_of_the_specification_is_written_and_read() -> None:
    report = LoadReport(queue_length=3, processing_time=0.0247)
    body = report.encode_pingreq()
    assert bytes([0xC0, len(body)]) + body == b'\xc0\x2e\x00{"msgsInQueue":3,"processingTimePerMsg":24.7}'
    assert parse_pingreq(body) == report


@pytest.mark.parametrize("queue", ["msgsInQueue", "numberOfMsgsInQueue"])
@pytest.mark.parametrize("time", ["processingTimePerMsg", "processingTimerPerMsg"])
def test_both_namings_of_the_thesis_are_read_and_unknown_fields_ignored(queue: str, time: str) -> None:
    text = json.dumps({queue: 7, time: 20, "colour": "blue"})
    assert parse_value(text) == LoadReport(queue_length=7, processing_time=0.02)


@given(report=reports)
def test_what_is_written_is_read_again(report: LoadReport) -> None:
    found = parse_pingreq(report.encode_pingreq())
    assert found is not None and found == parse_value(report.encode_value())
    assert (found.queue_length, found.count, found.processed) == (
        report.queue_length,
        report.count,
        report.processed,
    )
    assert abs(found.processing_time - report.processing_time) < 1e-6


def test_user_properties_before_the_report_are_skipped() -> None:
    body = LoadReport(queue_length=1, processing_time=0.001).encode_pingreq()
    properties = b"\x26\x00\x01a\x00\x02bc" * 20
    length = bytes([len(properties) & 0x7F | 0x80, len(properties) >> 7])
    assert parse_pingreq(length + properties + body[1:]) == parse_pingreq(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",  # the standard ping
        b"\x00",
        b"\x05{}",
        b"\xff\xff\xff\xff\x01{}",
        b"\x02\x26\x00" + b'{"msgsInQueue":3,"processingTimePerMsg":1}',
        b"\x07\x27\x00\x01a\x00\x01b" + b'{"msgsInQueue":3,"processingTimePerMsg":1}',
        b"\x07\x26\x00\x01\xff\x00\x01b" + b'{"msgsInQueue":3,"processingTimePerMsg":1}',
        b"\x00[1,2]",
        b"\x00null",
        b"\x00" + b"[" * 1020,
        b'\x00{"msgsInQueue":3}',
        b'\x00{"msgsInQueue":-1,"processingTimePerMsg":1}',
        b'\x00{"msgsInQueue":1,"processingTimePerMsg":-0.5}',
        b'\x00{"msgsInQueue":true,"processingTimePerMsg":1}',
        b'\x00{"msgsInQueue":"1","processingTimePerMsg":1}',
        b'\x00{"msgsInQueue":NaN,"processingTimePerMsg":1}',
        b'\x00{"msgsInQueue":1,"processingTimePerMsg":Infinity}',
        b'\x00{"msgsInQueue":1,"processingTimePerMsg":1e300}',
        b'\x00{"msgsInQueue":1' + b"0" * 900 + b',"processingTimePerMsg":1}',
        b'\x00{"msgsInQueue":1,"processingTimePerMsg":1,"count":-1}',
        b'\x00{"msgsInQueue":1,"processingTimePerMsg":1,"processed":"many"}',
        b'\x00{"msgsInQueue":1,"processingTimePerMsg":1}' + b" " * 1024,
    ],
)
def test_what_is_malformed_is_no_report(body: bytes) -> None:
    assert parse_pingreq(body) is None


@given(body=st.binary(max_size=64))
def test_any_bytes_are_a_report_or_none(body: bytes) -> None:
    parse_pingreq(body)
    parse_pingreq(b"\x00" + body)
    parse_value(body)


@given(
    queue=json_values,
    time=json_values,
    extra=st.dictionaries(st.sampled_from(["count", "processed"]), json_values),
)
def test_any_json_is_a_report_with_sane_numbers_or_none(queue: object, time: object, extra: dict) -> None:
    report = parse_value(json.dumps({"msgsInQueue": queue, "processingTimePerMsg": time, **extra}))
    if report is not None:
        assert report.queue_length >= 0
        assert 0.0 <= report.processing_time <= 1e6
        assert report.count is None or report.count >= 0
        assert report.processed is None or report.processed >= 0
