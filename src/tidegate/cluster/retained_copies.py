"""Retained messages are on every node: a head puts them in order and passes them on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidegate.broker.message import Message
from tidegate.cluster import wire
from tidegate.cluster.settings import Role

if TYPE_CHECKING:
    from tidegate.cluster.links import Peer
    from tidegate.cluster.membership import ClusterNode

PER_TURN = 200


class RetainedCopies:
    """Follows the node's store of retained messages."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._is_from_head = False  # a message that another head has put in order

    def on_change(self, topic: bytes, old: Message | None, new: Message | None) -> None:
        node = self._node
        if node.role is not Role.HEAD or topic.startswith(b"$"):
            return
        for peer in node.peers.values():
            # All heads are joined: what came from one is not for another.
            if peer.role is Role.EDGE or not self._is_from_head:
                peer.session.deliver(_wrap(topic, new), 1)

    async def send_all(self, peer: Peer) -> None:
        """All there is, in parts; what changes meanwhile goes its own way, behind."""
        retained = self._node.core.retained
        for number, message in enumerate(list(retained.match(b"#"))):
            if retained.get(message.topic) is message:
                peer.session.deliver(_wrap(message.topic, message), 1)
            if number % PER_TURN == PER_TURN - 1:
                await asyncio.sleep(0)
            if not peer.is_connected:
                return

    def keep(self, message: Message) -> None:
        """What another node says is retained."""
        qos, _, topic = message.topic[len(wire.RETAINED) :].partition(b"/")
        if not topic or qos not in (b"0", b"1", b"2"):
            return
        kept = Message(topic, message.payload, int(qos), True, message.properties, message.expires)
        self._is_from_head = True
        try:
            self._node.core.retained.keep(kept)
        finally:
            self._is_from_head = False


def _wrap(topic: bytes, message: Message | None) -> Message:
    """A retained message, or its removal, for another node's store alone."""
    qos = message.qos if message is not None else 0
    payload = message.payload if message is not None else b""
    properties = message.properties if message is not None else b""
    expires = message.expires if message is not None else None
    return Message(wire.RETAINED + b"%d/" % qos + topic, payload, 1, False, properties, expires)
