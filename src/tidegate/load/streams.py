"""What a load client makes of the bytes it receives: pure, fed with any split, no socket and no clock.

Speed comes from one fact: within a run, all PUBLISH packets that one subscriber gets have the same size. So
the packets of a chunk are counted, checked and acknowledged by columns (slices with that size as stride),
never one by one. Nothing is taken on trust: every first byte, length byte and (with one publisher) every
sequence number is compared, and a packet that does not fit is either understood by the slow path or ends the
run with an error.
"""

from __future__ import annotations

from array import array
from itertools import compress

from tidegate.load.errors import UnexpectedPacket
from tidegate.load.packets import (
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SEQUENCE,
    SEQUENCE_HIGH,
    SEQUENCE_LOW,
    STAMP,
    STAMP_FLAG,
    acknowledgements,
    decode_length,
)

_NAMES = {1: "CONNECT", 2: "CONNACK", 9: "SUBACK", 11: "UNSUBACK", 14: "DISCONNECT", 15: "AUTH"}
# First look-ahead for the end of a run of equal packets where two kinds are mixed; doubled while it fits.
_LOOK_AHEAD = 32


def packet_bounds(data: bytes, pos: int) -> tuple[int, int] | None:
    """Return where the body of the packet at `pos` begins and ends, None if it is not complete yet."""
    length = decode_length(data, pos + 1)
    if length is None or length[1] + length[0] > len(data):
        return None
    return length[1], length[1] + length[0]


def _unexpected(data: bytes, pos: int) -> UnexpectedPacket:
    kind = _NAMES.get(data[pos] >> 4, f"type {data[pos] >> 4}")
    text = f"the broker sent {kind} ({data[pos : pos + 8].hex(' ')} ...) in the middle of a run"
    return UnexpectedPacket(text, first_byte=data[pos])


class SubscriberStream:
    """Counts PUBLISH packets and builds the acknowledgements that they and PUBREL packets call for.

    `is_ordered` says that all messages come from one publisher: then each sequence number is checked, `gaps`
    counts messages left out and `repeats` those seen again or out of order.
    """

    __slots__ = (
        "_carry",
        "_expected",
        "_first_bytes",
        "_head",
        "_identifier_at",
        "_payload_at",
        "_stride",
        "gaps",
        "is_ordered",
        "latencies_ns",
        "payload_bytes",
        "pings",
        "qos",
        "received",
        "repeats",
    )

    def __init__(self, *, payload_bytes: int, is_ordered: bool = True) -> None:
        self.payload_bytes = payload_bytes
        self.is_ordered = is_ordered
        self.received = 0
        self.gaps = 0
        self.repeats = 0
        self.pings = 0
        self.qos = 0
        self.latencies_ns: list[int] | None = None
        self._expected = 0
        self._carry = b""
        self._stride = 0  # learned from the first packet, as are the fields below
        self._head = b""
        self._first_bytes = b""
        self._identifier_at = 0
        self._payload_at = 0

    @property
    def passed(self) -> int:
        """Return how many messages are behind us: those received, and those seen to be missing."""
        return self.received + self.gaps - self.repeats

    def feed(self, data: bytes, now_ns: int) -> bytes:
        """Take received bytes; return what must be sent back."""
        if self._carry:
            data = self._carry + data
        pos, end = 0, len(data)
        replies: list[bytes] = []
        while pos < end:
            first_byte = data[pos]
            if first_byte >> 4 == 3:
                if not self._stride and not self._learn(data, pos):
                    break
                count = (end - pos) // self._stride
                if not count:
                    break
                count = self._count_run(data, pos, count)
                reply = self._on_publish(data, pos, count, now_ns)
                pos += count * self._stride
                if reply:
                    replies.append(reply)
            elif first_byte == PUBREL:
                taken, reply = self._on_pubrel(data, pos)
                if not taken:
                    break
                pos += taken
                replies.append(reply)
            elif first_byte == PINGRESP:
                if end - pos < 2:
                    break
                self.pings += 1
                pos += 2
            else:
                raise _unexpected(data, pos)
        self._carry = data[pos:]
        return replies[0] if len(replies) == 1 else b"".join(replies)

    def _learn(self, data: bytes, pos: int) -> bool:
        """Take size and layout from the first PUBLISH; False if it is not complete yet."""
        bounds = packet_bounds(data, pos)
        if bounds is None:
            return False
        body_at, end = bounds
        self.qos = (data[pos] >> 1) & 3
        self._first_bytes = bytes(0x30 | self.qos << 1 | other for other in (0, 1, 8, 9))
        self._stride = end - pos
        self._head = data[pos + 1 : body_at]
        topic_length = int.from_bytes(data[body_at : body_at + 2], "big")
        self._identifier_at = body_at - pos + 2 + topic_length
        self._payload_at = self._stride - self.payload_bytes
        return True

    def _count_run(self, data: bytes, pos: int, limit: int) -> int:
        """Return how many PUBLISH packets follow each other from `pos` on, at most `limit`."""
        stride = self._stride
        # Only at QoS 2 can another kind of packet stand between them, so only there is it worth to look in
        # steps.
        look = limit if self.qos < 2 else min(limit, _LOOK_AHEAD)
        while True:
            heads = data[pos : pos + look * stride : stride]
            count = look - len(heads.lstrip(self._first_bytes))
            if count < look or look == limit:
                break
            look = min(limit, look * 2)
        for offset, byte in enumerate(self._head, 1):
            if data[pos + offset : pos + count * stride : stride].count(byte) != count:
                raise UnexpectedPacket(
                    "the broker sent PUBLISH packets of different sizes to one subscriber",
                    first_byte=data[pos],
                )
        if not count:
            raise UnexpectedPacket("the QoS of deliveries changed during the run", first_byte=data[pos])
        return count

    def _on_publish(self, data: bytes, pos: int, count: int, now_ns: int) -> bytes:
        stride = self._stride
        stop = pos + count * stride
        payload_at = pos + self._payload_at
        self.received += count
        if self.is_ordered:
            expected = self._expected
            high = data[payload_at + SEQUENCE : stop : stride]
            low = data[payload_at + SEQUENCE + 1 : stop : stride]
            if (
                low == SEQUENCE_LOW[expected : expected + count]
                and high == SEQUENCE_HIGH[expected : expected + count]
            ):
                self._expected = (expected + count) & 0xFFFF
            else:
                self._compare(high, low)
        latencies = self.latencies_ns
        if latencies is not None:
            flags = data[payload_at + STAMP_FLAG : stop : stride]
            index = flags.find(1)
            while index >= 0:
                stamp_at = payload_at + index * stride + STAMP
                latencies.append(now_ns - int.from_bytes(data[stamp_at : stamp_at + 8], "big"))
                index = flags.find(1, index + 1)
        if not self.qos:
            return b""
        identifier_at = pos + self._identifier_at
        return acknowledgements(
            PUBACK if self.qos == 1 else PUBREC,
            data[identifier_at:stop:stride],
            data[identifier_at + 1 : stop : stride],
        )

    def _compare(self, high: bytes, low: bytes) -> None:
        """Find out, number by number, what is missing and what came again."""
        for sequence in (h << 8 | n for h, n in zip(high, low, strict=True)):
            ahead = (sequence - self._expected) & 0xFFFF
            if ahead < 0x8000:
                self.gaps += ahead
                self._expected = (sequence + 1) & 0xFFFF
            else:
                self.repeats += 1

    def _on_pubrel(self, data: bytes, pos: int) -> tuple[int, bytes]:
        """Answer the PUBREL packets at `pos`; return bytes taken (0 if the first is cut off) and reply."""
        limit = (len(data) - pos) // 4
        look = min(limit, _LOOK_AHEAD)
        count = 0
        while look:
            heads = data[pos : pos + 4 * look : 4]
            count = look - len(heads.lstrip(b"\x62"))
            if count < look or look == limit:
                break
            look = min(limit, look * 2)
        stop = pos + 4 * count
        if count and data[pos + 1 : stop : 4].count(2) == count:
            return 4 * count, acknowledgements(PUBCOMP, data[pos + 2 : stop : 4], data[pos + 3 : stop : 4])
        # With a reason code or properties (MQTT 5) the packet is longer: one at a time.
        bounds = packet_bounds(data, pos)
        if bounds is None:
            return 0, b""
        body_at, end = bounds
        return end - pos, bytes((PUBCOMP, 2)) + data[body_at : body_at + 2]


