"""WebSocket frames as bytes: the quick way for the frames that carry MQTT.

Nearly every frame of an MQTT connection is an unfragmented binary one. The library takes 4.4 to 7.3 µs to
parse such a frame and 2.5 µs to make one (80 bytes, CPython 3.11, one shared machine), more than the broker
spends on the message inside; here it is 1.0 to 2.1 µs and 0.3 µs. Every other frame (control, fragments,
text, anything wrong) is handed to the library whole, which therefore always stands between two frames and
stays the one judge of the protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from websockets.frames import Opcode

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library was installed without its C extension
    from websockets.utils import apply_mask

# Several client libraries refuse messages over 1 MiB by default, so longer writes become several frames:
# MQTT packets need not align with them [MQTT5-6.0.0-2].
MAX_SENT_FRAME_BYTES = 512 * 1024

TURN = 500  # frames with payload after which others may have their turn: about half a millisecond
OTHER_COST = 6  # times as long takes what the library looks at

_FIN = 0x80
_BINARY_FIN = _FIN | Opcode.BINARY
_SHORT_HEADERS = [bytes((_BINARY_FIN, length)) for length in range(126)]
_MEDIUM_HEADER = struct.Struct("!BBH")
_LONG_HEADER = struct.Struct("!BBQ")


def binary_frames(data: bytes | bytearray | memoryview) -> bytes:
    """Unmasked binary frames, as a server sends them, around `data`."""
    length = len(data)
    if length < 126:
        return b"".join((_SHORT_HEADERS[length], data))
    if length < 65536:
        return b"".join((_MEDIUM_HEADER.pack(_BINARY_FIN, 126, length), data))
    if length <= MAX_SENT_FRAME_BYTES:
        return b"".join((_LONG_HEADER.pack(_BINARY_FIN, 127, length), data))
    view = memoryview(data)
    return b"".join(
        binary_frames(view[start : start + MAX_SENT_FRAME_BYTES])
        for start in range(0, length, MAX_SENT_FRAME_BYTES)
    )


def _nothing(_frame: bytes, _payload: list[bytes]) -> bool:
    return False


class FrameReader:
    """Cuts a stream of bytes into frames. Holds at most one unfinished frame of `max_frame_bytes`.

    After `TURN` units of work it leaves the rest for the next `feed`, and `has_more`.
    """

    __slots__ = (
        "_needed", "_other", "_tail", "_whole_binary", "has_more", "is_in_message", "is_new",
        "max_frame_bytes",
    )  # fmt: skip

    def __init__(
        self, *, masked: bool, max_frame_bytes: int, other: Callable[[bytes, list[bytes]], bool]
    ) -> None:
        """`masked` says how the peer must send. `other` gets each frame that is not plain payload, and the
        list of payload so far; it returns whether to go on.
        """
        self._whole_binary = (_BINARY_FIN, masked)
        self.max_frame_bytes = max_frame_bytes
        self._other = other
        self._tail = bytearray()
        self._needed = 0
        self.is_in_message = False
        self.is_new = False  # a frame over the limit waits for what comes of the payload before it
        self.has_more = False  # that can be read without another byte

    @property
    def held_bytes(self) -> int:
        """Of a frame that is not complete."""
        return len(self._tail)

    def close(self) -> None:
        """Nothing more will come: let go of the link."""
        self._other = _nothing
        self._tail.clear()

    def feed(self, data: bytes) -> list[bytes]:
        """The payload of the whole binary frames that `data` completes, and what `other` added to it."""
        if self._tail:
            self._tail += data
            # Looked at again only when the frame can be complete: a peer that sends byte by byte costs no
            # more than its bytes.
            if len(self._tail) < self._needed:
                return []
            data = bytes(self._tail)
            self._tail.clear()
        payload: list[bytes] = []
        position, size = 0, len(data)
        left = TURN
        self.has_more = False
        while position < size:
            end, start = self._find_end(data, position, size)
            if end > size:
                self._needed = end - position
                self._tail += data[position:]
                break
            if not start and payload and self.is_new:
                self._keep(data, position)
                break
            second = data[position + 1]
            if (data[position], second >= 0x80) == self._whole_binary and not self.is_in_message and start:
                body = data[start:end]
                payload.append(apply_mask(body, data[start - 4 : start]) if second >= 0x80 else body)
            elif not self._other(data[position:end], payload):
                break
            else:
                left -= OTHER_COST
            left -= 1
            position = end
            if left <= 0 and position < size:
                self._keep(data, position)
                self.has_more = True
                break
        return payload

    def _keep(self, data: bytes, position: int) -> None:
        """What is left is looked at again with the next `feed`, whatever comes then."""
        self._needed = 0
        self._tail += data[position:]

    def _find_end(self, data: bytes, position: int, size: int) -> tuple[int, int]:
        """Where the frame ends (past `size`: at least up to there is needed) and where its body starts.

        A frame over the limit ends with the data and has no body (0): the library refuses it by its header.
        """
        start = position + 2
        if start > size:
            return start, 0
        length = data[position + 1] & 0x7F
        if length >= 126:
            length_bytes = 2 if length == 126 else 8
            start += length_bytes
            if start > size:
                return start, 0
            length = int.from_bytes(data[start - length_bytes : start], "big")
        if length > self.max_frame_bytes:
            return size, 0
        if data[position + 1] >= 0x80:
            start += 4
        return start + length, start
