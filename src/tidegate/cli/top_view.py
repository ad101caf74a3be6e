"""How `tidegate top` looks: a line about the node, then publishers and queues, groups or accounts, as rich draws them.

Pure: from a `Feed` to something a console prints. Client identifiers and user names are chosen by strangers,
so none of them is read as markup, and none reaches the terminal with a control character in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.console import feed as topics
from tidegate.console.feed import Feed, GroupMember, Publisher, Queue, SharedGroup, Sort, View

# Documents come every second; this much without one is worth a word.
STALE_AFTER: Final = 5.0
# Lines that are no rows: the node's two, titles and heads of two tables, the last line, and space between.
FRAME_LINES: Final = 11
LIST_FRAME_LINES: Final = 7

_LOAD_STYLES: Final = {"LOW": "bold green", "HIGH": "bold yellow", "OVERLOAD": "bold white on red"}
_STATE_STYLES: Final = {"held": "bold red", "suspicious": "yellow", "training": "cyan"}


_SORT_KEYS: Final[dict[Sort, Callable[[Publisher], Any]]] = {
    Sort.RATE: lambda row: -row.rate,
    Sort.HOLD: lambda row: -row.hold,
    Sort.RANK: lambda row: row.rank,
    Sort.QUEUE: lambda row: -row.held_bytes,
}


def screen(feed: Feed, *, sort: Sort | None, publishers: int, queues: int, note: Text | None = None) -> Group:
    """Everything, with at most so many rows a table; `note` goes under the line about the node."""
    parts: list[RenderableType] = [headline(feed)]
    if note is not None:
        parts.append(note)
    parts += [Text(), publisher_table(feed, sort, publishers), Text(), queue_table(feed, queues)]
    return Group(*parts)


def list_screen(feed: Feed, view: View, *, rows: int, note: Text | None = None) -> Group:
    """The node and one table of at most so many rows: groups and members together, or accounts."""
    parts: list[RenderableType] = [headline(feed)]
    if note is not None:
        parts.append(note)
    table = group_table(feed, rows) if view is View.GROUPS else account_table(feed, rows)
    return Group(*parts, Text(), table)


def share_rows(height: int, feed: Feed) -> tuple[int, int]:
    """Rows for publishers and for queues in a terminal of so many lines: a third is kept for queues if needed."""
    free = max(2, height - FRAME_LINES)
    queues = min(len(feed.queues), max(free // 3, free - len(feed.publishers)))
    return free - queues, queues


def status_note(feed: Feed, now: float, view: View = View.TRAFFIC, *, is_connected: bool) -> Text | None:
    """What is wrong with what is shown, if anything."""
    if not is_connected:
        return Text("not connected, trying again", style="bold red")
    age = feed.age(now)
    if age is None:
        return Text("waiting for the first report", style="yellow")
    if age > STALE_AFTER:
        return Text(f"the last report is {age:.0f} s old", style="yellow")
    if view is not View.TRAFFIC:
        topic = topics.GROUPS if view is View.GROUPS else topics.ACCOUNTS
        if topic not in feed.documents:
            return Text(f"no report on {view}: the node is older than this command", style="yellow")
    elif topics.PUBLISHERS not in feed.documents:
        return Text("no report on publishers: is back-off switched off?", style="yellow")
    return None


def headline(feed: Feed) -> Text:
    """Name, load state and the numbers that matter most; what the node did not tell is a dash."""
    load = feed.load
    state = printable(str(load.get("state", "?")))
    memory = feed.number(topics.MEMORY)
    fields = [
        ("wait", _amount(load.get("wait_ms"), "{:,.1f} ms")),
        ("lag", _amount(load.get("lag_ms"), "{:,.1f} ms")),
        ("connections", _amount(feed.number(topics.CONNECTED), "{:,.0f}")),
        ("in", _amount(feed.rate(topics.RECEIVED), "{:,.1f}/s")),
        ("out", _amount(feed.rate(topics.SENT), "{:,.1f}/s")),
        ("memory", f"{_bytes(memory)} ({_amount(load.get('memory_share'), '{:.0%}')})"),
        ("queues", _amount(load.get("queue_share"), "{:.0%}")),
        ("dropped", _amount(feed.number(topics.DROPPED), "{:,.0f}")),
        ("drops", _amount(feed.rate(topics.DROPPED), "{:,.1f}/s")),
        ("held", _amount(load.get("held"), "{:,.0f}")),
        ("waiting", _amount(load.get("waiting"), "{:,.0f}")),
    ]
    line = Text(printable(feed.values.get(topics.NODE, "?")), style="bold")
    line.append("  ").append(f" {state} ", style=_LOAD_STYLES.get(state, "bold"))
    for name, value in fields:
        # Unbreakable inside, so that a narrow terminal never parts a number from its name.
        line.append("  ", style="not bold").append(f"{name}\N{NO-BREAK SPACE}", style="not bold dim")
        line.append(value.replace(" ", "\N{NO-BREAK SPACE}"), style="not bold")
    return line


def publisher_table(feed: Feed, sort: Sort | None, limit: int) -> Table:
    """Without `sort` in the node's own order: held ones first, then suspicious ones, then the fastest."""
    rows = feed.publishers
    if sort is not None:
        rows.sort(key=_SORT_KEYS[sort])
    shown = rows[:limit]
    table = _table("publishers", len(shown), feed.total(topics.PUBLISHERS))
    for name in ("client", "user", "address"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=2 if name == "client" else 1)
    for name in ("rate/s", "trained/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("hold", justify="right", no_wrap=True)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("class", no_wrap=True, overflow="ellipsis")
    for row in shown:
        table.add_row(
            _cell(row.client),
            _cell(row.user or "-"),
            _cell(row.address or "-"),
            _rate(row.rate),
            _rate(row.trained_rate) if row.trained_rate else "-",
            Text(printable(row.state), style=_STATE_STYLES.get(row.state, "")),
            f"{row.hold:.2f} s" if row.hold else "-",
            str(row.rank) if row.rank else "-",
            _cell(row.class_name or "-"),
        )
    return table


def _rate(value: float) -> str:
    return f"{value:,.1f}" if value < 1000.0 else f"{value:,.0f}"


def queue_table(feed: Feed, limit: int) -> Table:
    """Sessions that have something waiting, the largest first, as the node sends them."""
    shown = feed.queues[:limit]
    table = _table("queues", len(shown), feed.total(topics.QUEUES))
    table.add_column("client", no_wrap=True, overflow="ellipsis", ratio=2)
    table.add_column("connected", no_wrap=True)
    for name in ("messages", "size", "in flight", "dropped"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in shown:
        table.add_row(
            _cell(row.client),
            _connected(row),
            f"{row.messages:,}",
            _bytes(row.size_bytes),
            f"{row.inflight:,}",
            Text(f"{row.dropped:,}", style="red" if row.dropped else ""),
        )
    return table


def account_table(feed: Feed, limit: int) -> Table:
    """What each user's clients make the node do and keep, those that cause most work first."""
    shown = feed.accounts[:limit]
    table = _table("accounts", len(shown), feed.total(topics.ACCOUNTS))
    table.add_column("user", no_wrap=True, overflow="ellipsis", ratio=1)
    for name in ("work", "keeps", "retained", "sessions", "connected"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("busiest client", no_wrap=True, overflow="ellipsis", ratio=2)
    for row in shown:
        busiest = f"{printable(row.busiest)} ({row.busiest_work:.1%})" if row.busiest else "-"
        table.add_row(
            _cell(row.user) if row.user else Text("without user name", style="dim"),
            f"{row.work:.1%}",
            _bytes(row.kept_bytes),
            f"{row.retained:,}",
            f"{row.sessions:,}",
            f"{row.connected:,}",
            Text(busiest),
        )
    return table


def group_table(feed: Feed, limit: int) -> Table:
    """Each group in a row, its members below it; the last group shown may have lost some to the limit."""
    groups = feed.groups
    rows: list[tuple[SharedGroup, GroupMember | None]] = []
    for group in groups:
        rows += [(group, None), *((group, member) for member in group.members)]
    shown = rows[:limit]
    table = _table("groups", sum(member is None for _, member in shown), feed.total(topics.GROUPS))
    table.add_column("group and its members", no_wrap=True, overflow="ellipsis", ratio=4)
    table.add_column("online", no_wrap=True)
    for name in ("queue", "per msg", "wait", "share", "moved"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("policy, reports", no_wrap=True, overflow="ellipsis", ratio=1)
    for group, member in shown:
        table.add_row(*(_group_cells(group) if member is None else _member_cells(member)))
    return table


def _group_cells(group: SharedGroup) -> tuple[RenderableType, ...]:
    name = Text(printable(f"$share/{group.group}/{group.filter}"), style="bold")
    left_out = group.total - len(group.members)
    if left_out > 0:
        name.append(f"  and {left_out:,} more members", style="not bold dim")
    connected = Text(f"{group.connected:,} of {group.total:,}")
    moved = f"{group.moved:,}" if group.moved else "-"
    return (name, connected, f"{group.outstanding:,}", "", "", "", moved, _cell(group.policy))


def _member_cells(member: GroupMember) -> tuple[RenderableType, ...]:
    if not member.is_connected:
        state = Text("no", style="dim")
    else:
        state = Text("stalled", style="bold red") if member.is_stalled else Text("yes")
    return (
        Text(f"  {printable(member.client)}"),
        state,
        f"{member.outstanding:,}",
        f"{member.service_ms:,.1f} ms" if member.service_ms else "-",
        f"{member.wait_ms:,.1f} ms" if member.wait_ms else "-",
        f"{member.share:.0%}",
        "",
        "reports" if member.reports else "-",
    )


def printable(text: str) -> str:
    """The text with whatever could steer a terminal written out as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _table(name: str, shown: int, total: int) -> Table:
    count = f"{total:,}" if shown >= total else f"{shown:,} of {total:,}"
    return Table(
        title=Text(f"{name}: {count}", style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        expand=True,
    )


def _cell(text: str) -> Text:
    return Text(printable(text))


def _connected(row: Queue) -> Text:
    if not row.is_connected:
        return Text("no", style="dim")
    return Text("blocked", style="bold red") if row.is_blocked else Text("yes")


def _amount(value: object, form: str) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return form.format(value) if is_number else "-"


def _bytes(value: float | None) -> str:
    if value is None:
        return "-"
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
