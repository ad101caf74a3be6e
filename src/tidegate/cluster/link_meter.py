"""What passes over each link, from its connections' own counters: nothing is added to the way of a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.broker.link_connection import LinkConnection

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.cluster.links import Peer


@dataclass(slots=True)
class Traffic:
    """Of one link since this node started: over all its connections, of which `_seen` is of the present one."""

    opened: int = 0
    messages: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    _conn: LinkConnection | None = None
    _seen: tuple[int, int, int] = (0, 0, 0)

    def open(self, conn: Connection | None) -> None:
        self.read()
        self.opened += 1
        self._conn = conn if isinstance(conn, LinkConnection) else None
        self._seen = (0, 0, 0)

    def read(self) -> None:
        """Add what has passed since the last look. Of a socket that is gone only the messages are known."""
        conn = self._conn
        if conn is None:
            return
        received, acked = conn.traffic()
        before = self._seen
        now = (conn.received, max(received, before[1]), max(acked, before[2]))
        self.messages += now[0] - before[0]
        self.bytes_received += now[1] - before[1]
        self.bytes_sent += now[2] - before[2]
        self._seen = now


class LinkMeter:
    """`traffic` by the client identifier of the link's session."""

    def __init__(self) -> None:
        self.traffic: dict[str, Traffic] = {}

    def on_link(self, peer: Peer) -> None:
        self.traffic.setdefault(peer.session.client_id, Traffic()).open(peer.session.conn)

    def look(self) -> None:
        """Once an interval, on the node's loop: others may read `statistics` from their threads."""
        for each in self.traffic.values():
            each.read()

    def statistics(self, peers: list[Peer]) -> dict[str, dict[str, Any]]:
        found = {}
        for peer in peers:
            each = self.traffic.get(peer.session.client_id) or Traffic()
            session = peer.session
            found[peer.name] = {
                "role": peer.role.value,
                "is_connected": peer.is_connected,
                "messages_received": each.messages,
                "bytes_received": each.bytes_received,
                "bytes_sent": each.bytes_sent,
                "inflight": len(session.inflight),
                "queued": session.queued_messages,
                "dropped": session.dropped,
                "reconnects": max(0, each.opened - 1),
            }
        return found
