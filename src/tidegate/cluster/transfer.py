"""A session as plain data and back: what a hand-over carries from one node to another.

Packet identifiers are kept, so a client that resumes elsewhere recognises what it has seen [MQTT5-4.3.3-3]. A durable
session derives them from sequence numbers; one that was not durable gets numbers that lead to the same identifiers.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tidegate.broker.durable import packet_identifier
from tidegate.broker.handing_on import GIVEN_ON
from tidegate.broker.index import Subscription
from tidegate.broker.message import Message
from tidegate.broker.session import RELEASED, Delivery, Session
from tidegate.mqtt.topics import parse_shared

if TYPE_CHECKING:
    from tidegate.broker.core import Core

PART_BYTES: Final = 256 * 1024
IDENTIFIERS: Final = 65_535
RELEASE: Final = "release"
T = TypeVar("T")


def about(session: Session) -> dict[str, Any]:
    """What the session is, without what waits in it."""
    return {
        "client": session.client_id,
        "user": session.user,
        "expiry": session.expiry,
        "version": session.version,
        "is_plain": session.is_plain,
        "subscriptions": [
            [name.decode(), each.qos, each.no_local, each.retain_as_published, each.identifier]
            for name, each in session.subscriptions.items()
        ],
    }


def subscriptions_of(session: Session, rows: list[list[Any]]) -> dict[bytes, Subscription]:
    found = {}
    for name, qos, no_local, retain_as_published, identifier in rows:
        shared = parse_shared(name)
        topic_filter = shared[1].encode() if shared else name.encode()
        found[name.encode()] = Subscription(
            session, topic_filter, qos, no_local, retain_as_published, identifier, shared[0] if shared else ""
        )
    return found


def contents(session: Session, now: float) -> Iterator[list[Any]]:
    """In order: what is in flight with its identifier, then what waits with 0. Everything must be in memory."""
    for pid, entry in session.inflight.items():
        if entry is GIVEN_ON:
            continue
        if entry[1] == RELEASED:
            yield [pid, RELEASE]
        elif len(entry) == 5:
            yield row(pid, entry, now)
    durable = session.durable
    sent = 0 if durable is None else durable.sent_seq
    for delivery in session.pending or ():
        # After a restart what was in flight waits, and is known by its number.
        seq = delivery[4]
        yield row(packet_identifier(seq) if 0 < seq <= sent else 0, delivery, now)


def row(pid: int, delivery: Delivery, now: float) -> list[Any]:
    message, qos, retain, identifiers, _ = delivery
    left = None if message.expires is None else message.expires - now
    return [
        pid, _text(message.topic), _text(message.payload), qos, retain, list(identifiers), message.qos,
        _text(message.properties), left, message.publisher,
    ]  # fmt: skip


def deliveries(session: Session) -> list[Delivery]:
    """What is in flight and what waits, in order; nothing that only awaits its release."""
    session.settle_inflight()
    inflight = [entry for entry in session.inflight.values() if len(entry) == 5]
    return [*inflight, *(session.pending or ())]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def parts(rows: Iterator[list[Any]]) -> Iterator[list[list[Any]]]:
    """The rows in pieces that fit into a packet; at least one piece, which may be empty."""
    part: list[list[Any]] = []
    size = 0
    for each in rows:
        length = sum(len(field) for field in each if isinstance(field, str)) + 64
        if part and size + length > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(each)
        size += length
    yield part


def name_parts(names: Iterable[str]) -> Iterator[tuple[list[str], bool]]:
    """Names in pieces that fit into a packet, and whether it is the last one; at least one piece."""
    return marked([name for [name] in part] for part in parts([name] for name in names))


def marked(pieces: Iterator[T]) -> Iterator[tuple[T, bool]]:
    """Each of at least one, and whether it is the last."""
    before = next(pieces)
    for piece in pieces:
        yield before, False
        before = piece
    yield before, True


def delivery_of(fields: list[Any], now: float) -> Delivery:
    _, topic, payload, qos, retain, identifiers, message_qos, properties, left, publisher = fields
    message = Message(
        base64.b64decode(topic),
        base64.b64decode(payload),
        message_qos,
        False,
        base64.b64decode(properties),
        None if left is None else now + left,
        publisher,
    )
    return message, qos, bool(retain), tuple(identifiers), 0


def fill(core: Core, session: Session, rows: list[list[Any]]) -> None:
    """Put rows into a session without connection: in flight under their identifiers, then queued.

    Rows may come in parts; those in flight are before all that waits.
    """
    now = core.now()
    durable = session.durable
    seq = durable.next_seq - 1 if durable is not None else 0
    for each in rows:
        pid = each[0]
        if each[1] == RELEASE:
            seq = _next_seq(seq, pid)
            if durable is not None:
                _store(session, (Message(b"", b""), 2, False, (), seq))
                durable.store.released(session, seq)
                message_id = cast(Delivery, session.inflight[pid])[0].mid
                session.inflight[pid] = (message_id, RELEASED, seq)
            else:
                session.inflight[pid] = (0, RELEASED, 0)
            continue
        delivery = delivery_of(each, now)
        if pid:
            seq = _next_seq(seq, pid)
            if durable is not None:
                _store(session, (*delivery[:4], seq))
                durable.sent_seq = max(durable.sent_seq, seq)
                durable.store.sent(session)
            else:
                session.inflight[pid] = delivery
                session.next_pid = pid % IDENTIFIERS + 1
        elif durable is None or not delivery[1]:
            session.enqueue(delivery)
        else:
            session.deliver(*delivery[:4])


def _next_seq(after: int, pid: int) -> int:
    """The smallest sequence number behind `after` that leads to this identifier."""
    seq = after - (after - 1) % IDENTIFIERS + pid - 1 if after else pid
    return seq if seq > after else seq + IDENTIFIERS


def _store(session: Session, delivery: Delivery) -> None:
    """As if it had been sent before: in flight and on disk."""
    durable = session.durable
    assert durable is not None
    seq = delivery[4]
    durable.next_seq = max(durable.next_seq, seq + 1)
    durable.store.enqueue(session, delivery)
    session.inflight[packet_identifier(seq)] = delivery


def empty(session: Session) -> None:
    """Take everything out; the session and its subscriptions stay."""
    for entry in (*session.inflight.values(), *(session.pending or ())):
        session.forget(entry)
    for delivery in session.pending or ():
        session.count_out(delivery[0].size_bytes)
    session.inflight = {}
    session.pending = None
    if session.is_full:
        session.check_room()


__all__ = [
    "RELEASE",
    "about",
    "contents",
    "deliveries",
    "delivery_of",
    "empty",
    "fill",
    "marked",
    "name_parts",
    "parts",
    "row",
    "subscriptions_of",
]
