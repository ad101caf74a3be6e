"""What a member of a shared subscription has and will not do goes on to another member.

When: at once when it leaves (after `features.shared_wait`, if that is set), and when it has acknowledged nothing for
`features.shared_stall` seconds. Order among the messages of one member is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidegate.broker.shared import SharedGroup, Tag

if TYPE_CHECKING:
    from tidegate.broker.message import Message
    from tidegate.broker.session import Delivery, Session

GIVEN_ON = (
    0,
    1,
    0,
)  # in flight, and another member has it now; keeps the identifier until it is acknowledged


def hand_on(session: Session) -> int:
    """Give what came by a group, and can be given, to other members; returns how many messages."""
    given: list[Delivery] = []
    is_connected = session.conn is not None
    for pid, entry in list(session.inflight.items()):
        if len(entry) != 5 or entry[1] != 1 or _group(session, entry[0], entry[3]) is None:
            continue
        if is_connected:
            session.inflight[pid] = GIVEN_ON
        else:
            del session.inflight[pid]
        given.append(entry)
    pending = session.pending
    if pending is not None:
        waiting = [delivery for delivery in pending if _group(session, delivery[0], delivery[3]) is not None]
        if waiting:
            session.take_from_queue(set(map(id, waiting)))
            given += waiting
    core = session.core
    for delivery in given:
        message, qos, retain, tag, _ = delivery
        group = _group(session, message, tag)
        assert group is not None
        chosen = group.choose(message.topic, message.publisher, core.now(), qos)
        if chosen is None or chosen.session is session:
            chosen = next(m for m in group.members if m.session is not session and m.session.is_ready)
        cast(Tag, tag).group.moved += 1
        # First into the other queue, then out of this one: both are in one transaction of the store.
        chosen.session.deliver(message, min(qos, chosen.qos), retain, chosen.tag)
        session.forget_delivery(delivery)
    core.counters.shared_moved += len(given)
    return len(given)


def _group(session: Session, message: Message, tag: tuple[int, ...]) -> SharedGroup | None:
    """The group a delivery came by, cut down to those with the right to it; None if nobody else could take it."""
    if not isinstance(tag, Tag):
        return None
    origin = tag.group
    for group in session.core.index.route(message.topic).shared:
        if group.name == origin.name and group.topic_filter == origin.topic_filter:
            return group if group.has_other(session) else None
    return None
