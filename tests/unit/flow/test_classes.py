"""Administrator's classes: first match, MQTT's own matching, nothing a client claims."""

import pytest
from hypothesis import given

from tests.strategies import plain_filters, topics
from tidegate.flow.priority import BULK, URGENT, Band, Classes, InvalidRule, Rule
from tidegate.mqtt.topics import matches

ALARMS = Rule(name="alarms", band=URGENT, topic_filter="plant/+/alarm/#")
BACKUP = Rule(name="backup", band=BULK, user="backup", limit=100.0)
INSIDE = Rule(name="inside", listener="lan")
CLASSES = Classes([ALARMS, BACKUP, INSIDE])


@pytest.mark.parametrize(
    ("topic", "user", "listener", "expected"),
    [
        ("plant/3/alarm", "", "wan", ALARMS),
        ("plant/3/alarm/fire", "backup", "lan", ALARMS),
        ("plant/3/state", "backup", "lan", BACKUP),
        ("plant/3/state", "ann", "lan", INSIDE),
        ("plant/3/state", "ann", "wan", None),
        (None, "ann", "lan", INSIDE),
        (None, "", "wan", None),
    ],
)
def test_the_first_rule_that_matches_decides(
    topic: str | None, user: str, listener: str, expected: Rule | None
) -> None:
    assert CLASSES.find(topic=topic, user=user, listener=listener) is expected


def test_every_condition_of_a_rule_must_hold() -> None:
    classes = Classes([Rule(name="x", topic_filter="a/#", user="ann", listener="lan")])
    assert classes.find(topic="a/b", user="ann", listener="lan") is not None
    for topic, user, listener in (("b", "ann", "lan"), ("a/b", "bob", "lan"), ("a/b", "ann", "wan")):
        assert classes.find(topic=topic, user=user, listener=listener) is None


@given(plain_filters(), topics)
def test_filters_match_as_the_protocol_defines(topic_filter: str, topic: str) -> None:
    found = Classes([Rule(name="x", topic_filter=topic_filter)]).find(topic=topic, user="", listener="")
    assert (found is not None) == matches(topic_filter, topic)


@pytest.mark.parametrize(
    "rule",
    [
        Rule(name="everything"),
        Rule(name="anonymous", user=""),
        Rule(name="empty", topic_filter=""),
        Rule(name="inner", topic_filter="a/#/b"),
        Rule(name="partial", topic_filter="a/b#"),
        Rule(name="partial", topic_filter="a/b+/c"),
        Rule(name="band", user="u", band=Band(first=0.5, last=0.4)),
        Rule(name="band", user="u", band=Band(first=0.0, last=1.1)),
        Rule(name="limit", user="u", limit=-1.0),
    ],
)
def test_a_rule_that_cannot_mean_anything_is_refused_with_its_position(rule: Rule) -> None:
    with pytest.raises(InvalidRule) as caught:
        Classes([INSIDE, rule])
    assert caught.value.rule == 2
