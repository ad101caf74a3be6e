"""The uplink of an edge, shared by the node and not by the kernel: what is urgent goes first when it is too small.

Theory of operation. While there is room nothing is touched but a counter that is read every `TICK`. When the node sends
nearly as much as the uplink takes, its clients are **paced**: each session is treated as one whose socket is full, so
that messages wait in its queues, and every tick as much is taken out of them as the uplink carries in that time, by the
policy's `Sharing`. So what waits is where the detector can count it, in the order the policy wants, and not in buffers
of the kernel. When nothing waits any more and there is room again, the sessions are let go.

A bundle is the sessions whose most urgent filter is the same. Messages of one session keep their order. QoS 0 that has
waited longer than its budget is given up and counted (`shed`), if the node may; QoS 1 and 2 never are.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidegate.flow.balance import Sharing
from tidegate.flow.balance.sharing import Waiting, fair_shares, urgent_shares

if TYPE_CHECKING:
    from tidegate.broker.core import Core
    from tidegate.broker.session import Session

TICK: Final = 0.02  # seconds; longer if there are many clients, so that looking at all of them stays cheap
TICK_PER_CLIENT: Final = 40e-6
BURST_TICKS: Final = 2  # what the uplink may carry at once after a pause
ENGAGE: Final = 0.9  # share of the uplink from which clients are paced, and
RELEASE: Final = 0.85  # below which, for a while, they are not
CALM: Final = 1.0  # seconds
MAX_CREDIT: Final = 65_536  # bytes a client whose share is less than a packet saves up


@dataclass(slots=True)
class _Queue:
    """One paced session: bytes that came in by time, so that the age of the first that waits is known."""

    bundle: str
    budget: float
    came: deque[tuple[float, int]] = field(default_factory=deque)  # when, and bytes that had come by then
    sent: int = 0
    credit: float = 0.0

    def note(self, depth: int, now: float) -> None:
        total = self.sent + depth
        if not self.came or total > self.came[-1][1]:
            self.came.append((now, total))

    def took(self, size: int) -> None:
        self.sent += size
        while self.came and self.came[0][1] <= self.sent:
            self.came.popleft()

    def since(self, now: float) -> float:
        """When the first message that waits came."""
        return self.came[0][0] if self.came else now

    def late_bytes(self, now: float) -> int:
        """Of what waits, how much came so long ago that it is late."""
        late = 0
        for when, total in self.came:
            if when + self.budget >= now:
                break
            late = total - self.sent
        return late


class Uplink:
    """`budget` gives the seconds that messages of a topic filter may wait here."""

    def __init__(
        self,
        core: Core,
        capacity: float,
        sharing: Sharing,
        budget: Callable[[str], float],
        *,
        is_shedding: bool = True,
    ) -> None:
        self._core = core
        self._capacity = capacity / 8  # bytes a second
        self._sharing = sharing
        self._budget = budget
        self._is_shedding = is_shedding and sharing is Sharing.DEADLINE
        self._timer: TimerHandle | None = None
        self._looked = core.now()
        self._counted = 0
        self._tokens = 0.0
        self._calm_since = 0.0
        self._queues: dict[Session, _Queue] = {}
        self.is_pacing = False
        self.paced_seconds = 0.0
        self.shed = 0

    def start(self) -> None:
        self._looked, self._counted = self._core.now(), self._core.counters.bytes_sent
        self._timer = self._core.loop.call_later(TICK, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._let_go()

    def _tick(self) -> None:
        core = self._core
        now = core.now()
        elapsed = now - self._looked
        if self.is_pacing:
            self.paced_seconds += elapsed
            self._serve(now, elapsed)
        elif elapsed:
            sent = core.counters.bytes_sent - self._counted
            if sent > ENGAGE * self._capacity * elapsed:
                self.is_pacing = self._core.is_paced = True
                self._tokens = 0.0
                self._calm_since = now
        self._looked, self._counted = now, core.counters.bytes_sent
        tick = max(TICK, TICK_PER_CLIENT * len(self._queues)) if self.is_pacing else 2 * TICK
        self._timer = core.loop.call_later(tick, self._tick)

    # -- pacing ---------------------------------------------------------------------------------------------

    def _serve(self, now: float, elapsed: float) -> None:
        sessions = self._take_in(now)
        if self._is_shedding:
            self._shed(sessions, now)
        self._tokens = min(
            self._tokens + self._capacity * elapsed, BURST_TICKS * self._capacity * max(elapsed, TICK)
        )
        waiting = [
            Waiting(
                key=session, bundle=queue.bundle, size=float(depth), deadline=queue.since(now) + queue.budget
            )
            for session, queue in self._queues.items()
            if (depth := _depth(session)) and session.conn not in self._core.blocked and _may_take(session)
        ]
        if self._tokens > 0.0 and waiting:
            if self._sharing is Sharing.DEADLINE:
                shares = urgent_shares(waiting, self._tokens, now)
            else:
                shares = fair_shares(waiting, self._tokens)
            for session, share in shares.items():
                if share > 0.0:
                    self._tokens -= self._send(session, share)
        self._serve_the_rest()
        if waiting or self._offered(elapsed) > RELEASE:
            self._calm_since = now
        elif now - self._calm_since > CALM:
            self._let_go()

    def _serve_the_rest(self) -> None:
        """Acknowledgements and the like wait for nobody; retained messages go when nothing else waits."""
        relieved = []
        for session in self._queues:
            conn = session.conn
            if conn is None or conn in self._core.blocked:
                continue
            if conn.feeds is not None and not _depth(session):
                session.paused = False
                conn.feed_now()
                session.paused = True
            if session.out:
                if not session.queued:
                    session.queued = True
                    self._core.mark_dirty(session)
                relieved.append(conn)
        self._core.write()
        for conn in relieved:
            conn.go_on()

    def _take_in(self, now: float) -> list[Session]:
        """Every client is paced, also one that connected just now; what came for it is noted."""
        queues = self._queues
        for session in [each for each in queues if each.conn is None or each.conn.is_hushed]:
            del queues[session]
        for conn in self._core.connections:
            session = conn.session
            if conn.listener.is_link or session.conn is not conn or conn.is_hushed:
                continue
            queue = queues.get(session)
            if queue is None or not queue.bundle:
                bundle, budget = self._most_urgent(session)
                queue = queues[session] = _Queue(bundle, budget)
            session.paused = True
            depth = _depth(session)
            if depth:
                queue.note(depth, now)
            else:
                queue.credit = 0.0
                queue.sent = 0
                queue.came.clear()
        return list(queues)

    def _most_urgent(self, session: Session) -> tuple[str, float]:
        filters = [each.topic_filter.decode() for each in session.subscriptions.values()]
        budgets = [(self._budget(each), each) for each in filters]
        if not budgets:
            return "", 0.0
        budget, bundle = min(budgets)
        return bundle, budget

    def _send(self, session: Session, share: float) -> int:
        """Whole packets, as many as its share and what was left over of earlier ones allow; bytes that went."""
        core = self._core
        conn = session.conn
        queue = self._queues[session]
        queue.credit = min(queue.credit, MAX_CREDIT) + share
        size = 0
        backlog = session.backlog
        if backlog:
            part: list[bytes] = []
            while backlog and queue.credit >= len(backlog[0][0]):
                packets, _ = backlog.popleft()
                part.append(packets)
                size += len(packets)
                queue.credit -= len(packets)
            if part and conn is not None:
                session.backlog_bytes -= size
                core.backlog_bytes -= size
                session.waits(-size)
                core.counters.bytes_sent += size
                conn.transport.write(b"".join(part))
            if not backlog:
                session.backlog = None
        if session.pending is not None and not session.backlog and conn not in core.blocked:
            before = session.pending_bytes
            while session.pending is not None and queue.credit >= session.pending[0][0].size_bytes:
                depth = session.pending_bytes
                session.paused = False
                session.drain(1)
                session.paused = True
                if session.pending_bytes >= depth:
                    break  # its quota is used up
                queue.credit -= depth - session.pending_bytes
            size += before - session.pending_bytes
        queue.took(size)
        return size

    def _shed(self, sessions: list[Session], now: float) -> None:
        """QoS 0 that is late whatever is done makes way for what is not."""
        core = self._core
        for session in sessions:
            backlog = session.backlog
            queue = self._queues[session]
            if not backlog or session.pending is not None:
                continue
            late = queue.late_bytes(now)
            size = dropped = 0
            while backlog and size + len(backlog[0][0]) <= late:
                packets, count = backlog.popleft()
                size += len(packets)
                dropped += count
            if dropped:
                session.backlog_bytes -= size
                core.backlog_bytes -= size
                session.waits(-size)
                core.counters.publish_sent -= dropped
                session.drop(dropped)
                self.shed += dropped
                queue.took(size)
                if not backlog:
                    session.backlog = None

    def _offered(self, elapsed: float) -> float:
        """Share of the uplink that was used since the last look."""
        sent = self._core.counters.bytes_sent - self._counted
        return sent / (self._capacity * elapsed) if elapsed else 1.0

    def _let_go(self) -> None:
        self.is_pacing = self._core.is_paced = False
        core = self._core
        for session in self._queues:
            conn = session.conn
            if conn is not None and conn not in core.blocked:
                session.relieve()
        self._queues.clear()

    def statistics(self) -> dict[str, Any]:
        return {
            "is_pacing": self.is_pacing,
            "paced_seconds": round(self.paced_seconds, 3),
            "paced_clients": len(self._queues),
            "shed": self.shed,
        }


def _depth(session: Session) -> int:
    return session.backlog_bytes + session.pending_bytes


def _may_take(session: Session) -> bool:
    """A client that owes acknowledgements gets nothing of QoS 1 and 2, and uses up nobody's share."""
    return bool(session.backlog) or len(session.inflight) < session.quota
