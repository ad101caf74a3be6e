"""What both ends of a hand-over need: parts put by, records for after a crash, sessions that fall silent."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidegate.broker import wills
from tidegate.broker.message import Message
from tidegate.broker.reasons import CloseReason
from tidegate.broker.session import NEVER, Session
from tidegate.cluster import transfer
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.properties import Properties, Property

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.cluster.membership import ClusterNode, Peer

MOVING: Final = "$move/"  # client identifier, at the head, of a session on its way: what is collected for it
TAIL: Final = "$tail/"  # the same, at the head and at B, for parts of what it had
CLAIM_TIMEOUT: Final = 5.0  # seconds a client waits for its session; then it is told to come again
RECORD: Final = b"$tide/move/"  # what is under way, by client


class Moves:
    """Base of both ends."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._leaving: dict[str, Connection] = {}  # clients to be sent on

    def _peer(self, name: str) -> Peer | None:
        return next((peer for peer in self._node.peers.values() if peer.name == name), None)

    def _subscribe(self, session: Session, rows: list[list[Any]]) -> None:
        core = self._node.core
        for name, subscription in transfer.subscriptions_of(session, rows).items():
            session.subscribe(name, subscription)
            core.index.add(subscription)
            if session.durable is not None:
                session.durable.store.save_subscription(session, name, subscription)

    def _keep_part(self, client: str, rows: list[list[Any]]) -> None:
        """Put a part of a session by, on disk where there is one, until the last is there."""
        core = self._node.core
        session, is_present = core.open_session(TAIL + client, clean_start=False)
        if not is_present:
            session.expiry = NEVER
            core.make_durable(session)
        transfer.fill(core, session, rows)

    def _take_parts(self, client: str) -> list[list[Any]]:
        """All that was put by, which is then gone."""
        core = self._node.core
        session = core.sessions.get(TAIL + client)
        if session is None:
            return []
        rows = list(transfer.contents(session, core.now()))
        core.end_session(session)
        return rows

    def _when_loaded(self, names: tuple[str, ...], work: Callable[[], None]) -> None:
        """Do it at once if these sessions are in memory, or in the turn in which the last part of them is."""
        core = self._node.core
        sessions = [session for name in names if (session := core.sessions.get(name)) is not None]
        if not any(session.durable is not None and session.durable.tail for session in sessions):
            work()
            return

        async def load() -> None:
            while any(session.durable is not None and session.durable.tail for session in sessions):
                for session in sessions:
                    await load_all(session)
            work()

        core.spawn(load())

    def _hush(self, session: Session) -> None:
        """Nothing more is sent to it or read from it, and only we add to it."""
        core = self._node.core
        if session.conn is not None:
            session.conn.hush()
        with self._node.quiet():
            for subscription in session.subscriptions.values():
                core.index.remove(subscription)
        core.alarms.cancel(session.expiry_alarm)
        session.expiry_alarm = None

    def _expire_later(self, session: Session) -> None:
        """Nobody is connected to it: its time runs from now on."""
        core = self._node.core
        if session.expiry != NEVER:
            session.expiry_alarm = core.alarms.at(
                core.now() + session.expiry, partial(core.expire, session, session.epoch)
            )

    def install(
        self,
        about: dict[str, Any],
        rows: list[list[Any]],
        inbound: list[int] | None = None,
        next_seq: int = 1,
    ) -> Session:
        """A session as another node had it, with what waits in it; nobody is connected to it yet.

        A client that began anew here has its new session, and what it left behind is nobody's.
        """
        core = self._node.core
        known = core.sessions.get(about["client"])
        if known is not None and known.epoch:
            return known
        session, _ = core.open_session(about["client"], clean_start=True)
        session.belong_to(about["user"])
        session.expiry = about["expiry"]
        session.version = about["version"]
        session.is_plain = about["is_plain"]
        session.inbound = set(inbound or ()) or None
        core.make_durable(session)
        if session.durable is not None:
            session.durable.next_seq = next_seq
        transfer.fill(core, session, rows)
        self._subscribe(session, about["subscriptions"])
        if session.durable is not None:
            for number in inbound or ():
                session.durable.store.received(session, number, True)
            session.durable.store.save_session(session, is_connected=False)
        self._expire_later(session)
        return session

    def _drop(self, session: Session) -> None:
        """The session is elsewhere now; its connection, if any, has nothing to say any more."""
        core = self._node.core
        if self._node.copier is not None:
            self._node.copier.close(session.client_id)
        wills.keep(session, None)
        session.settle_inflight()
        session.unsubscribe_all()
        session.load = None
        session.expiry = 0
        if core.sessions.get(session.client_id) is session:
            del core.sessions[session.client_id]  # it does not end: it is elsewhere
        core.end_session(session)

    def _send_on(self, client: str, address: str, is_over: bool = False) -> None:
        """Tell a client where its session is now; `is_over`: it began anew elsewhere, on another connection."""
        conn = self._leaving.pop(client, None)
        if conn is not None and not conn.is_closing:
            conn.session.paused = False
            if is_over:
                conn.close(CloseReason.TAKEN_OVER, ReasonCode.SESSION_TAKEN_OVER)
            elif address:
                properties: Properties = {Property.SERVER_REFERENCE: address}
                conn.close(CloseReason.MOVED, ReasonCode.USE_ANOTHER_SERVER, properties=properties)
            else:  # nobody knows where it is now: whoever it asks next does
                conn.close(CloseReason.MOVED, ReasonCode.SERVER_BUSY)

    def _end(self, session: Session) -> None:
        session.expiry = 0
        if session.conn is not None:
            session.conn.close(CloseReason.TAKEN_OVER, ReasonCode.SESSION_TAKEN_OVER)
        else:
            self._node.core.end_session(session)

    def _keep_record(self, client: str, value: dict[str, Any]) -> None:
        payload = json.dumps(value, separators=(",", ":")).encode()
        self._node.core.retained.keep(Message(RECORD + client.encode(), payload, 1, True))

    def _erase(self, client: str) -> None:
        self._node.core.retained.remove(RECORD + client.encode())


def is_foreign(owner: str | None, value: dict[str, Any]) -> bool:
    """Whether who asks for a session, if that is known, is another user than the one it belongs to."""
    return owner is not None and "user" in value and bool(value["user"] != owner)


async def load_all(session: Session) -> None:
    """Bring what a durable session has on disk only into memory; bounded by `limits.max_queued_messages`."""
    if session.durable is not None:
        await session.durable.load_all(session)
    session.settle_inflight()
