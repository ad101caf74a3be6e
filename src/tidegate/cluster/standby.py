"""Copies of persistent sessions on a second edge, so that they go on when the first is gone for good.

Theory of operation. The head names a standby B for each edge A. For every persistent session of A there is a shadow
at B: a session nobody connects to, with the same subscriptions, so the head sends B what it sends A, and the publisher
is acknowledged when both are on the head's disk. A tells B what its clients have acknowledged, and B takes that out.
The same message reaches A and B by different ways and has no number in common; it is known by its content. Of two
messages with the same topic, payload and properties it does not matter which one is taken out.

Beginning a copy. A says `open`; B makes the shadow and, once the head has acknowledged its subscriptions, says
`opened`. The head passes that on to A and says `mark` to B, both in one turn: what A got before is in the *base*, the
snapshot that A sends, what B collects after the mark is in the *shadow*. A subscription that changes begins a new copy;
the old one stays until the new base is complete.

Messages of shared subscriptions are sent to one edge alone: A passes them on to B (`add`) before it acknowledges them.

All this travels as `copy` messages through the head, in order, in persistent link sessions.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidegate.broker.session import NEVER, Session
from tidegate.broker.shared import Tag
from tidegate.cluster import transfer
from tidegate.cluster.moves import Moves, load_all

if TYPE_CHECKING:
    from tidegate.broker.message import Message
    from tidegate.broker.session import Delivery
    from tidegate.cluster.links import Peer
    from tidegate.cluster.membership import ClusterNode

log = logging.getLogger("tidegate.cluster")

SHADOW: Final = "$copy/"  # client identifier of what is collected at B, and
BASE: Final = "$base/"  # of what there was before
TRIM_SECONDS: Final = 0.05  # acknowledgements are gathered for so long
TRIM_COUNT: Final = 2_000  # or until there are so many of one session
MAX_CREDITS: Final = 65_536  # acknowledged at A before they came to B; more than can be in flight
SKIPPED_NUMBERS: Final = 32_768  # B numbers messages far from those that A may have in flight
ADOPTED_AT_ONCE: Final = 20


def digest(message: Message) -> str:
    """What a message is known by at both edges."""
    content = hashlib.blake2b(message.topic, digest_size=8)
    content.update(b"\0")
    content.update(message.payload)
    content.update(b"\0")
    content.update(message.properties)
    return content.hexdigest()


class Copy:
    """A session of this edge that another follows (a `broker.hooks.SessionCopy`)."""

    __slots__ = ("_copier", "base_seq", "is_complete", "session", "trims")

    def __init__(self, copier: Copier, session: Session) -> None:
        self._copier = copier
        self.session = session
        self.base_seq: int | None = None  # up to here messages are in the base; None: not known yet
        self.is_complete = False
        self.trims: list[str] = []

    def came(self, delivery: Delivery) -> None:
        if isinstance(delivery[3], Tag):
            self._copier.pass_on(self, delivery)

    def done(self, delivery: Delivery) -> None:
        # What was done before the base was made is not in it.
        is_known = self.is_complete or (self.base_seq is not None and delivery[4] > self.base_seq)
        if is_known or isinstance(delivery[3], Tag):
            self.trims.append(digest(delivery[0]))
            self._copier.trim_soon(self)


class Copier(Moves):
    """A's part: follows the sessions of this node. `target` is the standby, empty for none."""

    def __init__(self, node: ClusterNode) -> None:
        super().__init__(node)
        self.target = ""
        self.copies: dict[str, Copy] = {}
        self._trimmed: dict[str, Copy] = {}
        self._changed: set[Session] = set()
        self._is_trimming = False

    def on_standby(self, peer: Peer, value: dict[str, Any]) -> None:
        """The head says who has our copies."""
        name = str(value.get("node", ""))
        if name == self.target:
            return
        for client in list(self.copies):
            self.close(client)
        self.target = name
        self.look()

    def look(self) -> None:
        """Begin copies of sessions that have none, end those of sessions that are over."""
        sessions = self._node.core.sessions
        for client, copy in list(self.copies.items()):
            if sessions.get(client) is not copy.session or not copy.session.expiry:
                self.close(client)
        if self.target:
            for client, session in list(sessions.items()):
                if client not in self.copies and session.durable is not None and not client.startswith("$"):
                    self.open(session)

    def open(self, session: Session) -> None:
        """Begin a copy, or begin it anew because subscriptions changed."""
        if not self.target or session.durable is None or session.client_id.startswith("$"):
            return
        copy = self.copies[session.client_id] = Copy(self, session)
        session.durable.copy = copy
        self._say("open", session.client_id, about=transfer.about(session))

    def open_soon(self, session: Session) -> None:
        """Its subscriptions changed; more than one in a turn is one change."""
        if self.target and session not in self._changed:
            self._changed.add(session)
            self._node.core.loop.call_soon(self._open_changed)

    def _open_changed(self) -> None:
        changed, self._changed = self._changed, set()
        for session in changed:
            if self._node.core.sessions.get(session.client_id) is session:
                self.open(session)

    def begin_again(self) -> None:
        """This head knows nothing of what the one before it passed on."""
        for copy in self.copies.values():
            if copy.session.durable is not None:
                copy.session.durable.copy = None
        self.copies.clear()
        self.target = ""

    def close(self, client: str) -> None:
        """The session is over, or another node's."""
        copy = self.copies.pop(client, None)
        self._trimmed.pop(client, None)
        if copy is not None:
            if copy.session.durable is not None and copy.session.durable.copy is copy:
                copy.session.durable.copy = None
            self._say("close", client)

    def on_opened(self, client: str) -> None:
        """B collects from now on: send it what there is."""
        copy = self.copies.get(client)
        if copy is None or copy.session.durable is None:
            return
        copy.base_seq = copy.session.durable.next_seq - 1
        self._when_loaded((client,), lambda: self._send_base(copy))

    def _send_base(self, copy: Copy) -> None:
        session = copy.session
        client = session.client_id
        if self.copies.get(client) is not copy or session.durable is None or copy.base_seq is None:
            return
        session.settle_inflight()
        now = self._node.core.now()
        entries = [entry for entry in session.inflight.values() if len(entry) == 5]
        deliveries = [
            delivery
            for delivery in (*entries, *(session.pending or ()))
            if delivery[4] <= copy.base_seq and delivery[1] and not isinstance(delivery[3], Tag)
        ]
        rows = (transfer.row(0, delivery, now) for delivery in deliveries)
        for part, is_last in transfer.marked(transfer.parts(rows)):
            self._say("base", client, rows=part, is_last=is_last, next_seq=session.durable.next_seq)
        copy.is_complete = True

    def pass_on(self, copy: Copy, delivery: Delivery) -> None:
        message, qos, retain, _, _ = delivery
        row = transfer.row(0, (message, qos, retain, (), 0), self._node.core.now())
        self._say("add", copy.session.client_id, rows=[row])

    def trim_soon(self, copy: Copy) -> None:
        self._trimmed[copy.session.client_id] = copy
        if len(copy.trims) >= TRIM_COUNT:
            self.trim()
        elif not self._is_trimming:
            self._is_trimming = True
            self._node.core.loop.call_later(TRIM_SECONDS, self.trim)

    def trim(self) -> None:
        self._is_trimming = False
        trimmed, self._trimmed = self._trimmed, {}
        for client, copy in trimmed.items():
            if self.copies.get(client) is copy and copy.session.durable is not None:
                self._say("trim", client, digests=copy.trims, next_seq=copy.session.durable.next_seq)
            copy.trims = []

    def _say(self, what: str, client: str, **content: Any) -> None:
        for peer in self._node.peers.values():
            self._node.send(peer, "copy", {"to": self.target, "what": what, "client": client, **content})


