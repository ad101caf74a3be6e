"""WebSocket frames on one side, a plain byte stream on the other.

`WebSocketLink` is the part server and client share: an `asyncio.Protocol` on the outer transport (TCP or
TLS, it does not matter) that gives an inner protocol a `WebSocketTransport`, on which it reads and writes
bytes as if it were a socket. Rules it keeps:

- All binary payload of one outer chunk reaches the inner protocol in one `data_received`; fragments are
  passed on as they come, so a message is never gathered. A single frame is, hence the bound on its size.
- One inner `write` is one outer `write`.
- After the inner protocol called `close`, or the peer's Close frame arrived, it gets no more data, and
  `connection_lost` follows when the outer connection is gone, at the latest after the close deadline.
- While the peer does not read, at most one Pong is owed: a flood of Pings costs no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from time import monotonic
from typing import Any, cast
from weakref import WeakKeyDictionary

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import SEND_EOF, Protocol, State

from tidegate.net.frames import MAX_SENT_FRAME_BYTES, FrameReader, binary_frames

# The library reports every opened and closed connection as INFO without saying which; the broker does that
# better. Warnings still come through, and raising this logger's level brings the rest back.
library_log = logging.getLogger("tidegate.net.websocket.library")
library_log.setLevel(logging.WARNING)


SLICE = 0.001  # seconds of a turn of the loop for all links together that have more


class _Turns:
    """Links of one loop that have more than a turn had time for, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._links: deque[WebSocketLink] = deque()
        self._is_scheduled = False

    def add(self, link: WebSocketLink) -> None:
        self._links.append(link)
        self._schedule()

    def _schedule(self) -> None:
        if self._links and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        until = monotonic() + SLICE
        try:
            for _ in range(len(self._links)):
                self._links.popleft().go_on()  # which may add itself again
                if monotonic() >= until:
                    break
        finally:
            self._schedule()


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns() -> _Turns:
    loop = asyncio.get_running_loop()
    found = _TURNS.get(loop)
    if found is None:
        found = _TURNS[loop] = _Turns(loop)
    return found


_NOBODY = asyncio.Protocol()  # the inner protocol of a link that is gone


