"""Points for charts, from what a node tells every second."""

from typing import Any

from tidegate.console.history import GROUP_POINTS, MAX_GROUPS, POINTS, GroupsHistory, NodeHistory


def pulse(uptime: float, received: int = 0, **more: Any) -> dict[str, Any]:
    return {"at": 1_000.0 + uptime, "uptime": uptime, "received": received, "load": {"lag_ms": 1.5}} | more


def test_rates_are_growth_over_the_nodes_own_clock() -> None:
    history = NodeHistory()
    history.take(pulse(10.0, 100), 0.4)
    assert history.latest["received"] is None  # nobody can know yet
    history.take(pulse(12.0, 700, connections=3), 0.5)
    assert history.latest["received"] == 300.0
    assert (history.latest["connections"], history.latest["lag_ms"], history.latest["latency_ms"]) == (
        3.0,
        1.5,
        0.5,
    )


def test_a_node_that_began_anew_leaves_a_gap_and_no_cliff() -> None:
    history = NodeHistory()
    history.take(pulse(100.0, 10_000), None)
    history.take(pulse(1.0, 5), None)
    assert history.latest["received"] is None
    history.take(pulse(2.0, 9), None)
    assert history.latest["received"] == 4.0


def test_nonsense_counts_as_nothing_and_the_past_is_bounded() -> None:
    history = NodeHistory()
    history.take({"uptime": "long", "received": None, "load": []}, None)
    for number in range(POINTS + 50):
        history.take(pulse(float(number + 1), number), None)
    columns = history.columns()
    assert {len(each) for each in columns.values()} == {POINTS}


def group(name: str, **sent: int) -> dict[str, Any]:
    return {
        "group": name,
        "filter": "jobs/+",
        "members": [{"client": each, "sent": count} for each, count in sent.items()],
    }


def test_shares_over_time_are_messages_a_second_by_member() -> None:
    history = GroupsHistory()
    history.take({"at": 10.0, "rows": [group("crew", anna=5)]})
    history.take({"at": 12.0, "rows": [group("crew", anna=9, bert=4)]})
    history.take({"at": 13.0, "rows": [group("crew", bert=10)]})
    found = history.columns("crew", "jobs/+")
    assert found["at"] == [10.0, 12.0, 13.0]
    assert found["members"] == {"anna": [0.0, 2.0, 0.0], "bert": [0.0, 0.0, 6.0]}
    assert history.columns("nobody", "jobs/+") == {"at": [], "members": {}}


def test_members_and_groups_that_are_gone_are_forgotten() -> None:
    history = GroupsHistory()
    history.take({"at": 0.0, "rows": [group("crew", anna=1)]})
    for number in range(GROUP_POINTS + 2):
        history.take({"at": number + 1.0, "rows": [group("crew", bert=number)]})
    assert set(history.columns("crew", "jobs/+")["members"]) == {"bert"}
    history.take({"at": 900.0, "rows": [group(f"g{number}", x=1) for number in range(MAX_GROUPS)]})
    assert history.columns("crew", "jobs/+")["at"] == []
