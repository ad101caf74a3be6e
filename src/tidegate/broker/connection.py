"""A connected client: bytes in, packets handled, bytes out. The hot path of the broker.

Theory of operation. The event loop hands over chunks that may hold hundreds of packets; `_consume` walks one
chunk in one loop. A QoS 0 PUBLISH whose recipients all take the publisher's very bytes never becomes an object:
neighbouring packets of one topic form a run, and the run is forwarded as one slice. Everything else takes the
general path in `publishing.py` or `_control`. What is to be sent is collected per session and written once at
the end of the loop's turn.

A turn is bounded: at most `lanes.PART` bytes of one client's chunk are handled before other clients get theirs.

A publisher that has to wait is held (`holding.py`); whether it is too fast, the gate knows (`gate.py`); while the node
is behind, chunks of publishers wait for their turn in lanes (`lanes.py`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from tidegate.broker import control, fastpath, holding, judging, publishing
from tidegate.broker.holding import COSTS, TURN_BUDGET
from tidegate.broker.lanes import BRIEF, PART
from tidegate.broker.listener import link_packet
from tidegate.broker.message import Author, Message
from tidegate.broker.reasons import CloseReason
from tidegate.mqtt.codes import LEGAL, ReasonCode
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.errors import MalformedPacket, MQTTError, PacketTooLarge
from tidegate.mqtt.packets import Disconnect, PacketType
from tidegate.mqtt.properties import UNLIMITED, Properties, Property

if TYPE_CHECKING:
    from tidegate.broker.alarms import Alarm
    from tidegate.broker.core import Core
    from tidegate.broker.hooks import Exchange
    from tidegate.broker.index import Route, Search
    from tidegate.broker.listener import Listener
    from tidegate.broker.long_work import Job
    from tidegate.broker.session import Session
    from tidegate.broker.store.batch import Batch
    from tidegate.broker.waiting import Waitable
    from tidegate.flow.backoff import Publisher

log = logging.getLogger("tidegate.broker")

LONG_TURN = 0.002  # seconds after which lanes open
LONG_RUN = 16  # packets of one head after which looking at columns instead is cheaper
ACKNOWLEDGED = (0x32, 0x34)  # PUBLISH at QoS 1 and 2, neither DUP nor RETAIN
ACKNOWLEDGEMENTS = (0x40, 0x50, 0x62, 0x70)
TCP_INFO_BYTES = 104  # of Linux's struct tcp_info, of which
RTT_AT = 68  # the smoothed round-trip time in microseconds stands here
DECODED = 6  # times its bytes that a packet takes while it is handled in parts
MAX_UNSENT, MAX_UNSENT_BYTES = 4_096, 65_536  # acknowledgements and the like that wait for a full socket


class Connection(asyncio.Protocol):
    """One network connection after its CONNECT was accepted."""

    __slots__ = (
        "address",
        "alias_bytes_in",
        "alias_bytes_out",
        "alias_max_out",
        "aliases_in",
        "aliases_out",
        "auth_method",
        "authorise",
        "close_reason",
        "core",
        "debt",
        "exchange",
        "expiry_alarm",
        "feeds",
        "found",
        "group_tag",
        "has_long_pings",
        "hears_moves",
        "held",
        "held_bytes",
        "is_cleared",
        "is_closing",
        "is_feeding",
        "is_hushed",
        "is_reading",
        "job",
        "job_bytes",
        "keep_alive",
        "keep_alive_slot",
        "kept_quota",
        "last_batch",
        "last_seen",
        "listener",
        "max_packet_in",
        "max_packet_out",
        "more",
        "need",
        "peer",
        "problem_information",
        "publisher",
        "read_epoch",
        "receive_maximum",
        "rest",
        "routes",
        "session",
        "since",
        "sweep_left",
        "transport",
        "username",
        "v5",
        "version",
        "waits_for",
    )  # fmt: skip

    def __init__(
        self,
        core: Core,
        transport: asyncio.Transport,
        session: Session,
        version: int,
        peer: str,
        listener: Listener,
    ) -> None:
        self.core = core
        self.transport = transport
        self.session = session
        self.version = version
        self.v5 = version == 5
        self.peer = peer
        self.address = ""  # of a client that is not on this machine: limits per address apply to it
        self.listener = listener
        self.username: str | None = None
        self.keep_alive = 0
        self.keep_alive_slot = 0
        self.expiry_alarm: Alarm | None = None
        # What CONNACK promised; a change of limits does not take it back.
        self.max_packet_in = core.limits.max_packet_size
        if listener.is_link:
            self.max_packet_in = link_packet(core.limits)
        self.receive_maximum = core.limits.receive_maximum
        self.since = self.last_seen = core.now()
        # Who may do what, for this client; None: everything.
        self.authorise = None if listener.is_link or listener.is_operator else core.authorise
        self.routes: dict[bytes, Route] = (
            core.index.routes if self.authorise is None and not listener.is_link else {}
        )
        self.group_tag = 0  # of a message from another node: which of our groups it is for
        self.read_epoch = core.index.epoch
        self.rest: bytearray | None = None  # what came of an incomplete packet, and
        self.need = 0  # how many bytes there must be before it is looked at again
        self.more: bytes | None = None  # what this turn had no time for
        self.held: deque[bytes] | None = None
        self.waits_for: Waitable | None = None  # what a held publisher waits for
        self.held_bytes = 0
        self.sweep_left = 0  # bytes that are read only to answer what is not a PUBLISH
        self.publisher: Publisher | None = None  # what the gate knows, from the first PUBLISH on
        self.is_cleared = False  # the gate was asked about the first message that is held
        self.is_reading = True
        self.is_closing = False
        self.is_hushed = False  # its session is on its way to another node, and
        self.kept_quota = 0  # had this quota before
        self.close_reason: CloseReason | None = None
        self.max_packet_out = 0
        self.alias_max_out = 0
        self.alias_bytes_in = self.alias_bytes_out = 0  # of the topics behind them
        self.aliases_in: dict[int, bytes] | None = None
        self.aliases_out: dict[bytes, int] | None = None
        self.problem_information = True
        self.hears_moves = False  # it wants to be told before it is sent to another node
        self.has_long_pings = False  # PINGREQ may carry a load report: it was agreed on
        self.auth_method: str | None = None
        self.exchange: Exchange | None = None
        self.debt = 0  # what a packet caused beyond its own handling, in units of `holding.COSTS`
        self.job: Job | None = None  # a packet is handled in parts; what came behind it waits in `more`
        self.job_bytes = 0  # that it takes meanwhile
        self.found: Search | None = None  # for the PUBLISH that waited for it
        self.feeds: deque[Job] | None = None  # retained messages that answer its subscriptions
        self.is_feeding = False
        self.last_batch: Batch | None = None  # what its last acknowledgement waits for

    # -- bytes in -------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        core = self.core
        size = len(data)
        core.counters.bytes_received += size
        if self.is_closing:
            return
        if self.more is not None:  # some transports deliver what they hold after reading was paused
            self.more += data
            self.set_reading(False)  # a hold that has just ended did not know
            return
        if data[0] == 0x30 and 4 < size < 130 and data[1] == size - 2 and self._forward_single(data, size):
            return
        if core.counters.bytes_received > core.memory.look_at_received:
            core.memory.look()
        if self.need:
            rest = self.rest
            assert rest is not None
            if len(rest) + size < self.need:
                rest += data
                core.unfinished.add(self, size)
                return
            data = b"".join((rest, data))
            self._forget_partial()
            self.need = 0
        if core.lanes.is_open and (size > BRIEF or data[0] >> 4 == PacketType.PUBLISH):
            self.more = data
            self._wait_in_lane(data)
            self.set_reading(False)  # else the loop reads on, up to 8 MB, before anybody else has its turn
            return
        if len(data) > PART:
            self.more = data
            self.serve()
        else:
            self._take(data)
        if self.more is not None or self._is_choked():
            self.set_reading(False)

    def _take(self, data: bytes) -> bytes:
        """Handle a chunk under the eyes of the gate; keeps and returns what is left of an incomplete packet."""
        core = self.core
        if not core.turn_began:
            core.begin_turn()
        gate = core.gate
        if gate is None:
            return self._consume(data)
        if gate.is_per_message:
            return judging.take(self, gate, data)
        if self.held is not None:
            return holding.consume(self, data)  # nothing is accepted, so there is nothing to judge
        counters = core.counters
        before = counters.publish_received
        left = self._consume(data)
        count = counters.publish_received - before
        if count:
            now = self.last_seen
            publisher = self.publisher or gate.open(self)
            seconds = publisher.observe(now, count, len(data))
            if self.is_closing:  # what it sent last counts all the same
                gate.close(self)
            elif seconds > 0.0:
                gate.hold(self, seconds)
        return left

    def _wait_in_lane(self, data: bytes) -> None:
        """Until its turn comes, `more` waits, which begins with `data`."""
        lanes = self.core.lanes
        if data[0] >> 4 == PacketType.PUBLISH and self.held is None:
            lanes.put(self)
        else:
            lanes.put_other(self)

    def _is_choked(self) -> bool:
        """Whether the client asks and does not read our answers."""
        session = self.session
        out = session.out
        return session.paused and (len(out) > MAX_UNSENT or sum(map(len, out)) > MAX_UNSENT_BYTES)

    @property
    def buffered_bytes(self) -> int:
        """What it has here that is neither a message nor a subscription."""
        size = self.held_bytes + self.transport.get_write_buffer_size()
        size += len(self.rest or b"") + len(self.more or b"") + self.alias_bytes_in + self.alias_bytes_out
        if self.job is not None:
            size += self.job_bytes
        if self.session.conn is self:
            size += sum(map(len, self.session.out))
        return size

    def _forward_single(self, data: bytes, size: int) -> bool:
        """A chunk that is one small QoS 0 PUBLISH, as slow publishers send it: the shortest way. False if it is not."""
        core = self.core
        gate = core.gate
        if (
            self.need
            or self.held is not None
            or self.session.late_until
            or core.publish_observers
            or self.routes is not core.index.routes
            or (gate is not None and gate.is_per_message)
        ):
            return False
        topic_end = 4 + (data[2] << 8 | data[3])
        if topic_end >= size:
            return False
        route = core.index.routes.get(data[4:topic_end])
        if route is None:
            return False
        if self.v5:
            targets = route.fast5
            if targets is None or data[topic_end]:
                return False
        else:
            targets = route.fast4
            if targets is None:
                return False
        self.last_seen = now = core.now()
        counters = core.counters
        counters.messages_received += 1
        counters.publish_received += 1
        counters.publish_bytes_received += size
        counters.publish_sent += len(targets)
        self.session.work += 1 + route.cost // 4
        for session in targets:
            conn = session.conn
            if session.queued:
                session.out.append(data)
            elif conn is None or session.paused:
                session.wake(data, 1)
            else:  # nothing waits for this client: writing at once is cheaper than a visit at the end of the turn
                conn.transport.write(data)
                counters.bytes_sent += size
        if core.tap is not None:
            core.tap.run(self, route, 0, 1, size, now)
        if gate is not None:
            seconds = (self.publisher or gate.open(self)).observe(now, 1, size)
            if seconds > 0.0:
                gate.hold(self, seconds)
        return True

    def author_of(self, topic: bytes) -> Author | None:
        """Who is asked for their rights when something is published, or sent, that they left; None: nobody is."""
        return None if self.listener.is_operator else Author(self.username, self.session.client_id)

    def serve(self) -> None:
        """Handle the next part of what a turn had no time for."""
        data = self.more
        if data is None or self.job is not None or self.is_closing or self.is_hushed or self._is_choked():
            return
        self.more = None
        if not data:
            self.resume_reading()
            return
        size = max(self.core.lanes.part, self.need)
        self.need = 0
        left = self._take(data[:size])
        tail = data[size:]
        if self.is_closing:
            return
        if self.more is not None:
            self.more += tail
        elif tail:
            self._forget_partial()
            self.defer(left + tail)
        else:
            self.resume_reading()
            return
        self.set_reading(False)  # who had room in between did not know of the rest

    def defer(self, data: bytes) -> None:
        """Go on with `data` in the next turn, after others had theirs, or when its job is done."""
        self.more = data
        core = self.core
        if self.job is not None:
            return
        if core.lanes.is_open:
            self._wait_in_lane(data)
        else:
            core.lanes.put_other(self)

    def do(self, job: Job, size: int) -> None:
        """Do what a packet of so many bytes asks for: at once if that is short, else in parts, and what comes behind
        it waits."""
        for cost in job:
            self.debt += cost
            if self.debt > TURN_BUDGET:
                self.job = self._rest_of(job)
                self.job_bytes = DECODED * size
                self.core.long_work.add(self.job, self.job_bytes)
                return

    def _rest_of(self, job: Job) -> Job:
        """As long as the connection serves its session; then what came behind it."""
        try:
            for cost in job:
                self.session.work += cost
                yield cost
                if self.is_closing or self.session.conn is not self:
                    self.job = None
                    return
        except MQTTError as error:
            self.fail(error)
        except Exception:  # noqa: BLE001 - a hook is foreign code: its fault ends this connection, nothing else
            self.fail_unexpectedly()
        self.job = None
        self.last_seen = self.core.now()
        self.serve()

    def _forget_partial(self) -> None:
        if self.rest is not None:
            self.rest = None
            self.core.unfinished.end(self)

    def resume_reading(self) -> None:
        if (
            self.more is None
            and not self._is_choked()
            and (
                self.held_bytes + self.session.late_bytes <= self.core.memory.read_ahead_bytes
                or self.sweep_left > 0
            )
            and not (
                self.waits_for is self.core.gate
                and self.held
                and self.held[-1][0] >> 4 == PacketType.DISCONNECT
            )
        ):
            self.set_reading(True)

    def _consume(self, data: bytes) -> bytes:
        """Handle every whole packet in `data`; keep and return what is left of an incomplete one.

        Long because it is the measured hot loop: a call per packet would double its cost.
        """
        if self.held is not None:
            return holding.consume(self, data)
        core = self.core
        if self.read_epoch != core.index.epoch:
            self.refresh_routes()
        routes = {} if self.session.late_until else self.routes  # the short ways hand on at once
        v5 = self.v5
        size = len(data)
        pos = 0
        received = 0
        run: Route | None = None  # route of the run that ends at `pos`
        run_start = run_count = 0
        end = 0
        budget = TURN_BUDGET
        try:
            while pos + 1 < size and budget > 0:
                first = data[pos]
                length = data[pos + 1]
                body = pos + 2
                if length > 127:
                    body = pos + 3
                    if body > size:
                        end = pos + 3
                        break
                    if not data[pos + 2]:
                        raise MalformedPacket("remaining length with more bytes than needed [MQTT5-1.5.5-1]")
                    length = length & 0x7F | data[pos + 2] << 7
                    if length > 16_383:
                        length, body = self.long_length(data, pos)
                        if not body:
                            end = size + 1
                            break
                    if length + body - pos > self.max_packet_in:
                        raise PacketTooLarge(f"a packet of {length + body - pos} bytes is over the limit")
                end = body + length
                if end > size:
                    break
                received += 1
                if first == 0x30 and length > 2:
                    topic_end = body + 2 + (data[body] << 8 | data[body + 1])
                    route = routes.get(data[body + 2 : topic_end])
                    if route is not None and (
                        topic_end < end and not data[topic_end] if v5 else topic_end <= end
                    ):
                        targets = route.fast5 if v5 else route.fast4
                        if targets is not None:
                            if route is run:
                                # Same topic again: packets of the same size differ only behind this head.
                                head = data[pos : topic_end + v5]
                                step = end - pos
                                pos = end
                                last = size - step
                                extra = 1
                                while pos <= last and data.startswith(head, pos):
                                    if extra == LONG_RUN:
                                        alike = holding.run_length(data, pos, len(head), step)
                                        pos += alike * step
                                        extra += alike
                                        break
                                    pos += step
                                    extra += 1
                                run_count += extra
                                received += extra - 1
                            else:
                                if run is not None:
                                    budget -= self._forward(run, data[run_start:pos], run_count)
                                run = route
                                run_start = pos
                                run_count = 1
                                pos = end
                            continue
                        groups = route.groups5 if v5 else route.groups4
                        if groups is not None and length < 16_384:
                            if run is not None:
                                budget -= self._forward(run, data[run_start:pos], run_count)
                                run = None
                            start = pos
                            pos, count = fastpath.shared_run(self, groups, data, pos, topic_end, end)
                            received += count - 1
                            budget -= self.debt
                            if core.tap is not None:
                                core.tap.run(self, route, 0, count, pos - start)
                            continue
                if run is not None:
                    budget -= self._forward(run, data[run_start:pos], run_count)
                    run = None
                if first in ACKNOWLEDGED and length > 4:
                    reached, count = fastpath.publishes(self, data, pos, size)
                    if count:
                        received += count - 1
                        budget -= self.debt
                        pos = reached
                        continue
                elif first in ACKNOWLEDGEMENTS and length == 2:
                    reached = fastpath.acknowledgements(self, data, pos, size)
                    if reached > pos:
                        received += (reached - pos) // 4 - 1
                        budget -= (reached - pos) // 8
                        pos = reached
                        continue
                self.debt = COSTS.get(first >> 4, 5)
                if first & 0xF0 == 0x30:
                    if not publishing.on_publish(self, data, pos, first, body, end):
                        self.hold()
                        return holding.consume(self, data[pos:])
                else:
                    control.on_control(self, first, data[body:end])
                    if self.is_closing:
                        return b""
                    if self.job is not None:
                        budget -= self.debt
                        self.defer(data[end:])
                        return b""
                    if self.read_epoch != core.index.epoch:
                        self.refresh_routes()  # it subscribed, perhaps to what it publishes next
                budget -= self.debt
                pos = end
            if run is not None:
                self.session.work += self._forward(run, data[run_start:pos], run_count)
                run = None
        except MQTTError as error:
            if run is not None:
                self.session.work += self._forward(run, data[run_start:pos], run_count)
                run = None
            self.fail(error)
            return b""
        except Exception:  # noqa: BLE001 - a hook is foreign code: its fault ends this connection, nothing else
            return self.fail_unexpectedly()
        finally:
            if received:  # only a whole packet shows that the client is alive [MQTT5-3.1.2-20]
                self.last_seen = core.now()
                core.counters.messages_received += received
                self.session.work += TURN_BUDGET - budget
                if 0.0 < core.turn_began < self.last_seen - LONG_TURN:
                    core.lanes.is_open = True  # a turn must not grow with the number of clients
        if pos == size:
            return b""
        rest = data[pos:] if pos else data
        if budget <= 0:
            self.defer(rest)
            return b""
        self.keep_partial(rest, end - pos if pos + 1 < size else 2)
        return rest

    def fail_unexpectedly(self) -> bytes:
        log.exception("unexpected error while serving a client", extra={"client": self.session.client_id})
        self.close(CloseReason.SERVER_ERROR, ReasonCode.UNSPECIFIED_ERROR)
        return b""

    def refresh_routes(self) -> None:
        """Subscriptions or rights changed: a connection with answers of its own forgets them."""
        self.read_epoch = self.core.index.epoch
        if self.routes is not self.core.index.routes:
            self.routes.clear()

    def long_length(self, data: bytes, pos: int) -> tuple[int, int]:
        """Remaining length of three or four bytes and where the body begins; (0, 0) if more bytes are needed."""
        length = 0
        for i in range(4):
            if pos + 1 + i >= len(data):
                return 0, 0
            byte = data[pos + 1 + i]
            length |= (byte & 0x7F) << 7 * i
            if byte < 128:
                if i and not byte:
                    raise MalformedPacket("remaining length with more bytes than needed [MQTT5-1.5.5-1]")
                return length, pos + 2 + i
        raise MalformedPacket("remaining length is longer than four bytes")

    def keep_partial(self, rest: bytes, need: int) -> None:
        self.rest = bytearray(rest)
        self.need = max(need, len(rest) + 1)
        self.core.unfinished.begin(self, len(rest), self.need)

    def _forward(self, route: Route, packets: bytes, count: int) -> int:
        """Hand a run of QoS 0 packets, as they came, to every recipient; gives what that cost."""
        targets = route.fast5 if self.v5 else route.fast4
        counters = self.core.counters
        counters.publish_received += count
        counters.publish_bytes_received += len(packets)
        assert targets is not None
        missed = 0
        for session in targets:
            if session.queued:
                session.out.append(packets)
            elif session.deaf:
                session.dropped += count
                missed += count
            else:
                session.wake(packets, count)
        counters.publish_sent += count * len(targets) - missed
        counters.dropped += missed
        if self.core.tap is not None:
            self.core.tap.forwarded(self, route, packets, count)
        for observer in self.core.publish_observers:
            observer.on_run(self, packets, count)
        return route.cost // 4

    # -- holding a publisher --------------------------------------------------------------------------------

    def hold(self) -> None:
        """From now on publishes wait; the caller sees to it that `release` is called some day."""
        if self.held is None:
            self.held = deque()
            self.held_bytes = 0

    def wait_for(self, full: Waitable) -> None:
        """Be released when `full` has room, or forgotten there when the connection ends."""
        self.waits_for = full
        if full.waiters is None:
            full.waiters = {}
        full.waiters[self] = None

    def release(self) -> None:
        """There may be room again: go on with what was held."""
        self.waits_for = None
        held = self.held
        if held is None or self.is_closing or self.is_hushed:
            return
        self.held = None
        self.held_bytes = 0
        parts = [*held, self.rest or b"", self.more or b""]
        self._forget_partial()
        self.need = 0
        self.more = None
        self.last_seen = self.core.now()
        data = b"".join(parts)
        if data or self.job is not None:
            self.defer(data)
        else:
            self.resume_reading()

    @property
    def max_user_properties(self) -> int:
        """In a packet. Another node sends what its clients were allowed to send."""
        return UNLIMITED if self.listener.is_link else self.core.limits.max_user_properties

    def accept(self, packet: bytes) -> None:
        """Handle one whole packet that was held, now."""
        self._consume(packet)

    def postpone(self, seconds: float) -> None:
        """Hand the next message on so much later, and behind those that are late already."""
        session = self.session
        due = self.core.now() + seconds
        session.late_until = max(session.late_until, due) if seconds > 0.0 or session.late_bytes else 0.0

    def first_topic(self) -> str:
        """Of the chunk that waits in `more`; empty if it does not begin with a PUBLISH that has one."""
        data = self.more or b""
        _, body = self.long_length(data, 0)
        if not body or len(data) < body + 2 or data[0] >> 4 != PacketType.PUBLISH:
            return ""
        return data[body + 2 : body + 2 + (data[body] << 8 | data[body + 1])].decode(errors="replace")

    def set_reading(self, reading: bool) -> None:
        if reading != self.is_reading and not self.is_closing and not (reading and self.is_hushed):
            self.is_reading = reading
            if reading:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def hush(self) -> None:
        """Nothing is read from the client or sent to it until `unhush`, whatever else makes room."""
        session = self.session
        self.set_reading(False)
        self.is_hushed = True
        self.more = bytes(self.rest or b"") + (self.more or b"")  # what the transport has read already comes behind it
        self._forget_partial()
        self.need = 0
        self.core.write()
        if self.job is not None:
            self.core.long_work.drop(self.job)
        session.paused = True
        self.kept_quota, session.quota = session.quota, 0

    def unhush(self) -> None:
        session = self.session
        self.is_hushed = False
        session.quota = self.kept_quota
        if self.job is not None:
            self.core.long_work.add(self.job, self.job_bytes)
        elif not self.more:
            self.more = None
        if self.held is not None and self.waits_for is None:
            self.core.loop.call_soon(self.release)
        if self in self.core.blocked:
            self.go_on()
        else:
            session.relieve()

    # -- bytes out ------------------------------------------------------------------------------------------

    def encode(
        self,
        message: Message,
        qos: int,
        packet_identifier: int | None,
        retain: bool,
        identifiers: tuple[int, ...],
        dup: bool = False,
    ) -> bytes | None:
        """A PUBLISH for this client in particular; None if it is over the client's Maximum Packet Size."""
        pid = None if packet_identifier is None else packet_identifier.to_bytes(2, "big")
        alias = 0
        send_topic = True
        if self.alias_max_out:
            aliases = self.aliases_out
            if aliases is None:
                aliases = self.aliases_out = {}
            known = aliases.get(message.topic)
            if known is not None:
                alias = known
                send_topic = False
            elif (
                len(aliases) < self.alias_max_out
                and not self.session.paused
                and self.alias_bytes_out + len(message.topic) <= self.core.limits.max_alias_bytes
            ):
                # While the socket is full the packet may still be dropped, and with it the meaning of the alias.
                alias = len(aliases) + 1
        packet = message.encode(
            self.version, qos, pid, retain=retain, dup=dup, subscription_identifiers=identifiers,
            now=self.core.now(), alias=alias, send_topic=send_topic,
        )  # fmt: skip
        if self.max_packet_out and len(packet) > self.max_packet_out:  # [MQTT5-3.1.2-24]
            self.core.counters.too_large += 1
            return None
        if alias and send_topic:
            assert self.aliases_out is not None
            self.aliases_out[message.topic] = alias
            self.alias_bytes_out += len(message.topic)
        return packet

    def pause_writing(self) -> None:
        if self.session.conn is self:
            self.session.paused = True
        self.core.blocked[self] = self.core.now()

    def resume_writing(self) -> None:
        self.core.blocked.pop(self, None)
        session = self.session
        if session.conn is not self or (self.core.is_paced and not self.listener.is_link):
            return
        session.relieve()

    def go_on(self) -> None:
        """The socket takes more and nothing older waits: continue what stopped for it."""
        if self.more is not None:
            self.core.lanes.put_other(self)
        else:
            self.resume_reading()
        self.feed()

    def feed(self) -> None:
        """Go on with long answers (retained messages) while the client keeps up."""
        if self.feeds is not None and not self.is_feeding:
            self.is_feeding = True
            self.core.long_work.add(self._feed())

    def feed_now(self) -> None:
        """The next part at once, for who decides when clients are written to."""
        if not self.is_feeding:
            left = TURN_BUDGET
            for cost in self._feed():
                left -= cost
                if left < 0:
                    break

    def _feed(self) -> Job:
        feeds, session = self.feeds, self.session
        try:
            while feeds and not self.is_closing and session.conn is self:
                if session.paused:
                    return  # `resume_writing` comes back here
                if session.pending is not None and len(session.pending) > 1_000:
                    self.core.loop.call_later(0.05, self.feed)
                    return
                try:
                    cost = next(feeds[0], None)
                except Exception:
                    log.exception("unexpected error while sending retained messages")
                    cost = None
                if cost is None:
                    feeds.popleft()
                session.work += cost or 1
                yield cost or 1
            self.feeds = None
        finally:
            self.is_feeding = False

    def expires_at(self, wall: float) -> None:
        """What proved the client's identity is valid until then."""
        self.expiry_alarm = self.core.alarms.at(self.core.now() + max(0.0, wall - time.time()), self._expire)

    def _expire(self) -> None:
        self.close(CloseReason.NOT_AUTHORIZED, ReasonCode.NOT_AUTHORIZED, "credentials expired")

    # -- ending ---------------------------------------------------------------------------------------------

    def fail(self, error: MQTTError) -> None:
        """End the connection for what the client sent."""
        self.core.counters.protocol_errors += 1
        self.close(CloseReason.PROTOCOL_ERROR, ReasonCode(error.reason_code), str(error))

    def close(
        self,
        why: CloseReason,
        code: ReasonCode | None = None,
        text: str = "",
        properties: Properties | None = None,
        linger: bool = True,
    ) -> None:
        """Say DISCONNECT with `code` (MQTT 5 only) and close; the session is detached at once."""
        if self.is_closing:
            return
        self.is_closing = True
        self.close_reason = why
        session = self.session
        transport = self.transport
        out = session.out if session.conn is self else []
        if self.v5 and code is not None:
            if (
                code not in LEGAL[PacketType.DISCONNECT]
            ):  # a second CONNECT with an unknown version, for example
                is_ours = why is CloseReason.PROTOCOL_ERROR
                code = ReasonCode.PROTOCOL_ERROR if is_ours else ReasonCode.NOT_AUTHORIZED
            props: Properties = dict(properties or {})
            if text and self.problem_information:
                props[Property.REASON_STRING] = text
            packet = encode_packet(Disconnect(reason_code=code, properties=props), 5)
            if self.max_packet_out and len(packet) > self.max_packet_out:
                packet = encode_packet(Disconnect(reason_code=code), 5)
            out.append(packet)
        if out and not transport.is_closing():
            transport.write(b"".join(out))
        self.core.disconnected(self, why, text)
        if linger and not transport.is_closing() and transport.can_write_eof():
            # Unread input would turn close() into a reset that can overtake the DISCONNECT: read on until the
            # client closes, or the deadline that the sweeper keeps.
            if not self.is_reading:
                transport.resume_reading()
            try:
                transport.write_eof()
            except OSError:  # the client is gone, and only asyncio's own loop says so here
                transport.close()
        else:
            transport.close()
        self.core.closing[self] = self.core.now()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        core = self.core
        core.closing.pop(self, None)
        core.unfinished.end(self)
        core.blocked.pop(self, None)
        if not self.is_closing:
            self.is_closing = True
            self.close_reason = CloseReason.CLIENT_GONE
            if self.held and self.held[-1][0] >> 4 == PacketType.DISCONNECT:
                control.on_held_disconnect(self, self.held[-1])
            core.lose(self, str(exc) if exc else "")

    def round_trip(self) -> float:
        """Seconds to the client and back, as TCP measured it; 0 where it did not."""
        sock = self.transport.get_extra_info("socket")
        if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return 0.0
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        except (OSError, AttributeError):
            return 0.0
        return int.from_bytes(info[RTT_AT : RTT_AT + 4], sys.byteorder) / 1e6

    def let_go(self) -> None:
        """It serves its session no more: what it began ends, and what it had read is nobody's."""
        if self.job is not None:
            self.core.long_work.drop(self.job)
        self.job = self.feeds = self.found = self.more = self.held = None  # some of these hold the connection itself
        self._forget_partial()

    def give_way(self) -> None:
        """The node needs the memory that this one has; what was acknowledged stays with its session."""
        self.close(CloseReason.GAVE_WAY, ReasonCode.QUOTA_EXCEEDED, "the node is short of memory", linger=False)
        if self.transport.get_write_buffer_size():
            self.abort()  # what it does not read would stay

    def abort(self) -> None:
        self.transport.abort()
