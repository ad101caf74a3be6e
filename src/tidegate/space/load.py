"""What a space broker announces about its load, so that clients come no faster than it can serve them."""

from __future__ import annotations

import time
from collections.abc import Container
from typing import Final

from tidegate.flow.timeout import UNKNOWN, Announcement
from tidegate.space.lane import Lane
from tidegate.space.requests import Operation, Request
from tidegate.space.watchers import Watchers

USE: Final = 0.6  # of the capacity that checks of watchers may take: the rest is for reactions and others
FRESH: Final = 0.01  # seconds that an announced load is good for
TOLD: Final = 1000  # counts of watchers whose announcement is remembered


class Load:
    """Every answer and every notification has one, so each is worked out once in a while."""

    def __init__(self, spaces: Container[str], watchers: Watchers, queries: Lane) -> None:
        self._spaces = spaces
        self._watchers = watchers
        self._queries = queries
        self._announced: dict[tuple[Operation, str], tuple[float, Announcement]] = {}
        self._told: dict[int, tuple[float, Announcement]] = {}

    def announce(self, request: Request, lane: Lane, *, retry_after: float = 0.0) -> Announcement:
        """Of the lane that the request uses; the pace is a fair share for all who watch this space."""
        key = (request.operation, request.space)
        now = time.monotonic()
        until, known = self._announced.get(key, (0.0, UNKNOWN))
        if now < until and retry_after == 0.0:
            return known
        is_known = request.space in self._spaces
        watchers = self._watchers.of_space(request.space) if is_known else 0
        rate = USE * lane.rate / watchers if watchers else 0.0
        load = _of(lane, watchers, rate, retry_after)
        if retry_after == 0.0 and is_known:
            self._announced[key] = (now + FRESH, load)
        return load

    def of_watch(self, space: str, watch: str) -> Announcement:
        """What a notification tells those who react to it."""
        watchers = self._watchers.of_watch(space, watch)
        if not watchers:
            return UNKNOWN
        now = time.monotonic()
        until, load = self._told.get(watchers, (0.0, UNKNOWN))
        if now >= until:
            load = _of(self._queries, watchers)
            if len(self._told) > TOLD:
                self._told.clear()
            self._told[watchers] = (now + FRESH, load)
        return load


def _of(lane: Lane, watchers: int, rate: float = 0.0, retry_after: float = 0.0) -> Announcement:
    return Announcement(
        processing=lane.processing,
        queueing=lane.queueing,
        limit=lane.limit,
        capacity=lane.rate,
        watchers=watchers,
        rate=rate,
        retry_after=retry_after,
    )
