"""The table of `tidegate cluster status`."""

from tidegate.cli.cluster import status_lines


def test_what_nobody_knows_of_a_node_that_is_away_is_not_shown() -> None:
    node = {"role": "edge", "clients": 7, "subscriptions": 8, "queued_messages": 9, "load": "normal"}
    nodes = {
        "e0": node | {"name": "e0", "head": "h", "linked": True, "drain": "drained"},
        "e1": node | {"name": "e1", "linked": False},
    }
    head, first, second = status_lines(nodes)
    assert head.split()[0] == "name"
    assert first.split() == ["e0", "edge", "h", "True", "drained", "7", "8", "9", "normal"]
    assert second.split() == ["e1", "edge", "False", "–", "–", "–", "–"]
