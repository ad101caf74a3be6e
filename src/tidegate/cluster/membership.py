"""A node as part of its cluster: what is attached to a broker's core when it has a role.

Rules. A message goes at most once over each link. Edges send all that their clients publish to their head; a head sends
an edge what it subscribed to, and another head what its side of the cluster subscribed to. What came from a node does
not go back to it; what came from a head goes to no other head, since all heads are joined. The head alone chooses
members of shared subscriptions: to it an edge is one member of each group that it has members of, and the edge chooses
among its own. Retained messages are on every node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from secrets import token_hex
from time import time
from typing import TYPE_CHECKING, Any

from tidegate import flow
from tidegate.broker.handing_on import ESTATE
from tidegate.broker.hooks import LINK_CLIENT, OPERATOR_TOPIC, READY_TOPIC, ConnectRequest, follows
from tidegate.broker.index import Route, Subscription
from tidegate.broker.message import Author, Message
from tidegate.broker.reasons import CloseReason
from tidegate.broker.session import Session
from tidegate.cluster import transfer, wire
from tidegate.cluster.admission import Admission
from tidegate.cluster.agent import BUDGET_PROPERTY, MBIT, EdgeAgent, asked_budget, is_budget_nonsense
from tidegate.cluster.announcing import Announcer
from tidegate.cluster.balancer import Balancer
from tidegate.cluster.failover import Failover
from tidegate.cluster.farewell import Farewell
from tidegate.cluster.handover import Handover
from tidegate.cluster.head_moves import OWNER_TIMEOUT
from tidegate.cluster.links import Links, Peer
from tidegate.cluster.reporting import Reporter
from tidegate.cluster.retained_copies import RetainedCopies
from tidegate.cluster.settings import ClusterSettings, Role, parse_budgets
from tidegate.cluster.standby import Copier, Shadows
from tidegate.cluster.takeover import Takeover
from tidegate.cluster.uplink import Uplink
from tidegate.flow.balance import Thresholds
from tidegate.mqtt.packets import Packet, Pingresp, Suback, Subscribe, Unsuback
from tidegate.mqtt.topics import matches

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core

log = logging.getLogger("tidegate.cluster")

HEADS = f"{LINK_CLIENT}{Role.HEAD.value}/"


class ClusterNode:
    """Implements `broker.hooks.Cluster`, sees sessions come and go. `address`: where clients reach this node."""

    def __init__(self, name: str, settings: ClusterSettings, address: Callable[[], str]) -> None:
        self.name = name
        self.settings = settings
        self.role = settings.role
        self.address = address
        self._core: Core | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.links = Links(self)
        self.announcer = Announcer(self)
        self.reporter = Reporter(self)
        self.farewell = Farewell()
        self.admission = Admission(self)
        self.handover = Handover(self)
        self._retained = RetainedCopies(self)
        is_head = self.takes_orders = self.role is Role.HEAD
        self.balancer = Balancer(self) if is_head else None
        self.takeover = Takeover(self) if is_head else None
        self.failover = Failover(self) if is_head else None
        self.copier = None if is_head else Copier(self)
        self.shadows = None if is_head else Shadows(self)
        self.agent: EdgeAgent | None = None
        self.uplink: Uplink | None = None
        self.boot = token_hex(8)
        self.started = 0.0
        self._has_named_budget = False  # that made no sense
        self._newcomers: set[str] = set()  # edges that this head did not know

    # -- life -----------------------------------------------------------------------------------------------

    @property
    def core(self) -> Core:
        assert self._core is not None
        return self._core

    @property
    def peers(self) -> dict[str, Peer]:
        return self.links.peers

    def attach(self, core: Core) -> None:
        """Before anything is restored: from now on every subscription is seen."""
        self._core = core
        core.cluster = self
        core.session_observers = (*core.session_observers, self)
        core.index.on_change = self.announcer.on_subscription
        core.index.has_far_groups = self.role is Role.EDGE
        core.retained.watchers.append(self._retained.on_change)
        settings = self.settings
        if self.role is Role.EDGE:
            self.agent = EdgeAgent(
                core,
                self.name,
                uplink=settings.uplink,
                downlink=settings.downlink,
                budget=settings.budget,
                budgets=dict(parse_budgets(settings.budgets)),
            )
        if self.agent is not None and settings.uplink:
            sharing = flow.balance_policy(settings.balance)(Thresholds()).sharing
            self.uplink = Uplink(
                core, settings.uplink * MBIT, sharing, self.agent.waiting_budget, is_shedding=settings.shed
            )

    def learn(self, correlations: Mapping[tuple[str, str], float]) -> None:
        """A policy snapshot says which topics burst together."""
        if self.balancer is not None:
            self.balancer.history.learn(correlations)

    def restored(self) -> None:
        self.handover.restored()
        if self.takeover is not None:
            self.takeover.restored()
        if self.shadows is not None:
            self.shadows.restored()

    def start(self) -> None:
        """The node is up: dial the heads, and tell the cluster every interval how this node is."""
        self.started = time()
        self._retained.start()
        self._tasks += self.links.start()
        self._tasks.append(self.core.loop.create_task(self.reporter.run()))
        self.handover.start()
        if self.uplink is not None:
            self.uplink.start()

    async def stop(self) -> None:
        if self.uplink is not None:
            self.uplink.stop()
        self.farewell.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def look(self, elapsed: float) -> None:
        """Once an interval, `elapsed` seconds after the last look."""
        self.links.meter.look(elapsed)
        for name, link in self.links.statistics().items():
            self.say(f"links/{name}", link)
        if self.agent is not None:
            self.agent.forget_unwanted(topic_filter for _, topic_filter in self.announcer.interest)
        if self.balancer is not None:
            self.balancer.look()
            self.handover.look()
            self.admission.look()
        for part in (self.takeover, self.failover, self.copier):
            if part is not None:
                part.look()

    @property
    def is_linked(self) -> bool:
        """Whether this node has every link that it dials, and the other side knows what it wants."""
        needed = len(self.settings.heads) if self.role is Role.HEAD else 1
        dialled = [peer for peer in self.peers.values() if peer.is_connected and peer.role is Role.HEAD]
        if self.role is Role.HEAD:
            dialled = [peer for peer in dialled if peer.is_greeted]
        return len(dialled) >= needed and self.is_settled

    @property
    def is_settled(self) -> bool:
        return self.announcer.is_settled

    # -- links ----------------------------------------------------------------------------------------------

    def on_link(self, link: Connection, is_present: bool) -> None:
        """Another node dialled us."""
        peer = self.links.peer(link.session)
        log.info("node linked", extra={"node": peer.name, "role": peer.role.value, "resumed": is_present})
        self.linked(peer, is_present)

    def linked(self, peer: Peer, is_present: bool) -> None:
        """A link is open; `is_present`: the other remembers this node."""
        self.peers[peer.session.client_id] = peer
        peer.unanswered = 0
        peer.lost_at = None
        self.links.meter.on_link(peer)
        self.links.note_host(peer)
        peer.is_greeted = False
        self.send(peer, wire.HELLO, self._hello())
        if self.copier is not None:
            self.send(peer, wire.STATE, self.reporter.state())
            if not is_present:
                self.copier.begin_again()
            self.handover.report(peer, is_present)
        if self.role is Role.EDGE:
            self.announcer.announce_all(peer)
        if self.failover is not None:
            if peer.role is Role.EDGE:
                if not is_present:
                    self._newcomers.add(peer.name)
                self.core.spawn(self._retained.send_all(peer))
            self.failover.on_link(peer)
            self.admission.say(peer)
            self.reporter.say_nodes()

    def _hello(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "name": self.name,
            "role": self.role.value,
            "address": self.address(),
            "boot": self.boot,
            "replication": settings.replication.value,
            "started": self.started,
        }

    def send(self, peer: Peer, kind: str, value: dict[str, Any]) -> None:
        """Tell a node something; waits in its session while the link is away."""
        self.links.send(peer, kind, value)

    def named(self, name: str) -> Peer | None:
        return self.links.named(name)

    # -- who wants what -------------------------------------------------------------------------------------

    def quiet(self) -> AbstractContextManager[None]:
        """Within, subscriptions come and go without anybody being told."""
        return self.announcer.quiet()

    def forget(self, subscription: Subscription) -> None:
        """Tell now of a subscription that went quietly."""
        self.announcer.on_subscription(subscription, False)

    def say(self, name: str, value: dict[str, Any]) -> None:
        """Below $SYS/cluster/, if it is news."""
        self.reporter.say(name, value)

    # -- the broker asks ------------------------------------------------------------------------------------

    def prepare(
        self, request: ConnectRequest, clean_start: bool, session: Session | None, user: str | None
    ) -> str | Awaitable[None] | None:
        if self.handover.is_leaving(request.client_id):
            return self.handover.refuse(request.client_id)
        if clean_start or session is not None or not request.client_id:
            return None
        if self.role is Role.HEAD:
            if self.handover.is_stranded(request.client_id):
                return self.handover.fetch(request.client_id, user)
            peer = self.named(self.handover.owners.get(request.client_id, ""))
            if peer is None:
                return None
            if peer.is_connected:
                # Who cannot be told where to go gets its session here.
                to = peer.address if request.version == 5 else ""
                return to or self.handover.fetch(request.client_id, user)
            is_long = self.core.now() - (peer.lost_at or 0.0) > OWNER_TIMEOUT
            return None if is_long else self.handover.refuse(request.client_id)
        is_v5 = request.version == 5
        return self.handover.claim(request.client_id, user, follows=follows(request.properties), is_v5=is_v5)

    def on_ended(self, session: Session) -> None:
        if not session.client_id.startswith(("$", ESTATE)):
            self.handover.on_ended(session)
            self._tell_heads("gone", session.client_id)

    def sends_on(self, conn: Connection, packet: Subscribe) -> bool:
        if not self._has_named_budget and is_budget_nonsense(packet):
            self._has_named_budget = True
            log.info(
                "a budget makes no sense and is ignored; others will not be named",
                extra={"client": conn.session.client_id, "hint": f"{BUDGET_PROPERTY} is in seconds, over 0"},
            )
        if self.agent is not None:
            self._note_budget(self.agent, packet)
        return self.balancer is not None and self.balancer.sends_on(conn, packet)

    def admits(self, session: Session, topic_filter: str, packet: Subscribe) -> bool:
        return topic_filter.encode() in session.subscriptions or self.admission.admits(topic_filter, packet)

    @staticmethod
    def _note_budget(agent: EdgeAgent, packet: Subscribe) -> None:
        seconds = asked_budget(packet)
        if seconds is not None:
            for each in packet.subscriptions:
                agent.ask(each.topic_filter, seconds)

    def keeps(self, session: Session, topic_filter: bytes) -> bool:
        return self.handover.keeps(session, topic_filter)

    def route(self, link: Connection, whole: Route) -> Route:
        own = link.session
        is_from_head = own.client_id.startswith(f"{LINK_CLIENT}head/")
        heads = f"{LINK_CLIENT}head/"
        targets = [
            target
            for target in whole.targets
            if target.session is not own and not (is_from_head and target.session.client_id.startswith(heads))
        ]
        targets += self.handover.targets(own, whole.topic.decode())
        # A message that another head sent is for our groups as well only if that head has none: it chose already.
        return Route(targets, () if is_from_head else whole.shared)

    def group_route(self, link: Connection, identifier: int, topic: bytes) -> Route:
        key = self.announcer.interest.group(identifier)
        route = self.core.index.route(topic)
        group = next((each for each in route.far or route.shared if (each.name, each.topic_filter) == key), None)
        if group is None:
            return Route([], ())
        if self.role is Role.HEAD:  # another head chose us: one of our side gets it
            heads = f"{LINK_CLIENT}head/"
            members = [each for each in group.members if not each.session.client_id.startswith(heads)]
            return Route([], (group.restricted(members),) if members else ())
        return Route([], (group,))

    def on_packet(self, link: Connection, packet: Packet) -> bool:
        if isinstance(packet, Suback | Unsuback):
            peer = self.peers.get(link.session.client_id)
            if peer is not None:
                peer.unanswered = max(0, peer.unanswered - 1)
                if self.shadows is not None and self.is_settled:
                    self.shadows.on_settled()
            return True
        return isinstance(packet, Pingresp)

    # -- what nodes tell each other -------------------------------------------------------------------------

    def on_message(self, link: Connection, message: Message) -> None:
        if message.topic.startswith(OPERATOR_TOPIC):
            self._operate(message)
            return
        if message.topic == READY_TOPIC:
            self.farewell.on_ready(link)
            return
        if message.topic.startswith(wire.RETAINED):
            peer = self.peers.get(link.session.client_id)
            if peer is not None and peer.role is Role.HEAD:
                self._retained.keep(peer, message)
            return
        kind, value = wire.decode(message)
        peer = self.peers.get(link.session.client_id)
        if peer is None:
            return
        parts = (self.handover, self.admission, self.takeover, self.failover, self.copier, self.shadows)
        handlers = (getattr(part, f"on_{kind}", None) for part in parts)
        handler = getattr(self, f"_on_{kind}", None) or next(filter(None, handlers), None)
        if handler is None:
            log.warning("unknown message from a node", extra={"node": peer.name, "kind": kind})
            return
        handler(peer, value)

    def _operate(self, message: Message) -> None:
        """An operator asks a head for something; whoever may publish there is one."""
        balancer = self.balancer
        what = message.topic[len(OPERATOR_TOPIC) :]
        name = message.payload.decode(errors="replace")
        if balancer is None:
            return
        if what == b"plan":
            self.core.spawn(balancer.show_plan(name))
        elif what == b"drain":
            balancer.drain(name)
        elif what == b"resume":
            balancer.resume(name)
        elif what == b"balance":
            balancer.is_on = name != "off"
            balancer.say()

    def _on_pick(self, peer: Peer, value: dict[str, Any]) -> None:
        """Which of our clients can be moved: MQTT 5, with a session to hand over; those with little waiting first."""
        topic, limit = value.get("topic"), value.get("clients")
        wanted = []
        stay = 0
        for client_id, session in self.core.sessions.items():
            if client_id.startswith("$") or not session.subscriptions:
                continue
            filters = [each.topic_filter.decode() for each in session.subscriptions.values()]
            if topic is not None and not any(matches(each, topic) for each in filters):
                continue
            is_will_due = session.conn is None and session.will is not None  # it would be nobody's
            if session.version < 5 or not session.expiry or is_will_due:
                stay += 1
                continue
            wanted.append((session.queued_messages, client_id, topic or filters[0]))
        wanted.sort()
        rows = ([client_id, name] for _, client_id, name in wanted[:limit])
        for part, is_last in transfer.marked(transfer.parts(rows)):
            content = {"id": value.get("id"), "clients": part, "stay": stay, "is_last": is_last}
            self.send(peer, "picked", content)

    def _on_picked(self, peer: Peer, value: dict[str, Any]) -> None:
        if self.balancer is not None:
            self.balancer.on_picked(peer, value)

    def _on_hello(self, peer: Peer, value: dict[str, Any]) -> None:
        peer.address = str(value.get("address", ""))
        peer.boot = str(value.get("boot", ""))
        own, other = self.settings.replication.value, value.get("replication")
        if self.role is Role.HEAD and other not in (own, None):
            log.warning(
                "nodes differ in cluster.replication: not all sessions are copied",
                extra={"node": peer.name, "there": other, "here": own},
            )
        if peer.role is Role.HEAD:
            peer.name = str(value.get("name", peer.name))
            peer.started = float(value.get("started", 0.0))
            self._greeted(peer)
        elif self.takeover is not None:
            self.takeover.on_boot(peer, peer.boot)

    def _greeted(self, peer: Peer) -> None:
        """Heads tell each other all when they know that this is their only link."""
        if self.role is Role.HEAD and self.links.join(peer):
            peer.is_greeted = True
            self.announcer.announce_all(peer)
            self.core.spawn(self._retained.send_all(peer))

    def _on_filters(self, peer: Peer, value: dict[str, Any]) -> None:
        is_all = self.announcer.on_filters(peer.session, value)
        if is_all and self.failover is not None and peer.name in self._newcomers:
            self._newcomers.discard(peer.name)
            self.failover.on_newcomer(peer)

    def _on_copy(self, peer: Peer, value: dict[str, Any]) -> None:
        if self.takeover is not None:
            self.takeover.on_copy(peer, value)
        elif self.copier is not None and value["what"] == "opened":
            self.copier.on_opened(value["client"])
        elif self.shadows is not None:
            self.shadows.on_copy(peer, value)

    def _on_state(self, peer: Peer, value: dict[str, Any]) -> None:
        if self.balancer is not None:
            self.balancer.on_view(peer, value)
        self.reporter.on_state(peer, value)

    def _on_author(self, peer: Peer, value: dict[str, Any]) -> None:
        """A client of an edge leaves a message."""
        self._retained.on_author(value)

    def _on_watch(self, peer: Peer, value: dict[str, Any]) -> None:
        """The head sees that the way from it to here is too small."""
        if self.agent is not None:
            self.agent.count_for_a_while()

    def _on_nodes(self, peer: Peer, value: dict[str, Any]) -> None:
        self.reporter.on_nodes(peer, value)

    # -- sessions, as they come and go ----------------------------------------------------------------------

    def author_of(self, topic: bytes) -> Author | None:
        return self._retained.author_of(topic)

    def on_connected(self, client: Connection) -> None:
        if client.listener.is_link or client.listener.is_operator:
            return
        session = client.session
        self._tell_heads("here", session.client_id, user=session.user)
        if self.role is Role.HEAD:
            self.handover.here(session.client_id, session.user)

    def _tell_heads(self, kind: str, client_id: str, **more: Any) -> None:
        if self.role is Role.EDGE:
            for peer in self.peers.values():
                if peer.is_connected:
                    self.send(peer, kind, {"client": client_id} | more)

    def on_disconnected(self, client: Connection, reason: CloseReason) -> None:
        if client.listener.is_link:
            self.links.on_lost(client, str(reason))

    def on_subscribed(self, session: Session, subscription: Subscription) -> None:
        """The index tells other nodes; a copy of the session has to follow."""
        if self.copier is not None:
            self.copier.open_soon(session)

    def on_unsubscribed(self, session: Session, subscription: Subscription) -> None:
        if self.copier is not None:
            self.copier.open_soon(session)

    def statistics(self) -> dict[str, Any]:
        """May be read by another thread."""
        return ({} if self.balancer is None else self.balancer.statistics()) | {
            "role": self.role.value,
            "moved": self.handover.moved,
            "came": self.handover.came,
            "left": self.handover.left,
            "refused": self.admission.refused,
            "filters": len(self.announcer.interest),
            "links": self.links.statistics(),
            "uplink": {} if self.uplink is None else self.uplink.statistics(),
            "capacity": {} if self.agent is None else self.agent.statistics(),
            "copies": 0 if self.copier is None else len(self.copier.copies),
            "shadows": 0 if self.shadows is None else len(self.shadows.shadows),
            "taken_over": 0 if self.takeover is None else self.takeover.taken_over,
        }


__all__ = ["ClusterNode", "Peer"]
