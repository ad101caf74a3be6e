"""Retained messages are on every node: a head puts them in order and passes them on.

Between heads every change has a stamp, the time when a head took it, and the later one counts, also of removals. What a
head had on its disk when it started has none: then what is known of a later change counts, else what the head has that
was started first.

With the message goes who left it, as their rights are asked for when it is sent. An edge says who its client is before
the message goes to the head, unless the message before was by the same client.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from time import time
from typing import TYPE_CHECKING, Any, Final

from tidegate.broker.message import Author, Message
from tidegate.cluster import wire
from tidegate.cluster.settings import Role

if TYPE_CHECKING:
    from tidegate.cluster.links import Peer
    from tidegate.cluster.membership import ClusterNode

PER_TURN = 200
MAX_REMOVED: Final = 10_000  # removals that are remembered; the oldest is forgotten
MAX_NOTED: Final = 10_000  # authors of messages that are on their way, likewise
MAX_TOPIC: Final = 65_535 - 64  # bytes of a topic and its author, which travel in one topic
NOBODY: Final = Author("", "")  # in place of an author with a name too long to be passed on


class RetainedCopies:
    """Follows the node's store of retained messages."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._is_started = False
        self._coming: int | None = None  # stamp of a message that another head has put in order
        self._stamps: dict[bytes, int] = {}  # of what changed since the start
        self._removed: OrderedDict[bytes, int] = OrderedDict()
        self._noted: OrderedDict[bytes, Author] = OrderedDict()

    def start(self) -> None:
        """All is restored: what changes from now on is new."""
        self._is_started = True

    def on_change(self, topic: bytes, old: Message | None, new: Message | None) -> None:
        node = self._node
        if topic.startswith(b"$") or not self._is_started:
            return
        if node.role is not Role.HEAD:
            self._tell_author(old, new)
            return
        stamp = self._coming
        if stamp is None:
            stamp = max(int(time() * 1e6), self._stamp(topic) + 1)
        self._note(topic, stamp, new is not None)
        for peer in node.peers.values():
            # All heads are joined: what came from one is not for another.
            if peer.role is Role.EDGE or self._coming is None:
                peer.session.deliver(_wrap(topic, new, stamp), 1)

    def _tell_author(self, old: Message | None, new: Message | None) -> None:
        """A client of this edge left a message, which goes to the head next."""
        if new is None or new.author is None or self._coming is not None:
            return
        if old is not None and old.author == new.author:
            return
        content = {"topic": new.topic.decode(), "author": _author_text(new)}
        for peer in self._node.peers.values():
            if peer.is_connected:
                self._node.send(peer, "author", content)

    def on_author(self, value: dict[str, Any]) -> None:
        self._noted[value["topic"].encode()] = _author(value["author"].encode()) or NOBODY
        if len(self._noted) > MAX_NOTED:
            self._noted.popitem(last=False)

    def author_of(self, topic: bytes) -> Author | None:
        """Of a message that comes by a link: as was said before it, or as of the one it replaces."""
        known = self._node.core.retained.get(topic)
        return self._noted.pop(topic, None) or (None if known is None else known.author)

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
        qos, _, rest = level.partition(b"@")
        text, _, author = rest.partition(b"@")
        if not topic or qos not in (b"0", b"1", b"2") or not text.isdigit():
            return
        stamp = int(text)
        is_head = self._node.role is Role.HEAD
        if is_head and not self._is_later(peer, topic, stamp):
            return
        kept = Message(topic, message.payload, int(qos), True, message.properties, message.expires)
        kept.author = _author(author)
        kept.publisher = peer.session.client_id  # a client's, which counts
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
    level = b"%d@%d" % (qos, stamp)
    if message is not None and message.author is not None:
        level += b"@" + _author_text(message).encode()
    return Message(wire.RETAINED + level + b"/" + topic, payload, 1, False, properties, expires)


def _author_text(message: Message) -> str:
    text = urlsafe_b64encode((message.author or NOBODY).to_text().encode())
    if len(text) + len(message.topic) > MAX_TOPIC:
        text = urlsafe_b64encode(NOBODY.to_text().encode())
    return text.decode()


def _author(text: bytes) -> Author | None:
    """None if there is none, as from an older node."""
    if not text:
        return None
    try:
        return Author.from_text(urlsafe_b64decode(text).decode())
    except (ValueError, TypeError, binascii.Error):
        return NOBODY
