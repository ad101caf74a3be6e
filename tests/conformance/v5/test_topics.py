"""MQTT 5 section 4.7: topic names and topic filters."""

from collections.abc import Callable

import pytest

from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import (
    MALFORMED,
    PROTOCOL_ERROR,
    expect_disconnect,
    expect_filter_refused,
    messages_besides_marker,
)
from tests.conformance.v5.wire import publish
from tidegate.mqtt import Publish, ReasonCode

BAD_TOPIC = (MALFORMED, PROTOCOL_ERROR, ReasonCode.TOPIC_NAME_INVALID)


@pytest.mark.parametrize("name", ["+", "#", "a/+/b", "a/b/#"])
def test_MQTT_4_7_0_1_wildcards_are_not_allowed_in_a_topic_name(join: Join, name: str) -> None:
    client = join()
    client.send_bytes(publish(name))
    expect_disconnect(client, *BAD_TOPIC)


@pytest.mark.parametrize("topic_filter", ["a/#/b", "#/a", "a#", "a/b#", "##"])
def test_MQTT_4_7_1_1_the_multi_level_wildcard_is_the_last_level(join: Join, topic_filter: str) -> None:
    expect_filter_refused(join(), topic_filter)


@pytest.mark.parametrize("topic_filter", ["a+", "+a", "a/b+/c", "++", "a/+b/c"])
def test_MQTT_4_7_1_2_the_single_level_wildcard_is_a_whole_level(join: Join, topic_filter: str) -> None:
    expect_filter_refused(join(), topic_filter)


@pytest.mark.parametrize(
    ("topic_filter", "names"),
    [
        ("sport/#", ["sport", "sport/", "sport/tennis", "sport/tennis/player1", "sport//player1"]),
        ("sport/+", ["sport/tennis", "sport/"]),
        ("+/tennis/#", ["sport/tennis", "sport/tennis/player1", "/tennis"]),
        ("sport/+/player1", ["sport/tennis/player1", "sport//player1"]),
    ],
)
def test_MQTT_4_7_1_2_wildcards_match_as_the_specification_says(
    join: Join, unique: Callable[[str], str], topic_filter: str, names: list[str]
) -> None:
    client = join()
    root = unique("root")
    client.subscribe(f"{root}/{topic_filter}")
    client.subscribe(unique("marker"))
    every = (
        *("sport", "sport/", "sport/tennis", "sport/tennis/player1", "sport//player1", "/tennis"),
        *("sporty", "Sport", "tennis", "/sport/tennis"),
    )
    for name in every:
        client.publish(f"{root}/{name}")
    seen = [message.topic for message in messages_besides_marker(client, unique("marker"))]
    assert sorted(seen) == sorted(f"{root}/{name}" for name in names)


@pytest.mark.parametrize("topic_filter", ["#", "+/{}", "+/#"])
def test_MQTT_4_7_2_1_a_leading_wildcard_does_not_match_topics_with_a_dollar(
    join: Join, unique: Callable[[str], str], topic_filter: str
) -> None:
    client, publisher = join(), join("publisher")
    client.subscribe(topic_filter.format(unique("x")))
    client.subscribe("$dollar/+")
    marker = unique("marker") + "/" + unique("x")
    client.subscribe(marker)
    publisher.publish(f"$dollar/{unique('x')}", b"dollar", qos=1)
    client.publish(marker, b"marker")
    client.take(Publish, topic=marker)
    dollar = [p for p in client.barrier() if isinstance(p, Publish) and p.topic.startswith("$dollar/")]
    # Once, by the filter that names the first level.
    assert [message.payload for message in dollar if unique("x") in message.topic] == [b"dollar"]


def test_MQTT_4_7_3_1_an_empty_topic_name_without_alias_is_refused(join: Join) -> None:
    client = join()
    client.send_bytes(publish(""))
    expect_disconnect(client, *BAD_TOPIC)


def test_MQTT_4_7_3_1_an_empty_topic_filter_is_refused(join: Join) -> None:
    expect_filter_refused(join(), "")


@pytest.mark.parametrize("name", [b"\0", b"a/\0/b"])
def test_MQTT_4_7_3_2_a_null_character_in_a_topic_filter_is_refused(join: Join, name: bytes) -> None:
    expect_filter_refused(join(), name)


def test_MQTT_4_7_3_3_a_topic_of_65535_bytes_works(join: Join, unique: Callable[[str], str]) -> None:
    client = join()
    name = unique("long").ljust(65_535, "x")
    client.subscribe(name)
    client.publish(name, b"long")
    client.expect(Publish, topic=name, payload=b"long")


@pytest.mark.parametrize("other", ["/{}", "{}/", "{} ", "{}/.", "{}//"])
def test_MQTT_4_7_3_4_topics_are_compared_as_they_are(join: Join, topic: str, other: str) -> None:
    client = join()
    client.subscribe(topic)
    client.publish(other.format(topic), b"other")
    client.publish(topic.upper(), b"upper")
    assert messages_besides_marker(client, topic) == []


def test_MQTT_4_7_3_4_characters_with_two_forms_stay_two_topics(join: Join, topic: str) -> None:
    client = join()
    client.subscribe(f"{topic}/\u00e9")
    client.publish(f"{topic}/e\u0301", b"decomposed")
    client.publish(f"{topic}/\u00e9", b"composed")
    client.expect(Publish, topic=f"{topic}/\u00e9", payload=b"composed")
    assert client.barrier() == []
