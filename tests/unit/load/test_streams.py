"""Counting by columns must agree with counting one by one, however the bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.load.errors import UnexpectedPacket
from tidegate.load.packets import Burst, publish
from tidegate.load.streams import PublisherStream, SubscriberStream

PINGRESP = b"\xd0\x00"


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(position % (len(data) + 1) for position in at)})
    return [data[a:b] for a, b in pairwise(edges)]


def messages(
    count: int, *, qos: int, protocol: int = 4, first: int = 0, payload_bytes: int = 40
) -> list[bytes]:
    burst = Burst("t/1", payload_bytes=payload_bytes, qos=qos, protocol=protocol, size=1)
    return [bytes(burst.fill(1, first + index, 500)) for index in range(count)]


def release(identifier: int, *, is_long: bool = False) -> bytes:
    number = identifier.to_bytes(2, "big")
    return b"\x62\x04" + number + b"\x00\x00" if is_long else b"\x62\x02" + number


CUTS = st.lists(st.integers(0, 20_000), max_size=30)


@given(
    count=st.integers(1, 200),
    qos=st.sampled_from([0, 1]),
    protocol=st.sampled_from([4, 5]),
    payload_bytes=st.sampled_from([11, 64, 200]),
    at=CUTS,
)
def test_any_split_gives_the_same_count_and_acknowledgements(
    count: int, qos: int, protocol: int, payload_bytes: int, at: list[int]
) -> None:
    stream = SubscriberStream(payload_bytes=payload_bytes)
    stream.latencies_ns = []
    data = b"".join(messages(count, qos=qos, protocol=protocol, payload_bytes=payload_bytes))
    reply = b"".join(stream.feed(chunk, 800) for chunk in cut(data, at))
    assert (stream.received, stream.gaps, stream.repeats) == (count, 0, 0)
    assert stream.latencies_ns == [300] * count
    expected = b"".join(b"\x40\x02" + (index + 1).to_bytes(2, "big") for index in range(count))
    assert reply == (expected if qos else b"")


@given(
    kinds=st.lists(st.sampled_from(["publish", "publish", "release", "long release", "ping"]), max_size=150),
    at=CUTS,
)
def test_qos_2_answers_publish_and_pubrel_in_the_order_they_came(kinds: list[str], at: list[int]) -> None:
    data = b""
    expected = b""
    published = 0
    for index, kind in enumerate(kinds, 1):
        if kind == "publish":
            data += messages(1, qos=2, first=published)[0]
            published += 1
            expected += b"\x50\x02" + published.to_bytes(2, "big")
        elif kind == "ping":
            data += PINGRESP
        else:
            data += release(index, is_long=kind == "long release")
            expected += b"\x70\x02" + index.to_bytes(2, "big")
    stream = SubscriberStream(payload_bytes=40)
    assert b"".join(stream.feed(chunk, 0) for chunk in cut(data, at)) == expected
    assert stream.received == published
    assert stream.pings == kinds.count("ping")
    assert stream.repeats == stream.gaps == 0


@given(runs=st.lists(st.tuples(st.booleans(), st.integers(1, 120)), max_size=8), at=CUTS)
def test_qos_2_finds_the_end_of_long_runs(runs: list[tuple[bool, int]], at: list[int]) -> None:
    published = released = 0
    data = expected = b""
    for is_publish, count in runs:
        if is_publish:
            data += b"".join(messages(count, qos=2, first=published))
            identifiers = range(published + 1, published + count + 1)
            published += count
        else:
            identifiers = range(released + 1, released + count + 1)
            released += count
            data += b"".join(release(each) for each in identifiers)
        head = b"\x50\x02" if is_publish else b"\x70\x02"
        expected += b"".join(head + each.to_bytes(2, "big") for each in identifiers)
    stream = SubscriberStream(payload_bytes=40)
    assert b"".join(stream.feed(chunk, 0) for chunk in cut(data, at)) == expected
    assert stream.received == published


@given(lost=st.sets(st.integers(0, 99), max_size=30), at=CUTS)
def test_missing_messages_are_counted_exactly(lost: set[int], at: list[int]) -> None:
    lost -= {99}  # what is missing at the very end only the sender knows
    sent = messages(100, qos=0)
    data = b"".join(each for index, each in enumerate(sent) if index not in lost)
    stream = SubscriberStream(payload_bytes=40)
    for chunk in cut(data, at):
        stream.feed(chunk, 0)
    assert stream.gaps == len(lost)
    assert stream.received == 100 - len(lost)
    assert stream.passed == 100


def test_a_message_seen_twice_is_a_repeat_and_not_progress() -> None:
    sent = messages(3, qos=1)
    stream = SubscriberStream(payload_bytes=40)
    stream.feed(sent[0] + sent[1] + sent[1] + sent[2], 0)
    assert (stream.received, stream.repeats, stream.gaps, stream.passed) == (4, 1, 0, 3)


def test_order_is_not_asked_for_where_publishers_mix() -> None:
    sent = messages(3, qos=0)
    stream = SubscriberStream(payload_bytes=40, is_ordered=False)
    stream.feed(sent[2] + sent[0] + sent[0], 0)
    assert (stream.received, stream.repeats, stream.gaps) == (3, 0, 0)


def test_a_sequence_number_may_wrap() -> None:
    stream = SubscriberStream(payload_bytes=40)
    burst = Burst("t/1", payload_bytes=40, qos=0, protocol=4, size=4096)
    for start in range(0, 3 * 65_536, 4096):
        stream.feed(bytes(burst.fill(4096, start, 0)), 0)
    assert (stream.received, stream.gaps, stream.repeats) == (3 * 65_536, 0, 0)


def test_packets_of_another_size_end_the_run() -> None:
    stream = SubscriberStream(payload_bytes=40)
    stream.feed(messages(1, qos=0)[0], 0)
    with pytest.raises(UnexpectedPacket):
        stream.feed(publish("t/1", bytes(39), qos=0, protocol=4) * 2, 0)


def test_a_disconnect_of_the_broker_ends_the_run_with_its_first_byte() -> None:
    stream = SubscriberStream(payload_bytes=40)
    with pytest.raises(UnexpectedPacket) as caught:
        stream.feed(messages(1, qos=0)[0] + b"\xe0\x02\x8b\x00", 0)
    assert caught.value.first_byte == 0xE0


ACKNOWLEDGEMENT = st.tuples(st.sampled_from(["short", "long", "refused", "ping"]), st.integers(1, 65_535))


@given(entries=st.lists(ACKNOWLEDGEMENT, max_size=80), at=CUTS)
def test_publisher_counts_pubacks_whatever_their_length(
    entries: list[tuple[str, int]], at: list[int]
) -> None:
    data = b""
    for kind, identifier in entries:
        number = identifier.to_bytes(2, "big")
        data += {
            "short": b"\x40\x02" + number,
            "long": b"\x40\x03" + number + b"\x10",
            "refused": b"\x40\x04" + number + b"\x97\x00",
            "ping": PINGRESP,
        }[kind]
    stream = PublisherStream(qos=1)
    for chunk in cut(data, at):
        assert stream.feed(chunk, 0) == b""
    kinds = [kind for kind, _ in entries]
    assert stream.acknowledged == len(kinds) - kinds.count("ping")
    assert stream.refused == kinds.count("refused")
    assert stream.pings == kinds.count("ping")


STEPS = st.tuples(st.sampled_from(["rec", "rec", "comp", "long rec", "refused rec"]), st.integers(1, 65_535))


@given(entries=st.lists(STEPS, max_size=120), at=CUTS)
def test_publisher_releases_each_pubrec_once_and_in_order(
    entries: list[tuple[str, int]], at: list[int]
) -> None:
    data = expected = b""
    for kind, identifier in entries:
        number = identifier.to_bytes(2, "big")
        data += {
            "rec": b"\x50\x02" + number,
            "comp": b"\x70\x02" + number,
            "long rec": b"\x50\x03" + number + b"\x10",
            "refused rec": b"\x50\x03" + number + b"\x87",
        }[kind]
        if kind in ("rec", "long rec"):
            expected += b"\x62\x02" + number
    stream = PublisherStream(qos=2)
    assert b"".join(stream.feed(chunk, 0) for chunk in cut(data, at)) == expected
    kinds = [kind for kind, _ in entries]
    assert stream.refused == kinds.count("refused rec")
    assert stream.acknowledged == kinds.count("comp") + stream.refused


def test_publisher_at_qos_0_expects_no_acknowledgement() -> None:
    with pytest.raises(UnexpectedPacket):
        PublisherStream(qos=0).feed(b"\x40\x02\x00\x01", 0)
