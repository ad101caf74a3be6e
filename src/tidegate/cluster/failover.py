"""Heads that die and come back: edges go to the next one, and what the first still had follows them.

An edge is with one head at a time. The head it comes to learns from it what it wants and which sessions it has. When a
head returns and its edges are with another, it hands on what it owes them, and the sessions that were on their way
through it. Messages that were in flight on a link when its head died may come twice.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidegate.cluster import transfer
from tidegate.cluster.head_moves import AT_TARGET, Moving
from tidegate.cluster.moves import MOVING, TAIL, Moves, load_all
from tidegate.cluster.settings import Role
from tidegate.mqtt.topics import matches

if TYPE_CHECKING:
    from tidegate.cluster.links import Peer
    from tidegate.cluster.membership import ClusterNode

log = logging.getLogger("tidegate.cluster")

KEPT_SECONDS: Final = 60.0  # what waits for a head that is gone is kept so long for its edges, should they come here


class Failover(Moves):
    """A head's part."""

    def __init__(self, node: ClusterNode) -> None:
        super().__init__(node)
        self._said: list[str] = []
        self.inherited = 0

    # -- the head that goes on ------------------------------------------------------------------------------

    def look(self) -> None:
        """Tell other heads who is here, and want nothing more for heads that do not come back."""
        node = self._node
        names = sorted(p.name for p in node.peers.values() if p.role is Role.EDGE and p.is_connected)
        if names != self._said:
            self._said = names
            for peer in self._heads():
                self._tell(peer)
        limit = node.core.now() - node.settings.takeover
        for peer in self._heads():
            if peer.lost_at is None or peer.lost_at >= limit:
                continue
            if peer.session.subscriptions:
                log.warning("head gone: nothing more is kept for it", extra={"node": peer.name})
                node.announcer.forget(peer.session, set())
            if peer.lost_at < node.core.now() - KEPT_SECONDS and peer.session.queued_messages:
                node.core.spawn(self._empty(peer))

    async def _empty(self, head: Peer) -> None:
        await load_all(head.session)
        if not head.is_connected:
            transfer.empty(head.session)

    def on_link(self, peer: Peer) -> None:
        if peer.role is Role.HEAD:
            self._tell(peer)

    def _heads(self) -> list[Peer]:
        return [peer for peer in self._node.peers.values() if peer.role is Role.HEAD]

    def _tell(self, peer: Peer) -> None:
        if peer.is_connected:
            self._node.send(peer, "edges", {"edges": self._said})

    def on_newcomer(self, edge: Peer) -> None:
        """An edge that was with another head has said what it wants: what waits here for that head is for it, too."""
        filters = [
            each.topic_filter.decode() for each in edge.session.subscriptions.values() if not each.share
        ]
        for head in self._heads():
            if not head.is_connected:
                self._node.core.spawn(self._share(head, edge, filters))

    async def _share(self, head: Peer, edge: Peer, filters: list[str]) -> None:
        await load_all(head.session)
        if not head.is_connected and self._node.peers.get(edge.session.client_id) is edge:
            for message, qos, retain, identifiers, _ in transfer.deliveries(head.session):
                topic = message.topic.decode(errors="replace")
                if not topic.startswith("$") and any(matches(each, topic) for each in filters):
                    edge.session.deliver(message, qos, retain, identifiers)
                    self.inherited += 1

    def on_inherit(self, peer: Peer, value: dict[str, Any]) -> None:
        """Another head had this for an edge that is here."""
        edge = self._node.named(str(value["edge"]))
        if edge is None:
            log.error("messages for an edge that is not here", extra={"edge": value["edge"]})
            return
        now = self._node.core.now()
        for row in value["rows"]:
            edge.session.deliver(*transfer.delivery_of(row, now)[:4])
            self.inherited += 1

    def on_stray(self, peer: Peer, value: dict[str, Any]) -> None:
        """A session was on its way through another head: to who has it, or to an edge that takes it."""
        node = self._node
        handover = node.handover
        client = value["client"]
        owner = node.named(handover.owners.get(client, ""))
        if owner is not None:
            node.send(owner, "append", value | {"is_last": True})
            return
        target = next((p for p in node.peers.values() if p.role is Role.EDGE and p.is_connected), None)
        if target is None or client in handover.moving or not value["about"]:
            log.error("session without a place", extra={"client": client})
            return
        handover.carry_on(
            Moving(client=client, source="", target=target.name, about=value["about"]), value["rows"]
        )

    # -- the head that is back ------------------------------------------------------------------------------

    def on_edges(self, peer: Peer, value: dict[str, Any]) -> None:
        """Another head has these edges."""
        node = self._node
        for name in value["edges"]:
            edge = node.named(str(name))
            if edge is None or edge.is_connected or edge.role is not Role.EDGE:
                continue
            node.core.spawn(self._hand_on(peer, edge))
        if value["edges"]:
            for move in list(node.handover.moving.values()):
                self._hand_on_session(peer, move, set(value["edges"]))

    async def _hand_on(self, head: Peer, edge: Peer) -> None:
        await load_all(edge.session)
        node = self._node
        if edge.is_connected or node.peers.get(edge.session.client_id) is not edge:
            return
        now = node.core.now()
        rows = [
            transfer.row(0, delivery, now) for delivery in transfer.deliveries(edge.session) if delivery[1]
        ]
        for part, _ in transfer.marked(transfer.parts(iter(rows))):
            if part:
                node.send(head, "inherit", {"edge": edge.name, "rows": part})
        # In the same turn as the last part: one commit.
        node.core.end_session(edge.session)
        del node.peers[edge.session.client_id]
        node.reporter.forget(edge.name)
        if node.balancer is not None:
            node.balancer.forget(edge.name)
        log.info("edge handed on", extra={"node": edge.name, "head": head.name, "messages": len(rows)})

    def _hand_on_session(self, head: Peer, move: Moving, edges: set[str]) -> None:
        """What was collected for a session on its way. Before its tail came the old edge still has it all."""
        handover = self._node.handover
        if not {move.source, move.target} & edges:
            return
        del handover.moving[move.client]
        if move.step == "complete" or move.step in AT_TARGET:
            names = (TAIL + move.client, MOVING + move.client)
            self._when_loaded(names, partial(self._send_stray, head, move))
        else:
            handover.end(move)

    def _send_stray(self, head: Peer, move: Moving) -> None:
        node = self._node
        now = node.core.now()
        rows = self._take_parts(move.client)
        if move.session is not None:
            rows += transfer.contents(move.session, now)
        rows = [[0, *row[1:]] for row in rows if row[1] != transfer.RELEASE]
        about = move.about if move.step == "complete" else {}
        for part, _ in transfer.marked(transfer.parts(iter(rows))):
            node.send(head, "stray", {"client": move.client, "rows": part, "about": about})
            about = {}
        node.handover.end(move)
