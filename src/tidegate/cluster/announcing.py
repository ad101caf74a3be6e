"""What this node wants from others: told when it changes, and wholly when a link opens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidegate.broker.hooks import LINK_CLIENT
from tidegate.broker.index import Subscription
from tidegate.broker.session import Session
from tidegate.cluster import transfer, wire
from tidegate.cluster.interest import Interest, filter_text, is_shared_with_others
from tidegate.cluster.settings import Role

if TYPE_CHECKING:
    from tidegate.cluster.links import Peer
    from tidegate.cluster.membership import ClusterNode

EDGES = f"{LINK_CLIENT}{Role.EDGE.value}/"


class Announcer:
    """Follows the subscriptions of the node's index."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.interest = Interest()
        self._identifiers = itertools.cycle(range(1, 65_536))
        self._is_saying = False
        self._is_quiet = False
        self._wanted: dict[str, set[bytes]] = {}  # by link: filters that were named so far

    @property
    def is_settled(self) -> bool:
        """Whether others know, and said so."""
        peers = self._node.peers.values()
        return not self.interest.changed and not any(peer.unanswered for peer in peers)

    def on_subscription(self, subscription: Subscription, is_added: bool) -> None:
        if self._is_quiet:
            return
        node = self._node
        session = subscription.session
        # An edge wants what its clients want; a head, towards other heads, also what its edges want.
        if session.is_link and (node.role is Role.EDGE or not session.client_id.startswith(EDGES)):
            return
        if not is_shared_with_others(subscription.topic_filter):
            return
        self.interest.note(subscription, is_added)
        if self.interest.changed and not self._is_saying:
            self._is_saying = True
            node.core.loop.call_soon(self.announce_changes)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Within, subscriptions come and go without anybody being told."""
        self._is_quiet = True
        try:
            yield
        finally:
            self._is_quiet = False

    def announce_changes(self) -> None:
        self._is_saying = False
        changed, self.interest.changed = self.interest.changed, {}
        for peer in self._node.peers.values():
            if peer.role is Role.HEAD and peer.is_connected and self._is_told(peer):
                for packet in self.interest.packets(changed, self._identifiers):
                    self._send(peer, packet)

    def _is_told(self, peer: Peer) -> bool:
        """Heads that name each other have two links until they have said who they are: nothing is wanted twice."""
        return self._node.role is Role.EDGE or peer.is_greeted

    def announce_all(self, peer: Peer) -> None:
        """Everything, whatever the other may remember; then the list, so that it forgets what is not in it."""
        for packet in self.interest.packets(dict.fromkeys(self.interest, True), self._identifiers):
            self._send(peer, packet)
        is_first = True
        for part, is_last in transfer.name_parts(filter_text(key) for key in self.interest):
            content = {"filters": part, "is_first": is_first, "is_last": is_last}
            self._node.send(peer, wire.FILTERS, content)
            is_first = False

    def on_filters(self, session: Session, value: dict[str, Any]) -> bool:
        """A part of what the node at the other end wants; whether it was the last."""
        if value["is_first"]:
            self._wanted[session.client_id] = set()
        wanted = self._wanted.setdefault(session.client_id, set())
        wanted.update(name.encode() for name in value["filters"])
        if not value["is_last"]:
            return False
        del self._wanted[session.client_id]
        self.forget(session, wanted)
        return True

    @staticmethod
    def _send(peer: Peer, packet: bytes) -> None:
        peer.unanswered += 1
        peer.session.write(packet)

    def forget(self, session: Session, wanted: set[bytes]) -> None:
        """The node at the other end named all it wants. What sessions on their way to it want it may not know yet."""
        keeps = self._node.handover.keeps
        gone = [name for name in session.subscriptions if name not in wanted and not keeps(session, name)]
        for name in gone:
            subscription = session.unsubscribe(name)
            assert subscription is not None
            self._node.core.index.remove(subscription)
            if session.durable is not None:
                session.durable.store.save_subscription(session, name, None)
