"""How fast Spark works off what the spool holds, from what its tasks say about themselves. Pure.

A micro-batch has a fixed price that says nothing about one more row, so the time of a whole batch would make a reader
with little to do look slow. What counts is the time in which tasks took their rows: tasks that run side by side share
it, hence the union of their intervals.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.spark.segments import Done


class Pace:
    """`seconds` a row took in the latest tasks, 0 before the first; `end`: rows below it were read."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.end = 0
        self._count = 0

    def add(self, done: Iterable[Done]) -> None:
        rows = busy = until = 0
        for each in sorted(done, key=lambda one: one.began):
            rows += each.rows
            busy += max(each.ended - max(each.began, until), 0)
            until = max(until, each.ended)
            self.end = max(self.end, each.end)
        if rows:
            self.seconds = busy / 1e6 / rows
            self._count += rows

    def take_count(self) -> int:
        """Rows that `seconds` is over; counting begins anew."""
        count, self._count = self._count, 0
        return count
