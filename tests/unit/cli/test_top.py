"""`tidegate top` without a network: what it makes of the node's reports, and how that looks."""

import io
import json
from typing import Any

import pytest
from rich.console import Console, RenderableType

from tidegate.cli.top_view import (
    LIST_FRAME_LINES,
    group_table,
    headline,
    list_screen,
    publisher_table,
    queue_table,
    screen,
    share_rows,
    status_note,
)
from tidegate.console import feed as topics
from tidegate.console.feed import Feed, Sort, View

LOAD = {
    "state": "HIGH",
    "lag_ms": 12.34,
    "wait_ms": 4.0,
    "memory_share": 0.5,
    "queue_share": 0.25,
    "waiting": 3,
    "held": 1,
}


def publisher(client: str, **changes: Any) -> dict[str, Any]:
    row = {
        "client": client,
        "user": None,
        "address": "10.0.0.7",
        "rate": 1.0,
        "trained_rate": 1.0,
        "dispersion": 0.1,
        "state": "normal",
        "hold": 0.0,
        "rank": 1,
        "class": None,
        "held_bytes": 0,
        "messages": 123,
    }
    return row | changes


def queue(client: str, **changes: Any) -> dict[str, Any]:
    row = {
        "client": client,
        "connected": True,
        "queued_messages": 2,
        "queued_bytes": 300,
        "inflight": 1,
        "dropped": 0,
        "is_blocked": False,
    }
    return row | changes


def member(client: str, **changes: Any) -> dict[str, Any]:
    row = {
        "client": client,
        "connected": True,
        "is_stalled": False,
        "outstanding": 3,
        "service_ms": 24.71,
        "wait_ms": 74.1,
        "share": 0.25,
        "reports": False,
    }
    return row | changes


def group(name: str, *members: dict[str, Any], **changes: Any) -> dict[str, Any]:
    row = {
        "group": name,
        "filter": "jobs/+",
        "policy": "earliest_finish",
        "total": len(members),
        "connected": sum(each["connected"] for each in members),
        "outstanding": sum(each["outstanding"] for each in members),
        "moved": 0,
        "members": members,
    }
    return row | changes


def feed_of(*, publishers: Any = (), queues: Any = (), groups: Any = (), total: int | None = None) -> Feed:
    feed = Feed()
    feed.take(topics.NODE, b"harbour", 100.0)
    feed.take(topics.LOAD, json.dumps(LOAD).encode(), 100.0)
    tables = ((topics.PUBLISHERS, publishers), (topics.QUEUES, queues), (topics.GROUPS, groups))
    for topic, rows in tables:
        document = {"at": 1.0, "total": len(rows) if total is None else total, "rows": list(rows)}
        feed.take(topic, json.dumps(document).encode(), 100.0)
    return feed


def drawn(picture: RenderableType, width: int = 140) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(picture)
    return out.getvalue().replace("\N{NO-BREAK SPACE}", " ")


def line_of(text: str, word: str) -> str:
    (line,) = [line for line in text.splitlines() if word in line]
    return line


def clients_in_order(feed: Feed, sort: Sort | None) -> list[str]:
    return [str(cell) for cell in publisher_table(feed, sort, 10).columns[0].cells]


def test_the_first_line_names_the_node_its_load_and_its_numbers() -> None:
    feed = feed_of()
    feed.take(topics.CONNECTED, b"1200", 100.0)
    feed.take(topics.MEMORY, b"52400000", 100.0)
    line = drawn(headline(feed), 200)
    for part in ("harbour", "HIGH", "lag 12.3 ms", "connections 1,200", "memory 52.4 MB (50%)", "queues 25%"):
        assert part in line


def test_what_the_node_did_not_tell_is_a_dash() -> None:
    line = drawn(headline(Feed()))
    assert "lag -" in line
    assert "in -" in line


def test_a_publisher_is_one_line_with_everything_about_it() -> None:
    held = publisher(
        "meter-7",
        user="ada",
        rate=250.5,
        trained_rate=2.0,
        state="held",
        hold=1.5,
        rank=9,
        **{"class": "bulk"},
    )
    line = line_of(drawn(publisher_table(feed_of(publishers=[held]), None, 10)), "meter-7")
    assert line.split() == ["meter-7", "ada", "10.0.0.7", "250.5", "2.0", "held", "1.50", "s", "9", "bulk"]


def test_a_queue_is_one_line_and_says_if_its_reader_is_blocked_or_away() -> None:
    rows = [
        queue("slow", is_blocked=True, queued_messages=12_000, queued_bytes=4_500_000, dropped=7),
        queue("away", connected=False),
    ]
    text = drawn(queue_table(feed_of(queues=rows), 10))
    assert line_of(text, "slow").split() == ["slow", "blocked", "12,000", "4.5", "MB", "1", "7"]
    assert line_of(text, "away").split()[:2] == ["away", "no"]


