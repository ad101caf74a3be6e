"""The end of a link that dials: CONNECT as a client does, then serve the connection as a broker does.

Theory of operation. A link is one MQTT 5 connection with a broker at both ends. Each end has a session for the other,
which is persistent: what one owes the other at QoS 1 and 2 waits there while the connection is away, is in the store
if there is one, and its identifiers make QoS 2 exact across a crash of either. After CONNACK the transport is handed
to a broker `Connection`, so everything that holds for clients (bounds, order, flow control) holds for links.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import TYPE_CHECKING

from tidegate.broker.hooks import LINK_USER
from tidegate.broker.link_connection import LinkConnection
from tidegate.broker.listener import Listener, link_packet
from tidegate.broker.session import NEVER, RELEASED, Session
from tidegate.cluster.wire import BOOT_PROPERTY
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.decode import decode_packet
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.errors import MQTTError
from tidegate.mqtt.packets import Connack, Connect
from tidegate.mqtt.primitives import read_variable_byte_integer
from tidegate.mqtt.properties import Property
from tidegate.net.addresses import Endpoint
from tidegate.net.dial import dial

if TYPE_CHECKING:
    from tidegate.broker.core import Core

log = logging.getLogger("tidegate.cluster")

KEEP_ALIVE = 10  # seconds; a dead node is noticed within one and a half times this
CONNECT_TIMEOUT = 5.0
SHORTEST, LONGEST = 0.1, 3.0  # seconds between two attempts


class LinkRefused(Exception):
    """The other node does not want this link."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text or ReasonCode(code).name)
        self.code = code


class _Opening(asyncio.Protocol):
    """From CONNECT to CONNACK."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Connack] = asyncio.get_running_loop().create_future()
        self.rest = b""  # what came behind CONNACK

    def data_received(self, data: bytes) -> None:
        self.rest += data
        if self.answer.done() or len(self.rest) < 2:
            return
        try:
            length, body = read_variable_byte_integer(self.rest, 1)
            if len(self.rest) < body + length:
                return
            packet = decode_packet(self.rest[0], self.rest[body : body + length], 5)
        except MQTTError as error:
            if len(self.rest) >= 5:
                self.answer.set_exception(LinkRefused(error.reason_code, str(error)))
            return
        self.rest = self.rest[body + length :]
        if isinstance(packet, Connack):
            self.answer.set_result(packet)
        else:
            self.answer.set_exception(LinkRefused(ReasonCode.PROTOCOL_ERROR, "no CONNACK"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(LinkRefused(ReasonCode.UNSPECIFIED_ERROR, "closed without an answer"))


async def open_link(
    core: Core,
    endpoint: Endpoint,
    listener: Listener,
    session: Session,
    own_id: str,
    secret: str,
    boot: str,
) -> tuple[LinkConnection, bool]:
    """Connect and attach `session` to it; gives the connection, and whether the other node remembered us.

    Raises `NetError`, `TimeoutError` or `LinkRefused`.
    """
    transport, opening = await dial(endpoint, _Opening, timeout=CONNECT_TIMEOUT)
    try:
        connect = Connect(
            client_id=own_id,
            clean_start=False,
            keep_alive=KEEP_ALIVE,
            username=own_id,
            password=secret.encode(),
            properties={
                Property.SESSION_EXPIRY_INTERVAL: NEVER,
                Property.RECEIVE_MAXIMUM: core.limits.receive_maximum,
                Property.MAXIMUM_PACKET_SIZE: link_packet(core.limits),
                Property.USER_PROPERTY: [(BOOT_PROPERTY, boot)],
            },
            protocol_level=5,
        )
        transport.write(encode_packet(connect, 5))
        async with asyncio.timeout(CONNECT_TIMEOUT):
            connack = await opening.answer
        if connack.reason_code:
            text = connack.properties.get(Property.REASON_STRING, "")
            raise LinkRefused(connack.reason_code, text)
    except BaseException:
        transport.abort()
        raise
    transport.pause_reading()
    return _attach(
        core, transport, listener, session, connack, opening, str(endpoint)
    ), connack.session_present


def _attach(
    core: Core,
    transport: asyncio.Transport,
    listener: Listener,
    session: Session,
    connack: Connack,
    opening: _Opening,
    peer: str,
) -> LinkConnection:
    if not connack.session_present:
        forget_exchanges(session)
    conn = LinkConnection(core, transport, session, 5, peer, listener)
    conn.username = LINK_USER
    conn.keep_alive = KEEP_ALIVE
    quota = min(connack.properties.get(Property.RECEIVE_MAXIMUM, 65_535), core.limits.max_inflight)
    largest = connack.properties.get(Property.MAXIMUM_PACKET_SIZE, 0)
    if largest and largest < conn.max_packet_in:
        conn.max_packet_out = largest
    session.attach(conn, 5, quota, not conn.max_packet_out)
    core.make_durable(session)
    transport.set_protocol(conn)
    core.connected(conn)
    session.resume()
    if opening.rest:
        core.loop.call_soon(conn.data_received, opening.rest)
    core.loop.call_soon(transport.resume_reading)
    return conn


def forget_exchanges(session: Session) -> None:
    """The other node forgot us: its identifiers mean nothing any more, and what we released it will not ask for."""
    session.inbound = None
    for pid, entry in list(session.inflight.items()):
        if entry[1] == RELEASED:
            del session.inflight[pid]
            session.forget(entry)


class Backoff:
    """Waits between attempts: longer each time, never in step with others."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._last = SHORTEST

    def next(self) -> float:
        self._last = min(LONGEST, self._random.uniform(SHORTEST, self._last * 3))
        return self._last

    def reset(self) -> None:
        self._last = SHORTEST
