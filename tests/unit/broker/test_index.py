"""The subscription index against the plain definition of matching, while subscriptions come and go."""

from random import Random
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tests.bare_core import bare_core
from tests.strategies import plain_filters
from tidegate.broker.index import MAX_ROUTES, Route, Subscription, SubscriptionIndex
from tidegate.broker.session import Session
from tidegate.broker.shared import SharedGroup
from tidegate.flow import RoundRobin
from tidegate.mqtt.topics import matches

TOPICS = [
    "a", "b", "a/b", "a/", "/", "/a", "a/b/ab", "ab", "a//b", "é", "$SYS", "$SYS/a", "$SYS/a/b", "$/a", " /a", "b/$SYS",
]  # fmt: skip


def recipient(name: str, version: int = 5, is_plain: bool = True) -> Session:
    """A session as the index sees it: it never asks for the rest of the node."""
    session = Session(bare_core(), name)
    session.version = version
    session.is_plain = is_plain
    return session


def make_index() -> SubscriptionIndex:
    return SubscriptionIndex(
        lambda name, topic_filter: SharedGroup(name, topic_filter, RoundRobin(), Random(1))
    )


Key = tuple[int, str, str]
Model = dict[Key, Subscription]

filters = plain_filters() | st.sampled_from(TOPICS)
changes = st.tuples(
    st.integers(0, 3),  # session
    st.sampled_from(["", "", "g1", "g2"]),  # share
    filters,
    st.integers(0, 2),  # QoS
    st.integers(0, 3),  # subscription identifier
    st.booleans(),  # remove, if it is there
)


def apply(index: SubscriptionIndex, model: Model, people: list[Session], change: tuple[Any, ...]) -> None:
    who, share, topic_filter, qos, identifier, is_removal = change
    key = (who, share, topic_filter)
    if is_removal:
        if key in model:
            index.remove(model.pop(key))
        return
    subscription = Subscription(people[who], topic_filter.encode(), qos, identifier=identifier, share=share)
    assert index.add(subscription) == (key not in model)
    model[key] = subscription


def expected(
    model: Model, topic: str, allowed: set[int]
) -> tuple[dict[int, tuple[int, list[int]]], set[tuple[str, str]]]:
    """Highest QoS and all identifiers by session, and the groups: the slow and obvious way."""
    targets: dict[int, tuple[int, list[int]]] = {}
    groups: set[tuple[str, str]] = set()
    for (who, share, topic_filter), subscription in model.items():
        if who not in allowed or not matches(topic_filter, topic):
            continue
        if share:
            groups.add((share, topic_filter))
            continue
        qos, identifiers = targets.get(who, (0, []))
        more = [subscription.identifier] if subscription.identifier else []
        targets[who] = max(qos, subscription.qos), sorted(identifiers + more)
    return targets, groups


def check(index: SubscriptionIndex, model: Model, people: list[Session], allowed: set[int]) -> None:
    for topic in TOPICS:
        route = index.route(topic.encode())
        sessions = [target.session for target in route.targets]
        assert len(sessions) == len(set(map(id, sessions))), "a session gets one copy"
        found = {
            people.index(target.session): (target.qos, sorted(target.identifiers)) for target in route.targets
        }
        groups = {(group.name, group.topic_filter.decode()) for group in route.shared}
        assert (found, groups) == expected(model, topic, allowed)
        assert len(route.shared) == len(groups)
        check_shortcuts(route)
    assert index.count == len(model)
    assert index.shared_count == sum(1 for _, share, _ in model if share)


def check_shortcuts(route: Route) -> None:
    """The ready lists say nothing that the targets do not say."""
    for version, fast, exact in ((4, route.fast4, route.exact4), (5, route.fast5, route.exact5)):
        takes_all = not route.shared and all(
            t.is_plain and t.session.version == version for t in route.targets
        )
        assert fast == (tuple(t.session for t in route.targets) if takes_all else None)
        for qos in (1, 2):
            granted = takes_all and bool(route.targets) and all(t.qos >= qos for t in route.targets)
            assert bool(exact[qos]) == granted
    assert len(route.plain4) + len(route.plain5) + len(route.special) == len(route.targets)


@given(st.lists(changes, max_size=25))
def test_routes_agree_with_the_plain_matcher_after_every_change(history: list[tuple[Any, ...]]) -> None:
    index, model = make_index(), cast(Model, {})
    people = [
        recipient("one", 4),
        recipient("two", 5),
        recipient("three", 5, is_plain=False),
        recipient("four", 4),
    ]
    for change in history:
        apply(index, model, people, change)
        check(index, model, people, {0, 1, 2, 3})


