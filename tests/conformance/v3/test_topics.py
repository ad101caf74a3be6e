"""Section 4.7 of MQTT 3.1.1: topic names, topic filters and how they match."""

import pytest

from tests.conformance.v3 import wire
from tests.conformance.v3.support import Join, deliveries, expect_dropped, payloads

LONGEST = 65_535


def matching(join: Join, topic_filter: str, names: list[str]) -> list[str]:
    """Those of the names that the filter matches, according to the server."""
    client = join("matcher")
    client.subscribe(topic_filter, 1)
    for name in names:
        client.publish(name, name.encode()[-40:], 1)
    return [message.topic for message in deliveries(client)]


@pytest.mark.parametrize("name", ["+", "#", "a/+/b", "a/#", "a/b+", "a#"])
def test_MQTT_4_7_1_1_wildcards_must_not_be_in_a_topic_name(name: str, join: Join) -> None:
    client = join()
    client.send_bytes(wire.publish(name, b"x"))
    expect_dropped(client)


def test_MQTT_4_7_1_2_the_multi_level_wildcard_matches_parent_and_all_levels_below(
    join: Join, topic: str
) -> None:
    names = [topic, f"{topic}/a", f"{topic}/a/b/c", f"{topic}/", f"{topic}x", topic.partition("/")[0]]
    assert matching(join, f"{topic}/#", names) == names[:4]


@pytest.mark.parametrize("topic_filter", ["a/#/b", "a#", "a/b#", "#/a", "##", "a/#b"])
def test_MQTT_4_7_1_2_the_multi_level_wildcard_stands_alone_and_last(topic_filter: str, join: Join) -> None:
    client = join()
    client.send_bytes(wire.subscribe((topic_filter, 0)))
    expect_dropped(client)


def test_MQTT_4_7_1_3_the_single_level_wildcard_matches_one_level_at_any_place(
    join: Join, topic: str
) -> None:
    root, _, rest = topic.partition("/")
    names = [topic, f"{root}/other", f"{root}/", root, f"{topic}/a"]
    assert matching(join, f"{root}/+", names) == names[:3]
    assert matching(join, f"+/{rest}/x", [f"{root}/{rest}/x", f"{root}/a/{rest}/x"]) == [f"{root}/{rest}/x"]
    names = [f"{topic}/a/x/b", f"{topic}//x/", f"{topic}/a/y/b", f"{topic}/a/x"]
    assert matching(join, f"{topic}/+/x/+", names) == names[:2]
    names = [f"{topic}/a", f"{topic}/a/b/c", topic, f"{topic}/"]
    assert matching(join, f"{topic}/+/#", names) == [names[0], names[1], names[3]]


@pytest.mark.parametrize("topic_filter", ["a+", "+a", "a/+b", "a/b+/c", "++"])
def test_MQTT_4_7_1_3_the_single_level_wildcard_occupies_a_whole_level(topic_filter: str, join: Join) -> None:
    client = join()
    client.send_bytes(wire.subscribe((topic_filter, 0)))
    expect_dropped(client)


def test_MQTT_4_7_2_1_a_leading_wildcard_does_not_match_topics_that_begin_with_a_dollar(
    join: Join, topic: str
) -> None:
    name = f"$test/{topic}"
    for topic_filter in ("#", f"+/{topic}", "+/#"):
        client = join("wild")
        client.subscribe(topic_filter, 1)
        client.publish(name, b"hidden", 1)
        assert [message.topic for message in deliveries(client) if message.topic.startswith("$")] == []
    assert matching(join, f"$test/{topic}/#", [name]) == [name]
    assert matching(join, name, [name]) == [name]


def test_MQTT_4_7_2_1_a_leading_wildcard_does_not_fetch_retained_messages_of_dollar_topics(
    join: Join, topic: str
) -> None:
    name = f"$test/{topic}"
    client = join()
    client.publish(name, b"hidden", 1, retain=True)
    client.subscribe(f"+/{topic}")
    assert payloads(client) == []
    client.subscribe(name)
    assert payloads(client) == [b"hidden"]
    client.publish(name, b"", 1, retain=True)


@pytest.mark.parametrize(
    "data",
    [
        wire.publish("", b"x"),
        wire.subscribe(("", 0)),
        wire.unsubscribe(""),
        wire.subscribe(("a", 0), ("", 0)),
    ],
)
def test_MQTT_4_7_3_1_topics_and_filters_have_at_least_one_character(data: bytes, join: Join) -> None:
    client = join()
    client.send_bytes(data)
    expect_dropped(client)


def test_MQTT_4_7_3_1_one_character_is_enough(join: Join) -> None:
    client = join()
    client.subscribe("/", 1)
    client.publish("/", b"slash", 1)
    assert payloads(client) == [b"slash"]


@pytest.mark.parametrize(
    "data", [wire.publish("a\0b", b"x"), wire.subscribe(("\0", 0)), wire.unsubscribe("a\0")]
)
def test_MQTT_4_7_3_2_the_null_character_closes_the_connection(data: bytes, join: Join) -> None:
    client = join()
    client.send_bytes(data)
    expect_dropped(client)


def test_MQTT_4_7_3_3_a_topic_of_65535_bytes_is_delivered(join: Join, topic: str) -> None:
    longest = f"{topic}/".ljust(LONGEST, "x")
    assert matching(join, longest, [longest, longest[:-1]]) == [longest]
    accented = f"{topic}/".ljust(LONGEST // 2, "é")
    assert matching(join, f"{topic}/+", [accented]) == [accented]


def test_MQTT_4_7_3_4_names_are_matched_without_normalisation(join: Join, topic: str) -> None:
    names = [
        f"{topic}/\u00e9",  # one code point
        f"{topic}/e\u0301",  # the same letter in two
        f"{topic}/E",
        f"{topic}/e",
        f"{topic}/ e",
        f"{topic}/e ",
        f"{topic}/../e",
        f"{topic}/./e",
        f"{topic}//e",
        f"{topic}/%65",
        f"{topic}/\ufffd",
        f"{topic}/\U0001f600",
        f"{topic}/\ud7ff",
    ]
    for name in names:
        assert matching(join, name, names) == [name]


def test_an_empty_level_is_a_level(join: Join, topic: str) -> None:
    names = [f"/{topic}", topic, f"{topic}/", f"{topic}//", f"{topic}//a"]
    assert matching(join, f"/{topic}", names) == [names[0]]
    assert matching(join, f"{topic}/", names) == [names[2]]
    assert matching(join, f"{topic}/+/+", names) == [names[3], names[4]]
