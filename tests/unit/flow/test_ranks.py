"""Ranks by rate: the structure agrees with a sort, and the paper's order with the paper."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.flow.priority import NoPriority, PaperPriority, SortedRates

RATES = st.floats(0.0, 10.0, width=16) | st.sampled_from([0.5, 1.0, 2.0])


def test_rare_senders_are_first() -> None:
    policy = PaperPriority()
    for name, rate in {"a": 1.0, "b": 1 / 86_400, "c": 0.2}.items():
        policy.update(name, rate)
    assert {name: policy.rank(name) for name in "abc"} == {"b": 1, "c": 2, "a": 3}


def test_equal_rates_share_a_rank() -> None:
    policy = PaperPriority()
    for name, rate in {"a": 1.0, "b": 1.0, "c": 2.0}.items():
        policy.update(name, rate)
    assert [policy.rank(name) for name in "abc"] == [1, 1, 3]


def test_an_untrained_publisher_ranks_in_the_middle() -> None:
    policy = PaperPriority()
    for number in range(9):
        policy.update(number, 1.0 + number)
    assert policy.rank("new") == 5
    policy.update(4, 0.0)
    assert policy.rank(4) == policy.rank("new")


def test_the_equations_as_printed_turn_the_order_round() -> None:
    policy = PaperPriority(is_inverted=True)
    for name, rate in {"a": 1.0, "b": 1 / 86_400, "c": 0.2}.items():
        policy.update(name, rate)
    assert {name: policy.rank(name) for name in "abc"} == {"a": 1, "c": 2, "b": 3}


def test_strict_priority_orders_by_rank_alone() -> None:
    policy = PaperPriority()
    policy.update("rare", 0.1)
    policy.update("fast", 10.0)
    assert policy.key("rare", 1000.0) < policy.key("fast", 0.0)


def test_without_priority_arrival_decides() -> None:
    policy = NoPriority()
    policy.update("fast", 10.0)
    assert policy.rank("fast") == 1
    assert policy.key("fast", 1.0) < policy.key("rare", 2.0)


def test_removing_forgets_and_unknown_ones_are_ignored() -> None:
    policy = PaperPriority()
    policy.update("a", 1.0)
    policy.update("b", 2.0)
    policy.remove("a")
    policy.remove("a")
    assert policy.rank("b") == 1


def test_a_rate_that_is_not_a_rate_is_refused() -> None:
    for rate in (-1.0, float("nan")):
        with pytest.raises(ValueError):
            PaperPriority().update("a", rate)


@given(st.lists(st.tuples(st.integers(0, 30), RATES), max_size=200))
def test_ranks_agree_with_a_sort(changes: list[tuple[int, float]]) -> None:
    policy = PaperPriority()
    rates: dict[int, float] = {}
    for publisher, rate in changes:
        policy.update(publisher, rate)
        if rate > 0.0:
            rates[publisher] = rate
        else:
            rates.pop(publisher, None)
    ordered = sorted(rates.values())
    for publisher, rate in rates.items():
        assert policy.rank(publisher) == ordered.index(rate) + 1


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2500))
def test_the_sorted_collection_agrees_with_a_list_across_many_chunks(seed: int, size: int) -> None:
    random = Random(seed)
    values = [random.choice((1.0, round(random.random() * 10.0, 2))) for _ in range(size)]
    rates = SortedRates()
    for value in values:
        rates.add(value)
    kept = list(values)
    random.shuffle(kept)
    for _ in range(random.randint(0, size)):
        rates.remove(kept.pop())
    kept.sort()
    assert len(rates) == len(kept)
    assert [rates.select(at) for at in range(len(kept))] == kept
    for value in (-1.0, 0.0, 1.0, 5.5, 11.0):
        assert rates.below(value) == sum(one < value for one in kept)
        assert rates.not_above(value) == sum(one <= value for one in kept)


def test_the_sorted_collection_says_when_there_is_nothing() -> None:
    rates = SortedRates()
    rates.add(1.0)
    for value in (0.5, 2.0):
        with pytest.raises(ValueError):
            rates.remove(value)
    for position in (-1, 1):
        with pytest.raises(IndexError):
            rates.select(position)
    rates.remove(1.0)
    assert len(rates) == rates.below(5.0) == 0
