"""A node as part of its cluster: what is attached to a broker's core when it has a role.

Rules. A message goes at most once over each link. Edges send all that their clients publish to their head; a head sends
an edge what it subscribed to, and another head what its side of the cluster subscribed to. What came from a node does
not go back to it; what came from a head goes to no other head, since all heads are joined. The head alone chooses
members of shared subscriptions: to it an edge is one member of each group that it has members of, and the edge chooses
among its own. Retained messages are on every node.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.broker.hooks import LINK_CLIENT, OPERATOR_TOPIC, ConnectRequest
from tidegate.broker.index import Route, Subscription
from tidegate.broker.listener import Listener
from tidegate.broker.message import Message
from tidegate.broker.reasons import CloseReason
from tidegate.broker.session import NEVER, Session
from tidegate.cluster import wire
from tidegate.cluster.agent import BUDGET_PROPERTY, SAMPLED, EdgeAgent, plain
from tidegate.cluster.balancer import Balancer
from tidegate.cluster.dialer import KEEP_ALIVE, Backoff, LinkRefused, open_link
from tidegate.cluster.handover import Handover
from tidegate.cluster.interest import Interest, filter_text, is_shared_with_others
from tidegate.cluster.settings import ClusterSettings, Role, parse_budgets
from tidegate.flow.load_report import LOAD_TOPIC, LoadReport
from tidegate.mqtt.packets import Packet, Pingresp, Suback, Subscribe, Unsuback
from tidegate.mqtt.properties import Property
from tidegate.mqtt.topics import matches
from tidegate.net.addresses import Endpoint, parse_address
from tidegate.net.errors import NetError

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core

log = logging.getLogger("tidegate.cluster")

RETAINED_PER_TURN = 200
PINGREQ = b"\xc0\x00"
MAX_LISTED_FILTERS = 20_000


@dataclass(slots=True, kw_only=True)
class Peer:
    """Another node, as known here."""

    name: str
    role: Role
    session: Session
    address: str = ""
    state: dict[str, Any] | None = None
    unanswered: int = 0  # SUBSCRIBE and UNSUBSCRIBE that the other has not acknowledged

    @property
    def is_connected(self) -> bool:
        return self.session.conn is not None


class ClusterNode:
    """Implements `broker.hooks.Cluster`, sees sessions come and go. `address`: where clients reach this node."""

    def __init__(self, name: str, settings: ClusterSettings, address: Callable[[], str]) -> None:
        self.name = name
        self.settings = settings
        self.role = settings.role
        self._address = address
        self.interest = Interest()
        self.peers: dict[str, Peer] = {}
        self.nodes: dict[str, dict[str, Any]] = {}  # the cluster, as this node or its head sees it
        self._core: Core | None = None
        self._dialled = Listener(name="link", is_link=True)
        self._identifiers = itertools.cycle(range(1, 65_536))
        self._tasks: list[asyncio.Task[None]] = []
        self._is_saying = False
        self._said: dict[bytes, bytes] = {}
        self._lost: dict[str, asyncio.Event] = {}  # of links that this node dialled
        self._is_quiet = False
        self._is_from_head = False  # a retained message that another head has put in order
        self.handover = Handover(self)
        self.balancer = Balancer(self) if self.role is Role.HEAD else None
        self.agent: EdgeAgent | None = None

    # -- life -----------------------------------------------------------------------------------------------

    @property
    def core(self) -> Core:
        assert self._core is not None
        return self._core

    def attach(self, core: Core) -> None:
        """Before anything is restored: from now on every subscription is seen."""
        self._core = core
        core.cluster = self
        core.session_observers = (*core.session_observers, self)
        core.index.on_change = self._on_subscription
        core.index.has_far_groups = self.role is Role.EDGE
        core.retained.watchers.append(self._on_retained)
        settings = self.settings
        if self.role is Role.EDGE and settings.uplink:
            self.agent = EdgeAgent(
                core,
                self.name,
                uplink=settings.uplink,
                downlink=settings.downlink,
                budget=settings.budget,
                budgets=dict(parse_budgets(settings.budgets)),
            )
            core.publish_observers = (*core.publish_observers, self.agent)

    def restored(self) -> None:
        self.handover.restored()

    def start(self) -> None:
        """The node is up: dial the heads, and tell the cluster every interval how this node is."""
        core = self.core
        for session in list(core.sessions.values()):
            if session.client_id.startswith(LINK_CLIENT) and self.role is Role.HEAD:
                self._peer(session)
        heads = [parse_address(address) for address in self.settings.heads]
        if self.role is Role.EDGE:
            self._tasks.append(core.loop.create_task(self._keep_linked(heads, "head")))
        else:
            for endpoint in heads:
                self._tasks.append(core.loop.create_task(self._keep_linked([endpoint], str(endpoint))))
        self._tasks.append(core.loop.create_task(self._report()))
        self.handover.start()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    @property
    def is_linked(self) -> bool:
        """Whether this node has every link that it dials, and the other side knows what it wants."""
        peers = [peer for peer in self.peers.values() if peer.is_connected]
        needed = len(self.settings.heads) if self.role is Role.HEAD else 1
        dialled = [peer for peer in peers if peer.role is Role.HEAD]
        return len(dialled) >= needed and self.is_settled

    @property
    def is_settled(self) -> bool:
        return not self.interest.changed and not any(peer.unanswered for peer in self.peers.values())

    # -- links ----------------------------------------------------------------------------------------------

    async def _keep_linked(self, heads: list[Endpoint], label: str) -> None:
        """One link, to the first of these heads that answers; come back to it, or to the next, when it is lost."""
        core = self.core
        session = self._own_session(label)
        own_id = wire.client_id(self.role, self.name)
        backoff = Backoff(core.random)
        complaint = ""
        for endpoint in itertools.cycle(heads):
            try:
                conn, is_present = await open_link(
                    core, endpoint, self._dialled, session, own_id, self.settings.secret
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
            self._linked(conn, Peer(name=label, role=Role.HEAD, session=session))
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
        core = self.core
        client_id = f"{LINK_CLIENT}{Role.HEAD.value}/{label}"
        session, _ = core.open_session(client_id, clean_start=False)
        session.user = wire.LINK_USER
        session.expiry = NEVER
        session.version = 5
        if self.role is Role.EDGE and b"#" not in session.subscriptions:
            core.make_durable(session)
            everything = Subscription(session, b"#", 2, retain_as_published=True)
            session.subscriptions[b"#"] = everything
            core.index.add(everything)
            if session.durable is not None:
                session.durable.store.save_subscription(session, b"#", everything)
        return session

    def on_link(self, link: Connection, is_present: bool) -> None:
        """Another node dialled us."""
        peer = self._peer(link.session)
        log.info("node linked", extra={"node": peer.name, "role": peer.role.value, "resumed": is_present})
        self._linked(link, peer)

    def _peer(self, session: Session) -> Peer:
        role, name = wire.parse_client_id(session.client_id)
        known = self.peers.get(session.client_id)
        if known is None or known.session is not session:
            known = self.peers[session.client_id] = Peer(name=name, role=role, session=session)
        return known

    def _linked(self, link: Connection, peer: Peer) -> None:
        self.peers[link.session.client_id] = peer
        peer.unanswered = 0
        self.send(peer, wire.HELLO, {"name": self.name, "role": self.role.value, "address": self._address()})
        if self.role is Role.EDGE:
            self.send(peer, wire.STATE, self.state())
            self.handover.report(peer)
        if peer.role is Role.HEAD:
            self._announce_all(peer)
        if self.role is Role.HEAD:
            self.core.spawn(self._send_retained(peer))
            self._say_nodes()

    def send(self, peer: Peer, kind: str, value: dict[str, Any]) -> None:
        """Tell a node something; waits in its session while the link is away."""
        peer.session.deliver(wire.encode(kind, value), 1)

    def _send_packet(self, peer: Peer, packet: bytes) -> None:
        peer.unanswered += 1
        peer.session.write(packet)

    # -- who wants what -------------------------------------------------------------------------------------

    def _on_subscription(self, subscription: Subscription, is_added: bool) -> None:
        if self._is_quiet:
            return
        session = subscription.session
        is_node = session.client_id.startswith(LINK_CLIENT)
        # An edge wants what its clients want; a head, towards other heads, also what its edges want.
        if is_node and (self.role is Role.EDGE or not session.client_id.startswith(f"{LINK_CLIENT}edge/")):
            return
        if not is_shared_with_others(subscription.topic_filter):
            return
        self.interest.note(subscription, is_added)
        if self.interest.changed and not self._is_saying:
            self._is_saying = True
            self.core.loop.call_soon(self._announce_changes)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Within, subscriptions come and go without anybody being told."""
        self._is_quiet = True
        try:
            yield
        finally:
            self._is_quiet = False

    def forget(self, subscription: Subscription) -> None:
        """Tell now of a subscription that went quietly."""
        self._on_subscription(subscription, False)

    def _announce_changes(self) -> None:
        self._is_saying = False
        changed, self.interest.changed = self.interest.changed, {}
        for peer in self.peers.values():
            if peer.role is Role.HEAD and peer.is_connected:
                for packet in self.interest.packets(changed, self._identifiers):
                    self._send_packet(peer, packet)

    def _announce_all(self, peer: Peer) -> None:
        """Everything, whatever the other may remember; then the list, so that it forgets what is not in it."""
        for packet in self.interest.packets(dict.fromkeys(self.interest, True), self._identifiers):
            self._send_packet(peer, packet)
        if len(self.interest) <= MAX_LISTED_FILTERS:
            self.send(peer, wire.FILTERS, {"filters": [filter_text(key) for key in self.interest]})

    def _forget_filters(self, session: Session, wanted: set[bytes]) -> None:
        for name in [name for name in session.subscriptions if name not in wanted]:
            subscription = session.subscriptions.pop(name)
            self.core.index.remove(subscription)
            if session.durable is not None:
                session.durable.store.save_subscription(session, name, None)

    # -- the broker asks ------------------------------------------------------------------------------------

    def prepare(
        self, request: ConnectRequest, clean_start: bool, session: Session | None
    ) -> str | Awaitable[None] | None:
        if self.handover.is_leaving(request.client_id):
            return self.handover.refuse(request.client_id)
        if clean_start or session is not None or not request.client_id:
            return None
        if self.role is Role.HEAD:
            owner = self.handover.owners.get(request.client_id)
            peer = None if owner is None or request.version < 5 else self.named(owner)
            return peer.address if peer is not None and peer.is_connected and peer.address else None
        return self.handover.claim(request.client_id)

    def named(self, name: str) -> Peer | None:
        return next((peer for peer in self.peers.values() if peer.name == name), None)

    def sends_on(self, conn: Connection, packet: Subscribe) -> bool:
        if self.agent is not None:
            self._note_budget(self.agent, packet)
        return self.balancer is not None and self.balancer.sends_on(conn, packet)

    @staticmethod
    def _note_budget(agent: EdgeAgent, packet: Subscribe) -> None:
        for name, value in packet.properties.get(Property.USER_PROPERTY, ()):
            if name == BUDGET_PROPERTY:
                try:
                    seconds = float(value)
                except ValueError:
                    continue
                if 0.0 < seconds < math.inf:
                    for each in packet.subscriptions:
                        agent.ask(each.topic_filter, seconds)

    def keeps(self, session: Session, topic_filter: bytes) -> bool:
        return self.handover.keeps(session, topic_filter)

    def route(self, link: Connection, topic: bytes) -> Route:
        whole = self.core.index.route(topic)
        own = link.session
        is_from_head = own.client_id.startswith(f"{LINK_CLIENT}head/")
        heads = f"{LINK_CLIENT}head/"
        targets = [
            target
            for target in whole.targets
            if target.session is not own and not (is_from_head and target.session.client_id.startswith(heads))
        ]
        targets += self.handover.targets(own, topic.decode())
        # A message that another head sent is for our groups as well only if that head has none: it chose already.
        return Route(targets, () if is_from_head else whole.shared)

    def group_route(self, link: Connection, identifier: int) -> Route:
        key = self.interest.group(identifier)
        group = None if key is None else self.core.index.groups.get(key)
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
            return True
        return isinstance(packet, Pingresp)

    # -- retained messages ----------------------------------------------------------------------------------

    def _on_retained(self, topic: bytes, old: Message | None, new: Message | None) -> None:
        if self.role is not Role.HEAD or topic.startswith(b"$"):
            return
        for peer in self.peers.values():
            # All heads are joined: what came from one is not for another.
            if peer.role is Role.EDGE or not self._is_from_head:
                peer.session.deliver(_wrap(topic, new), 1)

    async def _send_retained(self, peer: Peer) -> None:
        """All there is, in parts; what changes meanwhile goes its own way, behind."""
        for number, message in enumerate(list(self.core.retained.match(b"#"))):
            current = self.core.retained.get(message.topic)
            if current is message:
                peer.session.deliver(_wrap(message.topic, message), 1)
            if number % RETAINED_PER_TURN == RETAINED_PER_TURN - 1:
                await asyncio.sleep(0)
            if not peer.is_connected:
                return

    def _keep_retained(self, message: Message) -> None:
        qos, _, topic = message.topic[len(wire.RETAINED) :].partition(b"/")
        if not topic or qos not in (b"0", b"1", b"2"):
            return
        kept = Message(topic, message.payload, int(qos), True, message.properties, message.expires)
        self._is_from_head = True
        try:
            self.core.retained.keep(kept)
        finally:
            self._is_from_head = False

    # -- what nodes tell each other -------------------------------------------------------------------------

    def on_message(self, link: Connection, message: Message) -> None:
        if message.topic.startswith(OPERATOR_TOPIC):
            self._operate(message)
            return
        if message.topic.startswith(wire.RETAINED):
            if link.session.client_id.startswith(f"{LINK_CLIENT}{Role.HEAD.value}/"):
                self._keep_retained(message)
            return
        kind, value = wire.decode(message)
        peer = self.peers.get(link.session.client_id)
        if peer is None:
            return
        handler = getattr(self, f"_on_{kind}", None) or getattr(self.handover, f"on_{kind}", None)
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
            if session.version < 5 or not session.expiry:
                stay += 1
                continue
            wanted.append((session.queued_messages, client_id, topic or filters[0]))
        wanted.sort()
        clients = [[client_id, name] for _, client_id, name in wanted[:limit]]
        self.send(peer, "picked", {"id": value.get("id"), "clients": clients, "stay": stay})

    def _on_picked(self, peer: Peer, value: dict[str, Any]) -> None:
        if self.balancer is not None:
            self.balancer.on_picked(peer, value)

    def _on_hello(self, peer: Peer, value: dict[str, Any]) -> None:
        peer.address = str(value.get("address", ""))
        if peer.role is Role.HEAD:
            peer.name = str(value.get("name", peer.name))

    def _on_filters(self, peer: Peer, value: dict[str, Any]) -> None:
        self._forget_filters(peer.session, {str(name).encode() for name in value.get("filters", ())})

    def _on_state(self, peer: Peer, value: dict[str, Any]) -> None:
        peer.state = value
        if self.balancer is not None:
            self.balancer.on_view(peer, value)
            value = {key: each for key, each in value.items() if key != "view"}
        self.nodes[peer.name] = value | {"role": peer.role.value, "address": peer.address, "linked": True}

    def _on_nodes(self, peer: Peer, value: dict[str, Any]) -> None:
        """The head says how the cluster is."""
        self.nodes = value
        self.say("nodes", value)

    # -- how this node is -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What the cluster is told about this node."""
        core = self.core
        clients = [conn for conn in core.connections if not conn.listener.is_link]
        return {
            "name": self.name,
            "role": self.role.value,
            "address": self._address(),
            "pid": os.getpid(),
            "clients": len(clients),
            "sessions": len(core.sessions),
            "subscriptions": core.index.count,
            "queued_messages": core.counters.queued_messages,
            "published": core.counters.publish_received,
            "sent": core.counters.publish_sent,
            "load": core.load()["state"],
        }

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self.settings.interval)
            if self.role is Role.EDGE:
                for peer in self.peers.values():
                    if peer.is_connected:
                        state = self.state()
                        if self.agent is not None:
                            self._measure_delays(self.agent, peer)
                            state["view"] = plain(self.agent.view(self.settings.interval))
                        self.send(peer, wire.STATE, state)
                        self._report_groups(peer)
            else:
                self._say_nodes()
                assert self.balancer is not None
                self.balancer.look()
                self.handover.look()

    def _measure_delays(self, agent: EdgeAgent, peer: Peer) -> None:
        conn = peer.session.conn
        agent.link_delay = 0.0 if conn is None else conn.round_trip() / 2
        agent.publisher_delay = max(
            (float(node.get("publisher_delay", 0.0)) for node in self.nodes.values()), default=0.0
        )

    def _publisher_delay(self) -> float:
        """Seconds from the slowest of some clients to this node."""
        clients = itertools.islice((c for c in self.core.connections if not c.listener.is_link), SAMPLED)
        return max((conn.round_trip() / 2 for conn in clients), default=0.0)

    def _report_groups(self, peer: Peer) -> None:
        """The load of our members of groups, as one: the head compares edges by it."""
        loads = [
            session.load
            for session in self.core.sessions.values()
            if session.load is not None and session.conn is not None
        ]
        if loads and self.core.index.groups:
            waiting = sum(load.outstanding for load in loads)
            service = sum(load.service for load in loads) / len(loads) / len(loads)
            report = LoadReport(queue_length=int(waiting), processing_time=service)
            peer.session.deliver(Message(LOAD_TOPIC.encode(), report.encode_value().encode()), 0)

    def _say_nodes(self) -> None:
        """A head puts the cluster together, says so in $SYS, and tells its edges."""
        self.nodes[self.name] = self.state() | {"linked": True}
        self.nodes[self.name]["publisher_delay"] = round(self._publisher_delay(), 4)
        edges = sum(peer.role is Role.EDGE for peer in self.peers.values())
        self.nodes[self.name]["nodes"] = 1 + edges  # whoever counts knows when all are there
        for peer in self.peers.values():
            if peer.state is not None:
                self.nodes[peer.name]["linked"] = peer.is_connected
        for name, value in self.nodes.items():
            self.say(name, value)
        for peer in self.peers.values():
            if peer.role is Role.EDGE and peer.is_connected:
                self.send(peer, wire.NODES, self.nodes)

    def say(self, name: str, value: dict[str, Any]) -> None:
        topic = f"$SYS/cluster/{name}".encode()
        payload = json.dumps(value, sort_keys=True).encode()
        if self._said.get(topic) != payload:
            self._said[topic] = payload
            self.core.publish(Message(topic, payload, 0, True))

    # -- sessions, as they come and go ----------------------------------------------------------------------

    def on_connected(self, client: Connection) -> None:
        if client.listener.is_link:
            return
        self._tell_heads("here", client.session.client_id)
        if self.role is Role.HEAD:
            self.handover.owners.pop(client.session.client_id, None)

    def _tell_heads(self, kind: str, client_id: str) -> None:
        if self.role is Role.EDGE:
            for peer in self.peers.values():
                if peer.is_connected:
                    self.send(peer, kind, {"client": client_id})

    def on_disconnected(self, client: Connection, reason: CloseReason) -> None:
        if not client.listener.is_link and client.session.expiry == 0 and reason is not CloseReason.MOVED:
            self._tell_heads("gone", client.session.client_id)
        if client.listener.is_link:
            lost = self._lost.get(client.session.client_id)
            if lost is not None:
                lost.set()
            peer = self.peers.get(client.session.client_id)
            if peer is not None:
                peer.unanswered = 0
                log.warning("node gone", extra={"node": peer.name, "why": str(reason)})

    def on_subscribed(self, session: Session, subscription: Subscription) -> None:
        """The index tells."""

    def on_unsubscribed(self, session: Session, subscription: Subscription) -> None:
        """The index tells."""

    def statistics(self) -> dict[str, Any]:
        return ({} if self.balancer is None else self.balancer.statistics()) | {
            "role": self.role.value,
            "moved": self.handover.moved,
            "filters": len(self.interest),
            "links": {
                peer.name: {
                    "is_connected": peer.is_connected,
                    "inflight": len(peer.session.inflight),
                    "queued": peer.session.queued_messages,
                    "dropped": peer.session.dropped,
                }
                for peer in self.peers.values()
            },
        }


def _wrap(topic: bytes, message: Message | None) -> Message:
    """A retained message, or its removal, for another node's store alone."""
    qos = message.qos if message is not None else 0
    payload = message.payload if message is not None else b""
    properties = message.properties if message is not None else b""
    expires = message.expires if message is not None else None
    return Message(wire.RETAINED + b"%d/" % qos + topic, payload, 1, False, properties, expires)


__all__ = ["ClusterNode", "Peer"]
