"""Retained messages against a dictionary and the plain definition of matching."""

from hypothesis import given
from hypothesis import strategies as st

from tests.bare_core import bare_core
from tests.strategies import plain_filters
from tests.unit.broker.memory import Room, run
from tidegate.broker.connection import Connection
from tidegate.broker.hooks import Hooks
from tidegate.broker.message import Message
from tidegate.broker.retained import Retained, kept_size
from tidegate.broker.session import Session
from tidegate.broker.subscribing import _send_retained
from tidegate.mqtt.topics import matches

TOPICS = [
    "a",
    "b",
    "a/b",
    "a/",
    "/",
    "/a",
    "a/b/ab",
    "ab",
    "a//b",
    "é",
    "$SYS",
    "$SYS/a",
    "$SYS/a/b",
    "$/a",
    "b/$SYS",
]


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def make_retained(capacity: int, now: Clock) -> Retained:
    core = bare_core()
    retained = Retained(now, core.accounts, core.memory)
    retained.capacity = retained.account_capacity = capacity
    retained.most_bytes = 1_000_000
    return retained


def found(retained: Retained, topic_filter: str) -> list[str]:
    return sorted(message.topic.decode() for message in retained.match(topic_filter.encode()))


@given(
    st.lists(st.tuples(st.sampled_from(TOPICS), st.binary(max_size=2)), max_size=30),
    st.lists(plain_filters() | st.sampled_from(TOPICS), min_size=1, max_size=10),
)
def test_match_agrees_with_the_plain_matcher(kept: list[tuple[str, bytes]], filters: list[str]) -> None:
    retained = make_retained(1_000, Clock())
    model: dict[str, bytes] = {}
    for topic, payload in kept:
        assert retained.keep(Message(topic.encode(), payload, retain=True))
        if payload:
            model[topic] = payload
        else:
            model.pop(topic, None)
    assert len(retained) == len(model)
    for topic_filter in filters:
        assert found(retained, topic_filter) == sorted(t for t in model if matches(topic_filter, t))
    for topic, payload in model.items():
        message = retained.get(topic.encode())
        assert message is not None and message.payload == payload
    assert retained.size_bytes == sum(kept_size(m) for m in retained._by_topic.values())
    for topic in list(model):
        retained.remove(topic.encode())
    assert (len(retained), retained.size_bytes, retained._tree.count) == (0, 0, 0)


def test_removing_a_topic_keeps_those_below_and_above_it() -> None:
    retained = make_retained(10, Clock())
    for topic in (b"a/b/c", b"a/b", b"x/y"):
        retained.keep(Message(topic, b"1"))
    retained.remove(b"a/b/c")
    assert found(retained, "#") == ["a/b", "x/y"]
    retained.remove(b"a/b")
    retained.remove(b"never/there")
    assert found(retained, "#") == ["x/y"]


def test_a_full_store_refuses_new_topics_and_counts_them_but_replaces_old_ones() -> None:
    def message(topic: bytes, payload: bytes = b"1") -> Message:
        return Message(topic, payload, publisher="client")

    retained = make_retained(2, Clock())
    assert retained.keep(Message(b"n", b"1")), "what the node says takes nobody's room"
    assert retained.keep(message(b"a")) and retained.keep(message(b"b"))
    assert not retained.keep(message(b"c"))
    assert retained.refused == 1
    assert retained.keep(message(b"a", b"2"))
    assert found(retained, "#") == ["a", "b", "n"]
    assert retained.keep(Message(b"m", b"1"))
    retained.remove(b"b")
    assert retained.keep(message(b"c"))


def test_an_expired_message_is_gone_whichever_way_it_is_asked_for() -> None:
    clock = Clock()
    retained = make_retained(10, clock)
    for topic in (b"a/1", b"a/2", b"a/3"):
        retained.keep(Message(topic, b"x", expires=105.0))
    retained.keep(Message(b"a/4", b"x"))
    clock.time = 105.0
    assert retained.get(b"a/1") is None
    assert found(retained, "a/2") == []
    assert found(retained, "a/#") == ["a/4"]
    assert len(retained) == 1


@given(st.data())
def test_a_walk_during_changes_shows_each_topic_at_most_once_and_misses_none_that_stayed(
    data: st.DataObject,
) -> None:
    retained = make_retained(1_000, Clock())
    for topic in TOPICS:
        retained.keep(Message(topic.encode(), b"1"))
    touched: set[str] = set()
    seen: list[str] = []
    for message in retained.match(b"#"):
        seen.append(message.topic.decode())
        topic = data.draw(st.sampled_from(TOPICS))
        touched.add(topic)
        retained.keep(Message(topic.encode(), data.draw(st.sampled_from([b"", b"2"]))))
    assert len(seen) == len(set(seen))
    assert {t for t in TOPICS if t[0] != "$"} - touched <= set(seen)


def test_a_long_answer_is_given_in_pieces_also_when_nothing_in_it_may_be_received() -> None:
    class Nothing:
        def may_publish(self, client: Connection, topic: str) -> bool:
            return True

        def may_subscribe(self, client: Connection, topic_filter: str) -> bool:
            return True

        def may_receive(self, session: Session, topic: str) -> bool:
            return False

    async def main() -> None:
        room = await Room.open(hooks=Hooks(authoriser=Nothing()))
        peer = await room.connect("c", 4)
        for number in range(2_000):
            room.core.retained.keep(Message(b"t/%d" % number, b"x", retain=True))
        peer.subscribe("#")
        await room.settle()
        subscription = room.session("c").subscriptions[b"#"]
        pauses = sum(1 for _ in _send_retained(room.connection("c"), subscription))
        await room.close()
        assert pauses >= 2

    run(main())
