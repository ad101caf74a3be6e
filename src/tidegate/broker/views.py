"""What an operator sees of publishers, queues and groups: `$SYS/tide/…` documents, metrics and `tidegate top`.

All clients are looked at in slices of a turn each, so that a view of many thousands delays nobody, and a view holds
the hundred rows that matter: held publishers first, then suspicious ones, then the fastest; the longest queues; the
accounts that cause most work.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidegate.broker.message import Message
from tidegate.flow.backoff import State

if TYPE_CHECKING:
    from tidegate.broker.account import Account
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.session import Session

ROWS = 100
SLICE = 250  # clients looked at in one turn, about a millisecond
INTERVAL = 1.0  # seconds between two views while somebody subscribes
PUBLISHERS = b"$SYS/tide/publishers"
QUEUES = b"$SYS/tide/queues"
GROUPS = b"$SYS/tide/groups"
ACCOUNTS = b"$SYS/tide/accounts"
PULSE = b"$SYS/tide/pulse"
ALL_PUBLISHERS = b"$SYS/tide/publishers/all"
PAGE = 100  # publishers in a page of all of them: 2 ms of a turn, and
PAGE_PAUSE = 0.1  # seconds until the next one, so that any number of publishers costs about 2 % of a core
ROUND = 2.0  # seconds from the beginning of one round of pages to that of the next, at least; one page: every second
MEMBERS = 20  # shown of a group
URGENCY = {State.HELD: 2, State.SUSPICIOUS: 1}


def publisher_row(core: Core, conn: Connection) -> dict[str, Any]:
    """One publisher; rates in messages per second, `hold` in seconds."""
    gate = core.gate
    publisher = conn.publisher
    assert gate is not None and publisher is not None
    verdict = publisher.snapshot(core.now(), gate.rank(conn))
    is_held = gate.waiters is not None and conn in gate.waiters
    rule = gate.rule(conn)
    return {
        "client": conn.session.client_id,
        "user": conn.username,
        "address": conn.peer,
        "rate": round(verdict.rate, 3),
        "trained_rate": round(verdict.trained_rate, 3),
        "allowed": round(verdict.allowed, 3),
        "dispersion": round(verdict.dispersion, 3),
        "state": str(State.HELD if is_held else verdict.state),
        "hold": round(verdict.hold, 3),
        "rank": verdict.rank,
        "class": None if rule is None else rule.name,
        "pinned": gate.pinned(conn),
        "excused": round(gate.excused_seconds(conn), 1),
        "held_bytes": conn.held_bytes + conn.session.late_bytes,
    }


def queue_row(session: Session) -> dict[str, Any]:
    return {
        "client": session.client_id,
        "connected": session.conn is not None,
        "queued_messages": session.queued_messages,
        "queued_bytes": session.queued_bytes,
        "inflight": len(session.inflight),
        "dropped": session.dropped,
        "is_blocked": session.paused,
    }


class Views:
    """Publishes the documents while somebody subscribes; keeps the last counts for the metrics page."""

    def __init__(self, core: Core, interval: float) -> None:
        self._core = core
        self._interval = interval
        self._counted_at = 0.0
        self.states: dict[str, int] = {}
        self.top: list[dict[str, Any]] = []
        self.accounts: list[dict[str, Any]] = []
        self._work: dict[Account, int] = {}  # of each account when it was looked at last,
        self._work_at = core.now()
        self._started = core.now()
        self._rounds = 0
        self._round: asyncio.TimerHandle | None = None
        self._round_began = 0.0
        self._timer = core.loop.call_later(INTERVAL, self._tick)

    def close(self) -> None:
        self._timer.cancel()
        if self._round is not None:
            self._round.cancel()

    def statistics(self) -> dict[str, Any]:
        return {"publishers": self.states, "top": self.top, "accounts": self.accounts}

    def _tick(self) -> None:
        core = self._core
        if self._is_wanted(PULSE):
            self._pulse()
        if self._round is None and core.gate is not None and self._is_asked_for(ALL_PUBLISHERS):
            self._begin_round()
        wanted = self._is_wanted(PUBLISHERS)
        accounts_wanted = self._is_wanted(ACCOUNTS)
        if accounts_wanted or core.now() - self._work_at >= self._interval:
            self._start(self._accounts(accounts_wanted))
        # For the metrics page the counts may be older.
        if core.gate is not None and (wanted or core.now() - self._counted_at >= self._interval):
            self._counted_at = core.now()
            self._start(self._publishers(wanted))
        if self._is_wanted(QUEUES):
            self._start(self._queues())
        if self._is_wanted(GROUPS):
            self._start(self._groups())
        self._timer = core.loop.call_later(INTERVAL, self._tick)

    def _is_wanted(self, topic: bytes) -> bool:
        route = self._core.index.route(topic)
        return bool(route.targets or route.shared)

    def _is_asked_for(self, topic: bytes) -> bool:
        """By name: a subscription to `$SYS/#` shall not cost what nobody reads."""
        targets = self._core.index.route(topic).targets
        return any(each.topic_filter == topic for target in targets for each in target.subscriptions)

    def _pulse(self) -> None:
        """The counters of the moment; `$SYS/broker/…` has them at its own, longer interval."""
        core = self._core
        counters = core.counters
        gate = core.gate
        document = {
            "at": round(time.time(), 3),
            "uptime": round(core.now() - self._started, 1),
            "connections": len(core.connections),
            "sessions": len(core.sessions),
            "subscriptions": core.index.count,
            "retained": len(core.retained),
            "memory_bytes": core.memory.resident_bytes,
            "queued_messages": counters.queued_messages,
            "queued_bytes": core.queued_bytes,
            "received": counters.publish_received,
            "sent": counters.publish_sent,
            "dropped": counters.dropped,
            "bytes_received": counters.bytes_received,
            "bytes_sent": counters.bytes_sent,
            "connects_refused": counters.connects_refused,
            "moved": counters.shared_moved,
            "held_total": gate.holds if gate is not None else 0,
            "shed": gate.shed if gate is not None else 0,
            "states": self.states,
            "policy": getattr(core, "policy_version", ""),
            "load": core.load(),
        }
        core.publish(Message(PULSE, json.dumps(document).encode(), 0))

    def _begin_round(self) -> None:
        """All publishers, page by page, one page a turn and a pause after it."""
        core = self._core
        clients = list(core.connections)
        self._rounds += 1
        self._round_began = core.now()
        pages = [clients[at : at + PAGE] for at in range(0, len(clients), PAGE)] or [[]]
        self._send_page(pages, 0)

    def _send_page(self, pages: list[list[Connection]], at: int) -> None:
        core = self._core
        if at == len(pages) or not self._is_asked_for(ALL_PUBLISHERS):
            pause = ROUND if len(pages) > 1 else INTERVAL
            left = pause - (core.now() - self._round_began)
            self._round = core.loop.call_later(max(0.0, left), self._end_round) if left > 0 else None
            return
        rows = [
            publisher_row(core, conn)
            for conn in pages[at]
            if conn.publisher is not None and not conn.is_closing and core.gate is not None
        ]
        page = {"round": self._rounds, "page": at, "pages": len(pages)}
        document = {"at": round(time.time(), 3)} | page | {"rows": rows}
        core.publish(Message(ALL_PUBLISHERS, json.dumps(document).encode(), 0))
        self._round = core.loop.call_later(PAGE_PAUSE, self._send_page, pages, at + 1)

    def _end_round(self) -> None:
        self._round = None

    def _start(self, work: Iterator[None]) -> None:
        def step() -> None:
            if next(work, work) is None and not self._core.is_stopping:
                self._core.loop.call_soon(step)

        step()

    def _publishers(self, is_wanted: bool) -> Iterator[None]:
        core = self._core
        best: list[tuple[int, float, int, Connection]] = []
        states: dict[str, int] = dict.fromkeys(State, 0)
        clients = iter(list(core.connections))
        number = 0
        while chunk := list(islice(clients, SLICE)):
            gate = core.gate
            waiters = (gate.waiters if gate is not None else None) or ()
            for conn in chunk:
                publisher = conn.publisher
                if publisher is None or conn.is_closing or gate is None:
                    continue
                verdict = publisher.snapshot(core.now(), gate.rank(conn))  # ranks need the rates of all
                state = State.HELD if conn in waiters else verdict.state
                states[state] += 1
                number += 1
                place = (URGENCY.get(state, 0), verdict.rate, number)
                if len(best) < ROWS:
                    heapq.heappush(best, (*place, conn))
                elif place > best[0][:3]:
                    heapq.heapreplace(best, (*place, conn))
            yield
        self.states = states
        shown = [conn for *_, conn in sorted(best, key=lambda entry: entry[:3], reverse=True)]
        self.top = [
            publisher_row(core, conn)
            for conn in shown
            if conn.publisher is not None and not conn.is_closing and core.gate is not None
        ]
        if is_wanted:
            self._say(PUBLISHERS, number, self.top)

    def _queues(self) -> Iterator[None]:
        best: list[tuple[int, float, int, dict[str, Any]]] = []
        sessions = iter(list(self._core.sessions.values()))
        number = 0
        while chunk := list(islice(sessions, SLICE)):
            for session in chunk:
                size = session.queued_bytes
                if not (size or session.inflight or session.dropped):
                    continue
                number += 1
                if len(best) < ROWS or (size, session.dropped) > best[0][:2]:
                    _keep(best, (size, session.dropped, number, queue_row(session)))
            yield
        self._say(QUEUES, number, [entry[3] for entry in sorted(best, reverse=True)])

    def _groups(self) -> Iterator[None]:
        core = self._core
        groups = list(core.index.groups.values())
        rows: list[dict[str, Any]] = []
        for group in heapq.nlargest(ROWS, groups, key=lambda each: len(each.members)):
            rows.append(group.view(core.now(), MEMBERS) | {"policy": core.policy_name(group)})
            yield
        self._say(GROUPS, len(groups), rows)

    def _accounts(self, is_wanted: bool) -> Iterator[None]:
        """Who makes the node work and keep most, by account, and each one's client with most of it."""
        core = self._core
        busiest: dict[Account, tuple[int, str]] = {}
        connected: dict[Account, int] = {}
        now = core.now()
        clients = iter(list(core.connections))
        while chunk := list(islice(clients, SLICE)):
            for conn in chunk:
                session = conn.session
                account = session.account
                work = session.take_work()
                connected[account] = connected.get(account, 0) + 1
                if work > busiest.get(account, (0, ""))[0]:
                    busiest[account] = work, session.client_id
            yield
        seconds = max(now - self._work_at, 0.001)
        self._work_at = now
        accounts = list(core.accounts)
        before, self._work = self._work, {account: account.work for account in accounts}
        rates = {account: (account.work - before.get(account, 0)) / seconds for account in accounts}
        self.accounts = [
            {
                "user": account.user,
                "sessions": account.sessions,
                "connected": connected.get(account, 0),
                "kept_bytes": account.kept_bytes,
                "retained": account.retained,
                "work": round(rates[account]),
                "busiest": busiest.get(account, (0, ""))[1],
                "busiest_work": round(busiest.get(account, (0, ""))[0] / seconds),
            }
            for account in heapq.nlargest(ROWS, accounts, key=lambda each: (rates[each], each.kept_bytes))
        ]
        if is_wanted:
            self._say(ACCOUNTS, len(accounts), self.accounts)

    def _say(self, topic: bytes, total: int, rows: list[dict[str, Any]]) -> None:
        document = {"at": round(time.time(), 3), "total": total, "rows": rows}
        self._core.publish(Message(topic, json.dumps(document).encode(), 0))


def _keep(
    best: list[tuple[int, float, int, dict[str, Any]]], entry: tuple[int, float, int, dict[str, Any]]
) -> None:
    if len(best) < ROWS:
        heapq.heappush(best, entry)
    else:
        heapq.heappushpop(best, entry)
