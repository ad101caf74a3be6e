"""The gate: tells the back-off policy what each publisher sends, and makes it wait when the policy says so.

Rules. A policy that judges chunks (`adaptive`) is asked once per chunk, after it was handled: what is too much delays
what comes next, and costs the same for one message or five hundred. A policy that judges messages (`paper`, and every
mode but backpressure) is asked before each is accepted; see `judging.py`.

A publisher that waits is held as for a full queue (`holding.py`): its messages stay in a bounded buffer, everything
else it sends is answered, its keep-alive does not run out, and no wait is longer than half of it.

The policy's load follows the node's, with two differences. It stays HIGH while somebody is held: the calm is what
holding achieved, and letting go would bring the flood back. And after `probe` seconds of calm it is LOW for a moment,
so that nobody is held for ever on a node that could serve it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate import flow
from tidegate.broker.flow_settings import BANDS, BandName, FlowSettings
from tidegate.broker.holding import unread_bytes
from tidegate.flow.backoff import IdentityTable, Load, Mode, NoBackoff, Prior, Publisher
from tidegate.flow.backoff.base import BackoffPolicy
from tidegate.flow.priority import AgeingPriority, Band, Classes, PriorityPolicy, Rule
from tidegate.mqtt.errors import MQTTError

if TYPE_CHECKING:
    from tidegate.broker.alarms import Alarm
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.recording.gate import GateRecord

SUSPECT_RECEIVE_MAXIMUM = 16  # unacknowledged messages granted to a client that left under suspicion
MAX_CACHED_BANDS = 4_096
MAX_PINS = 1_000  # publishers that operators put into a class
RERANK = 1.1  # change of a rate that is worth a new place


class Gate:
    """One policy, one order of service, and what is known of every publisher."""

    def __init__(self, core: Core, settings: FlowSettings, priors: Mapping[str, Prior] | None = None) -> None:
        self._core = core
        self.settings = settings
        self.priors: Mapping[str, Prior] = priors or {}
        tap = core.tap
        self.tap = tap
        self._record = tap.gate if tap is not None and tap.is_full else None
        self.policy = _backoff(settings)
        if self._record is not None:
            self.policy = self._record.begin(self.policy, settings, core.now())
        self.is_active = settings.backoff.policy != "off"  # else publishers are known for their ranks only
        self.is_per_message = self.is_active and self.policy.is_per_message
        self.mode = self.policy.mode
        self.priority = _priority(settings)
        self._classes = Classes(each.rule() for each in settings.classes)
        self._has_topic_rules = any(rule.topic_filter is not None for rule in self._classes.rules)
        self._bands: dict[tuple[str, str, str], Band | None] = {}
        self._rates: dict[Hashable, float] = {}  # as the order of service knows them
        self._table = IdentityTable(self.policy, most_bytes=core.memory.part_bytes)
        self._calm_since = core.now()
        self.waiters: dict[Connection, None] | None = None  # publishers that are held, and
        self._alarms: dict[Connection, Alarm] = {}  # what ends it
        self._free: set[Connection] = set()  # of whom nothing is judged
        self._excused: dict[Connection, float] = {}  # by an operator, until when
        self.holds = 0
        self.held_seconds = 0.0
        self.refused = 0  # messages
        self.shed = 0  # QoS 0 messages of held publishers, dropped so that their PINGREQ gets through
        self.follow(Load.LOW, core.now())

    # -- who publishes --------------------------------------------------------------------------------------

    def open(self, conn: Connection) -> Publisher:
        """What is known of the client, at its first PUBLISH on this connection."""
        session = conn.session
        rule = self.rule(conn)
        is_exempt = conn.listener.is_link or conn.listener.is_operator
        if is_exempt or (rule is not None and rule.is_service):
            # Publishers behind a link were judged where they are; those who ask a service are where they ask.
            conn.publisher = NoBackoff().publisher(session.client_id)
            self._free.add(conn)
            if not is_exempt:
                self._pin(conn, rule)
            return conn.publisher
        prior = self.priors.get(session.client_id)
        if rule is not None and rule.limit:
            known = prior or Prior()
            prior = Prior(rate=known.rate, dispersion=known.dispersion, limit=rule.limit, rank=known.rank)
        now = self._core.now()
        publisher = self._table.open(session.client_id, conn.username or "", conn.address, now, prior)
        conn.publisher = publisher
        band = self._pin(conn, rule)
        if self._record is not None:
            self._record.opened(conn, publisher, prior, band, now)
        return publisher

    def _pin(self, conn: Connection, rule: Rule | None) -> Band | None:
        """The place in the order of service that an administrator gave it, if any."""
        band = self._band_by_order(conn, rule)
        if band is not None and conn.publisher is not None and isinstance(self.priority, AgeingPriority):
            self.priority.pin(conn.publisher.key, band)
        return band

    def close(self, conn: Connection) -> None:
        self._core.alarms.cancel(self._alarms.pop(conn, None))
        self._excused.pop(conn, None)
        publisher = conn.publisher
        if publisher is None:
            return
        conn.publisher = None
        if conn in self._free:
            self._free.remove(conn)
            self._rates.pop(publisher.key, None)
            self.priority.remove(publisher.key)
            return
        now = self._core.now()
        self._table.close(conn.session.client_id, conn.username or "", conn.address, now)
        if self._record is not None:
            self._record.closed(conn, now)
        if not self._table.is_connected(conn.session.client_id, conn.username or ""):
            self._rates.pop(publisher.key, None)
            self.priority.remove(publisher.key)

    def bound(self, most_bytes: int) -> None:
        """So many bytes may be known of publishers."""
        self._table.most_bytes = most_bytes

    def receive_maximum(self, conn: Connection, usual: int) -> int:
        """What CONNACK grants: less to a client that left under suspicion and comes back."""
        known = self._table.known(conn.session.client_id, conn.username or "") if self.is_active else None
        if known is not None and known.is_suspicious:
            return min(usual, SUSPECT_RECEIVE_MAXIMUM)
        return usual

    def rule(self, conn: Connection, topic: str | None = None) -> Rule | None:
        """The class that an administrator gave to a client, or to its messages of one topic."""
        if not self._classes.rules:
            return None
        return self._classes.find(topic=topic, user=conn.username or "", listener=conn.listener.name)

    # -- waiting --------------------------------------------------------------------------------------------

    def hold(self, conn: Connection, seconds: float) -> None:
        if conn.is_closing or conn.waits_for is not None:
            return  # it waits for something else already, which slows it as well
        if self._excused and self.is_excused(conn):
            return
        if conn.keep_alive:
            seconds = min(seconds, conn.keep_alive / 2.0)
        if conn.sweep_left > 0 and not unread_bytes(conn):
            conn.sweep_left = 0  # the backlog that was to be swept is gone: what comes now waits as usual
        self.holds += 1
        self.held_seconds += seconds
        conn.hold()
        conn.wait_for(self)
        if self.tap is not None:
            self.tap.gate.held(conn, seconds, self._core.now())
        self._alarms[conn] = self._core.alarms.at(self._core.now() + seconds, partial(self._release, conn))

    def _release(self, conn: Connection) -> None:
        self._alarms.pop(conn, None)
        if conn.waits_for is self:
            assert self.waiters is not None
            self.waiters.pop(conn, None)
            conn.release()

    def release_all(self) -> None:
        waiters, self.waiters = self.waiters, None
        for conn in waiters or ():
            self._core.alarms.cancel(self._alarms.pop(conn, None))
            conn.release()

    # -- what an operator orders ----------------------------------------------------------------------------

    def excuse(self, conn: Connection, seconds: float) -> None:
        """Let it go on if it is held, and do not hold it for so long, nor longer than it is connected."""
        self._excused[conn] = self._core.now() + seconds
        self._core.alarms.cancel(self._alarms.get(conn))
        self._release(conn)

    def is_excused(self, conn: Connection) -> bool:
        until = self._excused.get(conn, 0.0)
        if until and self._core.now() >= until:
            del self._excused[conn]
            return False
        return until > 0.0

    def excused_seconds(self, conn: Connection) -> float:
        return max(0.0, self._excused.get(conn, 0.0) - self._core.now())

    def pin(self, conn: Connection, band: BandName | None) -> bool:
        """Serve it in this class, also when it comes back; None ends that. False: there are no classes, or no room."""
        key = (conn.session.client_id, conn.username or "")
        pins = self._core.pins
        if not isinstance(self.priority, AgeingPriority) or conn.publisher is None:
            return False
        if band is None:
            pins.pop(key, None)
        elif key not in pins and len(pins) >= MAX_PINS:
            return False
        else:
            pins[key] = band
        self.priority.pin(conn.publisher.key, self._band_by_order(conn, self.rule(conn)))
        return True

    def pinned(self, conn: Connection) -> BandName | None:
        pins = self._core.pins
        return pins.get((conn.session.client_id, conn.username or "")) if pins else None

    def _band_by_order(self, conn: Connection, rule: Rule | None) -> Band | None:
        """The operator's class goes before that of the settings."""
        name = self.pinned(conn)
        if name is not None:
            return BANDS[name]
        return None if rule is None else rule.band

    def statistics(self) -> dict[str, Any]:
        return {
            "backoff_holds": self.holds,
            "backoff_held_seconds": self.held_seconds,
            "backoff_refused": self.refused,
            "backoff_shed": self.shed,
            "backoff_held": len(self.waiters or ()),
            "backoff_known": len(self._table),
            "backoff_known_bytes": self._table.size_bytes,
        }

    # -- load -----------------------------------------------------------------------------------------------

    def follow(self, load: Load, now: float) -> None:
        """The node's load was measured."""
        if self.settings.backoff.always:
            load = max(load, Load.HIGH)
        if not self.is_active:
            load = Load.LOW
        if load or self.policy.load is Load.LOW:
            self._calm_since = now
            self.policy.load = load
        elif now - self._calm_since >= self.settings.load.probe or not self.waiters:
            self.policy.load = Load.LOW
            self.release_all()

    # -- order of service -----------------------------------------------------------------------------------

    def key(self, conn: Connection, now: float) -> float:
        """Place of the connection's chunk among those that wait; the smallest is next."""
        publisher = conn.publisher
        if publisher is None:
            publisher = self.open(conn)
        record = self._update_rank(conn, publisher)
        band = None
        if self._has_topic_rules and isinstance(self.priority, AgeingPriority):
            band = self._band(conn)
            place = self.priority.key_in(band, publisher.key, now)
        else:
            place = self.priority.key(publisher.key, now)
        if record is not None:
            record.ranked(publisher.key, now, place=place, band=band)
        return place

    def rank(self, conn: Connection) -> int:
        if conn.publisher is None:
            return 0
        record = self._update_rank(conn, conn.publisher)
        rank = self.priority.rank(conn.publisher.key)
        if record is not None:
            record.ranked(conn.publisher.key, self._core.now(), rank=rank)
        return rank

    def _update_rank(self, conn: Connection, publisher: Publisher) -> GateRecord | None:
        """Tell the order of service of a rate that changed; gives where what is decided by it is recorded. Of whom
        nothing is judged has no rate, so that its place depends on nothing that would have to be computed again."""
        if conn in self._free:
            return None
        rate = publisher.likely_rate
        known = self._rates.get(publisher.key, -1.0)
        if known < 0.0 or not rate / RERANK <= known <= rate * RERANK:
            self._rates[publisher.key] = rate
            self.priority.update(publisher.key, rate)
            if self._record is not None:
                self._record.rate(publisher.key, rate, self._core.now())
        return self._record

    def _band(self, conn: Connection) -> Band | None:
        """The class of a chunk is that of its first message."""
        try:
            topic = conn.first_topic()
        except MQTTError:
            return None  # whoever handles the chunk says what is wrong with it
        at = (topic, conn.username or "", conn.listener.name)
        if at not in self._bands:
            if len(self._bands) >= MAX_CACHED_BANDS:
                self._bands.clear()
            rule = self.rule(conn, topic)
            self._bands[at] = None if rule is None else rule.band
        return self._bands[at]


def _backoff(settings: FlowSettings) -> BackoffPolicy:
    given = settings.backoff
    if given.policy == "paper":
        options = {
            "n": given.paper_n,
            "training": given.paper_training.value,
            "margin": given.paper_margin,
            "d_max": given.paper_d_max,
        }
        return flow.backoff_policy("paper")(**options, mode=given.mode)
    if given.policy == "off":  # a policy that is never under load holds nobody, and learns the rates
        return flow.backoff_policy("adaptive")(given.adaptive(), mode=Mode.BACKPRESSURE)
    if given.policy == "adaptive":
        return flow.backoff_policy("adaptive")(given.adaptive(), mode=given.mode)
    return flow.backoff_policy(given.policy)(mode=given.mode)


def _priority(settings: FlowSettings) -> PriorityPolicy:
    make: Callable[..., PriorityPolicy] = flow.priority_policy(settings.priority.policy)
    if settings.priority.policy == "ageing":
        return make(patience=settings.priority.patience)
    return make()
