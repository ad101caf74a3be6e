"""Will messages: published when a connection ends without a proper DISCONNECT, at once or after their delay."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidegate.broker.message import Message

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.session import Session

log = logging.getLogger("tidegate.broker")


@dataclass(slots=True, kw_only=True)
class Will:
    """`message.expires` is set when the will is published; `expiry` is its Message Expiry Interval."""

    message: Message
    delay: int = 0
    expiry: int | None = None


def keep(session: Session, will: Will | None) -> None:
    """The will of a session from now on, or that it has none."""
    store = session.core.store
    if store is not None and (will is not None or session.will is not None):
        store.save_will(session.client_id, will)
    session.set_will(will)


def may_leave(conn: Connection) -> bool:
    """Whether the client has the right to what it wants published when it is gone."""
    will = conn.session.will
    authorise = conn.authorise
    if will is None:
        return True
    if will.message.author is not None and not conn.core.authors.is_known(conn.username):
        return False
    if authorise is None:
        return True
    try:
        return authorise.may_publish(conn, will.message.topic.decode())
    except Exception:
        log.exception("unexpected error in the authoriser")
        return False


def after_disconnect(session: Session) -> None:
    """Publish it now, or when its delay is over."""
    will = session.will
    if will is None:
        return
    core = session.core
    if not will.delay:
        publish(session)
        return
    due = core.now() + will.delay
    if core.store is not None:
        core.store.save_will(session.client_id, will, due)
    session.will_alarm = core.alarms.at(due, partial(publish_delayed, session, session.epoch))


def publish_delayed(session: Session, epoch: int) -> None:
    if session.epoch == epoch and session.conn is None:
        publish(session)


def publish(session: Session) -> None:
    """Once: the session has none after that."""
    will = session.will
    session.set_will(None)
    if will is not None:
        _publish(session.core, session.client_id, will)


def publish_stored(core: Core, client_id: str, will: Will) -> None:
    """The will of a client that was connected when the broker went down, and had no session to keep."""
    _publish(core, client_id, will)


def _publish(core: Core, client_id: str, will: Will) -> None:
    if will.expiry is not None:
        will.message.expires = core.now() + will.expiry
    if core.store is not None:
        core.store.save_will(client_id, None)
    if core.authors.may_publish(will.message.author, will.message.topic):
        core.publish(will.message)
    else:
        core.counters.publish_denied += 1
