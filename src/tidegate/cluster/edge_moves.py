"""An edge's ends of a hand-over: give a session up, take one, claim one for a client; see `handover.py`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidegate.broker.hooks import ForeignSession, SessionElsewhere
from tidegate.broker.session import Session
from tidegate.cluster import transfer
from tidegate.cluster.moves import CLAIM_TIMEOUT, TAIL, Moves, is_foreign
from tidegate.cluster.settings import Role

if TYPE_CHECKING:
    from tidegate.cluster.membership import ClusterNode, Peer

log = logging.getLogger("tidegate.cluster")

LINK_GRACE: Final = (
    5.0  # seconds without a head in which a client that may have a session elsewhere is told to wait
)


class EdgeMoves(Moves):
    """Sessions that leave are frozen, then cut; sessions that come are parked until all parts are there."""

    def __init__(self, node: ClusterNode) -> None:
        super().__init__(node)
        self._frozen: dict[str, Session] = {}  # still collecting
        self._cut: dict[str, Session] = {}  # to be sent away
        self._parked: dict[str, dict[str, Any]] = {}  # all parts are there
        self._claims: dict[str, asyncio.Future[None]] = {}
        self._is_first_link = True
        self.came = self.left = 0  # sessions that were handed over to this node, and by it

    def _when_here(self, client: str, act: Callable[[], None]) -> None:
        """Act when a session that another edge left to this one is here; at once, if there is none such."""
        shadows = self._node.shadows
        if shadows is None:
            act()
        else:
            shadows.when_adopted(client, act)

    def on_freeze(self, peer: Peer, value: dict[str, Any]) -> None:
        client = value["client"]
        freeze = partial(self._freeze, peer, value)
        wait = partial(self._node.farewell.wait, self._node.core, client, value.get("address", ""), freeze)
        self._when_here(client, wait)

    def _freeze(self, peer: Peer, value: dict[str, Any]) -> None:
        client = value["client"]
        if self.is_leaving(client):
            return  # asked twice, because of a crash: the answer is on its way
        session = self._node.core.sessions.get(client)
        if session is None:
            self._node.send(peer, "frozen", {"client": client, "is_gone": True})
            return
        if is_foreign(session.user, value):
            self._node.send(peer, "frozen", {"client": client, "is_foreign": True})
            return
        about = transfer.about(session)
        self._hush(session)
        self._frozen[client] = session
        self._keep_record(client, {"step": "frozen"})
        self._node.core.index.forget_routes()
        self._node.send(peer, "frozen", {"client": client, "about": about})

    def on_thaw(self, peer: Peer, value: dict[str, Any]) -> None:
        """Nobody takes the session: it goes on here."""
        self._thaw(value["client"])

    def _thaw(self, client: str) -> None:
        session = self._frozen.pop(client, None)
        if session is None:
            return
        core = self._node.core
        self._erase(session.client_id)
        with self._node.quiet():
            for subscription in session.subscriptions.values():
                core.index.add(subscription)
        if session.conn is not None:
            session.conn.unhush()
        else:
            self._expire_later(session)

    def on_ended(self, session: Session) -> None:
        """A session ends that was on its way to another node: the head hears of it when it asks for the rest."""
        client = session.client_id
        if self._frozen.get(client) is session:
            del self._frozen[client]
            for subscription in session.subscriptions.values():
                self._node.forget(subscription)
            self._erase(client)
        elif self._cut.get(client) is session:
            del self._cut[client]
            self._erase(client)
            for peer in self._node.peers.values():
                self._node.send(peer, "lost", {"client": client, "is_here": False})

    def on_cut(self, peer: Peer, value: dict[str, Any]) -> None:
        session = self._frozen.pop(value["client"], None)
        if session is None:
            client = value["client"]
            self._node.send(peer, "lost", {"client": client, "is_here": client in self._node.core.sessions})
            return
        self._node.core.index.forget_routes()
        for subscription in session.subscriptions.values():
            self._node.forget(subscription)
        self._keep_record(session.client_id, {"step": "cut"})
        self._cut[session.client_id] = session
        self._when_loaded((session.client_id,), partial(self._send_tail, peer, session))

    def _send_tail(self, peer: Peer, session: Session) -> None:
        if self._cut.get(session.client_id) is not session:
            return  # it ended meanwhile
        session.settle_inflight()
        inbound = sorted(session.inbound or ())
        about = transfer.about(session)
        for part, is_last in transfer.marked(transfer.parts(transfer.contents(session, self._node.core.now()))):
            self._node.send(
                peer,
                "tail",
                {
                    "client": session.client_id,
                    "rows": part,
                    "is_last": is_last,
                    "inbound": inbound if is_last else [],
                    "about": about if is_last else {},  # another head may get this than the one that asked
                },
            )
        conn = session.conn
        self._cut.pop(session.client_id, None)
        self.left += 1
        self._erase(session.client_id)
        self._drop(session)  # in the same turn as the last part: one commit
        if conn is not None:
            self._leaving[session.client_id] = conn

    def on_release(self, peer: Peer, value: dict[str, Any]) -> None:
        self._send_on(value["client"], value["address"], is_over=bool(value.get("is_over")))

    def on_install(self, peer: Peer, value: dict[str, Any]) -> None:
        client = value["client"]
        self._keep_part(client, value["rows"])
        if value["is_last"]:
            parked = {"step": "parked", "about": value["about"], "inbound": value["inbound"]}
            self._parked[client] = parked
            self._keep_record(client, parked)
            self._node.core.index.forget_routes()
            self._when_loaded((TAIL + client,), partial(self._install, peer, client))

    def _install(self, peer: Peer, client: str) -> None:
        parked = self._parked.pop(client)
        self._node.core.index.forget_routes()
        about, inbound = parked["about"], parked["inbound"]
        self._erase(client)
        self.install(about, self._take_parts(client), inbound)
        self.came += 1
        self._node.send(peer, "installed", {"client": client})

    def on_append(self, peer: Peer, value: dict[str, Any]) -> None:
        core = self._node.core
        session = core.sessions.get(value["client"])
        if session is not None:
            for row in value["rows"]:
                session.deliver(*transfer.delivery_of(row, core.now())[:4])
        if value["is_last"]:
            self._settle_claim(value["client"])

    def on_nothing(self, peer: Peer, value: dict[str, Any]) -> None:
        self._when_here(value["client"], partial(self._settle_claim, value["client"]))

    def on_elsewhere(self, peer: Peer, value: dict[str, Any]) -> None:
        """The session stays where it is, and its client goes there."""
        self._fail_claim(value["client"], SessionElsewhere(value["client"], value["address"]))

    def on_foreign(self, peer: Peer, value: dict[str, Any]) -> None:
        """The session that a client asked for is another user's."""
        self._fail_claim(value["client"], ForeignSession(value["client"]))

    def _fail_claim(self, client: str, error: Exception) -> None:
        claim = self._claims.pop(client, None)
        if claim is not None and not claim.done():
            claim.set_exception(error)
            claim.exception()  # whoever waited for it may be gone

    def claim(self, client: str, user: str | None, *, follows: bool, is_v5: bool) -> Awaitable[None] | None:
        """Wait until the session of a client is here, if there is one; None if nobody can be asked for long.

        `follows`: the client goes to where its session is, if it is told; `is_v5`: it can be told.
        """
        node = self._node
        if client in self._parked:
            return self.refuse(client)  # it is here, and not yet a session
        known = self._claims.get(client)
        if known is None:
            if node.role is Role.HEAD:
                return None
            peer = next((peer for peer in node.peers.values() if peer.is_connected), None)
            if peer is None:
                is_long = node.core.now() - node.links.away_since > LINK_GRACE
                return None if is_long else self.refuse(client)
            known = self._claims[client] = node.core.loop.create_future()
            node.send(peer, "claim", {"client": client, "user": user, "follows": follows, "is_v5": is_v5})
        return self._wait(client, known)

    async def _wait(self, client: str, claim: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(CLAIM_TIMEOUT):
                await asyncio.shield(claim)
        except TimeoutError:
            self._claims.pop(client, None)
            shadows = self._node.shadows
            is_ours = shadows is not None and await shadows.adopted(client)
            if is_ours and client in self._node.core.sessions:
                return
            log.warning("session not handed over in time", extra={"client": client})
            raise SessionElsewhere(client) from None

    def _settle_claim(self, client: str) -> None:
        claim = self._claims.pop(client, None)
        if claim is not None and not claim.done():
            claim.set_result(None)

    def report(self, peer: Peer, is_present: bool) -> None:
        """An edge names the sessions it has, when its link opens. A head that knows nothing asked for none of them."""
        if not is_present:
            for client in list(self._frozen):
                self._thaw(client)
        names = [
            name
            for name, session in self._node.core.sessions.items()
            if not name.startswith("$") and (session.expiry or session.conn is not None)
        ]
        for part, is_last in transfer.name_parts(names):
            self._node.send(peer, "sessions", {"clients": part, "is_last": is_last})
        if self._is_first_link:
            self._is_first_link = False
            self._go_on(peer)

    def _go_on(self, peer: Peer) -> None:
        """An edge has its link again: what was cut goes to the head, what is parked becomes a session."""
        for session in list(self._cut.values()):
            for subscription in session.subscriptions.values():
                self._node.forget(subscription)
            self._when_loaded((session.client_id,), partial(self._send_tail, peer, session))
        for client in list(self._parked):
            self._when_loaded((TAIL + client,), partial(self._install, peer, client))

    def is_leaving(self, client: str) -> bool:
        """Whether the session that is here is on its way to another node."""
        return client in self._frozen or client in self._cut

    async def refuse(self, client: str) -> None:
        raise SessionElsewhere(client)

    def on_drop(self, peer: Peer, value: dict[str, Any]) -> None:
        self._when_here(value["client"], partial(self._drop_session, peer, value))

    def _drop_session(self, peer: Peer, value: dict[str, Any]) -> None:
        session = self._node.core.sessions.get(value["client"])
        if session is not None and is_foreign(session.user, value):
            self._node.send(peer, "kept", {"client": value["client"], "newer": value["newer"]})
        elif session is not None:
            self._end(session)
