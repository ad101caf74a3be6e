"""How the nodes are: each tells its head every interval, and the head tells everybody."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from tidegate.broker.handing_on import ESTATE
from tidegate.broker.message import Message
from tidegate.cluster import wire
from tidegate.cluster.agent import SAMPLED, EdgeAgent, plain
from tidegate.cluster.settings import Role
from tidegate.flow.load_report import LOAD_TOPIC, LoadReport

if TYPE_CHECKING:
    from tidegate.cluster.links import Peer
    from tidegate.cluster.membership import ClusterNode

log = logging.getLogger("tidegate.cluster")

NODES_OWN: Final = ("$", ESTATE)  # names of sessions that are no client's begin so


class Reporter:
    """`nodes`: the cluster as an edge's head sees it; on a head itself, and the edges that are linked with it."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.nodes: dict[str, dict[str, Any]] = {}
        self._parts: dict[str, dict[str, dict[str, Any]]] = {}  # by other head: what it says of its side
        self._said: dict[bytes, bytes] = {}
        self._shown: set[str] = set()  # nodes that this head has said something about

    def state(self) -> dict[str, Any]:
        """What the cluster is told about this node."""
        node = self._node
        core = node.core
        clients = sum(not conn.listener.is_link for conn in core.connections)
        own = [session for name, session in core.sessions.items() if name.startswith(NODES_OWN)]
        return {
            "name": node.name,
            "role": node.role.value,
            "address": node.address(),
            "pid": os.getpid(),
            "clients": clients,
            "sessions": len(core.sessions) - len(own),
            "subscriptions": max(0, core.index.count - sum(len(session.subscriptions) for session in own)),
            "queued_messages": core.counters.queued_messages,
            "published": core.counters.publish_received,
            "sent": core.counters.publish_sent,
            "load": core.load()["state"],
            "sessions_came": node.handover.came,
            "sessions_left": node.handover.left,
        }

    async def run(self) -> None:
        node = self._node
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            await asyncio.sleep(node.settings.interval)
            now = loop.time()
            elapsed, looked_at = now - looked_at, now  # rates are by the clock: a busy node looks late
            try:
                self._tell(elapsed)
                node.look(elapsed)
            except Exception:
                log.exception("unexpected error while looking at the cluster")

    def _tell(self, elapsed: float) -> None:
        node = self._node
        if node.role is Role.EDGE:
            if node.agent is not None:
                node.agent.look(elapsed)
            for peer in node.peers.values():
                if peer.is_connected:
                    self._report(peer, elapsed)
        else:
            self.say_nodes()

    def _report(self, peer: Peer, elapsed: float) -> None:
        node = self._node
        state = self.state()
        if node.agent is not None and node.agent.is_counting:
            self._measure_delays(node.agent, peer)
            state["view"] = plain(node.agent.view(elapsed))
        node.send(peer, wire.STATE, state)
        self._report_groups(peer)

    def _measure_delays(self, agent: EdgeAgent, peer: Peer) -> None:
        conn = peer.session.conn
        agent.link_delay = 0.0 if conn is None else conn.round_trip() / 2
        agent.publisher_delay = max(
            (float(node.get("publisher_delay", 0.0)) for node in self.nodes.values()), default=0.0
        )

    def _publisher_delay(self) -> float:
        """Seconds from the slowest of some clients to this node."""
        clients = itertools.islice(
            (c for c in self._node.core.connections if not c.listener.is_link), SAMPLED
        )
        return max((conn.round_trip() / 2 for conn in clients), default=0.0)

    def _report_groups(self, peer: Peer) -> None:
        """The load of our members of groups, as one: the head compares edges by it."""
        core = self._node.core
        loads = [
            session.load
            for session in core.sessions.values()
            if session.load is not None and session.conn is not None
        ]
        if loads and core.index.groups:
            waiting = sum(load.outstanding for load in loads)
            service = sum(load.service for load in loads) / len(loads) / len(loads)
            report = LoadReport(queue_length=int(waiting), processing_time=service)
            peer.session.deliver(Message(LOAD_TOPIC.encode(), report.encode_value().encode()), 0)

    def say_nodes(self) -> None:
        """A head puts the cluster together, says so in $SYS, and tells its edges; other heads get its part of it."""
        node = self._node
        self.nodes[node.name] = self.state() | {"linked": True}
        self.nodes[node.name]["publisher_delay"] = round(self._publisher_delay(), 4)
        for peer in node.peers.values():
            if peer.state is not None:
                self.nodes[peer.name] |= {"linked": peer.is_connected, "head": node.name}
                if node.balancer is not None:
                    self.nodes[peer.name]["drain"] = node.balancer.drain_state(peer.name)
        everything = self._everything()
        edges = {peer.name for peer in node.peers.values() if peer.role is Role.EDGE}
        self.nodes[node.name]["nodes"] = len(
            edges | everything.keys()
        )  # whoever counts knows when all are there
        for name, value in everything.items():
            self.say(name, value)
        for name in self._shown - everything.keys():
            self._unsay(name)
        self._shown = set(everything)
        for peer in node.peers.values():
            if peer.is_connected and (peer.role is Role.EDGE or peer.is_greeted):
                node.send(peer, wire.NODES, everything if peer.role is Role.EDGE else self.nodes)

    def _everything(self) -> dict[str, dict[str, Any]]:
        """This head's part of the cluster and those of others; an edge is where it is linked."""
        node = self._node
        parts = []
        for head, part in self._parts.items():
            peer = node.named(head)
            is_there = peer is not None and peer.is_connected
            parts.append(
                part if is_there else {name: each | {"linked": False} for name, each in part.items()}
            )
        found: dict[str, dict[str, Any]] = {}
        for part in (*parts, self.nodes):
            for name, value in part.items():
                if name not in found or value["linked"] or not found[name]["linked"]:
                    found[name] = value
        return found

    def forget(self, name: str) -> None:
        """The node is no longer part of the cluster."""
        self.nodes.pop(name, None)
        self._unsay(name)

    def _unsay(self, name: str) -> None:
        topic = f"$SYS/cluster/{name}".encode()
        self._said.pop(topic, None)
        self._node.core.publish(Message(topic, b"", 0, True))

    def on_state(self, peer: Peer, value: dict[str, Any]) -> None:
        peer.state = value
        shown = {key: each for key, each in value.items() if key != "view"}
        self.nodes[peer.name] = shown | {"role": peer.role.value, "address": peer.address, "linked": True}

    def on_nodes(self, peer: Peer, value: dict[str, Any]) -> None:
        """A head says how the cluster is; to another head it says its own part."""
        if self._node.role is Role.HEAD:
            self._parts[peer.name] = value
            return
        self.nodes = value
        self.say("nodes", value)

    def say(self, name: str, value: dict[str, Any]) -> None:
        topic = f"$SYS/cluster/{name}".encode()
        payload = json.dumps(value, sort_keys=True).encode()
        if self._said.get(topic) != payload:
            self._said[topic] = payload
            self._node.core.publish(Message(topic, payload, 0, True))