def test_a_group_is_one_line_and_its_members_are_below_it() -> None:
    crew = group(
        "crew",
        member("anna", reports=True),
        member("bert", is_stalled=True, service_ms=0.0, wait_ms=0.0, share=0.7512),
        member("carl", connected=False, outstanding=1200),
        moved=12,
    )
    text = drawn(group_table(feed_of(groups=[crew, group("night")]), 10))
    lines = [line.split() for line in text.splitlines() if line.strip()]
    assert lines[0] == ["groups:", "2"]
    assert lines[3:] == [
        ["$share/crew/jobs/+", "2", "of", "3", "1,206", "12", "earliest_finish"],
        ["anna", "yes", "3", "24.7", "ms", "74.1", "ms", "25%", "reports"],
        ["bert", "stalled", "3", "-", "-", "75%", "-"],
        ["carl", "no", "1,200", "24.7", "ms", "74.1", "ms", "25%", "-"],
        ["$share/night/jobs/+", "0", "of", "0", "0", "-", "earliest_finish"],
    ]
    assert line_of(text, "anna").startswith("  anna")


def test_a_group_says_how_many_members_it_leaves_out() -> None:
    crew = group("crew", member("anna"), total=1000)
    assert "and 999 more members" in drawn(group_table(feed_of(groups=[crew]), 10))
    text = drawn(group_table(feed_of(groups=[crew, group("night")]), 2))
    assert "groups: 1 of 2" in text
    assert "night" not in text


@pytest.mark.parametrize("height", [24, 40])
def test_the_picture_of_groups_fits_the_height(height: int) -> None:
    crews = [group(f"crew-{n}", *(member(f"m{i}") for i in range(5))) for n in range(20)]
    note = status_note(feed_of(), 100.0, View.GROUPS, is_connected=False)
    picture = list_screen(feed_of(groups=crews), View.GROUPS, rows=height - LIST_FRAME_LINES, note=note)
    assert height - 3 <= len(drawn(picture, 200).splitlines()) <= height
    assert max(map(len, drawn(picture, 40).splitlines())) <= 40


def test_publishers_come_as_the_node_sends_them_unless_told_otherwise() -> None:
    rows = [
        publisher("held", rate=1.0, hold=2.0, rank=3),
        publisher("fast", rate=50.0, hold=0.0, rank=2, held_bytes=5),
        publisher("rare", rate=0.1, hold=3.0, rank=1),
    ]
    feed = feed_of(publishers=rows)
    assert clients_in_order(feed, None) == ["held", "fast", "rare"]
    assert clients_in_order(feed, Sort.RATE) == ["fast", "held", "rare"]
    assert clients_in_order(feed, Sort.HOLD) == ["rare", "held", "fast"]
    assert clients_in_order(feed, Sort.RANK) == ["rare", "fast", "held"]
    assert clients_in_order(feed, Sort.QUEUE)[0] == "fast"


def test_accounts_are_shown_with_what_they_cost() -> None:
    feed = feed_of()
    rows = [
        {
            "user": "plant", "sessions": 1_200, "connected": 900, "kept_bytes": 3_000_000, "retained": 17,
            "work": 120_000, "busiest": "pump\x1b", "busiest_work": 30_000,
        },
        {"user": None, "sessions": 1, "connected": 0, "kept_bytes": 1_500, "retained": 0, "work": 0, "busiest": ""},
    ]  # fmt: skip
    feed.take(topics.ACCOUNTS, json.dumps({"total": 5, "rows": rows}).encode(), 100.0)
    text = drawn(list_screen(feed, View.ACCOUNTS, rows=10), 200)
    assert "accounts: 2 of 5" in text
    cells = line_of(text, "plant").split()
    assert cells == ["plant", "12.0%", "3.0", "MB", "17", "1,200", "900", r"pump\x1b", "(3.0%)"]
    assert "without user name" in text and "\x1b" not in text
    note = status_note(feed_of(), 100.5, View.ACCOUNTS, is_connected=True)
    assert note is not None and "older than this command" in str(note)


def test_a_table_says_how_many_rows_it_leaves_out() -> None:
    rows = [publisher(f"client-{number}") for number in range(5)]
    text = drawn(publisher_table(feed_of(publishers=rows, total=240), None, 3))
    assert "publishers: 3 of 240" in text
    assert "client-3" not in text


def test_names_that_strangers_chose_can_neither_style_nor_steer_the_terminal() -> None:
    rows = [publisher("\x1b[2Jx\r\n[bold red]y[/]", user="\x9b31m\u202e")]
    feed = feed_of(publishers=rows, groups=[group("\x1b[2J", member("\r\n[red]z"), policy="\x9b")])
    text = drawn(screen(feed, sort=None, publishers=5, queues=5), 200)
    text += drawn(list_screen(feed, View.GROUPS, rows=5), 200)
    assert r"\x1b[2Jx\r\n[bold red]y[/]" in text
    assert r"\r\n[red]z" in text
    assert not set(text) & set("\x1b\r\x9b\u202e")


