"""The tree of levels against dictionaries and the plain definition of matching, also while it changes."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import plain_filters
from tidegate.broker.tree import LevelTree, Node
from tidegate.mqtt.topics import matches

LEVELS = ["", "a", "b", "ab", "$a"]
TOPICS = ["/".join(levels) for count in (1, 2, 3) for levels in product(LEVELS, repeat=count)][1:]
topics = st.sampled_from(TOPICS)
filters = plain_filters() | topics


def nodes(tree: LevelTree[str]) -> list[Node[str]]:
    found, stack = [], [tree.root]
    while stack:
        node = stack.pop()
        found.append(node)
        stack += node.children.values()
    return found


Changes = list[tuple[str, bool]]


def changed(changes: Changes) -> tuple[LevelTree[str], set[str]]:
    """A tree after these were put in (True) or taken out, and what it has to hold."""
    tree: LevelTree[str] = LevelTree()
    names: set[str] = set()
    for name, is_kept in changes:
        if is_kept:
            tree.put(name.encode(), name)
            names.add(name)
        else:
            tree.remove(name.encode())
            names.discard(name)
        assert tree.get(name.encode()) == (name if is_kept else None)
        check_shape(tree, names)
    return tree, names


def check_shape(tree: LevelTree[str], names: set[str]) -> None:
    below_root = nodes(tree)[1:]
    assert tree.count == len(below_root) <= max(0, 2 * len(names) - 1)
    for node in below_root:
        assert node.value is not None or len(node.children) > 1, "a node that nobody needs"
    assert sorted(node.value for node in below_root if node.value is not None) == sorted(names)


@given(st.lists(st.tuples(filters, st.booleans()), max_size=40), st.lists(topics, min_size=1, max_size=5))
def test_what_matches_a_topic_is_found_after_any_changes(changes: Changes, asked: list[str]) -> None:
    tree, names = changed(changes)
    for topic in asked:
        found = [value for value in tree.matching(topic.encode()) if value is not None]
        assert sorted(found) == sorted(name for name in names if matches(name, topic))


@given(st.lists(st.tuples(topics, st.booleans()), max_size=40), st.lists(filters, min_size=1, max_size=5))
def test_the_topics_of_a_filter_are_found_after_any_changes(changes: Changes, asked: list[str]) -> None:
    tree, names = changed(changes)
    for topic_filter in asked:
        found = [value for value in tree.below(topic_filter.encode()) if value is not None]
        assert sorted(found) == sorted(name for name in names if matches(topic_filter, name))


@given(st.sets(filters, min_size=1, max_size=30), st.lists(filters, max_size=60), topics)
def test_a_walk_that_pauses_misses_nothing_that_stayed_and_shows_nothing_twice(
    kept: set[str], others: list[str], topic: str
) -> None:
    tree: LevelTree[str] = LevelTree()
    for name in kept:
        tree.put(name.encode(), name)
    seen = []
    changes = iter(others)
    for value in tree.matching(topic.encode()):
        if value is not None:
            seen.append(value)
        for name in (next(changes, ""), next(changes, "")):
            if name and name not in kept:
                if tree.get(name.encode()) is None:
                    tree.put(name.encode(), name)
                else:
                    tree.remove(name.encode())
    assert len(seen) == len(set(seen))
    assert {name for name in kept if matches(name, topic)} <= set(seen)


def test_names_of_many_levels_cost_a_node_each() -> None:
    tree: LevelTree[str] = LevelTree()
    for number in range(1_000):
        tree.put(b"+/x/" * 57 + b"%d" % number, "x")
    assert tree.count == 1_001


def test_a_long_walk_pauses_also_when_it_finds_nothing() -> None:
    tree: LevelTree[str] = LevelTree()
    for number in range(1_000):
        tree.put(b"+/%d/x" % number, "x")
        tree.put(b"t/%d" % number, "x")
    assert sum(1 for value in tree.below(b"+/+/y") if value is None) > 10
    assert all(value is None for value in tree.below(b"+/+/y"))
