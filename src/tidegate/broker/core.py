"""What all connections of a broker share: sessions, index, retained messages, counters, the flush and the sweep.

`Core` belongs to one event loop and is touched by its thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate import flow
from tidegate.broker import wills
from tidegate.broker.account import AccountTable
from tidegate.broker.alarms import TICK, Alarm, Alarms, KeepAlive
from tidegate.broker.authors import Authors
from tidegate.broker.backlogs import Backlogs
from tidegate.broker.connection import Connection
from tidegate.broker.counters import Counters
from tidegate.broker.durable import Durable
from tidegate.broker.flow_settings import BandName, FlowSettings, SharedRule
from tidegate.broker.gate import Gate
from tidegate.broker.handing_on import Help, bequeath, hand_on, hand_on_later
from tidegate.broker.handshake import Handshake
from tidegate.broker.hooks import Authoriser, Cluster, Hooks, SessionObserver
from tidegate.broker.index import Search, SubscriptionIndex
from tidegate.broker.lanes import Lanes
from tidegate.broker.late import LateMessages
from tidegate.broker.load_state import LoadMeter
from tidegate.broker.long_work import Job, LongWork
from tidegate.broker.memory import Memory
from tidegate.broker.message import Message
from tidegate.broker.pressure import DROP_SHARE, Pressure
from tidegate.broker.publishing import distribute
from tidegate.broker.reasons import CloseReason
from tidegate.broker.retained import Retained
from tidegate.broker.session import NEVER, Session
from tidegate.broker.settings import Features, Limits, QueueFull
from tidegate.broker.shared import Roster, SharedGroup
from tidegate.broker.store import Store
from tidegate.broker.unfinished import Unfinished
from tidegate.broker.views import Views
from tidegate.broker.waiting import release
from tidegate.flow.admission import Admitter
from tidegate.flow.backoff import Load, Prior
from tidegate.flow.shared import SharedPolicy
from tidegate.mqtt.codes import ReasonCode
from tidegate.net.descriptors import most_sockets
from tidegate.net.doorway import MOST_BYTES, Doorway

if TYPE_CHECKING:
    from tidegate.broker.recording import Tap

log = logging.getLogger("tidegate.broker")

REFUSAL_INTERVAL = 1.0  # seconds between two lines about refused clients
LOAD_TOLD = 2.0  # seconds that a state lasts before the log tells of it; OVERLOAD is told at once
OVERLOAD_ADMISSION = 0.25  # share of `connection_rate` that is admitted in OVERLOAD
LOST_PER_TURN = 0.002  # seconds for ended connections before others get their turn
T = TypeVar("T")
LINGER = 2.0  # seconds a closing connection may take to take our last packet and close


class Core:
    """The state of one node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        features: Features,
        hooks: Hooks,
        random: Random,
        name: str,
        flow_settings: FlowSettings | None = None,
    ) -> None:
        flow_settings = flow_settings or FlowSettings()
        self.shared_rules = flow_settings.shared
        self.loop = loop
        self.now: Callable[[], float] = (
            monotonic  # the clock of the loop, but uvloop's own tells only milliseconds
        )
        self.limits = limits
        self.features = features
        self.hooks = hooks
        self.random = random
        self.name = name
        self.authorise = hooks.authoriser
        self.publish_observers = hooks.publish_observers
        self.session_observers = hooks.session_observers
        self.methods = {method.name: method for method in hooks.methods}
        self.counters = Counters()
        self.memory = Memory(self, limits)
        self.accounts = AccountTable()
        self.has_accounts = hooks.authenticator is not None or bool(hooks.methods)
        self.authors = Authors(hooks)
        self.rights_epoch = 0  # counts changes of rights
        self.index = SubscriptionIndex(self._make_group)
        if hooks.authoriser is not None:
            self.index.may_receive = partial(_may_receive, hooks.authoriser)
        self.retained = Retained(self.now, self.accounts, self.memory)
        self.store: Store | None = None
        self.sessions: dict[str, Session] = {}
        self.estates: dict[Session, Alarm] = {}  # ended, and their groups take what they had
        self.connections: set[Connection] = set()
        self.lost: dict[Session, tuple[Connection, str]] = {}  # gone, and not yet cleaned up
        self.door = Doorway(limits.max_half_open, now=self.now)
        self.door.has_descriptors = self._has_descriptors
        self._most_sockets = most_sockets()
        self.unfinished = Unfinished(self)
        self.blocked: dict[Connection, float] = {}  # connections whose socket is full, since when
        self.closing: dict[Connection, float] = {}
        self.alarms = Alarms(loop)
        self.keep_alive = KeepAlive(self.now())
        self.dirty: list[Session] = []
        self.turn_began = 0.0  # 0 between two turns
        self.pins: dict[tuple[str, str], BandName] = {}  # classes by an operator: client identifier and user
        self.meter = LoadMeter(flow_settings.load, self.now())
        self._load_told = Load.LOW  # in the log
        self._load_since = self.now()
        self.lanes = Lanes(self)
        self.long_work = LongWork(self)
        self.help = Help(self)
        self.gate: Gate | None = None
        self.tap: Tap | None = None
        self.priors: Mapping[str, Prior] = {}
        self.policy_version = ""  # of the policy snapshot in force
        self.roster = Roster()
        self.cluster: Cluster | None = None
        self.is_paced = False  # something else decides when clients are written to
        self.late = LateMessages(self)
        self.views: Views | None = None
        self.on_load_changed: Callable[[], None] = lambda: None
        self._backlogs = Backlogs(self)
        self.queued_bytes = 0  # waiting for sessions, and of that
        self.backlog_bytes = 0  # QoS 0 for clients whose socket is full
        # Sessions with no room for QoS 1 and 2, and the alarm that looks whether they are stuck.
        self.full: dict[Session, Alarm | None] = {}
        self._is_checking = False
        self.is_stopping = False
        self.loop_lag = 0.0
        self.tasks: set[asyncio.Task[None]] = set()
        self.waiting: dict[Handshake, None] = {}  # clients whose turn to connect has not come
        self.admitter = _admitter(limits)
        self._refusals = 0  # since the last line about one
        self._refusal_at = 0.0
        self._tick_due = self.now() + TICK
        self._ticker = loop.call_at(self._tick_due, self._tick)
        self._bound(limits)
        self.set_flow(flow_settings)

    def _make_group(self, name: str, topic_filter: bytes) -> SharedGroup:
        group = SharedGroup(
            name, topic_filter, self._shared_policy(name, topic_filter), self.random, self.roster
        )
        self._record_policy(group)
        return group

    def _record_policy(self, group: SharedGroup) -> None:
        """The group has a new policy."""
        if self.tap is not None and self.tap.is_full:
            rule = self._shared_rule(group.name, group.topic_filter)
            options = {"ordering": str(rule.ordering)} if rule is not None else {}
            group.policy = self.tap.members.wrap(
                group, group.policy, self.policy_name(group), options, self.now()
            )

    def _shared_policy(self, name: str, topic_filter: bytes) -> SharedPolicy:
        """By the first rule for the group and its filter, else by the setting for all."""
        rule = self._shared_rule(name, topic_filter)
        return rule.make() if rule is not None else flow.shared_policy(self.features.shared_policy)()

    def _shared_rule(self, name: str, topic_filter: bytes) -> SharedRule | None:
        for rule in self.shared_rules:
            if rule.group in ("", name) and rule.topic_filter.encode() in (b"", topic_filter):
                return rule
        return None

    def policy_name(self, group: SharedGroup) -> str:
        rule = self._shared_rule(group.name, group.topic_filter)
        return rule.policy if rule is not None else self.features.shared_policy

    # -- egress ---------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """There is work: `flush` ends this turn of the loop."""
        self.turn_began = self.now()
        self.loop.call_soon(self.flush)

    def mark_dirty(self, session: Session) -> None:
        """Write what the session has to send at the end of this turn of the loop."""
        if not self.turn_began:
            self.begin_turn()
        self.dirty.append(session)

    def flush(self) -> None:
        """The end of a turn: write what was collected."""
        self.write()
        if self.turn_began:
            now = self.now()
            is_late = self.meter.turn(now, now - self.turn_began)
            self.turn_began = 0.0
            if is_late:
                self.measure_load(now)

    def write(self) -> None:
        """Write what was collected, in the midst of a turn."""
        dirty, self.dirty = self.dirty, []
        sent = 0
        for session in dirty:
            session.queued = False
            conn = session.conn
            out = session.out
            if conn is None or not out:
                continue
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            sent += len(data)
            conn.transport.write(data)
        self.counters.bytes_sent += sent

    def has_room_for_qos0(self, session: Session, size: int) -> bool:
        """Whether a slow reader may have more QoS 0 queued. When room is short, the longest blocked gives up its."""
        wanted = self.queued_bytes + size
        if (
            wanted < DROP_SHARE * self.limits.max_total_queued_bytes
            and self.memory.share < DROP_SHARE
        ):
            return True
        for conn in self.blocked:
            slowest = conn.session
            if slowest is session:
                return False
            if slowest.backlog and slowest.conn is conn:
                slowest.shed_backlog()
                return self.queued_bytes + size <= self.limits.max_total_queued_bytes
        return False

    def drops_for(self, session: Session) -> bool:
        """Whether QoS 1 and 2 for a full session are dropped (and counted) instead of held."""
        if self.features.queue_full is QueueFull.DROP:
            return True
        timeout = self.limits.hold_timeout
        return bool(timeout) and self.now() - session.full_since > timeout

    # -- publishing from inside -----------------------------------------------------------------------------

    def publish(self, message: Message) -> None:
        """Publish on behalf of the node itself (wills, $SYS, embedding programs)."""
        if message.retain and self.features.retain_available:
            self.retained.keep(message)
        search = self.index.search(message.topic)
        if search.route is None:
            self.long_work.add(self._publish_found(message, search))
        else:
            distribute(self, message, search.route, None)

    def _publish_found(self, message: Message, search: Search) -> Job:
        yield from search.rest()
        distribute(self, message, search.finish(), None)

    def find(self, search: Search) -> None:
        """Find the rest in parts, and tell the publishers that wait for it."""
        self.long_work.add(_find(search))

    # -- sessions -------------------------------------------------------------------------------------------

    def open_session(self, client_id: str, clean_start: bool) -> tuple[Session, bool]:
        """The session a CONNECT asks for, taken over from an older connection; and whether it was present."""
        session = self.sessions.get(client_id)
        if session is not None and session in self.lost:
            self._finish(session)
            session = self.sessions.get(client_id)
        if session is not None:
            old = session.conn
            if old is not None:
                if clean_start:
                    session.expiry = 0  # the old session ends with its connection
                old.close(CloseReason.TAKEN_OVER, ReasonCode.SESSION_TAKEN_OVER)
                session = self.sessions.get(client_id)
            elif clean_start:
                self.end_session(session)
                session = None
        if session is not None:
            return session, True
        session = self.sessions[client_id] = Session(self, client_id)
        return session, False

    def connected(self, conn: Connection) -> None:
        self.connections.add(conn)
        conn.listener.connections += 1
        self.admitter.connected(conn.address)
        counters = self.counters
        counters.connections_total += 1
        counters.connections_maximum = max(counters.connections_maximum, len(self.connections))
        if conn.keep_alive:
            self.keep_alive.watch(conn, conn.last_seen + conn.keep_alive * 1.5)
        self.tell(lambda observer: observer.on_connected(conn))

    def tell(self, what: Callable[[SessionObserver], None]) -> None:
        """Tell every session observer; one that fails is logged and harms nobody."""
        for observer in self.session_observers:
            try:
                what(observer)
            except Exception:
                log.exception("unexpected error in an observer")

    def lose(self, conn: Connection, text: str) -> None:
        """The network took the connection. Thousands may go at once: each is cleaned up in a turn of its own time."""
        session = conn.session
        if session.conn is conn:
            session.conn = None  # from here on nothing is written to it
            session.queued = False
        if not self.lost:
            self.loop.call_soon(self._finish_lost)
        self.lost[session] = (conn, text)

    def _finish_lost(self) -> None:
        try:
            until = self.now() + LOST_PER_TURN
            while self.lost and self.now() < until:
                self._finish(next(iter(self.lost)))
        finally:
            if self.lost:
                self.loop.call_soon(self._finish_lost)

    def _finish(self, session: Session) -> None:
        conn, text = self.lost.pop(session)
        if session.conn is None:
            session.conn = conn
        self.disconnected(conn, conn.close_reason or CloseReason.CLIENT_GONE, text)

    def disconnected(self, conn: Connection, why: CloseReason, text: str) -> None:
        """The connection no longer serves its session: publish or schedule its will, keep or end the session."""
        self.connections.discard(conn)
        self.keep_alive.forget(conn)
        self.alarms.cancel(conn.expiry_alarm)
        conn.let_go()
        if self.gate is not None:
            self.gate.close(conn)
        if conn.waits_for is not None and conn.waits_for.waiters is not None:
            conn.waits_for.waiters.pop(conn, None)
        conn.listener.connections -= 1
        self.admitter.disconnected(conn.address)
        self.counters.count_close(why)
        session = conn.session
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "client disconnected", extra={"client": session.client_id, "why": str(why), "text": text}
            )
        if session.conn is not conn:
            return
        if not wills.may_leave(conn):  # the right was withdrawn meanwhile
            wills.keep(session, None)
        session.detach()
        self.tell(lambda observer: observer.on_disconnected(conn, why))
        if self.is_stopping:
            if session.durable is not None and self.sessions.get(session.client_id) is session:
                session.durable.store.save_session(session, is_connected=False)
            return
        now = self.now()
        is_taken_over = why is CloseReason.TAKEN_OVER and session.expiry
        if session.expiry and session.load is not None and not is_taken_over:
            wait = self.features.shared_wait  # in which it may be given more, if all others are away, too
            if wait:
                self.alarms.at(now + wait, partial(hand_on_later, session, session.epoch))
            else:
                hand_on(session)
        if session.expiry == 0:
            self.end_session(session)
            return
        if session.expiry != NEVER:
            session.expiry_alarm = self.alarms.at(
                now + session.expiry, partial(self.expire, session, session.epoch)
            )
        if session.durable is not None:
            session.durable.store.save_session(session, is_connected=False)
        wills.after_disconnect(session)

    def watch_for_stall(self, session: Session) -> None:
        """A member of a group has messages to acknowledge: look later whether it does."""
        wait = self.features.shared_stall
        if wait:
            session.stall_alarm = self.alarms.at(self.now() + wait, partial(self._stalled, session))

    def _stalled(self, session: Session) -> None:
        session.stall_alarm = None
        if session.conn is None or not session.inflight:
            return
        session.is_stalled = True
        session.tell_groups()
        count = hand_on(session)
        if count:
            log.warning(
                "member of a shared subscription stalled", extra={"client": session.client_id, "moved": count}
            )

    def expire(self, session: Session, epoch: int) -> None:
        if (
            session.epoch == epoch
            and session.conn is None
            and self.sessions.get(session.client_id) is session
        ):
            self.counters.sessions_expired += 1
            self.end_session(session)

    def end_session(self, session: Session) -> None:
        """The session is over: its will, if still due, goes out now [MQTT5-3.1.2-10]."""
        if self.sessions.get(session.client_id) is session:
            if self.cluster is not None:
                self.cluster.on_ended(session)
            del self.sessions[session.client_id]
        session.release_waiters()  # also of its groups, as long as it is in them
        subscriptions = session.unsubscribe_all()
        for subscription in subscriptions.values():
            self.index.remove(subscription)
        wills.publish(session)
        session.epoch += 1
        self.cancel_alarms(session)
        if self.is_stopping or not bequeath(session, subscriptions):
            session.discard()

    def end_by_order(self, session: Session) -> None:
        """An operator ends it, whoever is connected."""
        if session in self.lost:
            self._finish(session)
        if session.conn is not None:
            session.expiry = 0  # so that it ends with its connection
            session.conn.close(CloseReason.ADMINISTRATIVE, ReasonCode.ADMINISTRATIVE_ACTION)
        elif self.sessions.get(session.client_id) is session:
            self.end_session(session)

    def cancel_alarms(self, session: Session) -> None:
        """The client is back, or the session is over."""
        self.alarms.cancel(session.expiry_alarm)
        self.alarms.cancel(session.will_alarm)
        session.expiry_alarm = session.will_alarm = None

    def became_full(self, session: Session) -> None:
        """Publishers wait from now on; once it has been stuck for `hold_timeout` they go on without it."""
        timeout = self.limits.hold_timeout
        due = self.now() + timeout + TICK
        self.full[session] = self.alarms.at(due, partial(self._check_stuck, session)) if timeout else None

    def check_full_soon(self) -> None:
        """Once at the end of this turn, however many sessions made room in it."""
        if self.full and not self._is_checking:
            self._is_checking = True
            self.loop.call_soon(self.check_full)

    def has_room_again(self, session: Session) -> None:
        self.alarms.cancel(self.full.pop(session, None))

    def check_full(self) -> None:
        """Room may have been made by others: the bound over all sessions. Who takes nothing for long is cut off."""
        self._is_checking = False
        limit = self.now() - self.limits.write_timeout
        for session in list(self.full):
            session.check_room()
            conn = session.conn
            if (
                session.is_full
                and conn is not None
                and session.queued_messages
                and max(session.full_since, conn.since) < limit
            ):
                conn.close(CloseReason.SLOW_READER, ReasonCode.QUOTA_EXCEEDED)

    def _check_stuck(self, session: Session) -> None:
        if not session.is_full:
            return
        if self.drops_for(session):
            session.release_waiters()
        else:
            due = session.full_since + self.limits.hold_timeout + TICK
            due = max(due, self.now() + TICK)
            self.full[session] = self.alarms.at(due, partial(self._check_stuck, session))

    def make_durable(self, session: Session) -> None:
        """A client connected: from its first CONNECT with an expiry on, its session is kept in the store."""
        if self.store is None:
            return
        if session.durable is None and session.expiry:
            session.durable = Durable(self.store, self.store.new_session())
        if session.durable is not None:
            self.store.save_session(session, is_connected=True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine that belongs to the broker and ends with it."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # -- admission ------------------------------------------------------------------------------------------

    def admission(self, client_id: str) -> ReasonCode:
        """Whether one more client may connect now. Memory pressure keeps nobody out who has a session to empty."""
        if self.is_stopping:
            return ReasonCode.SERVER_SHUTTING_DOWN
        if len(self.connections) >= min(self.limits.max_connections, self._most_sockets):
            return ReasonCode.QUOTA_EXCEEDED
        if client_id not in self.sessions and len(self.sessions) >= self.limits.max_sessions:
            return ReasonCode.QUOTA_EXCEEDED
        if self.memory.pressure >= Pressure.NO_NEW_CLIENTS and client_id not in self.sessions:
            return ReasonCode.SERVER_BUSY
        return ReasonCode.SUCCESS

    def _has_descriptors(self) -> bool:
        """Whether there is a socket for one more newcomer, beside those that files and the operator need."""
        return len(self.connections) + len(self.closing) + len(self.door) < self._most_sockets

    def log_refusal(self, peer: str, code: ReasonCode, text: str) -> None:
        """One line a second at most: strangers decide how many there are."""
        now = self.now()
        if now < self._refusal_at:
            self._refusals += 1
            return
        self._refusal_at = now + REFUSAL_INTERVAL
        log.warning(
            "client refused",
            extra={"peer": peer, "reason": code.name, "text": text, "unlogged_before": self._refusals},
        )
        self._refusals = 0

    # -- recording and policy snapshots ---------------------------------------------------------------------

    def set_tap(self, tap: Tap) -> None:
        """Record from now on; before the first client and the first session."""
        self.tap = tap
        if tap.is_full:
            self.roster = tap.members
        self.set_flow(self.flow_settings)
        tap.action("start")

    def learn(
        self, priors: Mapping[str, Prior], speeds: Mapping[tuple[str, str], float], version: str
    ) -> None:
        """Take what a policy snapshot knows: of publishers that are not known yet, of members that join."""
        self.priors = priors
        if self.gate is not None:
            self.gate.priors = priors
        self.roster.speeds = speeds
        self.policy_version = version
        if self.tap is not None:
            self.tap.policy_version = version or None

    # -- load and back-off ----------------------------------------------------------------------------------

    def set_flow(self, settings: FlowSettings) -> None:
        """Begin anew with these policies; what was learnt about publishers is forgotten."""
        old, self.gate = self.gate, None
        if old is not None:
            old.release_all()
            for conn in self.connections:
                conn.publisher = None
        self.meter = LoadMeter(settings.load, self.now())
        self.flow_settings = settings
        if settings.backoff.policy != "off" or settings.priority.policy != "off":
            self.gate = Gate(self, settings, self.priors)

    def measure_load(self, now: float) -> None:
        """Four times a second, and whenever turns become long."""
        before = self.meter.state
        state = self.meter.update(now, max(self.memory.share, self.queue_share()))
        self.lanes.is_open = state is not Load.LOW
        if self.gate is not None:
            self.gate.follow(state, now)
            if self.gate.policy.load is not Load.LOW:
                self.lanes.is_open = True  # who is held comes back with all it has
        if state is not before:
            if self.tap is not None:
                self.tap.action("load", src=before.name, dst=state.name)
            self._pace_admission()
            self.on_load_changed()
            self._load_since = now
        if state is not self._load_told and (state is Load.OVERLOAD or now - self._load_since >= LOAD_TOLD):
            log.info(
                "load changed",
                extra={"from": self._load_told.name, "to": state.name, "wait_ms": round(self.meter.wait * 1e3, 2)},
            )
            self._load_told = state

    def _pace_admission(self) -> None:
        """New clients come more slowly while those that are there have to wait."""
        rate = self.limits.connection_rate
        self.admitter.rate = rate * OVERLOAD_ADMISSION if self.meter.state is Load.OVERLOAD else rate

    def load(self) -> dict[str, Any]:
        """The state and what it comes from."""
        gate = self.gate
        return {
            "state": self.meter.state.name,
            "wait_ms": round(self.meter.wait * 1e3, 3),
            "lag_ms": round(self.loop_lag * 1e3, 1),
            "memory_share": round(self.memory.share, 3),
            "queue_share": round(self.queue_share(), 3),
            "waiting": len(self.lanes),
            "held": len(gate.waiters or ()) if gate is not None else 0,
        }

    def queue_share(self) -> float:
        return self.queued_bytes / self.limits.max_total_queued_bytes

    # -- the sweep ------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self.now()
        lag_before, self.loop_lag = self.loop_lag, max(0.0, now - self._tick_due)
        self.meter.lag(min(lag_before, self.loop_lag))  # once may be chance
        self._tick_due = now + TICK
        self._ticker = self.loop.call_at(self._tick_due, self._tick)
        limits = self.limits
        self.memory.look()
        self.check_full()
        self.measure_load(now)
        self._backlogs.sweep(now)
        for conn in self.keep_alive.expired(now):
            conn.close(CloseReason.KEEP_ALIVE, ReasonCode.KEEP_ALIVE_TIMEOUT)
        for newcomer in self.door.expired(limits.connect_timeout):
            newcomer.abort()
        for conn in self.unfinished.late(limits.packet_timeout):
            conn.close(CloseReason.SLOW_PACKET, ReasonCode.MALFORMED_PACKET, "packet not completed in time")
        for conn in _older(self.blocked, now - limits.write_timeout):
            conn.close(CloseReason.SLOW_READER)
        for conn in _older(self.closing, now - LINGER):
            conn.abort()

    # -- rights ---------------------------------------------------------------------------------------------

    def rights_changed(self) -> None:
        """Every later message asks the authoriser again, those that wait in queues as well."""
        self.rights_epoch += 1
        self.index.forget_routes()
        if self.index.may_receive is not None:
            for conn in self.connections:
                if conn.session.backlog:
                    conn.session.shed_backlog()

    def forget_departed(self) -> None:
        """End the sessions of users whose account is gone, without their wills, and what they left retained."""
        if self.authors.may_depart:
            self.long_work.add(self._forget_departed())

    def _forget_departed(self) -> Job:
        is_known = self.authors.is_known
        for session in list(self.sessions.values()):
            yield 1
            is_client = not session.client_id.startswith("$")  # else another node says when it ends
            if is_client and session.conn is None and not is_known(session.user):
                wills.keep(session, None)
                self.end_session(session)
        for message in self.retained.search(b"#"):
            yield 1
            author = None if message is None else message.author
            if author is not None and message is not None and not is_known(author.user):
                self.retained.remove(message.topic)

    # -- from outside ---------------------------------------------------------------------------------------

    def apply(self, limits: Limits, features: Features, flow_settings: FlowSettings | None = None) -> None:
        """Take new settings; they rule from the next packet on."""
        if flow_settings is not None and replace(flow_settings, shared=()) != replace(
            self.flow_settings, shared=()
        ):
            self.set_flow(flow_settings)
        old = (self.features.shared_policy, self.shared_rules)
        self.limits = limits
        self.features = features
        if flow_settings is not None:
            self.shared_rules = flow_settings.shared
        if old != (features.shared_policy, self.shared_rules):
            for group in self.index.groups.values():
                group.policy = self._shared_policy(group.name, group.topic_filter)
                self._record_policy(group)
            self.index.forget_routes()
        self.memory.apply(limits)
        self._bound(limits)
        self._pace_admission()
        self.admitter.max_wait = limits.connection_wait
        self.admitter.address_rate = limits.address_connection_rate
        self.admitter.address_connections = limits.max_address_connections

    def _bound(self, limits: Limits) -> None:
        """What others keep for clients; without accounts there is nobody to be kept from the others."""
        self.retained.capacity = limits.max_retained
        self.retained.most_bytes = limits.max_retained_bytes
        self.retained.account_capacity = limits.max_account_retained if self.has_accounts else limits.max_retained
        self.accounts.most_bytes = limits.max_account_bytes if self.has_accounts else inf
        self.door.most = limits.max_half_open
        self.door.most_bytes = min(MOST_BYTES, self.memory.part_bytes)
        if self.gate is not None:
            self.gate.bound(self.memory.part_bytes)

    def has_account_room(self, user: str | None) -> bool:
        """Whether an account may have one more session."""
        account = self.accounts.find(user)
        is_full = account.sessions >= self.limits.max_account_sessions or self.accounts.is_full(account)
        return not self.has_accounts or not is_full

    def statistics(self) -> dict[str, Any]:
        return (
            self.counters.snapshot()
            | {
                "connections": len(self.connections),
                "sessions": len(self.sessions),
                "subscriptions": self.index.count,
                "shared_subscriptions": self.index.shared_count,
                "retained": len(self.retained),
                "retained_bytes": self.retained.size_bytes,
                "retained_refused": self.retained.refused,
                "queued_bytes": self.queued_bytes,
                "full_sessions": len(self.full),
                "handshakes": len(self.door) - len(self.waiting),
                "handshakes_displaced": self.door.displaced,
                "waiting_connects": len(self.waiting),
                "memory_bytes": self.memory.resident_bytes,
                "memory_pressure": int(self.memory.pressure),
                "memory_gave_way": self.memory.gave_way,
                "kept_bytes": self.memory.kept_bytes,
                "routes": len(self.index.routes),
                "loop_lag": self.loop_lag,
                "load_state": int(self.meter.state),
                "load_wait": self.meter.wait,
                "lanes_waiting": len(self.lanes),
                "policy_version": self.policy_version,
            }
            | (self.gate.statistics() if self.gate is not None else {})
            | (self.views.statistics() if self.views is not None else {})
            | (self.store.statistics() if self.store is not None else {})
            | (self.tap.statistics() if self.tap is not None else {})
        )

    # -- stopping -------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Say goodbye to everyone; listeners are closed already."""
        self.is_stopping = True
        self.late.hand_on_all()
        for session in list(self.lost):
            self._finish(session)
        for newcomer in self.door:
            newcomer.abort()
        for conn in list(self.connections):
            conn.close(CloseReason.SHUTDOWN, ReasonCode.SERVER_SHUTTING_DOWN)

    def close(self) -> None:
        self._ticker.cancel()
        self.alarms.close()
        for task in self.tasks:
            task.cancel()
        for conn in list(self.closing):
            conn.abort()


def _find(search: Search) -> Job:
    for cost in search.rest():
        if not search.waiters:
            return  # they went
        yield cost
    release(search)


def _may_receive(authoriser: Authoriser, session: Session, topic: bytes) -> bool:
    if session.is_link or session.is_operator:
        return True
    try:
        return authoriser.may_receive(session, topic.decode())
    except Exception:  # asked while somebody else publishes: that client is not to blame
        log.exception("unexpected error in the authoriser")
        return False


def _admitter(limits: Limits) -> Admitter:
    return Admitter(
        rate=limits.connection_rate,
        max_wait=limits.connection_wait,
        address_rate=limits.address_connection_rate,
        address_connections=limits.max_address_connections,
    )


def _older(since: dict[T, float], limit: float) -> list[T]:
    """Keys that were entered before `limit`; the dictionary is in order of entry, so the walk ends early."""
    found: list[T] = []
    for key, entered in since.items():
        if entered >= limit:
            break
        found.append(key)
    return found
