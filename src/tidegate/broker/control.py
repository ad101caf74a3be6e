"""Packets other than PUBLISH on the general path: each kind to its handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.broker import publishing, reauthentication, subscribing, wills
from tidegate.broker.reasons import CloseReason
from tidegate.flow.load_report import LOAD_PROPERTY, parse_pingreq
from tidegate.mqtt.codes import PacketType, ReasonCode
from tidegate.mqtt.decode import decode_packet
from tidegate.mqtt.errors import MalformedPacket, MQTTError, ProtocolError
from tidegate.mqtt.packets import Auth, Disconnect, Puback, Pubcomp, Pubrec, Pubrel
from tidegate.mqtt.primitives import read_variable_byte_integer
from tidegate.mqtt.properties import Property

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection

PINGRESP = b"\xd0\x00"


def on_control(conn: Connection, first: int, body: bytes) -> None:
    """Handle one packet; raises MQTTError for what the client did wrong."""
    session = conn.session
    if first >> 4 == PacketType.PINGREQ:
        if first != 0xC0 or (body and not conn.has_long_pings):
            raise MalformedPacket("PINGREQ has no flags and no body")
        session.write(PINGRESP)
        if body:
            report = parse_pingreq(body)
            if report is not None:
                session.on_report(report)
        return
    if first == 0x82:
        conn.do(subscribing.subscribe(conn, body), len(body))
        return
    if first == 0xA2:
        conn.do(subscribing.unsubscribe(conn, body), len(body))
        return
    conn.debt += len(body) // publishing.BYTES_A_UNIT
    packet = decode_packet(first, body, conn.version, conn.max_user_properties)
    match packet:
        case Puback():
            session.on_puback(packet.packet_identifier)
            if packet.properties:
                for name, value in packet.properties.get(Property.USER_PROPERTY, ()):
                    if name == LOAD_PROPERTY:
                        publishing.on_load_report(session, value)
        case Pubrec():
            _on_pubrec(conn, packet)
        case Pubrel():
            publishing.on_pubrel(conn, packet.packet_identifier)
        case Pubcomp():
            session.on_pubcomp(packet.packet_identifier)
        case Disconnect():
            settle_disconnect(conn, packet)
            conn.close(CloseReason.CLIENT_DISCONNECTED, linger=False)
        case Auth():
            verdict = reauthentication.on_auth(conn, packet)
            if verdict is not None:
                conn.close(CloseReason.NOT_AUTHORIZED, verdict.reason_code, verdict.reason)
        case _:
            if conn.listener.is_link and conn.core.cluster is not None and conn.core.cluster.on_packet(conn, packet):
                return
            # [MQTT5-3.1.0-2]: a second CONNECT, or a packet only a server sends.
            raise ProtocolError(f"unexpected {type(packet).__name__.upper()}")


def _on_pubrec(conn: Connection, packet: Pubrec) -> None:
    session = conn.session
    pid = packet.packet_identifier.to_bytes(2, "big")
    is_error = packet.reason_code >= 0x80
    if session.on_pubrec(packet.packet_identifier, is_error):
        if not is_error:
            publishing.answer(conn, b"\x62\x02" + pid, waits=session.durable is not None)
    elif not conn.v5:
        session.write(b"\x62\x02" + pid)
    elif not is_error:
        session.write(b"\x62\x03" + pid + b"\x92")


def settle_disconnect(conn: Connection, packet: Disconnect) -> None:
    """What DISCONNECT says about session and will."""
    session = conn.session
    expiry = packet.properties.get(Property.SESSION_EXPIRY_INTERVAL)
    if expiry is not None:
        if session.expiry == 0 and expiry != 0:
            raise ProtocolError("DISCONNECT may not set a session expiry where CONNECT had none")
        session.expiry = min(expiry, conn.core.features.max_session_expiry)
    if packet.reason_code == ReasonCode.NORMAL_DISCONNECTION:
        wills.keep(session, None)  # [MQTT5-3.14.4-3]


def on_held_disconnect(conn: Connection, data: bytes) -> None:
    """The client said DISCONNECT behind publishes that waited, and is gone before they could go on."""
    try:
        _, body = read_variable_byte_integer(data, 1)
        packet = decode_packet(data[0], data[body:], conn.version)
        if isinstance(packet, Disconnect):
            settle_disconnect(conn, packet)
            conn.close_reason = CloseReason.CLIENT_DISCONNECTED
    except MQTTError:
        pass  # as if it had not been said
