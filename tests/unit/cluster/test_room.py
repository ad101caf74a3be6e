"""Whether one more subscriber's budget can be kept."""

from tidegate.cluster.admission import closed_from
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


def test_a_cluster_is_closed_from_the_shortest_budget_that_no_edge_can_keep() -> None:
    full = _edge(("a", 0.5e6, 1.0, 0.0), ("b", 0.7e6, 10.0, 0.0), ("c", 0.1e6, 60.0, 0.0))
    assert closed_from([full]) == 10.0
    assert closed_from([full, _edge(("c", 2e6, 60.0, 0.0))]) == 60.0
    assert closed_from([full, _edge(uplink=1e12)]) == float("inf")
    assert closed_from([]) == float("inf")
