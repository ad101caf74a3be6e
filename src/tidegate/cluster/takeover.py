"""The head's part in standby copies: who is whose standby, and what happens when an edge does not come back."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from tidegate.broker.hooks import LINK_TOPIC
from tidegate.broker.message import Message
from tidegate.cluster import transfer, wire
from tidegate.cluster.head_moves import AT_TARGET, BEFORE_TAIL, Moving
from tidegate.cluster.moves import load_all
from tidegate.cluster.settings import Replication, Role

if TYPE_CHECKING:
    from tidegate.cluster.links import Peer
    from tidegate.cluster.membership import ClusterNode

log = logging.getLogger("tidegate.cluster")

FALLEN: Final = b"$tide/fallen/"  # by edge: the clients whose sessions another has now; kept until it is back
SESSION_MESSAGES: Final = (LINK_TOPIC + b"install", LINK_TOPIC + b"append")


class Takeover:
    """`standbys`: for each edge the one that has its copies."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.standbys: dict[str, str] = {}
        self._boots: dict[str, str] = {}
        self._fallen: dict[str, set[str]] = {}
        self._adopted: dict[str, set[str]] = {}  # by fallen edge: what its standby has named so far
        self._passed_on: dict[str, set[str]] = {}  # by fallen edge: sessions that waited in its link
        self._loading: set[str] = set()
        self.taken_over = 0

    def restored(self) -> None:
        for message in self._node.core.retained.match(FALLEN + b"#"):
            name = message.topic[len(FALLEN) :].decode()
            try:
                self._fallen[name] = {str(client) for client in json.loads(message.payload)}
            except (ValueError, TypeError):
                log.exception("list of sessions makes no sense", extra={"node": name})

    @property
    def _is_on(self) -> bool:
        return self._node.settings.replication is Replication.STANDBY

    # -- who is whose standby -------------------------------------------------------------------------------

    def look(self) -> None:
        """Once an interval: every edge has a standby, and who is away for too long is replaced by it."""
        if not self._is_on:
            return
        now = self._node.core.now()
        limit = now - self._node.settings.takeover
        edges = [peer for peer in self._node.peers.values() if peer.role is Role.EDGE]
        for peer in edges:
            if not peer.is_connected and peer.lost_at is not None and peer.lost_at < limit:
                standby = self._node.named(self.standbys.get(peer.name, ""))
                if standby is not None and standby.is_connected and peer.name not in self._loading:
                    self._loading.add(peer.name)
                    self._node.core.spawn(self._load_and_take_over(peer, standby))
        alive = sorted(peer.name for peer in edges if peer.is_connected)
        away = {p.name for p in edges if not p.is_connected and (p.lost_at or 0.0) >= limit}
        for name in alive:
            if self.standbys.get(name, "") not in away | set(alive) - {name}:
                self._assign(name, next_in_ring(name, alive))

    def _assign(self, name: str, standby: str) -> None:
        if self.standbys.get(name, "") == standby:
            return
        self.standbys[name] = standby
        self._tell(name)

    def _tell(self, name: str) -> None:
        peer = self._node.named(name)
        if peer is not None:
            self._node.send(peer, "standby", {"node": self.standbys.get(name, "")})

    def on_boot(self, peer: Peer, boot: str) -> None:
        """A link to an edge opened. One that was started anew has none of the copies it had."""
        if not self._is_on:
            return
        is_new = self._boots.get(peer.name) != boot
        self._boots[peer.name] = boot
        self._tell(peer.name)
        if is_new:
            for owner, standby in self.standbys.items():
                owning = self._node.named(owner)
                if standby == peer.name and owning is not None:
                    self._node.send(owning, "standby", {"node": ""})
                    self._tell(owner)

    def on_copy(self, peer: Peer, value: dict[str, Any]) -> None:
        """From owner to standby and back. `opened` is the moment from which the standby collects by itself."""
        target = self._node.named(str(value.get("to", "")))
        if target is None:
            return
        self._node.send(target, "copy", value | {"from": peer.name})
        if value["what"] == "opened":
            self._node.send(peer, "copy", {"what": "mark", "client": value["client"], "from": target.name})

    # -- an edge is gone for good ---------------------------------------------------------------------------

    async def _load_and_take_over(self, fallen: Peer, standby: Peer) -> None:
        """What waits for the edge may be on disk only; it may be back before all of it is in memory."""
        try:
            await load_all(fallen.session)
        finally:
            self._loading.discard(fallen.name)
        is_known = self._node.peers.get(fallen.session.client_id) is fallen
        if is_known and not fallen.is_connected and standby.is_connected:
            self._take_over(fallen, standby)

    def _take_over(self, fallen: Peer, standby: Peer) -> None:
        node = self._node
        handover = node.handover
        name = fallen.name
        clients = [
            client
            for client, owner in handover.owners.items()
            if owner == name
            and (client not in handover.moving or handover.moving[client].step in BEFORE_TAIL)
        ]
        log.warning(
            "edge gone for good", extra={"node": name, "standby": standby.name, "sessions": len(clients)}
        )
        # A session that was on its way there is the standby's as well, wherever it was.
        coming = [
            move.client for move in handover.moving.values() if move.target == name and move.step in AT_TARGET
        ]
        for part, is_last in transfer.name_parts(clients + coming):
            node.send(standby, "adopt", {"owner": name, "clients": part, "is_last": is_last})
        self._fallen[name] = set(clients + coming)
        self._keep_fallen(name)
        passed_on = self._passed_on[name] = set()
        for message, *_ in transfer.deliveries(fallen.session):
            if message.topic in SESSION_MESSAGES:
                standby.session.deliver(message, 2)
                passed_on.add(wire.decode(message)[1].get("client", ""))
        for client in clients:
            handover.owners[client] = standby.name
        for move in list(handover.moving.values()):
            if move.target == name:
                handover.retarget(move, standby)
            if move.source == name and move.step in BEFORE_TAIL:
                handover.begin_again(move)
        node.core.end_session(fallen.session)
        del node.peers[fallen.session.client_id]
        self.standbys.pop(name, None)
        if node.balancer is not None:
            node.balancer.forget(name)
        node.reporter.forget(name)
        self.taken_over += 1

    def on_adopted(self, peer: Peer, value: dict[str, Any]) -> None:
        """The standby has these sessions now."""
        handover = self._node.handover
        adopted = self._adopted.setdefault(value["owner"], set())
        adopted.update(value["clients"])
        for client in value["clients"]:
            move = handover.moving.get(client)
            is_coming = move is not None and move.step in AT_TARGET and move.target == peer.name
            if is_coming or handover.owners.get(client, peer.name) in (peer.name, value["owner"]):
                handover.owners[client] = peer.name  # else it began anew elsewhere
            if move is not None and is_coming:
                handover.installed_otherwise(move, peer)
        if value["is_last"]:
            del self._adopted[value["owner"]]
            passed_on = self._passed_on.pop(value["owner"], set())
            for client in self._fallen.get(value["owner"], set()) - adopted:
                if handover.owners.get(client) == peer.name:
                    del handover.owners[client]  # there was no copy of it yet
                move = handover.moving.get(client)
                if move is not None and move.target == peer.name and client not in passed_on:
                    handover.install_again(move)

    def _keep_fallen(self, name: str) -> None:
        payload = json.dumps(sorted(self._fallen[name])).encode()
        self._node.core.retained.keep(Message(FALLEN + name.encode(), payload, 1, True))

    def is_stale(self, peer: Peer, client: str) -> bool:
        """Whether an edge that is back has a session which went on elsewhere meanwhile."""
        return client in self._fallen.get(peer.name, ())

    def is_adopted(self, client: str) -> bool:
        """Whether it is with a standby, or about to be."""
        return any(client in clients for clients in self._fallen.values())

    def on_back(self, peer: Peer) -> None:
        """It has named its sessions."""
        if self._fallen.pop(peer.name, None) is not None:
            self._node.core.retained.remove(FALLEN + peer.name.encode())


def next_in_ring(name: str, names: list[str]) -> str:
    """Who comes after a name in order, and after the last the first; empty if there is nobody else."""
    others = [each for each in names if each != name]
    return next((each for each in others if each > name), others[0] if others else "")


__all__ = ["Moving", "Takeover", "next_in_ring"]
