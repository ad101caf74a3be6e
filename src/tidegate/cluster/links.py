"""The links of a node: who is at their other ends, what keeps them open, and what nodes say over them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from tidegate.broker.hooks import LINK_CLIENT, LINK_TOPIC, LINK_USER, ConnectRequest
from tidegate.broker.index import Subscription
from tidegate.broker.listener import Listener
from tidegate.broker.reasons import CloseReason
from tidegate.broker.session import NEVER, Session
from tidegate.cluster import transfer, wire
from tidegate.cluster.dialer import KEEP_ALIVE, Backoff, LinkRefused, open_link
from tidegate.cluster.link_meter import LinkMeter
from tidegate.cluster.moves import load_all
from tidegate.cluster.settings import Role
from tidegate.mqtt.codes import ReasonCode
from tidegate.net.addresses import Endpoint, parse_address
from tidegate.net.errors import NetError

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.cluster.membership import ClusterNode

log = logging.getLogger("tidegate.cluster")

PINGREQ = b"\xc0\x00"
HEAD_LABEL = "head"  # an edge's name for whichever head it is linked with
OF_ONE_LINK = tuple(LINK_TOPIC + kind.encode() for kind in (wire.HELLO, wire.FILTERS))
ALIVE_SECONDS = KEEP_ALIVE / 2  # a node that was heard of so lately is there; it says something twice as often
REDIAL_SECONDS = 30.0  # so long a head that lost its link to another opens it again, and the other does not


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
    is_dialled: bool = False  # by this node
    is_greeted: bool = False  # it has said its name
    boot: str = ""  # which start of it this is
    started: float = 0.0  # when it did, by its clock

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
        self._doubles: dict[str, str] = {}  # by name: the start of a second node of that name
        self._lost: dict[str, asyncio.Event] = {}  # of links that this node dialled
        self.own_host = ""  # by which other nodes reach this one, as their connections show
        self.away_since = 0.0  # when this node was last seen without a link that it dials

    def start(self) -> list[asyncio.Task[None]]:
        """Dial the heads: an edge the first that answers, a head every other."""
        node = self._node
        loop = node.core.loop
        self.away_since = node.core.now()
        if node.role is Role.HEAD:
            for session in list(node.core.sessions.values()):
                if session.is_link:
                    self.peer(session).lost_at = node.core.now()
        heads = [parse_address(address) for address in node.settings.heads]
        if node.role is Role.EDGE:
            return [loop.create_task(self._keep_linked(heads, HEAD_LABEL))]
        return [loop.create_task(self._keep_linked([each], str(each))) for each in heads]

    async def _keep_linked(self, heads: list[Endpoint], label: str) -> None:
        """One link, to the first of these heads that answers; come back to it, or to the next, when it is lost."""
        node = self._node
        core = node.core
        own_id = wire.client_id(node.role, node.name)
        backoff = Backoff(core.random)
        complaint = ""
        for endpoint in itertools.cycle(heads):
            session = self._own_session(label)
            try:
                conn, is_present = await open_link(
                    core, endpoint, self._dialled, session, own_id, node.settings.secret, node.boot
                )
            except (NetError, LinkRefused, TimeoutError) as error:
                if str(error) != complaint:
                    complaint = str(error)
                    level = logging.DEBUG if complaint == wire.OTHER_WAY else logging.WARNING
                    log.log(level, "link not open", extra={"head": str(endpoint), "error": complaint})
                await asyncio.sleep(backoff.next())
                continue
            if core.sessions.get(session.client_id) is not session:
                conn.abort()  # it was given up meanwhile
                continue
            complaint = ""
            backoff.reset()
            log.info("link open", extra={"head": str(endpoint), "resumed": is_present})
            known = self.peers.get(session.client_id)
            name = label if known is None else known.name
            node.linked(Peer(name=name, role=Role.HEAD, session=session, is_dialled=True), is_present)
            lost = self._lost[session.client_id] = asyncio.Event()
            while session.conn is conn:
                try:
                    async with asyncio.timeout(KEEP_ALIVE / 4):
                        await lost.wait()
                except TimeoutError:
                    if session.conn is conn:
                        session.write(PINGREQ)
            log.warning("link lost", extra={"head": str(endpoint)})

    def note_host(self, peer: Peer) -> None:
        """A link is open; an address that only this machine knows counts while there is no other."""
        conn = peer.session.conn
        name = None if conn is None else conn.transport.get_extra_info("sockname")
        host = name[0].removeprefix("::ffff:") if name else ""
        if host and (not self.own_host or not ip_address(host).is_loopback):
            self.own_host = host

    def _own_session(self, label: str) -> Session:
        """What this node owes the one it dials: kept while the link is away."""
        core = self._node.core
        client_id = f"{LINK_CLIENT}{Role.HEAD.value}/{label}"
        session, _ = core.open_session(client_id, clean_start=False)
        session.user = LINK_USER
        session.is_link = True
        session.expiry = NEVER
        session.version = 5
        if self._node.role is Role.EDGE and b"#" not in session.subscriptions:
            core.make_durable(session)
            everything = Subscription(session, b"#", 2, retain_as_published=True)
            session.subscribe(b"#", everything)
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

    def objection(self, request: ConnectRequest) -> str:
        """Why a node that knows the secret may not link now; empty if it may."""
        if self._is_second(request.client_id):
            return wire.OTHER_WAY
        peer = self.peers.get(request.client_id)
        conn = None if peer is None else peer.session.conn
        boot = wire.boot_of(request.properties)
        if peer is None or conn is None or not boot or peer.boot in ("", boot):
            return ""
        if self._node.core.now() - conn.last_seen > ALIVE_SECONDS:
            return ""  # it was started anew, and its old connection has not ended
        if self._doubles.get(peer.name) != boot:
            self._doubles[peer.name] = boot
            log.error(
                "two nodes have the same name: the second is refused",
                extra={"node": peer.name, "peers": [conn.peer, request.peer], "hint": "set another name"},
            )
        return f"another node is called {peer.name}"

    def _is_second(self, client_id: str) -> bool:
        """Whether a head dials us that we dial as well: of two such links that of the smaller name is the one."""
        role, name = wire.parse_client_id(client_id)
        if role is not Role.HEAD or self._node.role is not Role.HEAD or name < self._node.name:
            return False
        peer = next((peer for peer in self._joined(name) if peer.is_dialled), None)
        if peer is None:
            return False
        return peer.lost_at is None or self._node.core.now() - peer.lost_at < REDIAL_SECONDS

    def join(self, peer: Peer) -> bool:
        """A head has said its name. Of two links with it one is given up; whether this one stays."""
        is_ours = self._node.name < peer.name  # the link that we dialled is the one
        for other in self._joined(peer.name):
            if other is peer or other.is_dialled == peer.is_dialled:
                continue
            stays, goes = (peer, other) if peer.is_dialled == is_ours else (other, peer)
            if not stays.is_connected:
                stays, goes = goes, stays
            self._give_up(goes, stays)
            return stays is peer
        return True

    def _joined(self, name: str) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.name == name and peer.role is Role.HEAD]

    def _give_up(self, peer: Peer, other: Peer) -> None:
        """One link is enough: what waits in this one goes to the other, unless it is there as well."""
        log.info("second link with a head given up", extra={"node": peer.name})
        session = peer.session
        del self.peers[session.client_id]
        if session.conn is not None:
            session.conn.close(CloseReason.TAKEN_OVER, ReasonCode.SESSION_TAKEN_OVER)
        self._node.core.spawn(self._hand_on(session, other))

    async def _hand_on(self, session: Session, other: Peer) -> None:
        await load_all(session)
        if session.conn is not None or self._node.core.sessions.get(session.client_id) is not session:
            return  # it is a link again
        known = {id(delivery[0]) for delivery in transfer.deliveries(other.session)}
        for message, qos, retain, identifiers, _ in transfer.deliveries(session):
            if qos and id(message) not in known and message.topic not in OF_ONE_LINK:
                other.session.deliver(message, qos, retain, identifiers)
        self._node.core.end_session(session)

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
