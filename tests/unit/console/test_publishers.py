"""The table of publishers: pages in, windows out."""

from typing import Any

import pytest

from tidegate.console.feed import Publisher
from tidegate.console.publishers import MAX_WINDOW, PublisherTable, Query


def row(client: str, rate: float = 1.0, state: str = "normal", **more: Any) -> dict[str, Any]:
    return {"client": client, "user": "u", "address": "10.1.2.3:9", "rate": rate, "state": state} | more


def page(number: int, at: int, pages: int, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"round": number, "page": at, "pages": pages, "rows": list(rows)}


def names(table: PublisherTable, **query: Any) -> list[str]:
    return [each.client for each in table.window(Query(**query))[0]]


def test_a_whole_round_tells_who_is_gone() -> None:
    table = PublisherTable()
    table.take_page(page(1, 0, 2, row("a"), row("b")))
    assert not table.is_complete
    table.take_page(page(1, 1, 2, row("c")))
    assert table.is_complete
    assert names(table, sort="client") == ["a", "b", "c"]
    table.take_page(page(2, 0, 1, row("b")))
    assert names(table) == ["b"]


def test_a_round_with_a_gap_teaches_no_absence() -> None:
    table = PublisherTable()
    table.take_page(page(1, 0, 1, row("a"), row("b")))
    table.take_page(page(2, 0, 3, row("a")))
    table.take_page(page(2, 2, 3, row("c")))
    assert names(table, sort="client") == ["a", "b", "c"]


def test_the_rows_that_matter_are_all_if_there_are_no_others() -> None:
    table = PublisherTable()
    table.take_top([Publisher.read(row("a")), Publisher.read(row("b"))], 2)
    table.take_top([Publisher.read(row("b"))], 1)
    assert table.is_complete
    assert names(table) == ["b"]
    table.take_top([Publisher.read(row("c"))], 900)
    assert names(table, sort="client") == ["b", "c"]


def test_trouble_is_on_top_and_ties_are_in_order_of_names() -> None:
    table = PublisherTable()
    rows = [row("z", 5), row("a", 5), row("slow", 1), row("odd", 2, "suspicious"), row("bad", 0.1, "held")]
    table.take_page(page(1, 0, 1, *rows))
    assert names(table) == ["bad", "odd", "a", "z", "slow"]
    assert names(table, sort="rate", is_descending=True) == ["a", "z", "odd", "slow", "bad"]
    assert table.counts() == {"held": 1, "suspicious": 1, "training": 0, "normal": 3}


@pytest.mark.parametrize(
    "query, expected",
    [
        ({"search": "METER"}, ["meter-1", "meter-2"]),
        ({"search": "10.9"}, ["pump"]),
        ({"search": "anna"}, ["pump"]),
        ({"state": "held"}, ["meter-2"]),
        ({"search": "meter", "state": "normal"}, ["meter-1"]),
        ({"start": 1, "count": 1}, ["meter-2"]),
        ({"start": 900, "count": 5}, ["pump"]),
        ({"sort": "nonsense", "state": "normal"}, ["meter-1", "pump"]),
    ],
)
def test_windows_of_what_matches(query: dict[str, Any], expected: list[str]) -> None:
    table = PublisherTable()
    rows = [row("meter-1"), row("meter-2", state="held"), row("pump", user="anna", address="10.9.9.9:1")]
    table.take_page(page(1, 0, 1, *rows))
    assert names(table, **({"sort": "client"} | query)) == expected


def test_a_window_is_bounded_and_what_is_no_page_is_left_out() -> None:
    table = PublisherTable()
    table.take_page({"round": 1})
    table.take_page({"round": 1, "page": 0, "pages": 1, "rows": "many"})
    table.take_page(page(1, 0, 1, *(row(f"c{number}") for number in range(MAX_WINDOW + 10))))
    rows, start, matching = table.window(Query(count=10_000))
    assert (len(rows), start, matching) == (MAX_WINDOW, 0, MAX_WINDOW + 10)
    assert table.window(Query(start=9_999))[1] == MAX_WINDOW + 9
