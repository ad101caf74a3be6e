"""Topic names and topic filters: validation, shared subscriptions and matching (MQTT 5 sections 4.7, 4.8).

Matching here is the plain definition, one filter against one topic; indexes over many filters live elsewhere
and must agree with it.
"""

from typing import Final

from tidegate.mqtt.errors import Blame, TopicFilterInvalid, TopicNameInvalid

MAX_TOPIC_BYTES: Final = 65_535
MAX_TOPIC_LEVELS: Final = 200
"""Our own bound, the same as Mosquitto's: a topic of 65 535 slashes would make every tree walk a long one."""

_SHARE: Final = "$share/"


def validate_topic_name(topic: str, *, max_levels: int = MAX_TOPIC_LEVELS, blame: Blame = Blame.PEER) -> None:
    """Raise `TopicNameInvalid` unless a PUBLISH may carry this name."""
    if not topic:
        raise TopicNameInvalid("a topic name has at least one character [MQTT5-4.7.3-1]", blame=blame)
    if "+" in topic or "#" in topic:
        raise TopicNameInvalid(f"topic name {topic[:80]!r} contains a wildcard [MQTT5-3.3.2-2]", blame=blame)
    problem = _common_problem(topic, max_levels)
    if problem is not None:
        raise TopicNameInvalid(f"topic name {problem}", blame=blame)


def validate_topic_filter(
    topic_filter: str, *, max_levels: int = MAX_TOPIC_LEVELS, blame: Blame = Blame.PEER
) -> None:
    """Raise `TopicFilterInvalid` unless a SUBSCRIBE may carry this filter, shared ones included."""
    if not topic_filter:
        raise TopicFilterInvalid("a topic filter has at least one character [MQTT5-4.7.3-1]", blame=blame)
    if topic_filter.startswith(_SHARE):
        # parse_shared raises for a bad share name; what is left follows the ordinary rules.
        topic_filter = _split_shared(topic_filter, blame)[1]
    problem = _common_problem(topic_filter, max_levels)
    if problem is None and ("#" in topic_filter or "+" in topic_filter):
        problem = _wildcard_problem(topic_filter)
    if problem is not None:
        raise TopicFilterInvalid(f"topic filter {problem}", blame=blame)


def parse_shared(topic_filter: str) -> tuple[str, str] | None:
    """Split `$share/{name}/{filter}` into name and filter; None if the subscription is not shared.

    Raises `TopicFilterInvalid` if it begins like one but has no proper name or filter.
    """
    if not topic_filter.startswith(_SHARE):
        return None
    return _split_shared(topic_filter, Blame.PEER)


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a valid, not shared filter matches a valid topic name. Linear in the number of levels."""
    if topic_filter == topic:
        return True
    if topic[:1] == "$" and topic_filter[:1] in ("+", "#"):
        return False  # [MQTT5-4.7.2-1]
    filter_levels = topic_filter.split("/")
    topic_levels = topic.split("/")
    if filter_levels[-1] == "#":
        filter_levels.pop()
        # "sport/#" also matches "sport": the number sign includes the parent level (section 4.7.1.2).
        if len(topic_levels) < len(filter_levels):
            return False
    elif len(topic_levels) != len(filter_levels):
        return False
    # The lengths were compared above; behind "#" the topic may be longer.
    pairs = zip(filter_levels, topic_levels, strict=False)
    return all(level in ("+", name) for level, name in pairs)


def _split_shared(topic_filter: str, blame: Blame) -> tuple[str, str]:
    name, separator, real_filter = topic_filter[len(_SHARE) :].partition("/")
    if not name or "+" in name or "#" in name:
        raise TopicFilterInvalid(
            "a share name has at least one character and no wildcard [MQTT5-4.8.2-1]", blame=blame
        )
    if not separator or not real_filter:
        raise TopicFilterInvalid("a share name is followed by '/' and a filter [MQTT5-4.8.2-2]", blame=blame)
    return name, real_filter


def _common_problem(topic: str, max_levels: int) -> str | None:
    if "\0" in topic:
        return "contains U+0000 [MQTT5-4.7.3-2]"
    # Four bytes are the most a character needs, so short text (nearly all) skips the encoding.
    if len(topic) * 4 > MAX_TOPIC_BYTES and len(topic.encode(errors="replace")) > MAX_TOPIC_BYTES:
        return f"is longer than {MAX_TOPIC_BYTES} bytes [MQTT5-4.7.3-3]"
    if topic.count("/") >= max_levels:
        return f"has more than {max_levels} levels"
    return None


def _wildcard_problem(topic_filter: str) -> str | None:
    levels = topic_filter.split("/")
    if any("#" in level for level in levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#"):
        return f"{topic_filter[:80]!r}: '#' is the last level and alone in it [MQTT5-4.7.1-1]"
    if any("+" in level and level != "+" for level in levels):
        return f"{topic_filter[:80]!r}: '+' fills a whole level [MQTT5-4.7.1-2]"
    return None