class PublisherStream:
    """Counts what the broker acknowledged and answers PUBREC with PUBREL.

    `acknowledged` counts finished exchanges; `refused` those of them that ended with a reason code of 0x80
    or more.
    """

    __slots__ = ("_carry", "acknowledged", "pings", "qos", "refused")

    def __init__(self, *, qos: int) -> None:
        self.qos = qos
        self.acknowledged = 0
        self.refused = 0
        self.pings = 0
        self._carry = b""

    def feed(self, data: bytes, now_ns: int) -> bytes:
        """Take received bytes; return what must be sent back."""
        if self._carry:
            data = self._carry + data
        whole = len(data) & ~3
        count = whole >> 2
        kinds = data[0:whole:4]
        # What is left over must begin an acknowledgement, and not be a shorter packet that is complete.
        if data[1:whole:4].count(2) == count and (whole == len(data) or data[whole] != PINGRESP):
            if self.qos == 1 and kinds.count(PUBACK) == count:
                self.acknowledged += count
                self._carry = data[whole:]
                return b""
            completed = kinds.count(PUBCOMP)
            if self.qos == 2 and completed + kinds.count(PUBREC) == count:
                self.acknowledged += completed
                self._carry = data[whole:]
                return _release(data[:whole], kinds, completed)
        return self._feed_slowly(data)

    def _feed_slowly(self, data: bytes) -> bytes:
        """Take packets one by one: those with reason codes, and PINGRESP."""
        pos = 0
        reply = b""
        while pos < len(data):
            bounds = packet_bounds(data, pos)
            if bounds is None:
                break
            first_byte, body = data[pos], data[bounds[0] : bounds[1]]
            failed = len(body) > 2 and body[2] >= 0x80
            if first_byte == PINGRESP:
                self.pings += 1
            elif first_byte == PUBREC and self.qos == 2 and not failed:
                reply += bytes((PUBREL, 2)) + body[:2]
            elif (first_byte == PUBACK and self.qos == 1) or (
                first_byte in (PUBREC, PUBCOMP) and self.qos == 2
            ):
                # A PUBREC with an error ends the exchange [MQTT5-4.3.3-4].
                self.acknowledged += 1
                self.refused += failed
            else:
                raise _unexpected(data, pos)
            pos = bounds[1]
        self._carry = data[pos:]
        return reply


# Selects the PUBREC packets among PUBREC and PUBCOMP.
_IS_PUBREC = bytes(1 if n == PUBREC else 0 for n in range(256))


def _release(data: bytes, kinds: bytes, completed: int) -> bytes:
    """Return a PUBREL for each PUBREC in `data`, whole packets of four bytes."""
    if completed == len(kinds):
        return b""
    if completed:
        data = array("I", compress(memoryview(data).cast("I"), kinds.translate(_IS_PUBREC))).tobytes()
    return acknowledgements(PUBREL, data[2::4], data[3::4])
