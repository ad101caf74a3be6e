"""Filters as sets of topics, against the plain definition tried on every small topic."""

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.accounts.filters import FilterSet, covers, intersection, levels_of
from tidegate.mqtt.errors import TopicFilterInvalid
from tidegate.mqtt.topics import matches

# "z" occurs in no filter: it stands for all the names that only wildcards match.
NAMES = ["a", "b", "$s", "z", ""]
TOPICS = ["/".join(levels) for depth in (1, 2, 3, 4) for levels in product(NAMES, repeat=depth)]
TOPICS = [topic for topic in TOPICS if topic]


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.sampled_from(["a", "b", "$s", "", "+", "+"]), max_size=3))
    if not levels or draw(st.booleans()):
        levels.append("#")
    return "/".join(levels) or "+"


@cache
def matched_by(topic_filter: str) -> frozenset[str]:
    return frozenset(topic for topic in TOPICS if matches(topic_filter, topic))


# No deadline: the time of one example says nothing on a machine that does other things, too.
@settings(deadline=None)
@given(topic_filters(), topic_filters())
def test_the_intersection_matches_what_both_match(one: str, two: str) -> None:
    common = intersection(levels_of(one), levels_of(two))
    expected = matched_by(one) & matched_by(two)
    assert (matched_by("/".join(common)) if common else frozenset()) == expected


@settings(deadline=None)
@given(topic_filters(), topic_filters())
def test_a_filter_covers_another_if_it_matches_all_its_topics(wide: str, narrow: str) -> None:
    assert covers(levels_of(wide), levels_of(narrow)) == (matched_by(narrow) <= matched_by(wide))


@settings(deadline=None)
@given(st.lists(topic_filters(), max_size=6), st.sampled_from(TOPICS))
def test_a_set_matches_what_any_of_its_filters_matches(filters: list[str], topic: str) -> None:
    compiled = FilterSet(levels_of(each) for each in filters)
    assert compiled.matches(topic) == any(matches(each, topic) for each in filters)


@pytest.mark.parametrize("wrong", ["", "a/#/b", "a+", "+b/c", "a\0b"])
def test_what_is_no_filter_is_refused(wrong: str) -> None:
    with pytest.raises(TopicFilterInvalid):
        levels_of(wrong)
