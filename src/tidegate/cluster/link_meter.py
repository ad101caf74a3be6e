"""What passes over each link, from its connections' own counters: nothing is added to the way of a message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.broker.link_connection import LinkConnection
from tidegate.broker.tcp_info import TcpInfo, tcp_info
from tidegate.cluster.capacity import BITS, Sustained, is_kept_back

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
    _info: TcpInfo | None = None
    _rates: Sustained = field(default_factory=Sustained)

    @property
    def capacity(self) -> float:
        """Bits a second that the way to the other end carries; 0 while that is not known."""
        return self._rates.capacity

    def open(self, conn: Connection | None) -> None:
        self.read()
        self.opened += 1
        self._conn = conn if isinstance(conn, LinkConnection) else None
        self._seen = (0, 0, 0)
        self._info = None

    def look(self, interval: float) -> None:
        """Once an interval."""
        conn, before = self._conn, self._info
        self._info = None if conn is None else tcp_info(conn.transport)
        rate = None
        if before is not None and self._info is not None and is_kept_back(self._info, before, interval):
            rate = (self._info.acked - before.acked) * BITS / interval
        self._rates.add(rate)
        self.read()

    def read(self) -> None:
        """Add what has passed since the last look. Of a socket that is gone only the messages are known."""
        conn = self._conn
        if conn is None:
            return
        info = tcp_info(conn.transport)
        before = self._seen
        now = (conn.received, *before[1:]) if info is None else (conn.received, info.received, info.acked)
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

    def look(self, interval: float) -> None:
        """Once an interval, on the node's loop: others may read `statistics` from their threads."""
        for each in self.traffic.values():
            each.look(interval)

    def capacity(self, peer: Peer) -> float:
        """Bits a second to another node; 0 while that is not known."""
        known = self.traffic.get(peer.session.client_id)
        return 0.0 if known is None else known.capacity

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
