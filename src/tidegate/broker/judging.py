"""Back-off message by message, as `paper` and the modes `hold` and `drop` need it: slower than the gate for chunks.

Packets of a chunk pass through the buffer of `holding.py`, and each PUBLISH is accepted only when the policy was asked:

- `backpressure`: it and those behind it wait, and the socket is not read meanwhile.
- `hold`: it is acknowledged and handed on later; those behind it of the same client wait for it, which keeps the order.
  What is acknowledged must survive a crash if there is a data folder, so then it waits unacknowledged as above.
- `drop`: it is refused with 0x97, or dropped at QoS 0. MQTT 3.1.1 cannot refuse, so there QoS 1 and 2 wait.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidegate.broker import holding, publishing
from tidegate.flow.backoff import REFUSE, Mode
from tidegate.mqtt.codes import PacketType, ReasonCode
from tidegate.mqtt.errors import MQTTError

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.gate import Gate

UNREFUSABLE_WAIT = 1.0  # seconds that a message waits which should be refused and cannot be


def take(conn: Connection, gate: Gate, data: bytes) -> bytes:
    """Handle a chunk; keeps and returns what is left of an incomplete packet."""
    if conn.held is None:
        conn.hold()
    left = holding.consume(conn, data)
    held = conn.held
    if held is not None and conn.waits_for is None and not conn.is_closing:
        _admit(conn, gate, held)
    return left


def _admit(conn: Connection, gate: Gate, held: deque[bytes]) -> None:
    while held:
        packet = held.popleft()
        conn.held_bytes -= len(packet)
        wait = 0.0
        if packet[0] >> 4 == PacketType.PUBLISH and not conn.is_cleared:
            wait = (conn.publisher or gate.open(conn)).observe(conn.core.now(), 1, len(packet))
            if wait and gate.is_excused(conn):
                wait = 0.0
            if wait == REFUSE:
                if _refuse(conn, gate, packet):
                    continue
                wait = UNREFUSABLE_WAIT
        conn.is_cleared = False
        if gate.mode is Mode.HOLD and conn.core.store is None:
            if wait > 0.0 and gate.tap is not None:
                gate.tap.gate.held(conn, wait, conn.core.now())
            conn.postpone(wait)
        elif wait > 0.0:
            held.appendleft(packet)
            conn.held_bytes += len(packet)
            conn.is_cleared = True
            gate.hold(conn, wait)
            conn.set_reading(False)
            return
        conn.held = None
        conn.accept(packet)
        if conn.is_closing:
            return
        waits = conn.held
        if waits is not None:  # for a full queue: the rest goes behind it, and it is not judged again
            waits.extend(held)
            conn.held_bytes = sum(map(len, waits))
            conn.is_cleared = True
            return
        conn.held = held
    conn.held = None
    conn.held_bytes = 0
    conn.resume_reading()


def _refuse(conn: Connection, gate: Gate, packet: bytes) -> bool:
    """Discard the message and say so; False if MQTT has no way to."""
    qos = packet[0] >> 1 & 3
    if qos and not conn.v5:
        return False
    _, body = conn.long_length(packet, 0)
    if len(packet) < body + 2:
        return False  # malformed: the general path says so
    if qos:
        at = body + 2 + (packet[body] << 8 | packet[body + 1])
        pid = packet[at : at + 2]
        if len(pid) < 2 or qos == 3:
            return False
        if qos == 2 and (pid[0] << 8 | pid[1]) in (conn.session.inbound or ()):
            return False  # a repetition of what was accepted
    try:
        if conn.v5:
            publishing.note_alias(conn, packet, body)
    except MQTTError:
        return False
    if qos:
        publishing.acknowledge(conn, qos, pid, ReasonCode.QUOTA_EXCEEDED)
    gate.refused += 1
    if gate.tap is not None:
        gate.tap.gate.refused(conn)
    conn.core.counters.messages_received += 1
    conn.last_seen = conn.core.now()
    return True
