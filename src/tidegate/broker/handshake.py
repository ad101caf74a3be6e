"""A connection before its CONNECT is accepted: the deadline, the first packet, who the client is.

Once accepted, the transport is handed to a `Connection` and this object is dropped, so that a connected client
carries none of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from tidegate.broker import wills
from tidegate.broker.connection import Connection
from tidegate.broker.hooks import (
    LINK_CLIENT,
    NODE_TOPIC,
    ConnectRequest,
    Exchange,
    ForeignSession,
    SessionElsewhere,
    Verdict,
    follows,
)
from tidegate.broker.link_connection import LinkConnection
from tidegate.broker.listener import Listener
from tidegate.broker.message import Message
from tidegate.broker.operating import CONTROL_TOPIC
from tidegate.broker.publishing import bare_properties
from tidegate.broker.reasons import CloseReason
from tidegate.broker.session import will_bytes
from tidegate.broker.wills import Will
from tidegate.flow.admission import Admission
from tidegate.flow.load_report import LOAD_TOPIC, NEGOTIATION
from tidegate.mqtt.codes import PacketType, ReasonCode
from tidegate.mqtt.decode import decode_packet
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.errors import MQTTError, PacketTooLarge, UnsupportedProtocolVersion
from tidegate.mqtt.packets import Auth, Connack, Connect
from tidegate.mqtt.primitives import read_variable_byte_integer
from tidegate.mqtt.properties import Properties, Property

if TYPE_CHECKING:
    from tidegate.broker.core import Core
    from tidegate.broker.session import Session

log = logging.getLogger("tidegate.broker")

OPERATOR = "$operator/"  # before the names of operators, so that no client has one of them
CROWDED = "this account has too many sessions"
FOREIGN = "this client identifier belongs to another user"
REFUSAL_JITTER = 2.0  # seconds
MANNERS = 0.5  # share of the waiting room from which on those who are refused get no place in it
STRANGERS_PROPERTIES = 100  # user properties in CONNECT, and in its will: nobody knows yet who sends them
NAMES = ("MQTT", "MQIsdp")  # of the protocol, in CONNECT


def _is_loopback(host: str) -> bool:
    return host.startswith(("127.", "::ffff:127.")) or host == "::1"


class Handshake(asyncio.Protocol):
    """From accept to CONNACK."""

    __slots__ = (
        "_authenticating",
        "_buffer",
        "_connect",
        "_exchange",
        "_task",
        "address",
        "core",
        "listener",
        "peer",
        "transport",
    )

    def __init__(self, core: Core, listener: Listener) -> None:
        self.core = core
        self.listener = listener
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.address = ""  # empty for this machine, which has no limits of its own
        self._buffer = b""
        self._connect: Connect | None = None
        self._exchange: Exchange | None = None
        self._authenticating = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        core = self.core
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer = f"{peer[0]}:{peer[1]}"
            if not _is_loopback(peer[0]):
                self.address = peer[0]
        else:
            self.peer = "local"
        if core.is_stopping:
            self.transport.abort()
            return
        core.door.enter(self, transport, is_kept=self.listener.is_operator)

    def connection_lost(self, exc: Exception | None) -> None:
        self.core.door.leave(self)
        self.core.waiting.pop(self, None)
        self.transport = None
        if self._task is not None:
            self._task.cancel()

    def eof_received(self) -> bool:
        return False

    def abort(self) -> None:
        """The deadline passed, the broker stops, or others need the place."""
        self.core.door.leave(self)
        self.core.waiting.pop(self, None)
        if self.transport is not None:
            self.transport.abort()

    # -- the first packet -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.core.counters.bytes_received += len(data)
        if self.transport is None or self.transport.is_closing():
            return
        self._buffer += data
        if self._authenticating:
            if len(self._buffer) > self.core.limits.max_connect_size:
                self.transport.pause_reading()
        else:
            self._next_packet()
        self.core.door.hold(self, len(self._buffer))

    def _next_packet(self) -> None:
        """Take one packet from the buffer: CONNECT, or AUTH while an exchange runs."""
        expected = PacketType.AUTH if self._exchange is not None else PacketType.CONNECT
        buffer = self._buffer
        if not buffer:
            return
        if buffer[0] != expected << 4:
            if self._exchange is not None:
                self._refuse(ReasonCode.PROTOCOL_ERROR)
            else:
                self.abort()  # [MQTT5-3.1.0-1]: not an MQTT client, no answer
            return
        if len(buffer) < 2:
            return
        try:
            length, body = read_variable_byte_integer(buffer, 1)
        except MQTTError:
            if len(buffer) >= 5:
                self.abort()
            return
        if body + length > self.core.limits.max_connect_size:
            self._refuse(ReasonCode.PACKET_TOO_LARGE)
            return
        if len(buffer) < body + length:
            return
        self._buffer = buffer[body + length :]
        self.core.counters.messages_received += 1
        try:
            most = min(self.core.limits.max_user_properties, STRANGERS_PROPERTIES)
            packet = decode_packet(buffer[0], buffer[body : body + length], 5, most)
        except UnsupportedProtocolVersion as error:
            if error.name not in NAMES:
                self.abort()  # another protocol: no answer would be understood
                return
            # [MQTT3-3.1.2-2]: return code 1 in the form every version can read
            self._finish(b"\x20\x02\x00\x01")
            return
        except MQTTError as error:
            self.core.counters.protocol_errors += 1
            self._refuse_malformed(error, buffer[body : body + length])
            return
        if isinstance(packet, Connect):
            self._on_connect(packet)
        elif isinstance(packet, Auth):
            self._on_auth(packet)

    def _refuse_malformed(self, error: MQTTError, body: bytes) -> None:
        if self._connect is None and body[:7] != b"\x00\x04MQTT\x05":
            self.abort()  # 3.1.1 has no answer for a malformed CONNECT [MQTT3-4.8.0-1]
            return
        self._finish(encode_packet(Connack(reason_code=error.reason_code), 5))

    def _on_connect(self, connect: Connect) -> None:
        core = self.core
        self._connect = connect
        code = self._admission(connect.client_id)
        if not code:
            code = self._check(connect)
        if code:
            self._refuse(code)
            return
        if self.listener.is_operator:
            self._accept(Verdict(user=None))  # the system let in only who may do everything
            return
        turn = core.admitter.ask(core.now(), self.address)
        if turn == 0.0:
            self._authenticate()
            return
        occupied = len(core.waiting) / core.limits.max_connections
        if not isinstance(turn, Admission):
            if occupied < 1.0:
                self._wait_for(turn, self._authenticate)
            else:
                self._refuse_for(Admission.RATE)
        elif occupied < MANNERS:
            # At a random time: refused at once, clients that came in step would come back in step.
            self._wait_for(core.random.random() * REFUSAL_JITTER, partial(self._refuse_for, turn))
        else:
            self._refuse_for(turn)

    def _wait_for(self, delay: float, then: Callable[[], None]) -> None:
        """Go on after `delay` seconds; meanwhile what the client sends stays in the buffer."""
        self._authenticating = True
        self.core.door.stop_clock(self, is_stopped=True)
        self.core.waiting[self] = None
        self.core.alarms.at(self.core.now() + delay, partial(self._continue, then))

    def _continue(self, then: Callable[[], None]) -> None:
        if self.core.waiting.pop(self, self) is self or self.transport is None or self.transport.is_closing():
            return
        self.core.door.stop_clock(self, is_stopped=False)
        self._authenticating = False
        then()

    def _refuse_for(self, why: Admission) -> None:
        is_rate = why is not Admission.ADDRESS_COUNT
        self._refuse(
            ReasonCode.CONNECTION_RATE_EXCEEDED if is_rate else ReasonCode.QUOTA_EXCEEDED,
            f"over the limit of {why.value}",
        )

    def _authenticate(self) -> None:
        core = self.core
        connect = self._connect
        assert connect is not None
        listener = self.listener
        method = connect.properties.get(Property.AUTHENTICATION_METHOD)
        if method is not None:
            known = core.methods.get(method)
            if known is None:
                self._refuse(ReasonCode.BAD_AUTHENTICATION_METHOD)  # [MQTT5-4.12.0-1]
                return
            try:
                self._exchange = known.start(self._request(connect))
            except Exception:  # noqa: BLE001 - logged there
                self._judge(self._hook_failed())
                return
            self._step(connect.properties.get(Property.AUTHENTICATION_DATA))
            return
        authenticator = listener.authenticator or core.hooks.authenticator
        request = self._request(connect)
        is_anonymous = request.username is None and request.password is None and request.certificate is None
        if not listener.allow_anonymous and (is_anonymous or authenticator is None):
            self._refuse(ReasonCode.NOT_AUTHORIZED)
            return
        if authenticator is None:
            self._accept(Verdict(user=None))
            return
        try:
            answer = authenticator.authenticate(request)
        except Exception:  # noqa: BLE001 - logged there
            answer = self._hook_failed()
        if isinstance(answer, Verdict):
            self._judge(answer)
        else:
            self._authenticating = True
            self._task = core.spawn(self._wait(answer))

    def _admission(self, client_id: str) -> ReasonCode:
        listener = self.listener
        if listener.is_operator:
            return ReasonCode.SERVER_SHUTTING_DOWN if self.core.is_stopping else ReasonCode.SUCCESS
        if listener.max_connections and listener.connections >= listener.max_connections:
            return ReasonCode.QUOTA_EXCEEDED
        return self.core.admission(client_id)

    def _check(self, connect: Connect) -> ReasonCode:
        core = self.core
        features = core.features
        if not connect.client_id:
            if connect.protocol_level < 5 and not connect.clean_start:  # [MQTT3-3.1.3-8]
                return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
            if not features.allow_zero_length_client_id:
                return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        if len(connect.client_id.encode()) > core.limits.max_client_id_bytes and not self.listener.is_link:
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        # Names with a dollar are those of nodes, and of sessions that they have for each other.
        is_node = connect.client_id.startswith(LINK_CLIENT if self.listener.is_link else "$")
        if is_node != self.listener.is_link:
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        will = connect.will
        if will is not None:
            if will.qos > features.maximum_qos:  # [MQTT5-3.2.2-12]
                return ReasonCode.QOS_NOT_SUPPORTED
            if will.retain and not features.retain_available:  # [MQTT5-3.2.2-13]
                return ReasonCode.RETAIN_NOT_SUPPORTED
            if will.topic in ("$SYS", LOAD_TOPIC) or will.topic.startswith(
                ("$SYS/", "$share/", CONTROL_TOPIC.decode())
            ):
                return ReasonCode.TOPIC_NAME_INVALID
            if self.core.cluster is not None and will.topic.encode().startswith(NODE_TOPIC):
                return ReasonCode.TOPIC_NAME_INVALID
        return ReasonCode.SUCCESS

    # -- who the client is ----------------------------------------------------------------------------------

    def _request(self, connect: Connect) -> ConnectRequest:
        assert self.transport is not None
        return ConnectRequest(
            client_id=connect.client_id,
            username=connect.username,
            password=connect.password,
            version=connect.protocol_level,
            peer=self.peer,
            listener=self.listener.name,
            certificate=self.transport.get_extra_info("peercert"),
            properties=connect.properties,
        )

    async def _wait(self, answer: Awaitable[Verdict]) -> None:
        try:
            verdict = await answer
        except Exception:  # noqa: BLE001 - logged there
            verdict = self._hook_failed()
        self._authenticating = False
        self._task = None
        if self.transport is not None and not self.transport.is_closing():
            self._judge(verdict)

    def _hook_failed(self) -> Verdict:
        """A hook is foreign code: its fault refuses this client and harms nobody else."""
        log.exception("unexpected error while authenticating a client", extra={"peer": self.peer})
        return Verdict(reason_code=ReasonCode.UNSPECIFIED_ERROR)

    def _judge(self, verdict: Verdict) -> None:
        if verdict.reason_code == ReasonCode.SUCCESS:
            self._accept(verdict)
        else:
            self._refuse(verdict.reason_code, verdict.reason, is_expected=verdict.is_expected)

    def _on_auth(self, packet: Auth) -> None:
        assert self._connect is not None
        method = self._connect.properties.get(Property.AUTHENTICATION_METHOD)
        if (
            packet.reason_code != ReasonCode.CONTINUE_AUTHENTICATION
            or packet.properties.get(Property.AUTHENTICATION_METHOD) != method  # [MQTT5-4.12.0-5]
        ):
            self._refuse(ReasonCode.PROTOCOL_ERROR)
            return
        self._step(packet.properties.get(Property.AUTHENTICATION_DATA))

    def _step(self, data: bytes | None) -> None:
        assert self._exchange is not None and self._connect is not None and self.transport is not None
        try:
            answer = self._exchange.step(data)
        except Exception:  # noqa: BLE001 - logged there
            answer = self._hook_failed()
        if isinstance(answer, Verdict):
            self._judge(answer)
            return
        self.transport.write(
            encode_packet(
                Auth(
                    reason_code=ReasonCode.CONTINUE_AUTHENTICATION,
                    properties={
                        Property.AUTHENTICATION_METHOD: self._connect.properties[
                            Property.AUTHENTICATION_METHOD
                        ],
                        Property.AUTHENTICATION_DATA: answer,
                    },
                ),
                5,
            )
        )
        if self._buffer:
            self._next_packet()

    # -- the answer -----------------------------------------------------------------------------------------

    def _refuse(
        self, code: ReasonCode, text: str = "", reference: str = "", *, is_expected: bool = False
    ) -> None:
        self.core.counters.connects_refused += 1
        connect = self._connect
        version = connect.protocol_level if connect is not None else 0
        if not is_expected:
            self.core.log_refusal(self.peer, code, text)
        if not version:
            self.abort()
            return
        properties: Properties = {Property.REASON_STRING: text} if text else {}
        if reference:
            properties[Property.SERVER_REFERENCE] = reference
        limit = connect.properties.get(Property.MAXIMUM_PACKET_SIZE) if connect is not None else None
        reply = Connack(reason_code=code, properties=properties)
        try:
            self._finish(encode_packet(reply, version, max_packet_size=limit))
        except PacketTooLarge:  # [MQTT5-3.1.2-24]: the client cannot take the answer
            self.abort()

    def _finish(self, packet: bytes) -> None:
        """Send the last packet and close."""
        self.core.door.leave(self)
        if self.transport is not None:
            self.transport.write(packet)
            self.transport.close()

    def _accept(self, verdict: Verdict, is_prepared: bool = False) -> None:
        core = self.core
        connect = self._connect
        transport = self.transport
        assert connect is not None and transport is not None
        client_id = connect.client_id or f"tide-{uuid4().hex}"
        listener = self.listener
        if listener.is_operator:
            client_id = OPERATOR + client_id
        code = self._admission(client_id)  # others may have connected while this one waited
        if not code and not core.admitter.has_room(self.address):
            code = ReasonCode.QUOTA_EXCEEDED
        if code:
            self._refuse(code)
            return
        known = core.sessions.get(client_id)
        will = _will(connect)
        objection = self._objection(client_id, known, verdict.user, will)
        if objection is not None:
            self._refuse(*objection)
            return
        if known is not None and _is_foreign(known, verdict.user):
            core.end_by_order(known)  # whose user may not have this name any more
            known = None
        if core.cluster is not None and not listener.is_link and not listener.is_operator and not is_prepared:
            first = core.cluster.prepare(self._request(connect), connect.clean_start, known, verdict.user)
            if isinstance(first, str):
                self._refuse(ReasonCode.USE_ANOTHER_SERVER, "served by another node", first)
                return
            if first is not None:
                self._authenticating = True
                self._task = core.spawn(self._accept_after(first, verdict))
                return
        core.door.leave(self)
        session, present = core.open_session(client_id, connect.clean_start)
        if session.user != verdict.user or session.account is core.accounts.nobody:
            session.belong_to(verdict.user)
        session.is_link = listener.is_link
        session.is_operator = listener.is_operator
        properties = connect.properties
        kind = LinkConnection if listener.is_link else Connection
        conn = kind(core, transport, session, connect.protocol_level, self.peer, listener)
        conn.username = verdict.user
        conn.address = self.address
        if connect.protocol_level == 5:
            reply = self._settle_v5(connect, conn, verdict)
        else:
            reply = {}
            conn.keep_alive = connect.keep_alive
            is_brief = connect.clean_start or listener.is_operator
            session.expiry = 0 if is_brief else core.features.persistent_session_expiry
        if verdict.expires is not None:
            conn.expires_at(verdict.expires)
        if will is not None:
            will.message.publisher = session.client_id
            will.message.author = conn.author_of(will.message.topic)
        wills.keep(session, will)
        quota = min(properties.get(Property.RECEIVE_MAXIMUM, 65_535), core.limits.max_inflight)
        is_plain = (
            not conn.max_packet_out
            and not conn.alias_max_out
            and not (core.features.queue_qos0 and session.expiry)
        )
        session.attach(conn, connect.protocol_level, quota, is_plain)
        core.make_durable(session)
        transport.set_protocol(conn)
        core.connected(conn)
        if not wills.may_leave(conn):
            wills.keep(session, None)
            self.transport = None
            transport.write(
                encode_packet(Connack(reason_code=ReasonCode.NOT_AUTHORIZED), connect.protocol_level)
            )
            conn.close(CloseReason.NOT_AUTHORIZED)
            return
        connack = Connack(session_present=present, properties=reply)
        try:
            transport.write(
                encode_packet(connack, connect.protocol_level, max_packet_size=conn.max_packet_out or None)
            )
        except PacketTooLarge:  # [MQTT5-3.1.2-24]: a client that cannot take its CONNACK cannot be served
            self.transport = None
            conn.close(CloseReason.PROTOCOL_ERROR)
            return
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "client connected", extra={"client": client_id, "peer": self.peer, "version": conn.version}
            )
        if listener.is_link and core.cluster is not None:
            core.cluster.on_link(conn, present)
        if present:
            session.resume()
            if session.load is not None:
                core.help.ask(session, session.subscriptions.values())
        self.transport = None
        if not transport.is_reading():
            transport.resume_reading()
        if self._buffer:
            core.counters.bytes_received -= len(self._buffer)  # they are counted again there
            conn.data_received(self._buffer)

    def _objection(
        self, client_id: str, known: Session | None, user: str | None, will: Will | None
    ) -> tuple[ReasonCode, str] | None:
        """Why the user cannot have a session of this name, if so."""
        core = self.core
        assert self._connect is not None
        if self.listener.is_operator:
            return None
        if self.listener.is_link:
            is_foreign = known is not None and _is_foreign(known, user)
            return (ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, FOREIGN) if is_foreign else None
        may_be_named = core.authors.may_be_named
        if self._connect.client_id and not may_be_named(user, client_id):
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "this client identifier is not for this user"
        if known is None and not core.has_account_room(user):
            return ReasonCode.QUOTA_EXCEEDED, CROWDED
        if known is not None and _is_foreign(known, user) and may_be_named(known.user, client_id):
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, FOREIGN
        return self._too_much(self._connect, known, will)

    def _too_much(
        self, connect: Connect, known: Session | None, will: Will | None
    ) -> tuple[ReasonCode, str] | None:
        """Why the node cannot keep what this CONNECT asks it to keep, if so."""
        core = self.core
        size = will_bytes(will)
        if size > core.limits.max_session_bytes:
            return ReasonCode.QUOTA_EXCEEDED, "the will is too large"
        growth = size - (will_bytes(known.will) if known is not None else 0)
        is_kept = not connect.clean_start or connect.properties.get(Property.SESSION_EXPIRY_INTERVAL)
        if core.memory.is_short and (growth > 0 or (known is None and is_kept)):
            return ReasonCode.SERVER_BUSY, "the node is short of memory"
        return None

    async def _accept_after(self, first: Awaitable[None], verdict: Verdict) -> None:
        """Another node hands the client's session over."""
        assert self._connect is not None
        obstacle: SessionElsewhere | ForeignSession | None = None
        try:
            await first
        except (SessionElsewhere, ForeignSession) as error:
            obstacle = error
        self._authenticating = False
        self._task = None
        if isinstance(obstacle, ForeignSession):
            self._refuse(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, FOREIGN)
        elif obstacle is not None and obstacle.address and self._connect.protocol_level == 5:
            self._refuse(ReasonCode.USE_ANOTHER_SERVER, "served by another node", obstacle.address)
        elif obstacle is not None:
            self._refuse(ReasonCode.SERVER_BUSY, "the session is with a node that does not answer")
        elif self.transport is not None and not self.transport.is_closing():
            self._accept(verdict, is_prepared=True)

    def _settle_v5(self, connect: Connect, conn: Connection, verdict: Verdict) -> Properties:
        """Apply the CONNECT properties; the answer holds only what differs from the specification's defaults."""
        core = self.core
        limits, features = core.limits, core.features
        asked = connect.properties
        reply: Properties = {}
        expiry = asked.get(Property.SESSION_EXPIRY_INTERVAL, 0)
        is_operator = self.listener.is_operator  # who leaves nothing behind
        longest = expiry if self.listener.is_link else features.max_session_expiry
        conn.session.expiry = 0 if is_operator else min(expiry, longest)
        if conn.session.expiry != expiry:
            reply[Property.SESSION_EXPIRY_INTERVAL] = conn.session.expiry
        conn.keep_alive = connect.keep_alive
        imposed = features.server_keep_alive
        if imposed and (not connect.keep_alive or connect.keep_alive > imposed):
            conn.keep_alive = imposed
            reply[Property.SERVER_KEEP_ALIVE] = imposed
        if not connect.client_id:
            reply[Property.ASSIGNED_CLIENT_IDENTIFIER] = conn.session.client_id
        if NEGOTIATION in asked.get(Property.USER_PROPERTY, ()):
            conn.has_long_pings = True
            reply[Property.USER_PROPERTY] = [NEGOTIATION]
        conn.hears_moves = follows(asked) and not is_operator
        if core.gate is not None:
            conn.receive_maximum = core.gate.receive_maximum(conn, conn.receive_maximum)
        if conn.receive_maximum < 65_535:
            reply[Property.RECEIVE_MAXIMUM] = conn.receive_maximum
        reply[Property.MAXIMUM_PACKET_SIZE] = conn.max_packet_in
        if limits.max_topic_alias:
            reply[Property.TOPIC_ALIAS_MAXIMUM] = limits.max_topic_alias
        if features.maximum_qos < 2:
            reply[Property.MAXIMUM_QOS] = features.maximum_qos
        for prop, available in (
            (Property.RETAIN_AVAILABLE, features.retain_available),
            (Property.WILDCARD_SUBSCRIPTION_AVAILABLE, features.wildcard_subscription_available),
            (Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE, features.subscription_identifiers_available),
            (Property.SHARED_SUBSCRIPTION_AVAILABLE, features.shared_subscription_available),
        ):
            if not available:
                reply[prop] = 0
        if asked.get(Property.REQUEST_RESPONSE_INFORMATION) and features.response_information:
            reply[Property.RESPONSE_INFORMATION] = features.response_information.replace(
                "%c", conn.session.client_id
            )
        method = asked.get(Property.AUTHENTICATION_METHOD)
        if method is not None:
            conn.auth_method = method
            reply[Property.AUTHENTICATION_METHOD] = method
            if verdict.data is not None:
                reply[Property.AUTHENTICATION_DATA] = verdict.data
        conn.max_packet_out = asked.get(Property.MAXIMUM_PACKET_SIZE, 0)
        if self.listener.is_link and conn.max_packet_out >= conn.max_packet_in:
            conn.max_packet_out = 0  # no need to look at each
        conn.alias_max_out = min(asked.get(Property.TOPIC_ALIAS_MAXIMUM, 0), limits.max_topic_alias)
        conn.problem_information = bool(asked.get(Property.REQUEST_PROBLEM_INFORMATION, 1))
        return reply


def _is_foreign(session: Session, user: str | None) -> bool:
    return session.user is not None and session.user != user


def _will(connect: Connect) -> Will | None:
    given = connect.will
    if given is None:
        return None
    props = dict(given.properties)
    delay = props.pop(Property.WILL_DELAY_INTERVAL, 0)
    expiry = props.pop(Property.MESSAGE_EXPIRY_INTERVAL, None)
    message = Message(
        given.topic.encode(), given.payload, given.qos, given.retain, bare_properties(props)
    )  # fmt: skip
    return Will(message=message, delay=delay, expiry=expiry)
