"""Sessions move between nodes: nothing lost, nothing doubled, in order.

Theory of operation. The head is where all messages between nodes pass, so it is where a session's stream is cut. A move
from edge A to edge B takes two steps, each ordered by messages in the links, which keep their order:

1. **To the head.** A *freezes* the session (its subscriptions leave A's index, its client is not read), says `frozen`,
   and goes on to collect for it what the head had sent before. The head takes `frozen` as the moment: from then on it
   collects for the session itself, and says `cut`. What A got before `cut` and what the head got after `frozen` is
   everything, each once: what A's own clients published before `frozen` A has delivered, what they published after
   it comes to the head behind it. A sends what it has (`tail`); the head puts it before what it collected.
2. **To B.** The head sends what there is (`install`), takes the session out of its index and subscribes B's link to
   the session's filters, all in one turn: what comes later goes to B behind `install`. Only what B's own clients had
   sent before B knew is still missing: the head collects that until B says `installed`, and sends it on (`append`).

Then A is told to `release` the client: it is disconnected with 0x9C and the address of B. A client that comes to a
node by itself *claims* its session there, which is the same without the release. Messages are QoS 1 in persistent link
sessions; leaving a session and putting it into a link is one commit, so a crash finds it in exactly one place. What a
node must know to go on after a crash is kept as retained messages below `$tide/move/`, which no wildcard of a client
reaches, and in sessions whose identifiers begin with `$`: they are in the store with everything else.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidegate.broker.durable import RETRY
from tidegate.broker.hooks import LINK_CLIENT, SessionElsewhere
from tidegate.broker.index import Subscription, Target
from tidegate.broker.message import Message
from tidegate.broker.reasons import CloseReason
from tidegate.broker.session import NEVER, Session
from tidegate.cluster import transfer
from tidegate.cluster.settings import Role
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.properties import Property
from tidegate.mqtt.topics import matches

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.cluster.membership import ClusterNode, Peer

log = logging.getLogger("tidegate.cluster")

MOVING: Final = "$move/"  # client identifier, at the head, of a session on its way: what is collected for it
TAIL: Final = "$tail/"  # the same, at the head and at B, for parts of what it had
RECORD: Final = b"$tide/move/"  # what is under way, by client
OWNER_TIMEOUT: Final = (
    30.0  # seconds an edge may be away before its sessions are given up for clients that ask
)
CLAIM_TIMEOUT: Final = 5.0  # seconds a client waits for its session; then it is told to come again
LISTED: Final = 5_000  # sessions named in one message


@dataclass(slots=True, kw_only=True)
class Moving:
    """One move, at the head. `source` is empty for a session that was here."""

    client: str
    source: str
    target: str
    step: str = "freeze"
    since: float = 0.0
    session: Session | None = None
    about: dict[str, Any] = field(default_factory=dict)
    done: asyncio.Future[bool] | None = None


class Handover:
    """The part of a node that moves sessions; head and edges have the same class and play different parts."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.owners: dict[str, str] = {}  # at the head: which edge has the session of a client
        self.moving: dict[str, Moving] = {}
        self.moved = 0
        self._pledged: dict[tuple[str, bytes], int] = {}  # (link, filter): moves that need it
        self._frozen: dict[str, Session] = {}  # at A: still collecting
        self._leaving: dict[str, Connection] = {}  # at A: clients to be sent on
        self._claims: dict[str, asyncio.Future[None]] = {}

    # -- what routes need to know ---------------------------------------------------------------------------

    def targets(self, link: Session, topic: str) -> list[Target]:
        """Sessions on their way that get what comes by this link: at A from the head, at the head from B."""
        found = []
        for session in self._collecting(link):
            wanted = [
                each for each in session.subscriptions.values() if matches(each.topic_filter.decode(), topic)
            ]
            plain = tuple(each for each in wanted if not each.share)
            if plain:
                found.append(Target(session, plain))
        return found

    def _collecting(self, link: Session) -> list[Session]:
        if self._node.role is Role.EDGE:
            return list(self._frozen.values())
        return [
            move.session
            for move in self.moving.values()
            if move.step == "install" and move.session is not None and self._link(move.target) is link
        ]

    def keeps(self, session: Session, name: bytes) -> bool:
        return (session.client_id, name) in self._pledged

    def _link(self, name: str) -> Session | None:
        peer = self._peer(name)
        return None if peer is None else peer.session

    def _peer(self, name: str) -> Peer | None:
        return next((peer for peer in self._node.peers.values() if peer.name == name), None)

    # -- the head: begin ------------------------------------------------------------------------------------

    def move(self, client: str, target: str) -> asyncio.Future[bool]:
        """Move a session to an edge; the result is whether there was one. One move a client at a time."""
        loop = self._node.core.loop
        known = self.moving.get(client)
        if known is not None:
            if known.done is None:
                known.done = loop.create_future()
            return known.done
        now = self._node.core.now()
        source = self.owners.get(client, "")
        move = Moving(client=client, source=source, target=target, since=now, done=loop.create_future())
        assert move.done is not None
        self.moving[client] = move
        peer = self._peer(move.source)
        local = self._node.core.sessions.get(client)
        if peer is not None and move.source != target:
            self._note(move)
            self._node.send(peer, "freeze", {"client": client})
        elif local is not None:
            self._take_local(move, local)
        else:
            self._give_up(move)
        return move.done

    def _take_local(self, move: Moving, session: Session) -> None:
        """The session is the head's own: nothing has to be cut."""
        move.about = transfer.about(session)
        move.source = ""
        self._hush(session)
        self._open(move)
        self._node.core.spawn(self._take_local_contents(move, session))

    async def _take_local_contents(self, move: Moving, session: Session) -> None:
        await load_all(session)
        inbound = sorted(session.inbound or ())
        self._keep_part(move.client, list(transfer.contents(session, self._node.core.now())))
        conn = session.conn
        self._drop(session)
        if conn is not None:
            self._leaving[move.client] = conn
        self._when_loaded((TAIL + move.client, MOVING + move.client), partial(self._push, move, inbound))

    def _give_up(self, move: Moving) -> None:
        """There is nothing to move."""
        self.moving.pop(move.client, None)
        self._erase(move.client)
        peer = self._peer(move.target)
        if peer is not None:
            self._node.send(peer, "nothing", {"client": move.client})
        if move.done is not None and not move.done.done():
            move.done.set_result(False)

    # -- the head: collect ----------------------------------------------------------------------------------

    def on_frozen(self, peer: Peer, value: dict[str, Any]) -> None:
        move = self.moving.get(value["client"])
        if move is None or move.step != "freeze" or move.source != peer.name:
            if move is None and not value.get("is_gone"):
                self._node.send(peer, "thaw", {"client": value["client"]})
            return
        if value.get("is_gone"):
            self.owners.pop(move.client, None)
            self._give_up(move)
            return
        move.about = value["about"]
        self._open(move)
        self._node.send(peer, "cut", {"client": move.client})

    def _open(self, move: Moving) -> None:
        """From this moment on the head collects."""
        core = self._node.core
        session, _ = core.open_session(MOVING + move.client, clean_start=True)
        session.expiry = NEVER
        session.user = move.about["user"]
        core.make_durable(session)
        move.session = session
        move.step = "collect"
        self._subscribe(session, move.about["subscriptions"])
        self._note(move)

    def _subscribe(self, session: Session, rows: list[list[Any]]) -> None:
        core = self._node.core
        for name, subscription in transfer.subscriptions_of(session, rows).items():
            session.subscriptions[name] = subscription
            core.index.add(subscription)
            if session.durable is not None:
                session.durable.store.save_subscription(session, name, subscription)

    def on_tail(self, peer: Peer, value: dict[str, Any]) -> None:
        move = self.moving.get(value["client"])
        if move is None or move.step != "collect":
            return
        self._keep_part(move.client, value["rows"])
        if value["is_last"]:
            push = partial(self._push, move, value["inbound"])
            self._when_loaded((TAIL + move.client, MOVING + move.client), push)

    def _keep_part(self, client: str, rows: list[list[Any]]) -> None:
        """Put a part of a session by, on disk where there is one, until the last is there."""
        core = self._node.core
        session, is_present = core.open_session(TAIL + client, clean_start=False)
        if not is_present:
            session.expiry = NEVER
            core.make_durable(session)
        transfer.fill(core, session, rows)

    def _take_parts(self, client: str) -> list[list[Any]]:
        """All that was put by, which is then gone."""
        core = self._node.core
        session = core.sessions.get(TAIL + client)
        if session is None:
            return []
        rows = list(transfer.contents(session, core.now()))
        core.end_session(session)
        return rows

    def _when_loaded(self, names: tuple[str, ...], work: Callable[[], None]) -> None:
        """Do it at once if these sessions are in memory, or in the turn in which the last part of them is."""
        core = self._node.core
        sessions = [session for name in names if (session := core.sessions.get(name)) is not None]
        if not any(session.durable is not None and session.durable.tail for session in sessions):
            work()
            return

        async def load() -> None:
            while any(session.durable is not None and session.durable.tail for session in sessions):
                for session in sessions:
                    await load_all(session)
            work()

        core.spawn(load())

    # -- the head: hand on ----------------------------------------------------------------------------------

    def _push(self, move: Moving, inbound: list[int]) -> None:
        session = move.session
        peer = self._peer(move.target)
        assert session is not None
        if peer is None:
            log.error("no such node to move a session to", extra={"node": move.target, "client": move.client})
            return
        core = self._node.core
        rows = [*self._take_parts(move.client), *transfer.contents(session, core.now())]
        transfer.empty(session)
        for part, is_last in _marked(transfer.parts(iter(rows))):
            content = {"client": move.client, "rows": part, "is_last": is_last}
            if is_last:
                content |= {"about": move.about, "inbound": inbound}
            self._node.send(peer, "install", content)
        for subscription in session.subscriptions.values():
            core.index.remove(subscription)
        for name, subscription in transfer.subscriptions_of(
            peer.session, move.about["subscriptions"]
        ).items():
            self._pledge(peer.session, name, subscription)
        move.step = "install"
        self._note(move)
        core.index.forget_routes()

    def _pledge(self, link: Session, name: bytes, subscription: Subscription) -> None:
        """B's link gets what the session wants, before B has asked for it."""
        key = (link.client_id, name)
        self._pledged[key] = self._pledged.get(key, 0) + 1
        if name not in link.subscriptions:
            wanted = Subscription(
                link, subscription.topic_filter, 2, retain_as_published=True, share=subscription.share
            )
            if subscription.share:
                return  # a group is announced with its identifier, by B
            link.subscriptions[name] = wanted
            self._node.core.index.add(wanted)
            if link.durable is not None:
                link.durable.store.save_subscription(link, name, wanted)

    def on_installed(self, peer: Peer, value: dict[str, Any]) -> None:
        move = self.moving.get(value["client"])
        if move is None or move.step != "install" or move.target != peer.name:
            return
        self._when_loaded((MOVING + move.client,), partial(self._finish, move, peer))

    def _finish(self, move: Moving, peer: Peer) -> None:
        core = self._node.core
        assert move.session is not None
        del self.moving[move.client]
        rows = list(transfer.contents(move.session, core.now()))
        for part, is_last in _marked(transfer.parts(iter(rows))):
            self._node.send(peer, "append", {"client": move.client, "rows": part, "is_last": is_last})
        for name in list(move.session.subscriptions):
            key = (peer.session.client_id, name)
            self._pledged[key] = self._pledged.get(key, 1) - 1
            if not self._pledged[key]:
                del self._pledged[key]
        move.session.subscriptions = {}
        core.end_session(move.session)
        self._erase(move.client)
        core.index.forget_routes()
        self.owners[move.client] = peer.name
        self.moved += 1
        source = self._peer(move.source)
        if source is not None:
            self._node.send(source, "release", {"client": move.client, "address": peer.address})
        elif move.client in self._leaving:
            self._send_on(move.client, peer.address)
        if move.done is not None and not move.done.done():
            move.done.set_result(True)

    # -- the old edge ---------------------------------------------------------------------------------------

    def on_freeze(self, peer: Peer, value: dict[str, Any]) -> None:
        client = value["client"]
        session = self._node.core.sessions.get(client)
        if session is None:
            self._node.send(peer, "frozen", {"client": client, "is_gone": True})
            return
        about = transfer.about(session)
        self._hush(session)
        self._frozen[client] = session
        self._keep_record(client, {"step": "frozen"})
        self._node.core.index.forget_routes()
        self._node.send(peer, "frozen", {"client": client, "about": about})

    def _hush(self, session: Session) -> None:
        """Nothing more is sent to it or read from it, and only we add to it."""
        core = self._node.core
        conn = session.conn
        if conn is not None:
            conn.set_reading(False)
            core.write()
            session.paused = True
            session.quota = 0  # a socket that takes more again must not start anything
        with self._node.quiet():
            for subscription in session.subscriptions.values():
                core.index.remove(subscription)

    def on_thaw(self, peer: Peer, value: dict[str, Any]) -> None:
        """Nobody takes the session: it goes on here."""
        session = self._frozen.pop(value["client"], None)
        if session is None:
            return
        core = self._node.core
        self._erase(session.client_id)
        with self._node.quiet():
            for subscription in session.subscriptions.values():
                core.index.add(subscription)
        conn = session.conn
        if conn is not None:
            session.quota = core.limits.max_inflight
            session.paused = conn in core.blocked
            session.drain()
            conn.set_reading(True)

    def on_cut(self, peer: Peer, value: dict[str, Any]) -> None:
        session = self._frozen.pop(value["client"], None)
        if session is None:
            return
        core = self._node.core
        core.index.forget_routes()
        for subscription in session.subscriptions.values():
            self._node.forget(subscription)
        core.spawn(self._send_tail(peer, session))

    async def _send_tail(self, peer: Peer, session: Session) -> None:
        await load_all(session)
        inbound = sorted(session.inbound or ())
        for part, is_last in _marked(transfer.parts(transfer.contents(session, self._node.core.now()))):
            self._node.send(
                peer,
                "tail",
                {
                    "client": session.client_id,
                    "rows": part,
                    "is_last": is_last,
                    "inbound": inbound if is_last else [],
                },
            )
        conn = session.conn
        self._erase(session.client_id)
        self._drop(session)  # in the same turn as the last part: one commit
        if conn is not None:
            self._leaving[session.client_id] = conn

    def _drop(self, session: Session) -> None:
        """The session is elsewhere now; its connection, if any, has nothing to say any more."""
        core = self._node.core
        core.set_will(session, None)
        session.settle_inflight()
        session.subscriptions = {}
        session.load = None
        session.expiry = 0
        core.end_session(session)

    def on_release(self, peer: Peer, value: dict[str, Any]) -> None:
        self._send_on(value["client"], value["address"])

    def _send_on(self, client: str, address: str) -> None:
        conn = self._leaving.pop(client, None)
        if conn is not None and not conn.is_closing:
            conn.session.paused = False
            conn.close(
                CloseReason.MOVED,
                ReasonCode.USE_ANOTHER_SERVER,
                properties={Property.SERVER_REFERENCE: address},
            )

    # -- the new edge ---------------------------------------------------------------------------------------

    def on_install(self, peer: Peer, value: dict[str, Any]) -> None:
        client = value["client"]
        self._keep_part(client, value["rows"])
        if value["is_last"]:
            install = partial(self._install, peer, value["about"], value["inbound"])
            self._when_loaded((TAIL + client,), install)

    def _install(self, peer: Peer, about: dict[str, Any], inbound: list[int]) -> None:
        core = self._node.core
        rows = self._take_parts(about["client"])
        session, _ = core.open_session(about["client"], clean_start=True)
        session.user = about["user"]
        session.expiry = about["expiry"]
        session.version = about["version"]
        session.is_plain = about["is_plain"]
        session.inbound = set(inbound) or None
        core.make_durable(session)
        transfer.fill(core, session, rows)
        self._subscribe(session, about["subscriptions"])
        if session.durable is not None:
            for number in inbound:
                session.durable.store.received(session, number, True)
            session.durable.store.save_session(session, is_connected=False)
        if session.expiry != NEVER:
            session.expiry_alarm = core.alarms.at(
                core.now() + session.expiry, partial(core.expire, session, session.epoch)
            )
        self._node.send(peer, "installed", {"client": session.client_id})

    def on_append(self, peer: Peer, value: dict[str, Any]) -> None:
        core = self._node.core
        session = core.sessions.get(value["client"])
        if session is not None:
            for row in value["rows"]:
                session.deliver(*transfer.delivery_of(row, core.now())[:4])
        if value["is_last"]:
            self._settle_claim(value["client"])

    def on_nothing(self, peer: Peer, value: dict[str, Any]) -> None:
        self._settle_claim(value["client"])

    # -- claims ---------------------------------------------------------------------------------------------

    def claim(self, client: str) -> Awaitable[None] | None:
        """Wait until the session of a client is here, if there is one anywhere; None if nobody can be asked."""
        node = self._node
        known = self._claims.get(client)
        if known is None:
            if node.role is Role.HEAD:
                return None
            peer = next((peer for peer in node.peers.values() if peer.is_connected), None)
            if peer is None:
                return None
            known = self._claims[client] = node.core.loop.create_future()
            node.send(peer, "claim", {"client": client})
        return self._wait(client, known)

    async def _wait(self, client: str, claim: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(CLAIM_TIMEOUT):
                await asyncio.shield(claim)
        except TimeoutError:
            self._claims.pop(client, None)
            log.warning("session not handed over in time", extra={"client": client})
            raise SessionElsewhere(client) from None

    def _settle_claim(self, client: str) -> None:
        claim = self._claims.pop(client, None)
        if claim is not None and not claim.done():
            claim.set_result(None)

    def on_claim(self, peer: Peer, value: dict[str, Any]) -> None:
        client = value["client"]
        owner = self.owners.get(client)
        if client in self.moving:
            return  # the end of that move settles the claim, wherever it goes
        if owner == peer.name or (owner is None and client not in self._node.core.sessions):
            self._node.send(peer, "nothing", {"client": client})
            return
        self.move(client, peer.name)

    # -- after a crash --------------------------------------------------------------------------------------

    def _note(self, move: Moving) -> None:
        """What the head must know to go on with a move."""
        self._keep_record(
            move.client,
            {"step": move.step, "source": move.source, "target": move.target, "about": move.about},
        )

    def _keep_record(self, client: str, value: dict[str, Any]) -> None:
        payload = json.dumps(value, separators=(",", ":")).encode()
        self._node.core.retained.keep(Message(RECORD + client.encode(), payload, 1, True))

    def _erase(self, client: str) -> None:
        self._node.core.retained.remove(RECORD + client.encode())

    def restored(self) -> None:
        """Go on where the node was when it went down; link sessions have what was said and not heard."""
        core = self._node.core
        for message in list(core.retained.match(RECORD + b"#")):
            client = message.topic[len(RECORD) :].decode()
            value = json.loads(message.payload)
            if value["step"] == "frozen":
                session = core.sessions.get(client)
                if session is not None:
                    self._hush(session)
                    self._frozen[client] = session
                continue
            move = Moving(
                client=client,
                source=value["source"],
                target=value["target"],
                step=value["step"],
                about=value["about"],
                since=core.now(),
                session=core.sessions.get(MOVING + client),
            )
            self.moving[client] = move
            if move.step == "install":
                if move.session is not None:
                    for subscription in move.session.subscriptions.values():
                        core.index.remove(subscription)
                link = f"{LINK_CLIENT}{Role.EDGE.value}/{move.target}"
                for name, *_ in move.about["subscriptions"]:
                    key = (link, name.encode())
                    self._pledged[key] = self._pledged.get(key, 0) + 1

    def look(self) -> None:
        """An edge that is away keeps nobody waiting for a session for long; when it is back it may keep it."""
        limit = self._node.core.now() - OWNER_TIMEOUT
        for move in [move for move in self.moving.values() if move.step == "freeze" and move.since < limit]:
            peer = self._peer(move.source)
            if peer is None or not peer.is_connected:
                log.warning("session not given up", extra={"client": move.client, "node": move.source})
                self._give_up(move)

    # -- who is where ---------------------------------------------------------------------------------------

    def report(self, peer: Peer) -> None:
        """An edge names the sessions it has, when its link opens."""
        names = [
            name
            for name, session in self._node.core.sessions.items()
            if not name.startswith("$") and (session.expiry or session.conn is not None)
        ]
        for at in range(0, len(names), LISTED):
            self._node.send(peer, "sessions", {"clients": names[at : at + LISTED]})

    def on_sessions(self, peer: Peer, value: dict[str, Any]) -> None:
        for client in value["clients"]:
            if client not in self.moving:
                self.owners[client] = peer.name

    def on_here(self, peer: Peer, value: dict[str, Any]) -> None:
        """A client connected at an edge. Another that had its session ends it: the client began anew."""
        client = value["client"]
        before = self.owners.get(client)
        self.owners[client] = peer.name
        other = self._peer(before) if before not in (None, peer.name) else None
        if other is not None and client not in self.moving:
            self._node.send(other, "drop", {"client": client})
        local = self._node.core.sessions.get(client)
        if local is not None:
            self._end(local)

    def on_gone(self, peer: Peer, value: dict[str, Any]) -> None:
        if self.owners.get(value["client"]) == peer.name:
            del self.owners[value["client"]]

    def on_drop(self, peer: Peer, value: dict[str, Any]) -> None:
        session = self._node.core.sessions.get(value["client"])
        if session is not None:
            self._end(session)

    def _end(self, session: Session) -> None:
        session.expiry = 0
        if session.conn is not None:
            session.conn.close(CloseReason.TAKEN_OVER, ReasonCode.SESSION_TAKEN_OVER)
        else:
            self._node.core.end_session(session)


async def load_all(session: Session) -> None:
    """Bring what a durable session has on disk only into memory; bounded by `limits.max_queued_messages`."""
    durable = session.durable
    while durable is not None and durable.tail:
        page = await durable.store.load(session, durable.tail_after, durable.store.settings.memory_queue)
        if not page:
            await asyncio.sleep(RETRY)
            continue
        for delivery in page:
            size = delivery[0].size_bytes
            if session.pending is None:
                session.pending = deque()
            session.pending.append(delivery)
            session.pending_bytes += size
            durable.tail -= 1
            durable.tail_bytes -= size
            durable.tail_after = delivery[4]
    session.settle_inflight()


def _marked(parts: Iterator[list[list[Any]]]) -> Iterator[tuple[list[list[Any]], bool]]:
    """Each part, and whether it is the last."""
    before = next(parts)
    for part in parts:
        yield before, False
        before = part
    yield before, True
