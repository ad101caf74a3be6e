"""Topic names and filters: the specification's examples, and agreement with a slow obvious matcher."""

import pytest
from hypothesis import given

from tests.strategies import plain_filters, topic_filters, topics
from tidegate.mqtt.errors import TopicFilterInvalid, TopicNameInvalid
from tidegate.mqtt.topics import (
    MAX_TOPIC_LEVELS,
    matches,
    parse_shared,
    validate_topic_filter,
    validate_topic_name,
)


def obvious_match(topic_filter: str, topic: str) -> bool:
    """Section 4.7 word by word, with no thought of speed."""
    if topic.startswith("$") and topic_filter[0] in "+#":
        return False

    def walk(wanted: list[str], given_levels: list[str]) -> bool:
        if wanted == ["#"]:
            return True
        if not wanted or not given_levels:
            return not wanted and not given_levels
        if wanted[0] != "+" and wanted[0] != given_levels[0]:
            return False
        return walk(wanted[1:], given_levels[1:])

    return walk(topic_filter.split("/"), topic.split("/"))


@given(plain_filters(), topics)
def test_matching_agrees_with_the_obvious_matcher(topic_filter: str, topic: str) -> None:
    assert matches(topic_filter, topic) == obvious_match(topic_filter, topic)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/uptime", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/uptime", True),
        ("$SYS/#", "$SYS", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("a/+/c", "a/$b/c", True),
        ("a/b", "a/b/", False),
        ("a/#", "ab", False),
        ("A", "a", False),
        ("+/#", "/", True),
        ("+/+/#", "/", True),
        ("+/+/#", "a", False),
    ],
)
def test_the_examples_of_the_specification_hold(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected
    assert obvious_match(topic_filter, topic) is expected


@given(topic_filters)
def test_generated_filters_are_valid(topic_filter: str) -> None:
    validate_topic_filter(topic_filter)


@given(topics)
def test_generated_topic_names_are_valid_names_and_filters_that_match_themselves(topic: str) -> None:
    validate_topic_name(topic)
    assert matches(topic, topic)


@pytest.mark.parametrize("topic", ["", "#", "+", "a/+", "a#b", "a\0b", "é" * 32_768])
def test_bad_topic_names_are_refused(topic: str) -> None:
    with pytest.raises(TopicNameInvalid):
        validate_topic_name(topic)


@pytest.mark.parametrize(
    "topic_filter",
    [
        *("", "a#", "#a", "#/a", "a/#/b", "##", "a+", "+a", "a/b+/c", "++", "a\0", "x" * 65_536),
        *("$share/", "$share/g", "$share//a", "$share/g/", "$share/#/a", "$share/g+/a", "$share/g/a#"),
    ],
)
def test_bad_topic_filters_are_refused(topic_filter: str) -> None:
    with pytest.raises(TopicFilterInvalid):
        validate_topic_filter(topic_filter)


@pytest.mark.parametrize("topic", ["/", "//", " ", "a", "$share", "$sharex/g", "é" * 32_767])
def test_odd_but_valid_topics_are_accepted(topic: str) -> None:
    validate_topic_name(topic)
    validate_topic_filter(topic)


def test_levels_are_limited() -> None:
    longest = "/" * (MAX_TOPIC_LEVELS - 1)
    validate_topic_name(longest)
    validate_topic_filter("$share/g/" + longest)
    with pytest.raises(TopicNameInvalid):
        validate_topic_name(longest + "/")
    with pytest.raises(TopicFilterInvalid):
        validate_topic_filter(longest + "/#")
    validate_topic_name(longest + "/", max_levels=MAX_TOPIC_LEVELS + 1)


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("$share/group/a/+", ("group", "a/+")),
        ("$share/group//", ("group", "/")),
        ("$share/g/$share/h/a", ("g", "$share/h/a")),
        ("$share", None),
        ("$SHARE/g/a", None),
        ("a/$share/g/a", None),
        ("#", None),
    ],
)
def test_shared_filters_are_split_into_name_and_filter(
    topic_filter: str, expected: tuple[str, str] | None
) -> None:
    assert parse_shared(topic_filter) == expected


@pytest.mark.parametrize("topic_filter", ["$share/g", "$share//a", "$share/g/", "$share/+/a"])
def test_a_shared_filter_without_name_or_filter_is_refused(topic_filter: str) -> None:
    with pytest.raises(TopicFilterInvalid):
        parse_shared(topic_filter)