@pytest.mark.parametrize("width", [20, 60, 400])
def test_no_width_breaks_the_picture(width: int) -> None:
    feed = feed_of(publishers=[publisher("m" * 300, user="u" * 300)], queues=[queue("q" * 300)])
    lines = drawn(screen(feed, sort=None, publishers=5, queues=5), width).splitlines()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("height", [1, 10, 24, 100])
@pytest.mark.parametrize("publishers, queues", [(0, 0), (100, 0), (0, 100), (100, 100), (3, 2)])
def test_a_picture_fits_the_height_and_wastes_none_of_it(height: int, publishers: int, queues: int) -> None:
    feed = feed_of(
        publishers=[publisher(f"p{n}") for n in range(publishers)],
        queues=[queue(f"q{n}") for n in range(queues)],
    )
    rows = share_rows(height, feed)
    note = status_note(feed, 100.0, is_connected=False)
    text = drawn(screen(feed, sort=None, publishers=rows[0], queues=rows[1], note=note), 200)
    if height >= 24:
        assert len(text.splitlines()) <= height
        shown = min(rows[0], publishers) + min(rows[1], queues)
        assert shown == min(publishers + queues, sum(rows))


def test_rates_are_the_growth_of_counters_between_two_publications() -> None:
    feed = Feed()
    feed.take(topics.AVERAGES[topics.RECEIVED], b"120.00", 0.0, is_retained=True)
    feed.take(topics.UPTIME, b"40 seconds", 0.0, is_retained=True)
    feed.take(topics.RECEIVED, b"1000", 0.0, is_retained=True)
    assert feed.rate(topics.RECEIVED) == 2.0  # a counter that was seen once has only the node's average
    feed.take(topics.UPTIME, b"50 seconds", 3.0)
    feed.take(topics.RECEIVED, b"1500", 3.0)
    assert feed.rate(topics.RECEIVED) == 50.0
    feed.take(topics.UPTIME, b"60 seconds", 13.0)
    assert feed.rate(topics.RECEIVED) == 0.0  # a value that did not change is not published again


def test_a_node_that_was_restarted_has_no_negative_rates() -> None:
    feed = Feed()
    for uptime, count in ((40, 1000), (50, 1500), (1, 10)):
        feed.take(topics.UPTIME, b"%d seconds" % uptime, float(uptime))
        feed.take(topics.RECEIVED, b"%d" % count, float(uptime))
    assert feed.rate(topics.RECEIVED) is None


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"3", b"\xff", b"null"])
def test_a_report_that_is_no_report_leaves_the_last_one(payload: bytes) -> None:
    feed = feed_of(publishers=[publisher("meter")])
    feed.take(topics.PUBLISHERS, payload, 200.0)
    assert [row.client for row in feed.publishers] == ["meter"]
    assert feed.arrived[topics.PUBLISHERS] == 100.0


@pytest.mark.parametrize(
    "rows", [None, 3, "x", [1, None, "x", {}], [{"rate": "fast", "rank": None, "hold": 1e400}]]
)
def test_rows_with_wrong_values_are_shown_as_far_as_they_go(rows: Any) -> None:
    feed = Feed()
    for topic in (topics.PUBLISHERS, topics.QUEUES, topics.GROUPS, topics.ACCOUNTS):
        feed.take(topic, json.dumps({"total": "many", "rows": rows}).encode(), 1.0)
    feed.take(topics.LOAD, b'{"state": 3, "lag_ms": "long", "held": null}', 1.0)
    assert "publishers" in drawn(screen(feed, sort=Sort.RATE, publishers=5, queues=5))
    assert "groups" in drawn(list_screen(feed, View.GROUPS, rows=5))
    assert "accounts" in drawn(list_screen(feed, View.ACCOUNTS, rows=5))


def test_the_note_says_what_is_wrong_with_the_picture() -> None:
    feed = feed_of()
    assert status_note(feed, 100.5, is_connected=True) is None
    assert "not connected, trying again" in str(status_note(feed, 100.5, is_connected=False))
    assert "30 s old" in str(status_note(feed, 130.0, is_connected=True))
    assert "waiting" in str(status_note(Feed(), 0.0, is_connected=True))
    del feed.documents[topics.PUBLISHERS]
    assert "back-off" in str(status_note(feed, 100.5, is_connected=True))
    assert status_note(feed, 100.5, View.GROUPS, is_connected=True) is None
    del feed.documents[topics.GROUPS]
    assert "groups" in str(status_note(feed, 100.5, View.GROUPS, is_connected=True))
