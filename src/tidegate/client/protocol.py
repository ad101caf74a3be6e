"""One connection: bytes of the transport on one side, packets of the session on the other.

Rules it keeps: all packets of a chunk are handled in one go; what is to be sent is gathered and written once
a turn of the loop; the connection ends with one error, the first that was known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tidegate.client.errors import ClientError, ConnectionLost, ServerSilent
from tidegate.client.keepalive import Due, KeepAlive
from tidegate.client.options import ClientOptions
from tidegate.client.reader import SessionReader
from tidegate.client.session import Session
from tidegate.mqtt.codes import LEGAL, PacketType
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.errors import Blame, MQTTError, ProtocolError
from tidegate.mqtt.packets import Connack, Disconnect, Packet
from tidegate.mqtt.reader import PacketReader

# Gathered bytes that are written without waiting for the end of the turn: a task that publishes without pause
# must not gather without bound. The same number as the transports' own high-water mark.
_WRITE_AT_ONCE_BYTES = 65_536
# Seconds a closing connection has for what was not written yet: a peer that reads no more must not keep us.
_CLOSE_WITHIN = 2.0
# Packets one task may send before others get their turn: well under a millisecond of work.
_PACKETS_A_TURN = 100


class Link(asyncio.Protocol):
    """`on_lost` is called once, after the transport is gone; `on_chunk` after each chunk was handled; `ping` gives
    the PINGREQ that keep alive needs.
    """

    transport: asyncio.Transport

    def __init__(
        self,
        session: Session,
        options: ClientOptions,
        on_lost: Callable[[Link, Exception | None], None],
        on_chunk: Callable[[], None],
        ping: Callable[[], bytes],
    ) -> None:
        self._session = session
        self._options = options
        self._on_lost = on_lost
        self._on_chunk = on_chunk
        self._ping = ping
        self._loop = asyncio.get_running_loop()
        self._reader = PacketReader(options.protocol_version, options.maximum_packet_size)
        self._session_reader: SessionReader | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._packets_this_turn = 0
        self.error: Exception | None = None
        self._is_closing = False
        self._keep_alive = KeepAlive(0, 0, self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._can_write: asyncio.Future[None] | None = None
        self.is_reading = True
        self.connack: asyncio.Future[Connack] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(_WRITE_AT_ONCE_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self._keep_alive.on_received(self._loop.time())
        try:
            if self._session_reader is not None:
                self._session_reader.feed(data)
            else:
                for packet in self._reader.feed(data):
                    self._handle(packet)
                self._reader.check()
        except MQTTError as error:
            self._fail_protocol(error)
        except ClientError as error:
            self.close(error)
        self._on_chunk()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self.error is None:
            self.error = _explain_loss(exc, hint=self._hint_before_connack())
        if not self.connack.done():
            self.connack.set_exception(self.error)
            self.connack.exception()  # Whoever waited may have left; that is no reason for a warning.
        if self._can_write is not None and not self._can_write.done():
            self._can_write.set_result(None)
        self.lost.set_result(None)
        self._on_lost(self, self.error)

    def pause_writing(self) -> None:
        if self._can_write is None:
            self._can_write = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._can_write is not None:
            if not self._can_write.done():
                self._can_write.set_result(None)
            self._can_write = None

    # What the client calls.

    def send_connect(self) -> None:
        packet = self._session.connect_packet()
        self.write(encode_packet(packet, self._options.protocol_version))

    def write(self, data: bytes) -> None:
        """Send with everything else of this turn."""
        if self._is_closing:
            return
        if not self._packets_this_turn:
            self._loop.call_soon(self._end_turn)
        self._packets_this_turn += 1
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= _WRITE_AT_ONCE_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            # Gathered in the turn in which the connection was lost: the session sends it again if it must.
            if not self.transport.is_closing():
                self.transport.write(data)
                self._keep_alive.on_sent(self._loop.time())

    @property
    def must_wait(self) -> bool:
        """Whether the network does not keep up, or others are due a turn."""
        return self._can_write is not None or self._packets_this_turn >= _PACKETS_A_TURN

    async def drain(self) -> None:
        """Wait until the network keeps up; no limit, since keep alive ends a connection that is stuck."""
        if self._can_write is not None:
            await asyncio.shield(self._can_write)
        else:
            await asyncio.sleep(0)

    def set_reading(self, is_wanted: bool) -> None:
        """Stop or go on reading: the back-pressure of a full inbox."""
        if is_wanted == self.is_reading or self._is_closing:
            return
        self.is_reading = is_wanted
        if is_wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def disconnect(self, packet: Disconnect) -> None:
        """Say goodbye and close after everything was written."""
        if not self._is_closing:
            self.write(encode_packet(packet, self._options.protocol_version))
            self.close(None)

    def close(self, error: Exception | None) -> None:
        """Close after everything was written, or soon in any case; `error` is what the others learn."""
        if self._is_closing:
            return
        self.flush()
        self._is_closing = True
        self.error = error
        if not self.connack.done() and error is not None:
            self.connack.set_exception(error)
        self.transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_CLOSE_WITHIN, self.transport.abort)

    def abort(self, error: Exception | None) -> None:
        """Close at once, whatever was not written."""
        if self.error is None:
            self.error = error
        self._is_closing = True
        self.transport.abort()

    # Private.

    def _end_turn(self) -> None:
        self._packets_this_turn = 0
        self.flush()

    def _handle(self, packet: Packet) -> None:
        if self.connack.done():
            self._session.on_packet(packet)
        elif isinstance(packet, Connack):
            self._session.on_connack(packet, self.write)
            self._keep_alive = KeepAlive(
                self._session.limits.keep_alive, self._options.effective_ping_timeout, self._loop.time()
            )
            self._schedule_check()
            self._session_reader = SessionReader(self._session, self._reader)
            self.connack.set_result(packet)
        else:
            # [MQTT5-3.2.0-1]
            raise ProtocolError(f"the server answered CONNECT with {type(packet).__name__.upper()}")

    def _fail_protocol(self, fault: MQTTError) -> None:
        blame = "this client" if fault.blame is Blame.LOCAL else "the server"
        hint = self._hint_before_connack() or "report this to its authors"
        error = ConnectionLost(f"{blame} broke the protocol: {fault}", hint=hint)
        error.__cause__ = fault
        if self._options.protocol_version == 5 and self._session.wire.is_open:
            code = fault.reason_code
            if code in LEGAL[PacketType.DISCONNECT]:
                self.write(encode_packet(Disconnect(reason_code=code), 5))
        self.close(error)

    def _hint_before_connack(self) -> str:
        """One who does not answer CONNECT may expect another protocol, most often TLS."""
        if self.connack.done() or self.transport.get_extra_info("ssl_object") is not None:
            return ""
        return "is this a TLS port? then use mqtts:// or wss://; the server's log may say more"

    def _schedule_check(self) -> None:
        when = self._keep_alive.next_check()
        self._timer = None if when is None else self._loop.call_at(when, self._check)

    def _check(self) -> None:
        if self._is_closing:
            return
        due = self._keep_alive.check(self._loop.time(), is_listening=self.is_reading)
        if due is Due.DEAD:
            self.abort(
                ServerSilent(
                    f"the server did not answer a ping within {self._options.effective_ping_timeout:g} s",
                    hint="check the network and the server",
                )
            )
            return
        if due is Due.PING:
            self.write(self._ping())
            self.flush()
        self._schedule_check()


def _explain_loss(cause: Exception | None, hint: str) -> ConnectionLost:
    if cause is None:
        return ConnectionLost(
            "the server closed the connection without a word", hint=hint or "its log may say why"
        )
    error = ConnectionLost(f"the connection broke: {cause}", hint=hint or "check the network and the server")
    error.__cause__ = cause
    return error
