"""Memory of the node: how near it is to its bound, and what is given up, in which order, so that it keeps it.

Two things are looked at: the resident memory of the process, and the bytes in queues. Whatever clients make the node
keep is counted where it is kept; when that has grown by a hundredth of a bound, the node looks at once instead of at
the next tick. `pressure` is the step (`pressure.py`); what it means is decided where something would be added.

When memory is short, caches go first. When it is over the bound all the same, connections with much that is neither a
message nor a subscription (half a packet, what was read ahead, what they do not read) give way, those of the client
address or user with most of it first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.broker.pressure import (
    DROP_SHARE,
    HOLD_SHARE,
    Pressure,
    default_bound_bytes,
    give_back_memory,
    pressure_of,
    process_memory_bytes,
)
from tidegate.broker.unfinished import Owner, owner_of
from tidegate.broker.waiting import release

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.session import Session
    from tidegate.broker.settings import Limits

log = logging.getLogger("tidegate.broker")

TRIM_INTERVAL = 1.0  # seconds between two attempts to give memory back while there is too little, and
TRIM_SHARE = 0.02  # of the time that they may take: of some GB, one takes a tenth of a second each
SETTLED = 0.05  # seconds until the memory of closed connections is free
CACHE_INTERVAL = 5.0  # seconds between two times that caches are emptied
WORTH = 1_024  # bytes of a connection that are worth closing it
READ_AHEAD = 16_384  # bytes of a publisher that waits while memory is short
PART = 16  # of the bound that newcomers, habits of publishers, unfinished and long packets may have, each
SLICE = 250  # connections looked at in one turn


class Memory:
    """`waiters` are publishers held for want of memory."""

    __slots__ = (
        "_cached_at", "_core", "_is_relieving", "_look_at_kept", "_trim_at", "_trim_seconds",
        "_trimmed_at", "bound_bytes", "gave_way", "kept_bytes",
        "look_at", "look_at_received", "pressure", "resident_bytes", "waiters",
    )  # fmt: skip

    def __init__(self, core: Core, limits: Limits) -> None:
        self._core = core
        self.kept_bytes = 0  # that clients make the node keep, beside their queues
        self.pressure = Pressure.NONE
        self.waiters: dict[Connection, None] | None = None
        self.gave_way = 0  # connections
        self.resident_bytes = process_memory_bytes()
        self._look_at_kept = self.look_at = self.look_at_received = 0
        self._trim_at = self._trimmed_at = self._trim_seconds = self._cached_at = 0.0
        self._is_relieving = False
        self.apply(limits)

    def apply(self, limits: Limits) -> None:
        self.bound_bytes = limits.max_memory or default_bound_bytes()

    @property
    def share(self) -> float:
        """Of the bound that is in use."""
        return self.resident_bytes / self.bound_bytes

    @property
    def is_short(self) -> bool:
        """Whether nothing more is kept that can be refused: there is too little memory, or no room on disk."""
        store = self._core.store
        return self.share >= DROP_SHARE or (store is not None and store.is_blocked)

    @property
    def part_bytes(self) -> int:
        """What each of the smaller ones may have that keep something for clients."""
        return self.bound_bytes // PART

    @property
    def read_ahead_bytes(self) -> int:
        """That a publisher may have here while it waits."""
        most = self._core.limits.max_held_bytes
        return min(most, READ_AHEAD) if self.share >= HOLD_SHARE else most

    def grew(self, size: int) -> None:
        """So many bytes more, or less, are kept beside queues."""
        self.kept_bytes += size
        if self.kept_bytes > self._look_at_kept:
            self.look()

    def refusal(self, session: Session, size: int) -> str:
        """Why a session may not keep so many bytes more; empty if it may."""
        core = self._core
        if session.is_link or session.is_operator:
            return ""
        if session.kept_bytes + size > core.limits.max_session_bytes:
            return "the session keeps too much"
        if core.accounts.is_full(session.account):
            return "this account keeps too much"
        return "memory is short" if self.is_short else ""

    def look(self) -> None:
        """How near the bounds are; four times a second, and whenever much was added."""
        core = self._core
        now = core.now()
        if self.pressure and now > self._trim_at:
            give_back_memory()
            self._trimmed_at = core.now()
            self._trim_seconds = self._trimmed_at - now
            self._trim_at = now + max(TRIM_INTERVAL, self._trim_seconds / TRIM_SHARE)
        self.resident_bytes = process_memory_bytes()
        total = core.limits.max_total_queued_bytes
        step = min(self.bound_bytes, total) // 100
        self.look_at = core.queued_bytes + step
        self._look_at_kept = self.kept_bytes + self.bound_bytes // 100
        self.look_at_received = core.counters.bytes_received + self.bound_bytes // 100
        pressure = max(pressure_of(self.share), min(pressure_of(core.queued_bytes / total), Pressure.HOLD))
        kept = (core.queued_bytes - core.backlog_bytes) / total
        if pressure is Pressure.HOLD and max(self.share, kept) < HOLD_SHARE:
            pressure = Pressure.DROP_QOS0  # what may be dropped never makes publishers wait
        if pressure is not self.pressure:
            log.warning(
                "memory pressure changed",
                extra={"from": self.pressure.name, "to": pressure.name, "memory": self.resident_bytes},
            )
            self.pressure = pressure
        if pressure < Pressure.HOLD and self.waiters:
            release(self)
        if self.share >= DROP_SHARE and not self._is_relieving:
            self._is_relieving = True
            core.loop.call_soon(self._step, self._relieve())  # not now: whose connection gives way may be at work

    def _step(self, work: Iterator[None]) -> None:
        """In turns of its own: long work may be what takes the memory."""
        if next(work, work) is None:
            self._core.loop.call_soon(self._step, work)

    def _relieve(self) -> Iterator[None]:
        """Empty caches, and if that is not enough let connections give way; then wait for what that brought."""
        core = self._core
        has_caches = core.now() > self._cached_at
        if has_caches:
            self._cached_at = core.now() + CACHE_INTERVAL
            core.index.forget_routes()
        heavy: dict[Owner, dict[Connection, int]] = {}
        for number, conn in enumerate(list(core.connections)):
            if number % SLICE == SLICE - 1:
                yield
            if has_caches:
                conn.refresh_routes()
            size = conn.buffered_bytes
            if size >= WORTH and not conn.listener.is_link and not conn.listener.is_operator:
                heavy.setdefault(owner_of(conn), {})[conn] = size
        before = self.gave_way
        excess = self.resident_bytes - int(DROP_SHARE * self.bound_bytes)
        while self.pressure is Pressure.GIVE_WAY and heavy and excess > 0:
            owner = max(heavy, key=lambda each: sum(heavy[each].values()))
            conn = max(heavy[owner], key=heavy[owner].__getitem__)
            excess -= heavy[owner].pop(conn)
            if not heavy[owner]:
                del heavy[owner]
            if not conn.is_closing:
                self.gave_way += 1
                conn.give_way()
        has_closed = self.gave_way > before
        core.loop.call_later(SETTLED if has_closed else TRIM_INTERVAL, self._relieved, has_closed)

    def _relieved(self, has_closed: bool) -> None:
        self._is_relieving = False
        if has_closed:
            self._trim_at = min(self._trim_at, self._trimmed_at + self._trim_seconds / TRIM_SHARE)
        self.look()
