"""Whether one more subscriber's budget can be kept."""

from math import inf

import pytest

from tidegate.cluster.admission import asked_bits, rates_of, room_within, rooms_of
from tidegate.flow.balance import Bundle, Edge
from tidegate.flow.balance.shedding import has_room


def _edge(*rows: tuple[str, float, float, float], uplink: float = 1e6) -> Edge:
    """Topic, bits a second, budget, bits that wait."""
    bundles = {
        topic: Bundle(
            topic=topic, subscribers=1, size_bytes=125.0, budget=budget, arriving=bits / 1e3, depth=waiting / 1e3
        )
        for topic, bits, budget, waiting in rows
    }
    return Edge(name="e", uplink=uplink, downlink=uplink, bundles=bundles)


def test_what_is_asked_for_has_to_fit_beside_what_is_as_urgent() -> None:
    edge = _edge(("a", 0.6e6, 1.0, 0.0), ("b", 0.3e6, 10.0, 0.0))
    assert has_room(edge, 0.05e6, 10.0)
    assert not has_room(edge, 0.2e6, 10.0)
    assert has_room(edge, 0.2e6, 5.0)  # b may wait
    assert not has_room(edge, 0.5e6, 5.0)


def test_more_waits_than_can_be_sent_in_time() -> None:
    edge = _edge(("a", 0.1e6, 2.0, 3e6))
    assert not has_room(edge, 0.0, 2.0)
    assert has_room(edge, 0.0, 4.0)
    assert has_room(edge, 0.0, 1.0)


def test_a_cluster_has_the_room_that_some_edge_can_promise() -> None:
    full = _edge(("a", 0.5e6, 1.0, 0.0), ("b", 0.7e6, 10.0, 0.0), ("c", 0.1e6, 60.0, 0.0))
    assert [room_within(rooms_of([full]), each) for each in (0.5, 1.0, 9.0)] == pytest.approx(
        [0.98e6, 0.48e6, 0.48e6]
    )
    assert room_within(rooms_of([full]), 10.0) < 0.0
    two = [full, _edge(("c", 2e6, 60.0, 0.0))]
    assert room_within(rooms_of(two), 59.0) == pytest.approx(0.98e6)
    assert room_within(rooms_of(two), 60.0) < 0.0
    assert room_within(rooms_of([full, _edge(uplink=1e12)]), 60.0) > 1e11
    assert room_within(rooms_of([]), 60.0) == inf


def test_a_filter_asks_for_all_its_topics() -> None:
    rates = rates_of([_edge(("a/1", 1e3, 1.0, 0.0), ("b", 8e3, 1.0, 0.0)), _edge(("a/1", 2e3, 1.0, 0.0))])
    assert asked_bits("a/#", rates) == pytest.approx(2e3)
    assert asked_bits("#", rates) == pytest.approx(10e3)
    assert asked_bits("c", rates) == 0.0
