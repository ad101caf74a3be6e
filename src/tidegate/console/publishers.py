"""All publishers as the console knows them, to be searched, sorted and cut into windows. Pure.

Rows come from two documents: the hundred that matter, every second, and all of them page by page while somebody looks
at the table. A browser asks for the rows it shows, so that ten thousand publishers cost it what forty do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidegate.console.feed import Publisher
from tidegate.console.values import objects

MAX_ROWS: Final = 100_000
MAX_WINDOW: Final = 500
URGENCY: Final = {"held": 0, "suspicious": 1, "training": 2, "normal": 3}

SORTS: Final[dict[str, Callable[[Publisher], Any]]] = {
    "trouble": lambda row: (URGENCY.get(row.state, 9), -row.rate),
    "client": lambda row: row.client,
    "user": lambda row: row.user,
    "rate": lambda row: row.rate,
    "trained": lambda row: row.trained_rate,
    "state": lambda row: URGENCY.get(row.state, 9),
    "hold": lambda row: row.hold,
    "rank": lambda row: row.rank,
    "class": lambda row: row.pinned or row.class_name,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a browser shows: rows from `start` on, of those that match."""

    start: int = 0
    count: int = 50
    sort: str = "trouble"
    is_descending: bool = False
    search: str = ""
    state: str = ""


class PublisherTable:
    """Rows by client. `version` grows with every change, so that an order is computed once for each."""

    def __init__(self) -> None:
        self.rows: dict[str, Publisher] = {}
        self.version = 0
        self.is_complete = False  # whether a whole round of pages has been seen
        self._round = 0
        self._seen: dict[str, Publisher] = {}
        self._next_page = 0
        self._cache: dict[tuple[Any, ...], list[Publisher]] = {}

    def clear(self) -> None:
        """The node is another one, or began anew."""
        self.rows = {}
        self.is_complete = False
        self._next_page = 0
        self._seen = {}
        self._change()

    def take_top(self, rows: list[Publisher], total: int) -> None:
        """The rows that matter; if there are no others, they are all."""
        if total <= len(rows):
            self.rows = {row.client: row for row in rows}
            self.is_complete = True
        else:
            self.is_complete = self.is_complete and bool(self._round)
            for row in rows:
                if row.client in self.rows or len(self.rows) < MAX_ROWS:
                    self.rows[row.client] = row
        self._change()

    def take_page(self, document: dict[str, Any]) -> None:
        """One page of all publishers; a round that misses a page teaches no absence."""
        number, page, pages = (document.get(name) for name in ("round", "page", "pages"))
        if not (isinstance(number, int) and isinstance(page, int) and isinstance(pages, int)):
            return
        if page == 0:
            self._round, self._seen, self._next_page = number, {}, 0
        found = [Publisher.read(row) for row in objects(document.get("rows"))]
        is_next = number == self._round and page == self._next_page
        self._next_page = page + 1 if is_next else -1
        for row in found:
            if row.client in self.rows or len(self.rows) < MAX_ROWS:
                self.rows[row.client] = row
                self._seen[row.client] = row
        if is_next and page == pages - 1:
            self.rows = {client: self.rows[client] for client in self._seen if client in self.rows}
            self.is_complete = True
        self._change()

    def counts(self) -> dict[str, int]:
        counts = dict.fromkeys(URGENCY, 0)
        for row in self.rows.values():
            counts[row.state] = counts.get(row.state, 0) + 1
        return counts

    def window(self, query: Query) -> tuple[list[Publisher], int, int]:
        """The rows that a query shows, the place of the first of them, and how many match it."""
        found = self._ordered(query)
        count = max(0, min(query.count, MAX_WINDOW))
        start = max(0, min(query.start, max(0, len(found) - 1)))
        return found[start : start + count], start, len(found)

    def _ordered(self, query: Query) -> list[Publisher]:
        at = (query.sort, query.is_descending, query.search, query.state)
        found = self._cache.get(at)
        if found is None:
            needle = query.search.casefold()
            found = [
                row
                for row in self.rows.values()
                if (not query.state or row.state == query.state)
                and (not needle or needle in f"{row.client}\0{row.user}\0{row.address}".casefold())
            ]
            found.sort(key=lambda row: row.client)
            found.sort(key=SORTS.get(query.sort, SORTS["trouble"]), reverse=query.is_descending)
            if len(self._cache) >= 16:
                self._cache.clear()
            self._cache[at] = found
        return found

    def _change(self) -> None:
        self.version += 1
        self._cache.clear()