@dataclass(slots=True, kw_only=True)
class Shadow:
    """A copy of another edge's session. `credits`: taken out at the owner, and still to be taken out here."""

    owner: str
    about: dict[str, Any]
    next_seq: int = 1
    mark: int = 0  # up to here the shadow's messages are in the base that is to come
    is_opened: bool = False
    new_base: list[list[Any]] | None = None
    credits: Counter[str] = field(default_factory=Counter)


class Shadows(Moves):
    """B's part: the copies of other edges' sessions, by client."""

    def __init__(self, node: ClusterNode) -> None:
        super().__init__(node)
        self.shadows: dict[str, Shadow] = {}
        self._opening: set[str] = set()
        self._wanted: dict[str, set[str]] = {}  # by owner: what was named so far of what is left to this node
        self._adopting: dict[str, asyncio.Future[None]] = {}  # copies on their way to be sessions

    def restored(self) -> None:
        """After a restart nobody knows what owners took out meanwhile: they copy anew when their head says so."""
        for client in [name for name in self._node.core.sessions if name.startswith((SHADOW, BASE))]:
            self._node.core.end_session(self._node.core.sessions[client])

    def on_copy(self, peer: Peer, value: dict[str, Any]) -> None:
        """Something from an owner, passed on by the head."""
        what, client, owner = value["what"], value["client"], value["from"]
        shadow = self.shadows.get(client)
        if what == "open":
            self._open(client, owner, value["about"])
        elif shadow is not None and shadow.owner == owner:
            if what == "mark":
                session = self._session(SHADOW + client)
                shadow.mark = (
                    0 if session is None or session.durable is None else session.durable.next_seq - 1
                )
                shadow.new_base = []
            elif what == "base":
                self._take_base(client, shadow, value)
            elif what == "add":
                session = self._session(SHADOW + client)
                if session is not None:
                    transfer.fill(self._node.core, session, value["rows"])
            elif what == "trim":
                shadow.next_seq = max(shadow.next_seq, value["next_seq"])
                shadow.credits.update(value["digests"])
                self._sweep(client, shadow)
            elif what == "close":
                self._close(client)

    def _session(self, name: str) -> Session | None:
        return self._node.core.sessions.get(name)

    def _open(self, client: str, owner: str, about: dict[str, Any]) -> None:
        core = self._node.core
        known = self.shadows.get(client)
        session, is_present = core.open_session(SHADOW + client, clean_start=False)
        session.belong_to(about["user"])
        session.version = 5
        session.expiry = NEVER
        session.keeps_qos0 = False  # nobody would say that they are done
        if not is_present:
            core.make_durable(session)
        wanted = {row[0].encode() for row in about["subscriptions"]}
        for name in [name for name in session.subscriptions if name not in wanted]:
            gone = session.unsubscribe(name)
            assert gone is not None
            core.index.remove(gone)
        # Members of groups get their messages from the owner: here they would be members twice.
        rows = [row for row in about["subscriptions"] if not row[0].startswith("$share/")]
        for name, subscription in transfer.subscriptions_of(session, rows).items():
            session.subscribe(name, subscription)
            core.index.add(subscription)
        if known is None:
            known = self.shadows[client] = Shadow(owner=owner, about=about)
        known.owner, known.about, known.is_opened = owner, about, False
        self._opening.add(client)
        core.loop.call_soon(self.on_settled)

    def on_settled(self) -> None:
        """What this node wants is known to its head: copies that were begun are there from now on."""
        if not self._opening or not self._node.is_linked:
            return
        for client in sorted(self._opening):
            shadow = self.shadows.get(client)
            if shadow is not None:
                shadow.is_opened = True
                for peer in self._node.peers.values():
                    value = {"to": shadow.owner, "what": "opened", "client": client}
                    self._node.send(peer, "copy", value)
        self._opening.clear()

    def _take_base(self, client: str, shadow: Shadow, value: dict[str, Any]) -> None:
        if shadow.new_base is None:
            return
        shadow.new_base += value["rows"]
        if not value["is_last"]:
            return
        core = self._node.core
        rows, shadow.new_base = shadow.new_base, None
        shadow.next_seq = max(shadow.next_seq, value["next_seq"])
        base, _ = core.open_session(BASE + client, clean_start=True)
        base.expiry = NEVER
        core.make_durable(base)
        transfer.fill(core, base, rows)
        session = self._session(SHADOW + client)
        if session is not None:
            self._drop_until(session, shadow.mark)
        self._sweep(client, shadow)

    def _drop_until(self, session: Session, mark: int) -> None:
        """What came before the mark is in the base."""
        while session.pending and session.pending[0][4] <= mark:
            _pop(session)
        durable = session.durable
        if not session.pending and durable is not None and durable.tail and durable.tail_after < mark:

            async def go_on() -> None:
                await load_all(session)
                self._drop_until(session, mark)

            self._node.core.spawn(go_on())

    def _sweep(self, client: str, shadow: Shadow) -> None:
        """Take out what the owner's client has, as far as it is in front; the rest is taken out when it gets there."""
        for name in (BASE + client, SHADOW + client):
            session = self._session(name)
            if session is None:
                continue
            while session.pending and shadow.credits:
                key = digest(session.pending[0][0])
                if key not in shadow.credits:
                    return
                _pop(session)
                shadow.credits[key] -= 1
                if not shadow.credits[key]:
                    del shadow.credits[key]
            durable = session.durable
            if durable is not None and durable.tail and not session.pending:
                durable.load(session)
                return
        if len(shadow.credits) > MAX_CREDITS:
            shadow.credits.clear()

    def _close(self, client: str) -> None:
        self.shadows.pop(client, None)
        self._opening.discard(client)
        for name in (BASE + client, SHADOW + client):
            session = self._session(name)
            if session is not None:
                self._node.core.end_session(session)

    def forget(self, owner: str) -> None:
        """The owner has another standby, or none."""
        for client in [client for client, shadow in self.shadows.items() if shadow.owner == owner]:
            self._close(client)

    # -- the owner is gone ----------------------------------------------------------------------------------

    def on_adopt(self, peer: Peer, value: dict[str, Any]) -> None:
        """The owner is gone for good: its sessions are this node's now."""
        owner = str(value["owner"])
        wanted = self._wanted.setdefault(owner, set())
        wanted.update(value["clients"])
        if not value["is_last"]:
            return
        del self._wanted[owner]
        found = [client for client, shadow in self.shadows.items() if shadow.owner == owner]
        for client in found:
            if client not in wanted:
                self._close(client)
        kept = [client for client in found if client in wanted and client not in self._adopting]
        for client in kept:
            self._adopting[client] = self._node.core.loop.create_future()
        self._node.core.spawn(self._adopt_all(peer, owner, kept))

    def when_adopted(self, client: str, act: Callable[[], None]) -> None:
        """At once, unless the session is about to be this node's: whoever asks for it must not hear that there is
        none."""
        adopting = self._adopting.get(client)
        if adopting is None:
            act()
        else:
            adopting.add_done_callback(lambda _: act())

    async def adopted(self, client: str) -> bool:
        """Wait for a session that is about to be this node's; False if there is none such."""
        adopting = self._adopting.get(client)
        if adopting is not None:
            await asyncio.shield(adopting)
        return adopting is not None

    async def _adopt_all(self, peer: Peer, owner: str, clients: list[str]) -> None:
        turns = asyncio.Semaphore(ADOPTED_AT_ONCE)
        done = await asyncio.gather(
            *(self._adopt(peer, owner, client, turns) for client in clients), return_exceptions=True
        )
        failed = [result for result in done if isinstance(result, Exception)]
        for result in failed:
            log.error("a session was not adopted", exc_info=result, extra={"node": owner})
        count = len(clients) - len(failed)
        log.warning("sessions of another edge adopted", extra={"node": owner, "sessions": count})
        self._node.send(peer, "adopted", {"owner": owner, "clients": [], "is_last": True})

    async def _adopt(self, peer: Peer, owner: str, client: str, turns: asyncio.Semaphore) -> None:
        """Side by side with others: what was not yet on disk is there after the same commit for all.

        The head hears of it before anything that is done with the session here.
        """
        try:
            async with turns:
                await asyncio.sleep(0)  # others have their turn, also if nothing has to be loaded
                for name in (BASE + client, SHADOW + client):
                    session = self._session(name)
                    if session is not None:
                        await load_all(session)
                self._become(client)
                self._node.send(peer, "adopted", {"owner": owner, "clients": [client], "is_last": False})
        finally:
            self._adopting.pop(client).set_result(None)

    def _become(self, client: str) -> None:
        """The copy becomes the session."""
        core = self._node.core
        shadow = self.shadows[client]
        known = core.sessions.get(client)
        if known is None or not known.epoch:  # else the client began anew, here
            session = self.install(shadow.about, [], next_seq=shadow.next_seq + SKIPPED_NUMBERS)
            for message, qos, retain, identifiers, _ in self._left(client, shadow):
                session.deliver(message, qos, retain, identifiers)
        self._close(client)

    def _left(self, client: str, shadow: Shadow) -> Iterator[Delivery]:
        """What the owner's client has not got."""
        for name in (BASE + client, SHADOW + client):
            session = self._session(name)
            for delivery in (session.pending or ()) if session is not None else ():
                key = digest(delivery[0])
                if shadow.credits.get(key):
                    shadow.credits[key] -= 1
                elif delivery[1]:
                    yield delivery


def _pop(session: Session) -> None:
    pending = session.pending
    assert pending is not None
    delivery = pending.popleft()
    session.count_out(delivery[0].size_bytes)
    session.forget(delivery)
    if not pending:
        session.pending = None
    if session.is_full:
        session.check_room()


__all__ = ["BASE", "SHADOW", "Copier", "Copy", "Shadow", "Shadows", "digest"]
