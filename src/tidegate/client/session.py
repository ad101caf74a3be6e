"""The client's side of a session, without I/O: packets in, packets out, answers to those who wait.

A `Session` outlives connections. Each connection goes through `connect_packet`, `on_connack`, any number of
`on_packet`, `on_connection_lost`; `fail` ends the session for good. It knows no clock and no socket: the
connection gives it a `write`, the application's side a place for messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.client.errors import ConnectRefused, ServerDisconnected
from tidegate.client.limits import ServerLimits
from tidegate.client.message import Message
from tidegate.client.options import ClientOptions
from tidegate.client.publishing import Publisher
from tidegate.client.receiving import Receiver
from tidegate.client.subscribing import Requests
from tidegate.client.wire import Wire
from tidegate.flow.moving import MOVING_TOPIC
from tidegate.mqtt.errors import ProtocolError
from tidegate.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)


class Session:
    """`deliver` gets each new message; `discard_stale` is called when the server will send again what the
    application has not taken yet, so that copies in its queue must go.
    """

    def __init__(
        self,
        options: ClientOptions,
        deliver: Callable[[Message], None],
        discard_stale: Callable[[], None],
    ) -> None:
        self._options = options
        self._deliver = deliver
        self._discard_stale = discard_stale
        self.wire = Wire(options.protocol_version)
        self.requests = Requests(self.wire)
        self.publisher = Publisher(self.wire, options.topic_aliases, self.requests.open)
        self.requests.next_identifier = self.publisher.next_identifier
        self.receiver = Receiver(self.wire)
        self.client_id = options.client_id
        self.limits = ServerLimits(keep_alive=options.keep_alive)
        self.connections = 0
        self.on_open: Callable[[Connack], None] = lambda _connack: None
        """Called when a connection is accepted, before the first message on it is handled."""
        self.on_moving: Callable[[str], None] = lambda _address: None
        """Called when the server says where it will send us."""
        self._clean_start = True
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Publish: self._on_publish,
            Puback: self.publisher.on_puback,
            Pubrec: self.publisher.on_pubrec,
            Pubrel: self.receiver.on_pubrel,
            Pubcomp: self.publisher.on_pubcomp,
            Suback: self._on_suback,
            Unsuback: self._on_unsuback,
            Pingresp: lambda _packet: None,  # Any byte was a sign of life already.
            Disconnect: self._on_disconnect,
        }

    @property
    def has_open_exchanges(self) -> bool:
        """Whether somebody waits for a packet of the server."""
        return bool(len(self.publisher) or len(self.requests))

    def connect_packet(self) -> Connect:
        """The CONNECT of the next connection: the first as the options say, later ones continue the session.

        A 3.1.1 session made clean ends with its connection, and an empty identifier cannot be found again.
        """
        self._clean_start = self._options.clean_start
        if self.connections and self.client_id and self._options.protocol_version == 5:
            self._clean_start = False
        return self._options.connect_packet(self.client_id, clean_start=self._clean_start)

    def on_connack(self, packet: Connack, write: Callable[[bytes], None]) -> None:
        """Open the session on a new connection; raises `ConnectRefused` or `ProtocolError`."""
        if packet.reason_code >= 0x80:
            raise ConnectRefused(packet.reason_code, packet.properties)
        if packet.session_present and self._clean_start:
            raise ProtocolError("the server kept a session that was to start clean [MQTT5-3.2.2-2]")
        self.limits = limits = ServerLimits.of(packet, self._options, self.client_id)
        self.client_id = limits.client_id
        self.connections += 1
        present = packet.session_present
        self.wire.open(write, limits.maximum_packet_size)
        version_5 = self._options.protocol_version == 5
        self.receiver.on_connected(
            self._options.effective_receive_maximum if version_5 else 65_535,
            self._options.topic_alias_maximum,
            session_present=present,
        )
        if present:
            self._discard_stale()
        self.on_open(packet)
        self.requests.on_connected(session_present=present)
        self.publisher.on_connected(limits, session_present=present)

    def on_packet(self, packet: Packet) -> None:
        """Handle one packet after CONNACK; raises `MQTTError` or `ServerDisconnected`: it is over."""
        handler = self._handlers.get(type(packet))
        if handler is None:
            raise ProtocolError(f"a server does not send {type(packet).__name__.upper()} here")
        handler(packet)

    def on_connection_lost(self) -> None:
        if self.wire.is_open:
            self.wire.close()
            self.requests.on_connection_lost()

    def fail(self, error: Exception) -> None:
        """No connection will follow."""
        self.wire.close()
        self.requests.fail(error)
        self.publisher.fail(error)

    def on_message(
        self, topic: str, payload: bytes, qos: int, retain: bool, dup: bool, packet_identifier: int
    ) -> None:
        """As `on_packet` for a PUBLISH without properties."""
        message = self.receiver.receive(topic, payload, qos, retain, dup, packet_identifier, {})
        if message is not None:
            self._deliver(message)

    def _on_suback(self, packet: Suback) -> None:
        self.requests.on_suback(packet)
        self.publisher.pump()

    def _on_unsuback(self, packet: Unsuback) -> None:
        self.requests.on_unsuback(packet)
        self.publisher.pump()

    def _on_publish(self, packet: Publish) -> None:
        if packet.topic == MOVING_TOPIC and not packet.qos:
            self.on_moving(packet.payload.decode(errors="replace"))
            return
        message = self.receiver.on_publish(packet)
        if message is not None:
            self._deliver(message)

    def _on_disconnect(self, packet: Disconnect) -> None:
        if self._options.protocol_version < 5:
            raise ProtocolError("an MQTT 3.1.1 server does not send DISCONNECT")
        raise ServerDisconnected(packet.reason_code, packet.properties)
