"""What is looked at once a window: the node's load, queues that are not empty, members of shared subscriptions.

Sessions and groups are looked at in slices, a turn each, so that many thousands of them delay nobody.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tidegate.broker.recording.batch import Shape

if TYPE_CHECKING:
    from tidegate.broker.core import Core
    from tidegate.broker.recording.tap import Tap
    from tidegate.broker.session import Session
    from tidegate.broker.shared import SharedGroup

SLICE = 250  # sessions looked at in one turn, well below a millisecond
MEMBERS = 1_000  # of one group
DELTAS = ("publish_received", "publish_sent", "bytes_received", "bytes_sent", "dropped")

LOAD = Shape(
    "load",
    (
        "window_us",
        "state",
        "wait_us",
        "lag_us",
        "cpu_us",
        "memory_bytes",
        "memory_share",
        "queue_share",
        "connections",
        "sessions",
        "subscriptions",
        "held",
        *DELTAS,
        "policy_version",
    ),
)
QUEUE = Shape(
    "queue",
    ("client_id", "window_us", "qd", "bytes", "inflight", "is_connected", "is_blocked", "dropped"),
)
DROPPED = Shape(
    "deliver",
    ("client_id", "window_us", "dropped"),
    {"qos": 0, "count": 0, "bytes": 0},
)
STATE = Shape(
    "member",
    (
        "group",
        "topic_filter",
        "policy",
        "client_id",
        "count",
        "m_q",
        "m_s",
        "t_p",
        "service",
        "rtt",
        "outstanding",
        "wait",
    ),
    {"kind": "state"},
)


class Samples:
    """Looks at the node and adds rows to a tap."""

    def __init__(self, core: Core, tap: Tap) -> None:
        self._core = core
        self._tap = tap
        self._began = core.now()
        self._cpu = time.process_time()
        self._totals = dict.fromkeys(DELTAS, 0)
        self._dropped: dict[str, int] = {}  # by client, of those that ever missed a message
        self._shares: dict[tuple[str, bytes, str], int] = {}
        self._is_busy = False
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def take(self) -> None:
        """A window ends: what it was like. Its sessions and groups follow in the next turns."""
        self._tap.gate.end_window(self._core.now())
        began, window = self.take_load()
        if not self._is_busy:  # with very many sessions a look may take longer than a window
            self._is_busy = True
            self._step(self._walk(began, window))

    def take_load(self) -> tuple[float, int]:
        """Add the row of the node; gives when the window began and its length in µs."""
        core = self._core
        counters = core.counters
        now = core.now()
        began, self._began = self._began, now
        window = round((now - began) * 1e6)
        cpu = time.process_time()
        totals = {name: getattr(counters, name) for name in DELTAS}
        gate = core.gate
        self._tap.add(
            LOAD,
            (
                began,
                window,
                core.meter.state.name,
                round(core.meter.wait * 1e6),
                round(core.loop_lag * 1e6),
                round((cpu - self._cpu) * 1e6),
                core.memory.resident_bytes,
                core.memory.share,
                core.queue_share(),
                len(core.connections),
                len(core.sessions),
                core.index.count,
                len(gate.waiters or ()) if gate is not None else 0,
                *(totals[name] - self._totals[name] for name in DELTAS),
                self._tap.policy_version,
            ),
        )
        self._cpu = cpu
        self._totals = totals
        return began, window

    def _step(self, work: Iterator[None]) -> None:
        if next(work, work) is None and not self._is_closed:
            self._core.loop.call_soon(self._step, work)
        else:
            self._is_busy = False

    def _walk(self, began: float, window: int) -> Iterator[None]:
        sessions = iter(list(self._core.sessions.values()))
        dropped: dict[str, int] = {}
        while chunk := list(islice(sessions, SLICE)):
            for session in chunk:
                if session.dropped or session.inflight or session.queued_bytes or session.pending:
                    self._session(session, began, window, dropped)
            yield
        self._dropped = dropped
        groups = list(self._core.index.groups.values())
        shares: dict[tuple[str, bytes, str], int] = {}
        for group in groups:
            self._group(group, shares)
            yield
        self._shares = shares

    def _session(self, session: Session, began: float, window: int, dropped: dict[str, int]) -> None:
        client_id = session.client_id
        missed = session.dropped - self._dropped.get(client_id, 0)
        if missed < 0:  # a new session of the same name
            missed = session.dropped
        if session.dropped:
            dropped[client_id] = session.dropped
        waiting = session.queued_messages + sum(count for _, count in session.backlog or ())
        if waiting or session.inflight:
            self._tap.add(
                QUEUE,
                (
                    began,
                    client_id,
                    window,
                    waiting,
                    session.queued_bytes,
                    len(session.inflight),
                    session.conn is not None,
                    session.paused,
                    missed,
                ),
            )
        if missed:
            self._tap.add(DROPPED, (began, client_id, window, missed))

    def _group(self, group: SharedGroup, shares: dict[tuple[str, bytes, str], int]) -> None:
        core = self._core
        now = core.now()
        policy = core.policy_name(group)
        for member in group.loads(MEMBERS):
            load = member.load
            key = (group.name, group.topic_filter, member.key)
            shares[key] = member.share
            self._tap.add(
                STATE,
                (
                    now,
                    group.name,
                    group.topic_filter.decode(),
                    policy,
                    member.key,
                    max(0, member.share - self._shares.get(key, 0)),
                    load.queue_length,
                    load.sent_since_report,
                    load.mean_time,
                    load.service if load.has_sample else None,
                    2.0 * load.half_rtt,
                    load.outstanding,
                    load.backlog(now),
                ),
            )
