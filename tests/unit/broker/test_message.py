"""Every wire form of a message decodes back to what went in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import packet_identifiers, payloads, properties, topics
from tidegate.broker.message import Message, variable_byte_integer
from tidegate.broker.publishing import bare_properties
from tidegate.mqtt.codes import PacketType
from tidegate.mqtt.packets import Publish
from tidegate.mqtt.primitives import write_variable_byte_integer
from tidegate.mqtt.properties import Properties, Property
from tidegate.mqtt.reader import PacketReader

OWN = (Property.TOPIC_ALIAS, Property.MESSAGE_EXPIRY_INTERVAL, Property.SUBSCRIPTION_IDENTIFIER)

forwarded = properties(PacketType.PUBLISH).map(lambda p: {k: v for k, v in p.items() if k not in OWN})
both_versions = st.sampled_from([4, 5])
sizes = payloads | st.sampled_from([0, 100, 127, 128, 16_000, 16_383, 16_384, 2_097_152]).map(bytes)


def decoded(packet: bytes, version: int) -> Publish:
    reader = PacketReader(version)
    (found,) = reader.feed(packet)
    assert isinstance(found, Publish) and reader.buffered_bytes == 0
    return found


def made(topic: str, payload: bytes, props: Properties, expires: float | None = None) -> Message:
    return Message(topic.encode(), payload, 1, False, bare_properties(props), expires, "me")


@given(both_versions, topics, sizes, forwarded)
def test_the_plain_form_is_the_same_message_at_qos_0(
    version: int, topic: str, payload: bytes, props: Properties
) -> None:
    message = made(topic, payload, props)
    packet = decoded(message.plain(version), version)
    assert packet == Publish(topic=topic, payload=payload, properties=props if version == 5 else {})
    assert message.plain(version) is message.plain(version), "made once, shared by all recipients"


@given(both_versions, topics, sizes, forwarded, packet_identifiers, st.integers(1, 2))
def test_head_and_tail_around_a_packet_identifier_are_the_same_message(
    version: int, topic: str, payload: bytes, props: Properties, pid: int, qos: int
) -> None:
    head, tail = made(topic, payload, props).parts(version)
    packet = decoded(bytes((0x30 | qos << 1,)) + head + pid.to_bytes(2, "big") + tail, version)
    wanted = Publish(
        topic=topic, payload=payload, qos=qos, packet_identifier=pid, properties=props if version == 5 else {}
    )
    assert packet == wanted


@given(
    both_versions, topics, payloads, forwarded, st.none() | packet_identifiers, st.booleans(), st.booleans(),
    st.lists(st.integers(1, 268_435_455), max_size=3), st.none() | st.integers(1, 1_000), st.integers(0, 10),
)  # fmt: skip
def test_the_general_form_carries_flags_identifiers_expiry_and_alias(
    version: int, topic: str, payload: bytes, props: Properties, pid: int | None, retain: bool, dup: bool,
    identifiers: list[int], expiry: int | None, alias: int,
) -> None:  # fmt: skip
    message = made(topic, payload, props, None if expiry is None else 50.0 + expiry)
    qos = 0 if pid is None else 1
    raw = message.encode(
        version, qos, None if pid is None else pid.to_bytes(2, "big"), retain=retain, dup=dup and qos > 0,
        subscription_identifiers=identifiers, now=50.0, alias=alias, send_topic=not (alias and version == 5),
    )  # fmt: skip
    packet = decoded(raw, version)
    wanted: Properties = {}
    if version == 5:
        wanted = dict(props)
        if expiry is not None:
            wanted[Property.MESSAGE_EXPIRY_INTERVAL] = expiry
        if identifiers:
            wanted[Property.SUBSCRIPTION_IDENTIFIER] = identifiers
        if alias:
            wanted[Property.TOPIC_ALIAS] = alias
    assert packet == Publish(
        topic="" if alias and version == 5 else topic, payload=payload, qos=qos, retain=retain,
        dup=dup and qos > 0, packet_identifier=pid, properties=wanted,
    )  # fmt: skip


@pytest.mark.parametrize(("waited", "left"), [(0.0, 10), (0.4, 10), (1.0, 9), (9.0, 1), (9.9, 1), (30.0, 1)])
def test_the_expiry_interval_is_what_is_left_and_never_zero(waited: float, left: int) -> None:
    raw = made("a", b"", {}, 10.0).encode(5, 0, None, now=waited)
    assert decoded(raw, 5).properties == {Property.MESSAGE_EXPIRY_INTERVAL: left}


@given(st.integers(0, 268_435_455))
def test_variable_byte_integers_agree_with_the_codec(value: int) -> None:
    assert variable_byte_integer(value) == write_variable_byte_integer(value)


@pytest.mark.parametrize(
    "size", [0, 1, 119, 120, 121, 122, 123, 124, 125, 16_370, 16_376, 16_377, 16_378, 16_380, 30_000]
)
def test_bare_properties_lose_exactly_their_length_prefix(size: int) -> None:
    props: Properties = {Property.CORRELATION_DATA: bytes(size), Property.CONTENT_TYPE: "x"}
    message = made("a", b"payload", props)
    assert decoded(message.plain(5), 5).properties == props
