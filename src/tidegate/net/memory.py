"""Two protocols joined inside one event loop, without a socket.

The pair behaves as a TCP connection does: bytes are delivered in a later turn of the loop, in order, joined
or cut at any place; a writer that gets ahead of its reader is paused; an end closes by itself or with its
peer. For tests and for embedding a broker in a program that talks to it.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from typing import cast

# The limits asyncio's own transports start with.
DEFAULT_HIGH_WATER_BYTES = 64 * 1024

# What one read of a socket gives at most with uvloop.
DEFAULT_CHUNK_BYTES = 256 * 1024


def memory_pair(
    protocol_a: asyncio.Protocol,
    protocol_b: asyncio.Protocol,
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> tuple[MemoryTransport, MemoryTransport]:
    """Join two protocols; both have had `connection_made` (first a, then b) when this returns.

    No `data_received` gets more than `chunk_bytes`. Call it inside a running event loop.
    """
    if chunk_bytes < 1:
        raise ValueError(f"chunk_bytes must be at least 1, not {chunk_bytes}")
    loop = asyncio.get_running_loop()
    a = MemoryTransport(loop, protocol_a, "memory:a", "memory:b", chunk_bytes)
    b = MemoryTransport(loop, protocol_b, "memory:b", "memory:a", chunk_bytes)
    a.peer, b.peer = b, a
    protocol_a.connection_made(a)
    protocol_b.connection_made(b)
    return a, b


class MemoryTransport(asyncio.Transport):
    """One end of a pair. What it writes waits in its own buffer until the peer reads."""

    peer: MemoryTransport

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.Protocol,
        sockname: str,
        peername: str,
        chunk_bytes: int,
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername, "memory": True})
        self._loop = loop
        self._protocol = protocol
        self._chunk_bytes = chunk_bytes
        self._buffer = bytearray()
        self._delivery: asyncio.Handle | None = None
        self._high = DEFAULT_HIGH_WATER_BYTES
        self._low = DEFAULT_HIGH_WATER_BYTES // 4
        self._writing_is_paused = False
        self._reading_is_paused = False
        self._is_closing = False
        self._eof_is_written = False
        self._eof_is_delivered = False
        self._is_lost = False

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._eof_is_written:
            raise RuntimeError("cannot write after write_eof()")
        if self._is_closing or not data:
            return
        self._buffer += data
        self._schedule()
        self._check_high_water()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._is_closing:
            self._eof_is_written = True
            self._schedule()

    def can_write_eof(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = DEFAULT_HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), and low at least 0")
        self._high, self._low = high, low
        self._check_high_water()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    # Reading.

    def pause_reading(self) -> None:
        self._reading_is_paused = True

    def resume_reading(self) -> None:
        self._reading_is_paused = False
        self.peer._schedule()

    def is_reading(self) -> bool:
        return not self._reading_is_paused and not self._is_closing

    # Ending.

    def close(self) -> None:
        """Deliver what was written, then end both sides."""
        if not self._is_closing:
            self._is_closing = True
            self._schedule()

    def abort(self) -> None:
        """End both sides at once; what was written and not yet delivered is lost."""
        self._is_closing = True
        self._buffer.clear()
        self._eof_is_delivered = True  # The peer gets a reset in place of an orderly end.
        self._loop.call_soon(self._lose, None)
        self._loop.call_soon(self.peer._lose, ConnectionResetError(errno.ECONNRESET, "aborted by the peer"))

    def is_closing(self) -> bool:
        return self._is_closing

    # The rest of a transport.

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    # How bytes travel.

    def _schedule(self) -> None:
        if self._delivery is None:
            self._delivery = self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """One turn: a chunk to the peer, or the end once nothing is left."""
        self._delivery = None
        if self.peer._is_closing:
            # A peer that has closed reads no more; as with a socket, what it did not read is gone.
            self._buffer.clear()
        elif self.peer._reading_is_paused:
            if self._is_closing and not self._buffer:
                # This end is done; the peer learns of it when it reads again.
                self._lose(None)
            return
        if self._buffer:
            chunk = bytes(memoryview(self._buffer)[: self._chunk_bytes])
            del self._buffer[: self._chunk_bytes]
            if self._buffer or self._is_closing or self._eof_is_written:
                self._schedule()
            self._check_low_water()
            self.peer._protocol.data_received(chunk)
            return
        self._check_low_water()
        if self._is_closing or self._eof_is_written:
            self._deliver_eof()
        if self._is_closing:
            self._lose(None)

    def _deliver_eof(self) -> None:
        peer = self.peer
        if self._eof_is_delivered or peer._is_lost:
            return
        self._eof_is_delivered = True
        keeps_open = not peer._is_closing and peer._protocol.eof_received()
        # Half-open makes sense only while this end still reads.
        if not keeps_open or self._is_closing:
            peer.close()

    def _check_high_water(self) -> None:
        if len(self._buffer) > self._high and not self._writing_is_paused:
            self._writing_is_paused = True
            self._protocol.pause_writing()

    def _check_low_water(self) -> None:
        if self._writing_is_paused and len(self._buffer) <= self._low and not self._is_lost:
            self._writing_is_paused = False
            self._protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._is_closing = True
        self._buffer.clear()
        protocol, self._protocol = self._protocol, asyncio.Protocol()  # as other transports, it lets go of who used it
        protocol.connection_lost(error)
