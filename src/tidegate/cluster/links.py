"""The links of a node: who is at their other ends, what keeps them open, and what nodes say over them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.broker.hooks import LINK_CLIENT
from tidegate.broker.index import Subscription
from tidegate.broker.listener import Listener
from tidegate.broker.session import NEVER, Session
from tidegate.cluster import wire
from tidegate.cluster.dialer import KEEP_ALIVE, Backoff, LinkRefused, open_link
from tidegate.cluster.link_meter import LinkMeter
from tidegate.cluster.settings import Role
from tidegate.net.addresses import Endpoint, parse_address
from tidegate.net.errors import NetError

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.cluster.membership import ClusterNode

log = logging.getLogger("tidegate.cluster")

PINGREQ = b"\xc0\x00"
HEAD_LABEL = "head"  # an edge's name for whichever head it is linked with


@dataclass(slots=True, kw_only=True)
class Peer:
    """Another node, as known here."""

    name: str
    role: Role
    session: Session
    address: str = ""
    state: dict[str, Any] | None = None
    unanswered: int = 0  # SUBSCRIBE and UNSUBSCRIBE that the other has not acknowledged
    lost_at: float | None = None  # since when its link is away

    @property
    def is_connected(self) -> bool:
        return self.session.conn is not None


class Links:
    """`peers` by the client identifier of their session here."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.peers: dict[str, Peer] = {}
        self._dialled = Listener(name="link", is_link=True)
        self.meter = LinkMeter()
        self._lost: dict[str, asyncio.Event] = {}  # of links that this node dialled
        self.away_since = 0.0  # when this node was last seen without a link that it dials

    def start(self) -> list[asyncio.Task[None]]:
        """Dial the heads: an edge the first that answers, a head every other."""
        node = self._node
        loop = node.core.loop
        self.away_since = node.core.now()
        if node.role is Role.HEAD:
            for session in list(node.core.sessions.values()):
                if session.client_id.startswith(LINK_CLIENT):
                    self.peer(session).lost_at = node.core.now()
        heads = [parse_address(address) for address in node.settings.heads]
        if node.role is Role.EDGE:
            return [loop.create_task(self._keep_linked(heads, HEAD_LABEL))]
        return [loop.create_task(self._keep_linked([each], str(each))) for each in heads]

    async def _keep_linked(self, heads: list[Endpoint], label: str) -> None:
        """One link, to the first of these heads that answers; come back to it, or to the next, when it is lost."""
        node = self._node
        core = node.core
        session = self._own_session(label)
        own_id = wire.client_id(node.role, node.name)
        backoff = Backoff(core.random)
        complaint = ""
        for endpoint in itertools.cycle(heads):
            try:
                conn, is_present = await open_link(
                    core, endpoint, self._dialled, session, own_id, node.settings.secret
                )
            except (NetError, LinkRefused, TimeoutError) as error:
                if str(error) != complaint:
                    complaint = str(error)
                    log.warning("link not open", extra={"head": str(endpoint), "error": complaint})
                await asyncio.sleep(backoff.next())
                continue
            complaint = ""
            backoff.reset()
            log.info("link open", extra={"head": str(endpoint), "resumed": is_present})
            node.linked(Peer(name=label, role=Role.HEAD, session=session), is_present)
            lost = self._lost[session.client_id] = asyncio.Event()
            while session.conn is conn:
                try:
                    async with asyncio.timeout(KEEP_ALIVE / 4):
                        await lost.wait()
                except TimeoutError:
                    if session.conn is conn:
                        session.write(PINGREQ)
            log.warning("link lost", extra={"head": str(endpoint)})

    def _own_session(self, label: str) -> Session:
        """What this node owes the one it dials: kept while the link is away."""
        core = self._node.core
        client_id = f"{LINK_CLIENT}{Role.HEAD.value}/{label}"
        session, _ = core.open_session(client_id, clean_start=False)
        session.user = wire.LINK_USER
        session.expiry = NEVER
        session.version = 5
        if self._node.role is Role.EDGE and b"#" not in session.subscriptions:
            core.make_durable(session)
            everything = Subscription(session, b"#", 2, retain_as_published=True)
            session.subscriptions[b"#"] = everything
            core.index.add(everything)
            if session.durable is not None:
                session.durable.store.save_subscription(session, b"#", everything)
        return session

    def peer(self, session: Session) -> Peer:
        """Who dialled us, by its session."""
        role, name = wire.parse_client_id(session.client_id)
        known = self.peers.get(session.client_id)
        if known is None or known.session is not session:
            known = self.peers[session.client_id] = Peer(name=name, role=role, session=session)
        return known

    def named(self, name: str) -> Peer | None:
        return next((peer for peer in self.peers.values() if peer.name == name), None)

    def on_lost(self, link: Connection, reason: str) -> None:
        client_id = link.session.client_id
        lost = self._lost.get(client_id)
        if lost is not None:
            lost.set()
            self.away_since = self._node.core.now()
        peer = self.peers.get(client_id)
        if peer is not None:
            peer.unanswered = 0
            peer.lost_at = self._node.core.now()
            log.warning("node gone", extra={"node": peer.name, "why": reason})

    @staticmethod
    def send(peer: Peer, kind: str, value: dict[str, Any]) -> None:
        """Tell a node something; waits in its session while the link is away."""
        message = wire.encode(kind, value)
        peer.session.deliver(message, message.qos)

    def statistics(self) -> dict[str, dict[str, Any]]:
        return self.meter.statistics(list(self.peers.values()))