class WebSocketTransport(asyncio.Transport):
    """The transport the inner protocol sees; everything it does not know it asks the outer one."""

    __slots__ = ("_facts", "_link")

    def __init__(self, link: WebSocketLink, facts: dict[str, Any]) -> None:
        super().__init__()
        self._link = link
        self._facts = facts

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._link.send(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._link.send(b"".join(list_of_data))

    def close(self) -> None:
        self._link.start_close(CloseCode.NORMAL_CLOSURE)

    def abort(self) -> None:
        self._link.abort()

    def is_closing(self) -> bool:
        return self._link.is_closing()

    def pause_reading(self) -> None:
        self._link.set_reading(False)

    def resume_reading(self) -> None:
        self._link.set_reading(True)

    def is_reading(self) -> bool:
        return not self._link.is_closing() and self._link.is_read

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._link.outer.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._link.outer.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        return self._link.outer.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        # A WebSocket closes in both directions at once.
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name in self._facts:
            return self._facts[name]
        return self._link.outer.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._link.inner

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._link.inner = cast(asyncio.Protocol, protocol)
        self._link.handed_on()


class WebSocketLink(asyncio.Protocol):
    """Drives the library's sans-I/O protocol between the outer transport and the inner protocol."""

    outer: asyncio.Transport
    inner: asyncio.Protocol

    def __init__(
        self, frames: Protocol, *, close_timeout: float, max_frame_bytes: int, is_client: bool
    ) -> None:
        self.frames = frames
        self._reader = FrameReader(
            masked=not is_client, max_frame_bytes=max_frame_bytes, other=self._other_frame_received
        )
        self._close_timeout = close_timeout
        self._is_client = is_client
        self.is_read = True  # by the inner protocol
        self._goes_on = False  # soon
        self._text_seen = False
        self._is_deaf = False
        self._inner_is_connected = False
        self._is_closing = False
        self._is_lost = False
        self._writing_is_paused = False
        self._owed_pong: bytes | None = None
        self._deadline: asyncio.TimerHandle | None = None

    # What the inner transport calls.

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Frame `data` and write it; silently dropped when closing, as every transport does."""
        if self._is_closing or not data:
            return
        if self._is_client:
            if self.frames.state is not State.OPEN:
                return  # The peer's Close frame is in the chunk whose data is being answered.
            view = memoryview(data)
            for start in range(0, len(view), MAX_SENT_FRAME_BYTES):
                self.frames.send_binary(bytes(view[start : start + MAX_SENT_FRAME_BYTES]))
            self.outer.write(b"".join(self.frames.data_to_send()))
        else:
            self.outer.write(binary_frames(data))

    def is_closing(self) -> bool:
        return self._is_closing

    def start_close(self, code: CloseCode, reason: str = "") -> None:
        """Send a Close frame; the connection ends when the peer has answered, or at the deadline."""
        if self._is_closing:
            return
        if self.frames.state is State.OPEN:
            self.frames.send_close(code, reason)
        self._enter_closing()
        self._flush()

    def fail(self, code: CloseCode, reason: str) -> None:
        """Close because of what the peer sent, without listening to it any longer."""
        if self._is_closing:
            return
        self.frames.fail(code, reason)
        self._enter_closing()
        self._flush()

    def abort(self) -> None:
        self._is_closing = True
        self.outer.abort()

    def set_reading(self, is_wanted: bool) -> None:
        """The inner protocol takes more, or not."""
        self.is_read = is_wanted
        if not self._is_closing:
            self._read_on()

    def _read_on(self) -> None:
        """If somebody takes it, first what a turn had no time for, then what comes next."""
        is_wanted = self.is_read or self._is_closing
        if self._has_more:
            self.outer.pause_reading()
            if is_wanted and not self._goes_on:
                self._goes_on = True
                _turns().add(self)
        elif is_wanted:
            self.outer.resume_reading()
        else:
            self.outer.pause_reading()

    @property
    def _has_more(self) -> bool:
        return self._reader.has_more and not self._is_deaf

    def go_on(self) -> None:
        """With what a turn had no time for."""
        self._goes_on = False
        if self._has_more and (self.is_read or self._is_closing):
            self.data_received(b"")
            if not self._has_more and not self.outer.is_closing():
                self._read_on()

    def handed_on(self) -> None:
        """The inner protocol gave its place to another."""

    # What the outer transport calls.

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        payload = self._reader.feed(data)
        if self._has_more:
            self._read_on()
        if payload and not self._is_closing:
            chunk = payload[0] if len(payload) == 1 else b"".join(payload)
            if chunk:
                self.inner.data_received(chunk)
        if self._text_seen:
            # [MQTT5-6.0.0-1]: any other type of data frame closes the Network Connection.
            self.fail(CloseCode.UNSUPPORTED_DATA, "MQTT needs binary frames")
        elif self.frames.state is State.OPEN:
            self._send_pongs()
        else:
            self._on_peer_close()

    def eof_received(self) -> bool | None:
        self.frames.receive_eof()
        self.frames.data_to_send()  # At most the end of our own stream, which closing sends anyway.
        was_closing = self._is_closing
        self._is_closing = True
        if self._inner_is_connected and not was_closing:
            self.inner.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._is_lost = True
        self._cancel_deadline()
        if self._inner_is_connected:
            self._inner_is_connected = False
            self.inner.connection_lost(exc)
        # Link, transport and inner protocol refer to each other; undone here, they are freed at once and do not
        # wait for the cycle collector, which a node runs rarely.
        self._is_deaf = True
        self.inner = _NOBODY
        self._reader.close()

    def pause_writing(self) -> None:
        self._writing_is_paused = True
        if self._inner_is_connected:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        self._writing_is_paused = False
        if self._owed_pong is not None:
            pong, self._owed_pong = self._owed_pong, None
            if not self._is_closing:
                self.outer.write(pong)
        if self._inner_is_connected:
            self.inner.resume_writing()

    # Shared by server and client.

    def _connect_inner(self, inner: asyncio.Protocol, facts: dict[str, Any]) -> WebSocketTransport:
        self.inner = inner
        self._inner_is_connected = True
        transport = WebSocketTransport(self, {"websocket": True, **facts})
        inner.connection_made(transport)
        if self._writing_is_paused:
            inner.pause_writing()
        return transport

    def _other_frame_received(self, frame: bytes, payload: list[bytes]) -> bool:
        """Let the library judge a frame; False when nothing after it is to be read."""
        self.frames.receive_data(frame)
        for event in self.frames.events_received():
            if not isinstance(event, Frame):
                continue
            if event.opcode is Opcode.TEXT:
                self._text_seen = True
            if event.opcode is Opcode.BINARY or event.opcode is Opcode.CONT:
                self._reader.is_in_message = not event.fin
                payload.append(bytes(cast(bytes, event.data)))
        # Not the state: between our Close frame and the peer's there may be others to step over.
        self._is_deaf = (
            self._text_seen or self.frames.close_rcvd is not None or self.frames.parser_exc is not None
        )
        return not self._is_deaf

    def _send_pongs(self) -> None:
        pongs = self.frames.data_to_send()
        if not pongs or self._is_closing:
            return
        if self._writing_is_paused:
            # RFC 6455 section 5.5.3: answering only the most recent Ping is enough.
            self._owed_pong = pongs[-1]
        else:
            self.outer.write(b"".join(pongs))

    def _on_peer_close(self) -> None:
        was_closing = self._is_closing
        self._enter_closing()
        self._flush()
        if self._inner_is_connected and not was_closing:
            self.inner.eof_received()

    def _enter_closing(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        # The answer of the peer must be seen even if the inner protocol had stopped reading.
        if not self.outer.is_closing():
            self.outer.resume_reading()
        self._set_deadline(self._close_timeout)

    def _flush(self) -> None:
        """Write what the library has to say; its end-of-stream mark ends our side of the connection."""
        pieces = self.frames.data_to_send()
        if self._is_lost:
            return
        ends = bool(pieces) and pieces[-1] == SEND_EOF
        if data := b"".join(pieces):
            self.outer.write(data)
        if not ends:
            return
        if self.outer.can_write_eof():
            # Closing outright with unread data in the kernel's buffer would send a reset, which can
            # overtake the Close frame or the HTTP answer; so the peer is given until the deadline to close.
            self.outer.write_eof()
        else:
            self.outer.close()

    def _set_deadline(self, seconds: float) -> None:
        self._cancel_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._on_deadline)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        self.abort()
