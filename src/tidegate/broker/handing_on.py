"""What a member of a shared subscription has and will not do goes on to another member.

When: when it leaves (after `features.shared_wait`, if it may come back), when it has acknowledged nothing for
`features.shared_stall` seconds, when its session ends, and when a member joins or comes back while others are away.

Rules. QoS 1 in flight and all that waits in memory may go; QoS 2 in flight may not [MQTT5-4.8.2-5]. Order among the
messages of one member is kept. A message is with the other member before it is taken from this one, and if nobody can
take it, it stays. What is on disk goes only to members that keep it on disk as well, so that a kill loses nothing.
Long queues go in parts, so that nobody else waits for it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from tidegate.broker.shared import SharedGroup, Tag

if TYPE_CHECKING:
    from tidegate.broker.index import Subscription
    from tidegate.broker.message import Message
    from tidegate.broker.session import Delivery, Session

# In flight, and another member has it now; keeps the identifier until it is acknowledged.
GIVEN_ON = (0, 1, 0)
PART = 200  # messages in one turn, some 2 ms


def hand_on(session: Session) -> int:
    """Give what came by a group, and can be given, to other members; returns how many went now."""
    moved = 0
    for pid, entry in list(session.inflight.items()):
        if len(entry) == 5 and entry[1] == 1 and isinstance(entry[3], Tag):
            if not _give(session, entry):
                break
            moved += 1
            if session.conn is not None:
                session.inflight[pid] = GIVEN_ON
            else:
                del session.inflight[pid]
    moved += _hand_on_queue(session, session.epoch, 0)
    _count(session, moved)
    return moved


def _hand_on_queue(session: Session, epoch: int, skipped: int) -> int:
    """The next part of what waits in memory; the first `skipped` stay where they are."""
    pending = session.pending
    if pending is None or session.epoch != epoch or (session.conn is not None and not session.is_stalled):
        return 0
    moved = 0
    is_stuck = False
    pending.rotate(-skipped)
    for _ in range(min(PART, len(pending) - skipped)):
        delivery = pending[0]
        if isinstance(delivery[3], Tag) and not is_stuck:
            if _give(session, delivery):
                pending.popleft()
                session.count_out(delivery[0].size_bytes)
                moved += 1
                continue
            is_stuck = True
        pending.rotate(-1)
        skipped += 1
    pending.rotate(skipped)
    if not pending:
        session.pending = None
    elif not is_stuck and len(pending) > skipped:
        session.core.loop.call_soon(partial(_next_part, session, epoch, skipped))
    if session.is_full:
        session.check_room()
    return moved


def _next_part(session: Session, epoch: int, skipped: int) -> None:
    _count(session, _hand_on_queue(session, epoch, skipped))


def _count(session: Session, moved: int) -> None:
    session.core.counters.shared_moved += moved
    if moved and session.load is not None:
        session.load.owes(len(session.inflight) + session.queued_messages)


def _give(session: Session, delivery: Delivery) -> bool:
    """Put it into another member's queue and out of this session's store; False if nobody can take it."""
    message, qos, _, tag, seq = delivery
    core = session.core
    now = core.now()
    if message.expires is not None and message.expires <= now:  # [MQTT5-3.3.2-5]
        core.counters.expired += 1
        session.forget(delivery)
        return True
    is_stored = session.durable is not None and seq > 0
    chosen = _find(session, message, qos, cast(Tag, tag), is_stored)
    if chosen is None:
        return False
    if message.mid and not is_stored:
        message = message.copy()  # its number in the store may be nobody's by now
    cast(Tag, tag).group.moved += 1
    retain = message.retain and chosen.retain_as_published
    chosen.session.deliver(message, min(qos, chosen.qos), retain, chosen.tag)
    session.forget(delivery)
    return True


def _find(session: Session, message: Message, qos: int, tag: Tag, is_stored: bool) -> Subscription | None:
    """The member that gets it: by the group's policy, of those that may have it."""
    group = _group(session, message, tag)
    if group is None:
        return None

    def may_take(member: Subscription) -> bool:
        other = member.session
        return (
            other is not session
            and other.is_ready
            and (not is_stored or (other.durable is not None and member.qos > 0))
        )

    if not any(map(may_take, group.members)):
        return None
    chosen = group.choose(message.topic, message.publisher, session.core.now(), qos)
    if chosen is not None and may_take(chosen):
        return chosen
    return next(filter(may_take, group.members))


def _group(session: Session, message: Message, tag: Tag) -> SharedGroup | None:
    """The group a delivery came by, cut down to those with the right to the topic."""
    origin = tag.group
    for group in session.core.index.route(message.topic).shared:
        if group.name == origin.name and group.topic_filter == origin.topic_filter:
            return group
    return None


def help_others(session: Session) -> None:
    """A member joined or came back: it takes what those have who are away, or stalled."""
    core = session.core
    for subscription in list(session.subscriptions.values()):
        group = core.index.groups.get((subscription.share, subscription.topic_filter))
        if not subscription.share or group is None:
            continue
        for member in list(group.members):
            other = member.session
            is_idle = other.is_stalled if other.conn is not None else not core.features.shared_wait
            if other is not session and is_idle and (other.inflight or other.pending):
                hand_on(other)
