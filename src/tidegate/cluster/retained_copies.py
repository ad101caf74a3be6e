"""Retained messages are on every node: a head puts them in order and passes them on.

Between heads every change has a stamp, the time when a head took it, and the later one counts, also of removals. What a
head had on its disk when it started has none: then what is known of a later change counts, else what the head has that
was started first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from time import time
from typing import TYPE_CHECKING, Final

from tidegate.broker.message import Message
from tidegate.cluster import wire
from tidegate.cluster.settings import Role

if TYPE_CHECKING:
    from tidegate.cluster.links import Peer
    from tidegate.cluster.membership import ClusterNode

PER_TURN = 200
MAX_REMOVED: Final = 10_000  # removals that are remembered; the oldest is forgotten


class RetainedCopies:
    """Follows the node's store of retained messages."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._is_started = False
        self._coming: int | None = None  # stamp of a message that another head has put in order
        self._stamps: dict[bytes, int] = {}  # of what changed since the start
        self._removed: OrderedDict[bytes, int] = OrderedDict()

    def start(self) -> None:
        """All is restored: what changes from now on is new."""
        self._is_started = True

    def on_change(self, topic: bytes, old: Message | None, new: Message | None) -> None:
        node = self._node
        if node.role is not Role.HEAD or topic.startswith(b"$") or not self._is_started:
            return
        stamp = self._coming
        if stamp is None:
            stamp = max(int(time() * 1e6), self._stamp(topic) + 1)
        self._note(topic, stamp, new is not None)
        for peer in node.peers.values():
            # All heads are joined: what came from one is not for another.
            if peer.role is Role.EDGE or self._coming is None:
                peer.session.deliver(_wrap(topic, new, stamp), 1)

    def _stamp(self, topic: bytes) -> int:
        return self._stamps.get(topic, 0) or self._removed.get(topic, 0)

    def _note(self, topic: bytes, stamp: int, is_kept: bool) -> None:
        self._stamps.pop(topic, None)
        self._removed.pop(topic, None)
        if stamp and is_kept:
            self._stamps[topic] = stamp
        elif stamp:
            self._removed[topic] = stamp
            if len(self._removed) > MAX_REMOVED:
                self._removed.popitem(last=False)

    async def send_all(self, peer: Peer) -> None:
        """All there is, in parts; what changes meanwhile goes its own way, behind."""
        retained = self._node.core.retained
        for number, message in enumerate(list(retained.match(b"#"))):
            topic = message.topic
            if retained.get(topic) is message:
                peer.session.deliver(_wrap(topic, message, self._stamp(topic)), 1)
            if number % PER_TURN == PER_TURN - 1:
                await asyncio.sleep(0)
            if not peer.is_connected:
                return
        if peer.role is Role.HEAD:
            for topic, stamp in list(self._removed.items()):
                peer.session.deliver(_wrap(topic, None, stamp), 1)

    def keep(self, peer: Peer, message: Message) -> None:
        """What a head says is retained."""
        level, _, topic = message.topic[len(wire.RETAINED) :].partition(b"/")
        qos, _, text = level.partition(b"@")
        if not topic or qos not in (b"0", b"1", b"2") or not text.isdigit():
            return
        stamp = int(text)
        is_head = self._node.role is Role.HEAD
        if is_head and not self._is_later(peer, topic, stamp):
            return
        kept = Message(topic, message.payload, int(qos), True, message.properties, message.expires)
        self._coming = stamp
        try:
            self._node.core.retained.keep(kept)
        finally:
            self._coming = None
        if is_head:
            self._note(topic, stamp, bool(kept.payload))

    def _is_later(self, peer: Peer, topic: bytes, stamp: int) -> bool:
        """Whether another head knows better."""
        known = self._stamp(topic)
        if stamp or known:
            return stamp > known
        node = self._node
        is_elder = (peer.started, peer.name) < (node.started, node.name)
        return is_elder or node.core.retained.get(topic) is None


def _wrap(topic: bytes, message: Message | None, stamp: int) -> Message:
    """A retained message, or its removal, for another node's store alone."""
    qos = message.qos if message is not None else 0
    payload = message.payload if message is not None else b""
    properties = message.properties if message is not None else b""
    expires = message.expires if message is not None else None
    return Message(wire.RETAINED + b"%d@%d/" % (qos, stamp) + topic, payload, 1, False, properties, expires)
