"""A publisher that has to wait: for room in a queue, on disk or in memory, or because it is too fast.

Its PUBLISH packets stay in a bounded buffer, and a DISCONNECT behind them; everything else it sends is handled at once.
Over the bound its socket is not read, so TCP slows it. What is in its way then is the publisher's own backlog in the
kernel, and a PINGREQ in it would be answered too late: before that happens the backlog is read in one sweep, in which
QoS 0 messages are dropped and counted.
"""

from __future__ import annotations

import fcntl
import struct
import termios
from typing import TYPE_CHECKING

from tidegate.broker import control, publishing
from tidegate.mqtt.codes import PacketType
from tidegate.mqtt.errors import MalformedPacket, MQTTError, PacketTooLarge

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection

# What a turn of one client may cost, in units of about a microsecond, and what packets cost on the general path.
TURN_BUDGET = 2_000
COSTS: dict[int, int] = {PacketType.SUBSCRIBE: 50, PacketType.UNSUBSCRIBE: 30, PacketType.PINGREQ: 2}
HELD_COST = 3  # of putting a packet, or packets that are alike, by
LOOK_AHEAD = 16  # packets, and so many times more, and so on
SWEEP_SHARE = 0.4  # of the keep-alive, after which a backlog is swept
SWEEP_PAUSE = 0.001  # seconds between two reads of a sweep: nobody else should notice it
SWEEP_ROOM = (
    524_288  # bytes over what is read ahead: the chunk that went over it, and QoS 1 and 2 that a sweep meets
)
SENDER_BYTES = (
    4_194_304  # what may still be on the other side: the largest send buffer that Linux gives by itself
)


def consume(conn: Connection, data: bytes) -> bytes:
    """Split into packets: publishes wait (and a DISCONNECT behind them), all else is handled now.

    Keeps and returns what is left of an incomplete packet.
    """
    held = conn.held
    assert held is not None
    core = conn.core
    is_bulk = core.gate is None or not core.gate.is_per_message  # several packets may be held as one piece
    size = len(data)
    pos = 0
    end = 0
    budget = TURN_BUDGET
    try:
        while pos + 1 < size and budget > 0:
            length, body = conn.long_length(data, pos)
            if not body:
                end = size + 1
                break
            end = body + length
            if end - pos > conn.max_packet_in:
                raise PacketTooLarge(f"a packet of {end - pos} bytes is over the limit")
            if end > size:
                break
            kind = data[pos] >> 4
            if kind == PacketType.PUBLISH and conn.sweep_left > 0 and data[pos] & 6 == 0:
                end = _skip(conn, data, pos, body, end)
                budget -= 1
            elif kind in (PacketType.PUBLISH, PacketType.DISCONNECT):
                if is_bulk and kind == PacketType.PUBLISH:
                    end = pos + _alike(data, pos, body, end) * (end - pos)
                held.append(data[pos:end])
                budget -= HELD_COST
                conn.held_bytes += end - pos
                if kind == PacketType.DISCONNECT and conn.waits_for is core.gate:
                    # The client closes next: that is not seen before what it sent had its turn.
                    conn.set_reading(False)
            else:
                conn.debt = COSTS.get(kind, 5)
                core.counters.messages_received += 1
                conn.last_seen = core.now()
                control.on_control(conn, data[pos], data[body:end])
                if conn.is_closing:
                    return b""
                if conn.job is not None:
                    conn.defer(data[end:])
                    return b""
                budget -= conn.debt
            pos = end
    except MQTTError as error:
        conn.fail(error)
        return b""
    except Exception:  # noqa: BLE001 - a hook is foreign code: its fault ends this connection, nothing else
        return conn.fail_unexpectedly()
    conn.session.work += TURN_BUDGET - budget
    if conn.sweep_left > 0:
        conn.sweep_left = conn.sweep_left - pos if _has_room(conn) else 0
        conn.last_seen = core.now()
        # One read at a time: the loop would go on for as long as the publisher does.
        conn.set_reading(False)
        core.loop.call_later(SWEEP_PAUSE, conn.resume_reading)
    if conn.held_bytes > core.memory.read_ahead_bytes and conn.sweep_left <= 0:
        conn.set_reading(False)
    if pos == size:
        return b""
    rest = data[pos:]
    if budget <= 0:
        conn.defer(rest)
        return b""
    conn.keep_partial(rest, end - pos if pos + 1 < size else 2)
    return rest


def _skip(conn: Connection, data: bytes, pos: int, body: int, end: int) -> int:
    """Drop the QoS 0 PUBLISH at `pos` and those behind it of the same topic and size; gives where they end."""
    if end < body + 2:
        raise MalformedPacket("PUBLISH without topic")
    topic_end = body + 2 + (data[body] << 8 | data[body + 1])
    if topic_end + conn.v5 > end:
        raise MalformedPacket("topic reaches behind the end of PUBLISH")
    if conn.v5 and data[topic_end]:
        publishing.note_alias(conn, data[pos:end], body - pos)
        _shed(conn, 1)
        return end
    count = run_length(data, pos, topic_end + conn.v5 - pos, end - pos)
    _shed(conn, count)
    return pos + count * (end - pos)


def _shed(conn: Connection, count: int) -> None:
    """QoS 0 messages of a held publisher are dropped, because what is behind them must be answered."""
    core = conn.core
    core.counters.publish_received += count
    core.counters.messages_received += count
    core.counters.dropped += count
    if core.gate is not None:
        core.gate.shed += count


def _alike(data: bytes, pos: int, body: int, end: int) -> int:
    """How many PUBLISH packets of the same topic and size there are from `pos` on."""
    topic_end = body + 2 + (data[body] << 8 | data[body + 1]) if end > body + 1 else end + 1
    return 1 if topic_end > end else run_length(data, pos, topic_end - pos, end - pos)


def run_length(data: bytes, pos: int, head: int, step: int) -> int:
    """How many packets of `step` bytes from `pos` on begin with the same `head` bytes; at least 1.

    Column by column instead of packet by packet: a slice with a stride and a strip for each byte of the head. It looks
    ahead by steps that grow, so that it costs no more than what it finds.
    """
    most = (len(data) - pos) // step
    if most < 2 or data[pos : pos + head] != data[pos + step : pos + step + head]:
        return 1
    ahead = count = 1
    while count == ahead and ahead < most:
        ahead = count = min(ahead * LOOK_AHEAD, most)
        for at in range(pos, pos + head):
            column = data[at : pos + count * step : step]
            count = len(column) - len(column.lstrip(column[:1]))
    return count


def unread_bytes(conn: Connection) -> int:
    """What the client sent and the kernel still has; 0 where that cannot be told."""
    sock = conn.transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return 0
    try:
        found: int = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.FIONREAD, b"\0\0\0\0"))[0]
    except OSError:
        return 0
    return found


def _has_room(conn: Connection) -> bool:
    """What cannot be dropped is kept, within bounds: then a PINGREQ behind it has to wait, not the memory to grow."""
    return conn.held_bytes <= conn.core.memory.read_ahead_bytes + SWEEP_ROOM


def sweep(conn: Connection, unread: int) -> None:
    """Read all that the publisher sent up to now, and answer what is not a PUBLISH."""
    if not _has_room(conn):
        return
    conn.sweep_left = unread + SENDER_BYTES
    conn.resume_reading()  # not while a chunk waits for its turn: what is read then would all be added to it