@given(st.lists(changes, max_size=25), st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=4))
def test_routes_leave_out_who_may_not_receive_and_follow_a_change_of_rights(
    history: list[tuple[Any, ...]], rights: list[set[int]]
) -> None:
    index, model = make_index(), cast(Model, {})
    people = [recipient(str(i), 4 + i % 2) for i in range(4)]
    allowed = rights[0]
    index.may_receive = lambda session, topic: people.index(session) in allowed
    for i, change in enumerate(history):
        apply(index, model, people, change)
        allowed = rights[i % len(rights)]
        index.forget_routes()
        check(index, model, people, allowed)


@given(st.lists(changes, max_size=25))
def test_an_index_whose_subscriptions_are_all_removed_keeps_nothing(history: list[tuple[Any, ...]]) -> None:
    index, model = make_index(), cast(Model, {})
    people = [recipient(str(i)) for i in range(4)]
    for change in history:
        apply(index, model, people, change)
    for subscription in model.values():
        index.remove(subscription)
    assert (index.count, index.shared_count, index.groups) == (0, 0, {})
    assert not index._exact and not index._tree.count
    check(index, {}, people, {0, 1, 2, 3})


@given(st.lists(changes, min_size=1, max_size=10), st.data())
def test_a_change_of_version_reaches_the_routes_once_the_filters_are_invalidated(
    history: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    index, model = make_index(), cast(Model, {})
    people = [recipient(str(i), 4) for i in range(4)]
    for change in history:
        apply(index, model, people, change)
    check(index, model, people, {0, 1, 2, 3})
    changed = data.draw(st.integers(0, 3))
    people[changed].version = 5
    for who, _, topic_filter in model:
        if who == changed:
            index.invalidate(topic_filter.encode())
    check(index, model, people, {0, 1, 2, 3})


def test_a_change_to_an_exact_filter_leaves_the_other_routes_alone() -> None:
    index = make_index()
    session = recipient("one")
    index.add(Subscription(session, b"a", 0))
    index.add(Subscription(session, b"b", 0))
    kept = index.route(b"a")
    index.add(Subscription(session, b"b", 1))
    assert index.route(b"a") is kept
    index.add(Subscription(session, b"+", 1))
    assert index.route(b"a") is not kept


def test_the_number_of_cached_routes_is_bounded() -> None:
    index = make_index()
    for number in range(MAX_ROUTES + 10):
        index.route(b"t/%d" % number)
    assert len(index.routes) <= MAX_ROUTES


def test_routes_to_sys_topics_are_never_cached_because_a_cached_route_may_be_published_to() -> None:
    index = make_index()
    index.route(b"$SYS/broker/version")
    assert index.routes == {}


def test_the_bytes_of_cached_routes_are_bounded() -> None:
    index = make_index()
    for number in range(2_000):
        index.route(b"%d/" % number + b"x" * 60_000)
    assert sum(map(len, index.routes)) < 67_108_864


def test_what_is_removed_twice_takes_nothing_from_others() -> None:
    for name in (b"a/b", b"a/+"):
        index = make_index()
        told: list[bool] = []
        one, two = (Subscription(recipient(each), name, 1) for each in "12")
        index.add(one)
        index.add(two)
        index.on_change = lambda _, is_added: told.append(is_added)  # noqa: B023
        index.remove(one)
        index.remove(one)
        assert [target.session for target in index.route(b"a/b").targets] == [two.session]
        index.remove(two)
        index.remove(two)
        assert (index.count, told) == (0, [False, False])


def deep(number: int) -> bytes:
    """Filters that all match one topic, so many that a search for it takes several parts."""
    return b"/".join(b"+" if number >> bit & 1 else b"l" for bit in range(12))


DEEP = b"/".join([b"l"] * 12)


def test_a_search_in_parts_leaves_out_what_went_and_is_not_kept_when_something_came() -> None:
    index = make_index()
    here, gone, new = (recipient(name) for name in ("here", "gone", "new"))
    for session, numbers in ((here, range(0, 4_000, 2)), (gone, range(1, 4_000, 2))):
        for number in numbers:
            subscription = Subscription(session, deep(number), 1)
            session.subscriptions[subscription.topic_filter] = subscription
            index.add(subscription)
    search = index.search(DEEP)
    assert search.route is None
    for subscription in gone.subscriptions.values():
        index.remove(subscription)
    gone.subscriptions.clear()
    index.add(Subscription(new, DEEP, 1))
    assert sum(search.rest()) > 0
    assert [target.session for target in search.finish().targets] == [here]
    assert not search.is_current
    assert {target.session for target in index.route(DEEP).targets} == {here, new}


def test_a_search_in_parts_that_nothing_disturbed_is_kept() -> None:
    index = make_index()
    for number in range(4_000):
        index.add(Subscription(recipient(str(number)), deep(number), 1))
    search = index.search(DEEP)
    assert search.route is None
    steps = list(search.rest())
    assert len(steps) > 5
    assert index.routes[DEEP] is search.route
    assert len(search.finish().targets) == 4_000
