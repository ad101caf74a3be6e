"""A session: what the broker owes one client, connected or not.

Rules: every queue here is bounded. QoS 0 that a slow reader leaves over the bound is dropped and counted. QoS 1
and 2 are counted against `max_queued_*`; a session that reaches a bound is `is_full`, and publishers are held
or refused before they add to it (`publishing.py`), so nothing acknowledged is dropped.

Order: QoS 0 goes out in order, QoS 1 and 2 go out in order; between the two there is none, as the
specification allows. In-flight messages are kept in send order, which is the order of the dictionary; replacing
a value (PUBLISH → PUBREL) keeps its place, so re-sending walks it from the front [MQTT5-4.6.0-1].
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, cast

from tidegate.broker.durable import Durable, packet_identifier
from tidegate.broker.handing_on import GIVEN_ON
from tidegate.broker.hooks import LINK_RETAINED, LINK_TOPIC
from tidegate.broker.message import Message
from tidegate.broker.tree import has_wildcard
from tidegate.broker.waiting import release
from tidegate.mqtt.errors import ProtocolError

if TYPE_CHECKING:
    from tidegate.broker.account import Account
    from tidegate.broker.alarms import Alarm
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.handing_on import Errand
    from tidegate.broker.index import Subscription
    from tidegate.broker.wills import Will
    from tidegate.flow.load_report import LoadReport
    from tidegate.flow.shared import ClientLoad

# (message, QoS, retain flag, subscription identifiers, sequence number in the store or 0)
Delivery = tuple[Message, int, bool, tuple[int, ...], int]
# A delivery as the fast path leaves it: (packet up to the topic, QoS, packet behind the identifier), in the form of
# the session's protocol version; turned into a Delivery when the connection ends.
RawDelivery = tuple[bytes, int, bytes]
# PUBREC came and PUBREL was sent: (number of the message in the store, RELEASED, sequence number)
Released = tuple[int, int, int]
RELEASED = 3  # stands where a delivery has its QoS

DRAINED = 1_000  # messages of a queue sent in one turn, and
DRAINED_BYTES = 262_144  # bytes; the socket may be full then. Acknowledgements or the next turn continue.
RELIEF_BYTES = 131_072  # written at once to a client that has read again
LARGE = 16_384  # bytes of a payload from which messages in flight are bounded by bytes, too
FIRST_BYTE = (b"\x30", b"\x32", b"\x34")
NO_EPOCH = -1  # of rights
SESSION_BYTES = 1_500  # of a session that has nothing, about
SUBSCRIPTION_BYTES = 600  # beside its filter; one with wildcards is in the tree once more
WILL_BYTES = 300
NEVER = 4_294_967_295  # [MQTT5-3.1.2.11.2]: a session expiry interval that means no expiry


def subscription_bytes(name: bytes) -> int:
    """What a subscription takes, whatever its options."""
    return SUBSCRIPTION_BYTES + (2 if has_wildcard(name) else 1) * len(name)


def will_bytes(will: Will | None) -> int:
    return 0 if will is None else WILL_BYTES + will.message.size_bytes


def _must_arrive(message: Message) -> bool:
    """What nodes tell each other is never dropped: a session could be with nobody."""
    return message.topic.startswith(LINK_TOPIC) and not message.topic.startswith(LINK_RETAINED)


class Session:
    """State of one client identifier. Only `Core` makes and ends sessions."""

    __slots__ = (
        "account",
        "backlog",
        "backlog_bytes",
        "client_id",
        "conn",
        "core",
        "deaf",
        "dropped",
        "durable",
        "epoch",
        "errand",
        "expiry",
        "expiry_alarm",
        "full_since",
        "has_had_turn",
        "inbound",
        "inflight",
        "is_full",
        "is_link",
        "is_operator",
        "is_plain",
        "is_stalled",
        "keeps_qos0",
        "kept_bytes",
        "late_bytes",
        "late_until",
        "left_at",
        "load",
        "next_pid",
        "out",
        "paused",
        "pending",
        "pending_bytes",
        "queued",
        "quota",
        "rights_epoch",
        "stall_alarm",
        "subscriptions",
        "unsent",
        "user",
        "version",
        "waiters",
        "will",
        "will_alarm",
        "work",
    )  # fmt: skip

    def __init__(self, core: Core, client_id: str) -> None:
        self.core = core
        self.client_id = client_id
        self.user: str | None = None
        self.account: Account = core.accounts.nobody  # it counts for, once it is known whose it is
        self.kept_bytes = 0  # beside its queue: subscriptions, will, name
        self.rights_epoch = NO_EPOCH  # in which all that waits was allowed
        self.is_link = False  # another node of the cluster, which asks for rights itself
        self.is_operator = False  # who runs this process, and may do everything
        self.conn: Connection | None = None
        self.version = 4
        self.is_plain = True
        self.expiry = 0
        self.keeps_qos0 = True  # while nobody is connected, if that is set
        self.epoch = 0  # counts connections, so that a timer can tell whether the client came back
        self.subscriptions: dict[bytes, Subscription] = {}
        self.will: Will | None = None
        self.expiry_alarm: Alarm | None = None
        self.will_alarm: Alarm | None = None
        # Egress. `queued`: connected, writable and on the list of sessions to flush at the end of this turn.
        self.out: list[bytes] = []
        self.queued = False
        self.paused = False
        self.backlog: deque[tuple[bytes, int]] | None = None  # QoS 0 packets while the socket is full
        self.backlog_bytes = 0
        self.deaf = False  # that queue is full: QoS 0 is dropped until the client reads again
        self.dropped = 0
        # QoS 1 and 2 towards the client
        self.inflight: dict[int, Delivery | RawDelivery | Released] = {}
        self.next_pid = 1
        self.quota = 0
        self.has_had_turn = False  # in which as much was sent as one may
        self.unsent: deque[int] | None = None  # in flight, not yet sent again on this connection
        self.pending: deque[Delivery] | None = None
        self.pending_bytes = 0
        self.is_full = False
        self.full_since = 0.0
        self.waiters: dict[Connection, None] | None = None  # publishers held until there is room
        # QoS 2 from the client: identifiers received and not yet released
        self.inbound: set[int] | None = None
        self.durable: Durable | None = None  # None: the session lives and dies with the process
        self.late_until = 0.0  # until then its messages are handed on late, and
        self.late_bytes = 0  # so many wait for it
        # As a member of shared subscriptions
        self.load: ClientLoad | None = None
        self.left_at = 0.0  # while nobody is connected
        self.errand: Errand | None = None  # that carries what it has to other members
        self.is_stalled = False  # it acknowledged nothing for long, and others do its work
        self.stall_alarm: Alarm | None = None
        self.work = 0  # that its client caused since it was asked for
        self._keeps(SESSION_BYTES + len(client_id))

    # -- what it keeps --------------------------------------------------------------------------------------

    def _keeps(self, size: int) -> None:
        """So many bytes more, or less, are kept for it."""
        self.kept_bytes += size
        self.account.kept_bytes += size
        self.core.memory.grew(size)

    def waits(self, size: int) -> None:
        """So many bytes more, or less, wait for it."""
        core = self.core
        core.queued_bytes += size
        self.account.kept_bytes += size
        if core.queued_bytes > core.memory.look_at:
            core.memory.look()

    def subscribe(self, name: bytes, subscription: Subscription) -> None:
        """It wants this from now on, by the name it gave; the index is told by the caller."""
        if name not in self.subscriptions:
            self._keeps(subscription_bytes(name))
        self.subscriptions[name] = subscription

    def unsubscribe(self, name: bytes) -> Subscription | None:
        """It does not want this any more; gives what it was."""
        gone = self.subscriptions.pop(name, None)
        if gone is not None:
            self._keeps(-subscription_bytes(name))
        return gone

    def unsubscribe_all(self) -> dict[bytes, Subscription]:
        gone, self.subscriptions = self.subscriptions, {}
        self._keeps(-sum(map(subscription_bytes, gone)))
        return gone

    def set_will(self, will: Will | None) -> None:
        self._keeps(will_bytes(will) - will_bytes(self.will))
        self.will = will

    def take_work(self) -> int:
        """Units of work (about a microsecond each) since the last time; its account keeps the sum."""
        work, self.work = self.work, 0
        self.account.work += work
        self.core.counters.work += work
        return work

    # -- QoS 0 ----------------------------------------------------------------------------------------------

    def wake(self, packets: bytes, count: int) -> None:
        """Take `count` whole QoS 0 packets when the session is not on the flush list yet."""
        conn = self.conn
        core = self.core
        if conn is None:  # [MQTT5-3.1.2-23] asks for QoS 1 and 2 only
            core.counters.publish_sent -= count  # the caller counted before it knew
            return
        if self.paused:
            size = len(packets)
            if self.backlog_bytes + self.pending_bytes + size > core.limits.max_queued_bytes:
                self.deaf = True
            if self.deaf or not core.has_room_for_qos0(self, size):
                core.counters.publish_sent -= count
                self.drop(count)
                return
            if self.backlog is None:
                self.backlog = deque()
            self.backlog.append((packets, count))
            self.backlog_bytes += size
            core.backlog_bytes += size
            self.waits(size)
            return
        self.queued = True
        self.out.append(packets)
        core.mark_dirty(self)

    def write(self, data: bytes) -> None:
        """Send a packet of the protocol itself (acknowledgement, PINGRESP…) at the end of this turn."""
        self.out.append(data)
        if not self.queued and not self.paused and self.conn is not None:
            self.queued = True
            self.core.mark_dirty(self)

    def drop(self, count: int) -> None:
        self.dropped += count
        self.core.counters.dropped += count
        self.count_load()

    # -- any QoS --------------------------------------------------------------------------------------------

    def deliver(
        self, message: Message, qos: int, retain: bool = False, identifiers: tuple[int, ...] = ()
    ) -> None:
        """Send or queue one message at the given QoS."""
        if qos == 0:
            self._deliver_qos0(message, retain, identifiers)
        elif self.durable is not None:
            self._deliver_durable(self.durable, message, qos, retain, identifiers)
        elif self.conn is None or self.paused or self.is_behind or not self._has_quota(message):
            if self.is_full and self.core.drops_for(self) and not _must_arrive(message):
                self.drop(1)
            else:
                self.enqueue((message, qos, retain, identifiers, 0))
        else:
            self._send((message, qos, retain, identifiers, 0))

    def _deliver_durable(
        self, durable: Durable, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        """Write to the store, and send at once if that is allowed, or queue in memory or on disk only."""
        if (
            self.is_full
            and (
                self.core.drops_for(self)
                or self.queued_messages
                >= 2 * self.core.limits.max_queued_messages  # only the node itself goes on
            )
            and not _must_arrive(message)
        ):
            self.drop(1)
            return
        seq = durable.next_seq
        durable.next_seq = seq + 1
        delivery = (message, qos, retain, identifiers, seq)
        store = durable.store
        store.enqueue(self, delivery)
        if durable.copy is not None:
            durable.copy.came(delivery)
        pending = self.pending
        kept = store.settings
        if durable.tail or (
            pending is not None
            and (len(pending) >= kept.memory_queue or self.pending_bytes >= kept.memory_queue_bytes)
        ):
            if not durable.tail:
                durable.tail_after = seq - 1
            durable.tail += 1
            durable.tail_bytes += message.size_bytes
            if durable.fresh is not None:
                durable.fresh.append(delivery)
            self._count_in(message.size_bytes)
        elif (
            self.conn is None
            or self.paused
            or self.is_behind
            or not self._has_quota(message)
            or packet_identifier(seq) in self.inflight
            or not durable.may_send(qos, seq)
        ):
            self.enqueue(delivery)
        else:
            self._send(delivery)
            store.expects_acknowledgement()

    def _deliver_qos0(self, message: Message, retain: bool, identifiers: tuple[int, ...]) -> None:
        conn = self.conn
        if conn is None:
            if self.core.features.queue_qos0 and self.keeps_qos0:
                if self.is_full:
                    self.drop(1)
                else:
                    self.enqueue((message, 0, retain, identifiers, 0))
            return
        if self.pending is not None and self.core.features.queue_qos0 and not self.is_full:
            self.enqueue((message, 0, retain, identifiers, 0))  # behind what was queued while it was away
            return
        self._send_qos0(message, retain, identifiers)

    def _send_qos0(self, message: Message, retain: bool, identifiers: tuple[int, ...]) -> None:
        conn = self.conn
        assert conn is not None
        if self.is_plain and not retain and not identifiers and message.expires is None:
            packet = message.plain(self.version)
        else:
            made = conn.encode(message, 0, None, retain, identifiers)
            if made is None:
                return
            packet = made
        self.core.counters.publish_sent += 1
        if self.queued:
            self.out.append(packet)
        else:
            self.wake(packet, 1)

    def _send(self, delivery: Delivery) -> None:
        """Put one QoS 1 or 2 message in flight. The caller has checked connection, quota and identifier."""
        message, qos, retain, identifiers, seq = delivery
        inflight = self.inflight
        dup = False
        durable = self.durable
        if durable is not None and seq:
            pid = packet_identifier(seq)
            dup = seq <= durable.sent_seq
            if not dup:
                durable.sent_seq = seq
                durable.store.sent(self)
        else:
            pid = self.next_pid
            while pid in inflight:
                pid = pid + 1 if pid < 65_535 else 1
            self.next_pid = pid + 1 if pid < 65_535 else 1
        if self.is_plain and not retain and not identifiers and message.expires is None and not dup:
            head, tail = message.parts(self.version)
            self.out += (FIRST_BYTE[qos], head, pid.to_bytes(2, "big"), tail)
        else:
            conn = self.conn
            assert conn is not None
            packet = conn.encode(message, qos, pid, retain, identifiers, dup)
            if packet is None:  # too large for this client: discarded as if it had been sent [MQTT5-3.1.2-25]
                self.forget(delivery)
                self.count_load()
                return
            self.out.append(packet)
        inflight[pid] = delivery
        if self.load is not None and self.stall_alarm is None:
            self.core.watch_for_stall(self)
        self.core.counters.publish_sent += 1
        if not self.queued:
            self.queued = True
            self.core.mark_dirty(self)

    def forget(self, entry: Delivery | RawDelivery | Released) -> None:
        """The client has it, or will never: nothing needs to be kept."""
        durable = self.durable
        if durable is None:
            return
        if len(entry) == 5:
            durable.store.done(self, entry[0].mid, entry[4])
            if durable.copy is not None:
                durable.copy.done(entry)
        elif entry[1] == RELEASED:
            mid, _, seq = cast(Released, entry)
            durable.store.done(self, mid, seq)

    @property
    def is_ready(self) -> bool:
        """Whether a shared subscription may choose it for a message that should be done soon."""
        return self.conn is not None and not (self.paused or self.is_full or self.is_stalled)

    def progressed(self, count: int) -> None:
        """A member of a group acknowledged so many messages."""
        load = self.load
        assert load is not None
        now = self.core.now()
        load.on_done(now, count, len(self.inflight) + self.queued_messages)
        if self.is_stalled:
            self.is_stalled = False
            self.tell_groups()
        if self.stall_alarm is not None:
            self.core.alarms.cancel(self.stall_alarm)
            self.stall_alarm = None
        if self.inflight:
            self.core.watch_for_stall(self)

    def count_load(self) -> None:
        """Something left that was not acknowledged: groups must not take it for work that is not done."""
        if self.load is not None and self.core.sessions.get(self.client_id) is self:
            self.load.owes(len(self.inflight) + self.queued_messages, self.core.now())

    def tell_groups(self) -> None:
        """A member came, left, stalled or works again: its groups look anew who is there."""
        groups = self.core.index.groups
        for subscription in self.subscriptions.values():
            if subscription.share:
                group = groups.get((subscription.share, subscription.topic_filter))
                if group is not None:
                    group.changed()

    def on_report(self, report: LoadReport) -> None:
        if self.load is None:
            self.load = self.core.roster.load(self.client_id, self.core.now())
        conn = self.conn
        if conn is not None:
            rtt = conn.round_trip()
            if rtt:
                self.load.on_rtt(rtt)
        self.load.on_report(self.core.now(), report)

    def count_out(self, size: int) -> None:
        """A delivery left the queue in memory."""
        self.pending_bytes -= size
        self.waits(-size)
        self.core.counters.queued_messages -= 1

    def belong_to(self, user: str | None) -> None:
        """The user may not have the right to what waits already: that is asked for each message."""
        self.take_work()
        self.user = user
        self.account = self.core.accounts.join(self, user)
        self.rights_epoch = NO_EPOCH

    def _may_receive(self, message: Message) -> bool:
        may_receive = self.core.index.may_receive
        return may_receive is None or may_receive(self, message.topic)

    def make_ready(self) -> bool:
        """Put the session on the flush list if it is connected and its socket takes more."""
        if self.conn is None or self.paused:
            return False
        self.queued = True
        self.core.mark_dirty(self)
        return True

    def _restore(self, raw: RawDelivery) -> Delivery:
        """The message of a packet that the fast path sent."""
        head, qos, tail = raw
        start = 2
        while head[start - 1] > 127:
            start += 1
        payload = (
            tail[1:] if self.version == 5 else tail
        )  # the fast path takes no properties: their length is 0
        return Message(head[start + 2 :], payload, qos), qos, False, (), 0

    # -- the queue of QoS 1 and 2 ---------------------------------------------------------------------------

    def enqueue(self, delivery: Delivery) -> None:
        """Queue behind what waits already, also beyond the bound: publishers were stopped before.

        What the node itself publishes (wills) cannot be stopped; at twice the bound it is dropped and counted.
        """
        if (
            self.is_full
            and self.queued_messages >= 2 * self.core.limits.max_queued_messages
            and not _must_arrive(delivery[0])
        ):
            self.drop(1)
            return
        if self.pending is None:
            self.pending = deque()
        size = delivery[0].size_bytes
        self.pending.append(delivery)
        self.pending_bytes += size
        self._count_in(size)

    def _count_in(self, size: int) -> None:
        limits = self.core.limits
        self.waits(size)
        self.core.counters.queued_messages += 1
        if not self.is_full and (
            self.queued_messages >= limits.max_queued_messages
            or self.queued_bytes >= limits.max_queued_bytes
            or self.core.queued_bytes >= limits.max_total_queued_bytes
            or (not self.is_link and self.core.accounts.is_full(self.account))
        ):
            self.is_full = True
            self.full_since = self.core.now()
            self.core.became_full(self)

    @property
    def is_behind(self) -> bool:
        """Whether something older has to be sent first."""
        return self.pending is not None or self.unsent is not None

    @property
    def queued_messages(self) -> int:
        """QoS 1 and 2 messages that wait, in memory and on disk."""
        count = len(self.pending) if self.pending is not None else 0
        return count if self.durable is None else count + self.durable.tail

    @property
    def queued_bytes(self) -> int:
        size = self.pending_bytes + self.backlog_bytes
        return size if self.durable is None else size + self.durable.tail_bytes

    def drain(self, most: int = DRAINED) -> None:
        """Send what waits, as far as the socket and the client's quota allow; at most so many of the queue."""
        if self.conn is None or self.paused or self.has_had_turn:
            return
        if self.unsent is not None:
            self._resend()
            if self.unsent is not None:
                return
        if self.pending is not None:
            self._drain_pending(self.pending, most)
        durable = self.durable
        if durable is not None and durable.tail:
            if self.pending is None and len(self.inflight) < self.quota:
                durable.load(self)
        elif self.pending is None:
            self.rights_epoch = self.core.rights_epoch

    def _drain_later(self) -> None:
        """In the next turn, and not before, whatever is acknowledged meanwhile."""
        self.has_had_turn = True
        self.core.loop.call_soon(self._drain_on)

    def _drain_on(self) -> None:
        self.has_had_turn = False
        self.drain()

    def _drain_pending(self, pending: deque[Delivery], most: int) -> None:
        core = self.core
        now = core.now()
        sent = expired = withheld = size = 0
        is_sure = self.rights_epoch == core.rights_epoch
        while pending and sent < most and size < DRAINED_BYTES:
            delivery = pending[0]
            message, qos, retain, identifiers, seq = delivery
            if qos and not self._may_send(message, qos, seq):
                break
            pending.popleft()
            self.count_out(message.size_bytes)
            if message.expires is not None and message.expires <= now:  # [MQTT5-3.3.2-5]
                expired += 1
                self.forget(delivery)
                continue
            sent += 1
            size += message.size_bytes
            if not is_sure and not self._may_receive(message):
                withheld += 1
                self.forget(delivery)
            elif qos:
                self._send(delivery)
            else:
                self._send_qos0(message, retain, identifiers)
        if not pending:
            self.pending = None
        if expired:
            core.counters.expired += expired
            self.count_load()
        if withheld:
            self.drop(withheld)
        if pending and (sent == DRAINED or size >= DRAINED_BYTES):
            self._drain_later()
        if core.memory.waiters is not None:  # publishers wait for memory, and some was freed
            core.loop.call_soon(core.memory.look)
        if self.is_full:
            if sent:
                self.full_since = now
            self.check_room()

    def _has_quota(self, message: Message) -> bool:
        """Receive Maximum, and for large messages a bound on the bytes in flight."""
        limit = self.quota
        if len(message.payload) > LARGE:
            limit = min(limit, max(1, self.core.limits.max_queued_bytes // len(message.payload)))
        return len(self.inflight) < limit

    def _may_send(self, message: Message, qos: int, seq: int) -> bool:
        if not self._has_quota(message):
            return False
        durable = self.durable
        return (
            durable is None
            or not seq
            or (durable.may_send(qos, seq) and packet_identifier(seq) not in self.inflight)
        )

    def relieve(self) -> None:
        """The socket takes more: write the QoS 0 packets that waited, a part at a time, then all else.

        The session stays `paused` until nothing older waits, so that nothing newer overtakes.
        """
        conn = self.conn
        if conn is None or conn.is_hushed:
            return
        self.deaf = False
        backlog = self.backlog
        if backlog:
            size = 0
            part: list[bytes] = []
            while backlog and size < RELIEF_BYTES:
                packets, _ = backlog.popleft()
                part.append(packets)
                size += len(packets)
            self.backlog_bytes -= size
            self.core.backlog_bytes -= size
            self.waits(-size)
            self.core.counters.bytes_sent += size
            conn.transport.write(b"".join(part))
            if conn in self.core.blocked:
                return  # the socket is full again
            if backlog:
                self.core.loop.call_soon(self.relieve)  # others have their turn first
                return
        self.backlog = None
        if conn in self.core.blocked:
            return
        self.paused = False
        if self.out and not self.queued:
            self.queued = True
            self.core.mark_dirty(self)
        self.drain()
        conn.go_on()

    def shed_backlog(self) -> None:
        """Drop the QoS 0 packets that wait for the socket: others need the room more."""
        count = sum(count for _, count in self.backlog or ())
        self.core.counters.publish_sent -= count
        self.drop(count)
        self.waits(-self.backlog_bytes)
        self.core.backlog_bytes -= self.backlog_bytes
        self.backlog = None
        self.backlog_bytes = 0
        self.deaf = False

    def check_room(self) -> None:
        """Leave the full state once a fifth of the bound is free again, and let held publishers go on."""
        limits = self.core.limits
        if (
            self.queued_messages < limits.max_queued_messages * 0.8
            and self.queued_bytes < limits.max_queued_bytes * 0.8
            and self.core.queued_bytes < limits.max_total_queued_bytes
            and (self.is_link or not self.core.accounts.is_full(self.account))
        ):
            self.is_full = False
            self.core.has_room_again(self)
            self.release_waiters()
            self.core.check_full_soon()  # the bound over all sessions may have been that of others, too

    def release_waiters(self) -> None:
        """Publishers that wait for this session, or for any member of a group that it is in, go on."""
        release(self)
        for subscription in self.subscriptions.values():
            if subscription.share:
                group = self.core.index.groups.get((subscription.share, subscription.topic_filter))
                if group is not None:
                    release(group)

    # -- acknowledgements -----------------------------------------------------------------------------------

    # Unknown identifiers are no error: the message may have been acknowledged on a former connection.

    def on_puback(self, pid: int) -> None:
        """QoS 1 is done."""
        entry = self.inflight.get(pid)
        if entry is None:
            return
        if entry[1] != 1:
            raise ProtocolError("a PUBACK answers a message of QoS 2 (section 4.3.3)")
        self._finish(pid, entry)

    def on_pubrec(self, pid: int, is_error: bool) -> bool:
        """QoS 2 was received. False if the identifier is not in flight (PUBREL then says 0x92)."""
        entry = self.inflight.get(pid)
        if entry is None:
            return False
        if entry[1] == 1:
            raise ProtocolError("a PUBREC answers a message of QoS 1 (section 4.3.2)")
        if is_error:  # [MQTT5-4.3.3-4]: no PUBREL follows; the exchange is over
            self._finish(pid, entry)
        elif entry[1] == 2:
            if self.durable is not None and len(entry) == 5:
                self.inflight[pid] = (entry[0].mid, RELEASED, entry[4])
                self.durable.store.released(self, entry[4])
                if self.durable.copy is not None:
                    self.durable.copy.done(entry)
            else:
                self.inflight[pid] = (0, RELEASED, 0)
        return True

    def on_pubcomp(self, pid: int) -> None:
        """QoS 2 is done."""
        entry = self.inflight.get(pid)
        if entry is None:
            return
        if entry[1] != RELEASED:
            raise ProtocolError(f"a PUBCOMP answers a message of QoS {entry[1]} without PUBREL (section 4.3.3)")
        self._finish(pid, entry)

    def _finish(self, pid: int, entry: Delivery | RawDelivery | Released) -> None:
        del self.inflight[pid]
        self.forget(entry)
        if self.load is not None:
            self.progressed(1)
        if self.pending is not None or self.unsent is not None or self.durable is not None:
            self.drain()

    # -- coming and going -----------------------------------------------------------------------------------

    def attach(self, conn: Connection, version: int, quota: int, is_plain: bool) -> None:
        """A new network connection serves this session from now on."""
        changed = version != self.version or is_plain != self.is_plain
        self.conn = conn
        self.version = version
        self.quota = quota
        self.is_plain = is_plain
        self.epoch += 1
        self.core.cancel_alarms(self)
        self.out = []
        self.queued = self.paused = False
        if self.load is not None:
            self.load.forget(self.core.now())  # another process, perhaps on another machine
            self.count_load()
            self.core.roster.prime(self)
            self.tell_groups()
        if changed:
            for topic_filter in self.subscriptions.values():
                self.core.index.invalidate(topic_filter.topic_filter)

    def resume(self) -> None:
        """After CONNACK: re-send what is in flight, in order, then continue with the queue [MQTT5-4.4.0-1]."""
        self.unsent = deque(self.inflight) if self.inflight else None
        self.drain()

    def _resend(self) -> None:
        """Re-send in-flight messages within the quota of this connection [MQTT5-3.3.4-9]."""
        unsent, conn = self.unsent, self.conn
        assert unsent is not None and conn is not None
        size = 0
        while unsent:
            if size >= DRAINED_BYTES:
                self._drain_later()
                return
            pid = unsent[0]
            entry = self.inflight.get(pid)
            if entry is GIVEN_ON:
                del self.inflight[pid]
            if entry is None or entry is GIVEN_ON:
                unsent.popleft()
                continue
            if entry[1] != RELEASED and len(self.inflight) - len(unsent) >= self.quota:
                return
            unsent.popleft()
            if entry[1] == RELEASED:
                pubrel = b"\x62\x02" + pid.to_bytes(2, "big")
                if self.durable is None or self.durable.store.is_relaxed:
                    self.write(pubrel)
                else:  # that PUBREC came may not be on disk yet
                    self.durable.store.acknowledge(conn, pubrel)
                continue
            message, qos, retain, identifiers, _ = cast(Delivery, entry)  # `detach` left no raw ones
            is_allowed = self._may_receive(message)  # it was when it was sent first, perhaps long ago
            packet = conn.encode(message, qos, pid, retain, identifiers, dup=True) if is_allowed else None
            if not is_allowed:
                self.drop(1)
            if packet is None:
                del self.inflight[pid]
                self.forget(entry)
            else:
                size += len(packet)
                self.write(packet)
        self.unsent = None
        if self.load is not None and self.stall_alarm is None and self.inflight:
            self.core.watch_for_stall(self)

    def detach(self) -> None:
        """The connection is gone; what was on its way at QoS 0 goes with it."""
        self.take_work()
        self.conn = None
        self.left_at = self.core.now()
        self.queued = self.paused = self.deaf = False
        self.out = []
        self.settle_inflight()
        self.is_stalled = False
        if self.load is not None:
            self.tell_groups()
        if self.stall_alarm is not None:
            self.core.alarms.cancel(self.stall_alarm)
            self.stall_alarm = None
        if self.backlog is not None:
            self.shed_backlog()

    def settle_inflight(self) -> None:
        """What is in flight, as deliveries: nothing raw, nothing that another member of a group has."""
        for pid, entry in list(self.inflight.items()):
            if entry is GIVEN_ON:
                del self.inflight[pid]
            elif len(entry) == 3 and entry[1] != RELEASED:
                self.inflight[pid] = self._restore(cast(RawDelivery, entry))

    def discard(self) -> None:
        """The session ends: give back what it held."""
        core = self.core
        self.unsubscribe_all()
        self.set_will(None)
        durable = self.durable
        core.counters.queued_messages -= self.queued_messages
        core.counters.discarded += self.queued_messages + sum(
            entry[1] in (1, 2) and entry is not GIVEN_ON for entry in self.inflight.values()
        )
        self.take_work()
        core.accounts.leave(self)
        self.account = core.accounts.nobody
        self._keeps(-self.kept_bytes)
        self.waits(-self.queued_bytes)
        if durable is not None:
            entries = [
                e for e in (*self.inflight.values(), *(self.pending or ())) if len(e) == 5 or e[1] == RELEASED
            ]
            for entry in entries:
                self.forget(entry)
            durable.store.end_session(self)
            durable.tail = durable.tail_bytes = 0
        self.pending = None
        self.pending_bytes = 0
        self.inflight = {}
        self.inbound = None
        self.is_full = False
        core.has_room_again(self)
        self.release_waiters()
