"""The head's end of a hand-over: collect what comes for a session on its way, and hand it on; see `handover.py`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from tidegate.broker.hooks import ForeignSession, SessionElsewhere
from tidegate.broker.index import Subscription
from tidegate.broker.session import NEVER, Session
from tidegate.cluster import transfer, wire
from tidegate.cluster.moves import CLAIM_TIMEOUT, MOVING, TAIL, Moves, is_foreign, load_all
from tidegate.cluster.settings import Role

if TYPE_CHECKING:
    from tidegate.cluster.membership import ClusterNode, Peer

log = logging.getLogger("tidegate.cluster")

BEFORE_TAIL: Final = ("freeze", "collect")  # steps of a move in which the old edge has the session
AT_TARGET: Final = ("install", "installed")  # steps in which the session is at its new node
OWNER_TIMEOUT: Final = (
    30.0  # seconds an edge may be away before its sessions are given up for clients that ask
)


@dataclass(slots=True, kw_only=True)
class Moving:
    """One move, at the head. `source` is empty for a session that was here."""

    client: str
    source: str
    target: str
    address: str = (
        ""  # where clients reach the target, for a head that starts anew and has not heard of it yet
    )
    step: str = "freeze"
    since: float = 0.0
    session: Session | None = None
    about: dict[str, Any] = field(default_factory=dict)
    inbound: list[int] = field(default_factory=list)
    done: asyncio.Future[bool] | None = None
    asker: dict[str, Any] = field(default_factory=dict)  # the user that claims it, if somebody does
    newer: str = ""  # node where the client began anew meanwhile: nobody needs what is on its way

    newer_user: dict[str, Any] = field(default_factory=dict)
    is_cut_short: bool = False  # its old edge did not send what it has, and is away for long
    is_loading: bool = False

    def is_begun_at(self, name: str) -> bool:
        """Whether a session that a node has now is another one than that which is on its way."""
        if name == self.target:
            return self.step != "installed"
        return name != self.source or self.step not in BEFORE_TAIL


class HeadMoves(Moves):
    """`owners` says which edge has the session of a client."""

    def __init__(self, node: ClusterNode) -> None:
        super().__init__(node)
        self.owners: dict[str, str] = {}
        self.moving: dict[str, Moving] = {}
        self.moved = 0
        self._named: dict[str, set[str]] = {}  # by edge: what it has named so far of its sessions
        self._pledged: dict[tuple[str, bytes], int] = {}  # (link, filter): moves that need it
        self._sent_to_owner: dict[tuple[str, Any], tuple[str, float]] = {}  # (client, user): to whom, and when

    def move(
        self, client: str, target: str, asker: dict[str, Any] | None = None
    ) -> asyncio.Future[bool]:
        """Move a session to an edge, or to this head: one move a client at a time.

        The result is whether there was a session. `asker`: the user that it must belong to, as `{"user": name}`; it is
        at its new node, so its old one need not wait for the right moment.
        """
        loop = self._node.core.loop
        known = self.moving.get(client)
        if known is not None:
            if known.done is None:
                known.done = loop.create_future()
            return known.done
        now = self._node.core.now()
        source = self.owners.get(client, "")
        move = Moving(client=client, source=source, target=target, since=now, done=loop.create_future())
        move.asker = asker or {}
        assert move.done is not None
        self.moving[client] = move
        aim = self._peer(target)
        move.address = aim.address if aim is not None else ""
        if target == self._node.name:
            move.address = self._node.address()
        peer = self._peer(move.source)
        local = self._node.core.sessions.get(client)
        if peer is not None and move.source != target:
            self.note(move)
            address = "" if move.asker else move.address
            self._node.send(peer, "freeze", {"client": client, "address": address} | move.asker)
        elif local is not None and is_foreign(local.user, move.asker):
            self._give_up(move, "foreign")
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
        for subscription in session.subscriptions.values():
            self._node.forget(subscription)  # it went quietly, and the move wants the same now
        self._node.core.spawn(self._take_local_contents(move, session))

    async def _take_local_contents(self, move: Moving, session: Session) -> None:
        await load_all(session)
        if self._node.core.sessions.get(move.client) is not session:
            self._abandon(move)
            return
        if move.newer:
            self._drop(session)
            self._abandon(move)
            return
        move.inbound = sorted(session.inbound or ())
        self._keep_part(move.client, list(transfer.contents(session, self._node.core.now())))
        conn = session.conn
        self._drop(session)
        if conn is not None:
            self._leaving[move.client] = conn
        self._complete(move)

    def _give_up(self, move: Moving, answer: str = "nothing") -> None:
        """There is nothing to move, or nothing for who asked."""
        self.moving.pop(move.client, None)
        self._erase(move.client)
        peer = self._peer(move.target)
        if peer is not None:
            self._node.send(peer, answer, {"client": move.client})
        self._answer(move, False)

    def _abandon(self, move: Moving) -> None:
        """The session ended on its way, or its client has another now."""
        self.end(move)
        self._give_up(move)
        self._release(move, "")

    def on_lost(self, peer: Peer, value: dict[str, Any]) -> None:
        """The old edge has nothing more of a session that it gave up."""
        move = self.moving.get(value["client"])
        if move is not None and move.step == "collect" and move.source == peer.name:
            if not value["is_here"] and self.owners.get(move.client) == peer.name:
                del self.owners[move.client]
            self._abandon(move)

    def on_frozen(self, peer: Peer, value: dict[str, Any]) -> None:
        move = self.moving.get(value["client"])
        if move is None or move.step != "freeze" or move.source != peer.name:
            if move is None and not value.get("is_gone"):
                self._node.send(peer, "thaw", {"client": value["client"]})
            return
        if value.get("is_gone"):
            if self.owners.get(move.client) == peer.name:
                del self.owners[move.client]
            self._give_up(move)
            return
        if value.get("is_foreign"):
            self._give_up(move, "foreign")
            return
        if move.newer:
            self._node.send(peer, "thaw", {"client": move.client})
            self._ask_to_end(peer, move.client, move.newer, move.newer_user)
            self._abandon(move)
            return
        move.about = value["about"]
        self._open(move)
        self._node.send(peer, "cut", {"client": move.client})

    def _open(self, move: Moving) -> None:
        """From this moment on the head collects."""
        core = self._node.core
        session, _ = core.open_session(MOVING + move.client, clean_start=True)
        session.expiry = NEVER
        session.belong_to(move.about["user"])
        core.make_durable(session)
        move.session = session
        move.step = "collect"
        self._subscribe(session, move.about["subscriptions"])
        self.note(move)

    def on_tail(self, peer: Peer, value: dict[str, Any]) -> None:
        client = value["client"]
        move = self.moving.get(client)
        if move is None and self._comes_late(peer, client, value["rows"]):
            return
        if move is None:
            # Another head asked for it and is gone: it goes back to where it came from.
            self._keep_part(client, value["rows"])
            if value["is_last"]:
                move = Moving(client=client, source=peer.name, target=peer.name, about=value["about"])
                move.inbound = value["inbound"]
                self.carry_on(move, [])
            return
        if move.step in AT_TARGET and move.is_cut_short and move.session is not None:
            self._add(move.session, value["rows"])
        if move.step != "collect":
            if move.step == "complete" and move.is_cut_short:
                self._keep_part(client, value["rows"])
            return
        self._keep_part(client, value["rows"])
        if value["is_last"]:
            move.inbound = value["inbound"]
            self._complete(move)

    def _comes_late(self, peer: Peer, client: str, rows: list[list[Any]]) -> bool:
        """Whether the session went on elsewhere without what its old edge had: that follows."""
        owner = self.owners.get(client, peer.name)
        other = self._peer(owner)
        local = self._node.core.sessions.get(client)
        if other is not None and owner != peer.name:
            plain = [row for row in rows if row[1] != transfer.RELEASE]
            self._node.send(other, "append", {"client": client, "rows": plain, "is_last": True})
        elif local is not None:
            self._add(local, rows)
        return local is not None or (other is not None and owner != peer.name)

    def _add(self, session: Session, rows: list[list[Any]]) -> None:
        now = self._node.core.now()
        for row in rows:
            if row[1] != transfer.RELEASE:
                session.deliver(*transfer.delivery_of(row, now)[:4])

    def carry_on(self, move: Moving, rows: list[list[Any]]) -> None:
        """Everything of a session is here that another head had: see that it gets to an edge."""
        move.since = self._node.core.now()
        self.moving[move.client] = move
        self._open(move)
        self._keep_part(move.client, rows)
        self._complete(move)

    def begin_again(self, move: Moving) -> None:
        """Its old edge is gone for good, and another has a copy: ask that one."""
        done = move.done
        target = move.target
        del self.moving[move.client]
        self.end(move)
        if self.owners.get(move.client) == target:
            self._give_up(move)  # whoever waits for the session there finds it
            return
        peer = self._peer(target)
        if peer is not None and self._sends_to_owner(move.client, peer, move.asker):
            # Who asked may have gone before it heard of it: that is no sign that it cannot get there.
            self._sent_to_owner.pop((move.client, move.asker["user"]), None)
            self._answer(move, False)
            return
        again = self.move(move.client, target, move.asker)
        if done is not None:
            again.add_done_callback(lambda each: None if done.done() else done.set_result(each.result()))

    def end(self, move: Moving) -> None:
        """Nothing of it is needed here any more."""
        session = move.session
        if session is not None:
            if move.step in AT_TARGET:
                self._unpledge(move)
                session.unsubscribe_all()
            self._node.core.end_session(session)
        self._take_parts(move.client)
        self._erase(move.client)
        self._node.core.index.forget_routes()

    def installed_otherwise(self, move: Moving, peer: Peer) -> None:
        """The session is at its new edge, though not because we sent it there."""
        move.step = "installed"
        self.note(move)
        self._when_loaded((MOVING + move.client,), partial(self._finish, move, peer))

    def _complete(self, move: Moving) -> None:
        """Everything is here: on to B."""
        if move.newer:
            self._abandon(move)
            return
        move.step = "complete"
        self.note(move)
        self._try_to_push(move)

    def _try_to_push(self, move: Moving) -> None:
        if not move.is_loading:
            move.is_loading = True
            self._when_loaded((TAIL + move.client, MOVING + move.client), partial(self._push, move))

    def _push(self, move: Moving) -> None:
        move.is_loading = False
        session = move.session
        if session is None or self.moving.get(move.client) is not move or move.step != "complete":
            return
        if move.newer:
            self._abandon(move)
            return
        if move.target == self._node.name:
            self._arrive(move, session)
            return
        peer = self._aim(move)
        if peer is None:
            return  # it is here until there is an edge that takes it, or its client asks
        core = self._node.core
        rows = [*self._take_parts(move.client), *transfer.contents(session, core.now())]
        transfer.empty(session)
        for part, is_last in transfer.marked(transfer.parts(iter(rows))):
            content = {"client": move.client, "rows": part, "is_last": is_last}
            if is_last:
                content |= {"about": move.about, "inbound": move.inbound}
            self._node.send(peer, "install", content)
        for subscription in session.subscriptions.values():
            core.index.remove(subscription)
        self._pledge_all(move, peer)
        move.step = "install"
        self.note(move)
        core.index.forget_routes()

    def _aim(self, move: Moving) -> Peer | None:
        """Where it goes: another edge, if the one it was meant for is away for long; None: nowhere yet."""
        peer = self._peer(move.target)
        if peer is not None and (peer.is_connected or not self._is_long_away(peer)):
            return peer if peer.is_connected else None
        balancer = self._node.balancer
        names = [] if balancer is None else [edge.name for edge in balancer.open_edges()]
        edges = [each for each in self._node.peers.values() if each.role is Role.EDGE and each.is_connected]
        other = next((each for each in edges if each.name in names), next(iter(edges), None))
        if other is not None:
            log.warning("session goes elsewhere", extra={"client": move.client, "node": other.name})
            self.retarget(move, other)
        return other

    def _is_long_away(self, peer: Peer) -> bool:
        return not peer.is_connected and (peer.lost_at or 0.0) < self._node.core.now() - OWNER_TIMEOUT

    def retarget(self, move: Moving, peer: Peer) -> None:
        """It goes to another edge than it was meant for."""
        is_there = move.step in AT_TARGET
        if is_there:
            self._unpledge(move)
        move.target, move.address = peer.name, peer.address
        if is_there:
            self._pledge_all(move, peer)
        self.note(move)

    def install_again(self, move: Moving) -> None:
        """It was at an edge that is gone for good, and nobody has a copy: what is here goes on."""
        if move.step not in AT_TARGET or move.session is None:
            return
        self._unpledge(move)
        for subscription in move.session.subscriptions.values():
            self._node.core.index.add(subscription)
        self._complete(move)

    def is_stranded(self, client: str) -> bool:
        """Whether all of a session is here, and nobody to take it."""
        move = self.moving.get(client)
        if move is None or move.step != "complete" or move.newer:
            return False
        peer = self._peer(move.target)
        return move.target != self._node.name and (peer is None or not peer.is_connected)

    def _claim_stranded(self, client: str, name: str, asker: dict[str, Any]) -> bool:
        """It goes to the node where its client is; False if it is another user's."""
        move = self.moving[client]
        if is_foreign(move.about.get("user"), asker):
            return False
        peer = self._peer(name)
        move.target, move.address = name, self._node.address() if peer is None else peer.address
        self.note(move)
        self._try_to_push(move)
        return True

    def _arrive(self, move: Moving, collected: Session) -> None:
        """The session is for a client of this head."""
        core = self._node.core
        rows = [*self._take_parts(move.client), *transfer.contents(collected, core.now())]
        core.end_session(collected)
        self.install(move.about, rows, move.inbound)
        del self.moving[move.client]
        self._erase(move.client)
        self.owners.pop(move.client, None)
        self.moved += 1
        self._release(move, move.address)
        self._answer(move, True)

    def _release(self, move: Moving, address: str) -> None:
        """The client, if the old node has it still, goes to the new one; without address it has another session."""
        source = self._peer(move.source)
        if source is not None:
            value = {"client": move.client, "address": address, "is_over": bool(move.newer)}
            self._node.send(source, "release", value)
        else:
            self._send_on(move.client, address, is_over=bool(move.newer))

    def _pledge_all(self, move: Moving, peer: Peer) -> None:
        wanted = transfer.subscriptions_of(peer.session, move.about["subscriptions"])
        for name, subscription in wanted.items():
            self._pledge(peer.session, name, subscription)

    def _unpledge(self, move: Moving) -> None:
        """Its new edge says itself what it wants."""
        link = wire.client_id(Role.EDGE, move.target)
        for name, *_ in move.about["subscriptions"]:
            key = (link, name.encode())
            left = self._pledged.pop(key, 1) - 1
            if left:
                self._pledged[key] = left

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
            link.subscribe(name, wanted)
            self._node.core.index.add(wanted)
            if link.durable is not None:
                link.durable.store.save_subscription(link, name, wanted)

    def on_installed(self, peer: Peer, value: dict[str, Any]) -> None:
        move = self.moving.get(value["client"])
        if move is None:
            self.owners[value["client"]] = peer.name  # another head had sent it there
            return
        if move.step != "install" or move.target != peer.name:
            return
        move.step = "installed"
        self.note(move)
        self._when_loaded((MOVING + move.client,), partial(self._finish, move, peer))

    def _finish(self, move: Moving, peer: Peer) -> None:
        core = self._node.core
        assert move.session is not None
        del self.moving[move.client]
        rows = [] if move.newer else list(transfer.contents(move.session, core.now()))
        for part, is_last in transfer.marked(transfer.parts(iter(rows))):
            self._node.send(peer, "append", {"client": move.client, "rows": part, "is_last": is_last})
        self._unpledge(move)
        move.session.unsubscribe_all()
        core.end_session(move.session)
        self._erase(move.client)
        core.index.forget_routes()
        self.moved += 1
        if not move.newer:
            self.owners[move.client] = peer.name
        elif move.newer != peer.name:
            self._node.send(peer, "drop", {"client": move.client})
        self._release(move, peer.address or (move.address if peer.name == move.target else ""))
        self._answer(move, True)

    def _link(self, name: str) -> Session | None:
        peer = self._peer(name)
        return None if peer is None else peer.session

    def keeps(self, session: Session, name: bytes) -> bool:
        return (session.client_id, name) in self._pledged

    def on_claim(self, peer: Peer, value: dict[str, Any]) -> None:
        client = value["client"]
        owner = self.owners.get(client)
        if self.is_stranded(client):
            if not self._claim_stranded(client, peer.name, {"user": value["user"]}):
                self._node.send(peer, "foreign", {"client": client})
            return
        if client in self.moving:
            return  # the end of that move settles the claim, wherever it goes
        if owner == peer.name or (owner is None and client not in self._node.core.sessions):
            self._node.send(peer, "nothing", {"client": client})
            return
        asker = {"user": value["user"], "follows": bool(value.get("follows"))}
        balancer = self._node.balancer
        if balancer is not None and peer.name in balancer.draining:
            if self._keeps_away(client, peer, is_v5=bool(value.get("is_v5"))):
                return
            balancer.count_stay(peer.name)
        elif self._sends_to_owner(client, peer, asker):
            return
        self.move(client, peer.name, asker)

    def _keeps_away(self, client: str, peer: Peer, *, is_v5: bool) -> bool:
        """Whether a client that comes back to an edge that is being drained is told again where its session is."""
        owner = self._peer(self.owners.get(client, ""))
        if not is_v5 or owner is None or not self._is_open(owner):
            return False
        self._node.send(peer, "elsewhere", {"client": client, "address": owner.address})
        return True

    def _is_open(self, owner: Peer) -> bool:
        """Whether clients can be sent to an edge."""
        balancer = self._node.balancer
        is_draining = balancer is not None and owner.name in balancer.draining
        return owner.is_connected and bool(owner.address) and not is_draining

    def _sends_to_owner(self, client: str, peer: Peer, asker: dict[str, Any]) -> bool:
        """Whether a client is told to go where its session is: cheaper than to move all that waits in it.

        One that comes back soon cannot get there, and is given its session where it is.
        """
        owner = self._peer(self.owners.get(client, ""))
        if not asker.get("follows") or owner is None or not self._is_open(owner):
            return False
        now, key = self._node.core.now(), (client, asker["user"])
        before, since = self._sent_to_owner.get(key, ("", -inf))
        if before == owner.name and now - since < OWNER_TIMEOUT:
            return False
        self._sent_to_owner[key] = (owner.name, now)
        self._node.send(peer, "elsewhere", {"client": client, "address": owner.address})
        return True

    async def fetch(self, client: str, user: str | None) -> None:
        """Get a session here, for a client that cannot be sent to where it is."""
        if self.is_stranded(client) and not self._claim_stranded(client, self._node.name, {"user": user}):
            raise ForeignSession(client)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLAIM_TIMEOUT):
                await asyncio.shield(self.move(client, self._node.name, {"user": user}))
        if client in self.moving or client in self.owners:
            raise SessionElsewhere(client)

    def on_sessions(self, peer: Peer, value: dict[str, Any]) -> None:
        """An edge whose link opened names what it has; what went on elsewhere meanwhile it gives up."""
        takeover = self._node.takeover
        named = self._named.setdefault(peer.name, set())
        named.update(value["clients"])
        for client in value["clients"]:
            move = self.moving.get(client)
            is_part = move is not None and peer.name in (move.source, move.target)
            if move is not None and move.is_cut_short and peer.name == move.source:
                is_part = False  # it sends what it has, and then has nothing
            if (takeover is not None and takeover.is_stale(peer, client)) or (
                not is_part and self._is_elsewhere(client, peer)
            ):
                self._node.send(peer, "drop", {"client": client})
            elif move is None or move.is_begun_at(peer.name):
                self._began(client, peer.name, {})
        if not value.get("is_last"):
            return
        for client in [client for client, owner in self.owners.items() if owner == peer.name]:
            is_coming = client in self.moving or (takeover is not None and takeover.is_adopted(client))
            if client not in named and not is_coming:
                del self.owners[client]
        del self._named[peer.name]
        if takeover is not None:
            takeover.on_back(peer)
        if value.get("is_last"):
            self._ask_again(peer)

    def _ask_again(self, peer: Peer) -> None:
        """An edge that is back may have forgotten what it waited with."""
        for move in self.moving.values():
            if move.step == "freeze" and move.source == peer.name:
                self._node.send(peer, "freeze", {"client": move.client} | move.asker)

    def _is_elsewhere(self, client: str, peer: Peer) -> bool:
        owner = self.owners.get(client, peer.name)
        is_others = owner != peer.name and self._peer(owner) is not None
        return is_others or client in self._node.core.sessions or client in self.moving

    def on_here(self, peer: Peer, value: dict[str, Any]) -> None:
        """A client connected at an edge. Another that had its session ends it: the client began anew."""
        client = value["client"]
        local = self._node.core.sessions.get(client)
        if local is not None and is_foreign(local.user, value):
            self._node.send(peer, "drop", {"client": client})
            return
        self._began(client, peer.name, {"user": value["user"]})
        if local is not None:
            self._end(local)

    def here(self, client: str, user: str | None) -> None:
        """A client connected at this head."""
        self._began(client, self._node.name, {"user": user})
        if self.owners.get(client) == self._node.name:
            del self.owners[client]

    def on_kept(self, peer: Peer, value: dict[str, Any]) -> None:
        """A session is another user's than the one who began anew with its name: that one goes."""
        client, newer = value["client"], value["newer"]
        if self.owners.get(client, self._node.name) == newer:
            self.owners[client] = peer.name
        self._expel(client, newer)

    def _expel(self, client: str, name: str) -> None:
        peer = self._peer(name)
        local = self._node.core.sessions.get(client)
        if peer is not None:
            self._node.send(peer, "drop", {"client": client})
        elif name == self._node.name and local is not None:
            self._end(local)

    def _ask_to_end(self, peer: Peer, client: str, newer: str, asker: dict[str, Any]) -> None:
        self._node.send(peer, "drop", {"client": client, "newer": newer} | asker)

    def _began(self, client: str, name: str, asker: dict[str, Any]) -> None:
        """A node has the session of a client from now on; who had another ends it, at once or when its move is over."""
        before = self.owners.get(client, "")
        on_its_way = self.moving.get(client)
        if on_its_way is not None and is_foreign(on_its_way.about.get("user"), asker):
            self._node.core.loop.call_soon(self._expel, client, name)  # a client of ours is not yet let in
            return
        self.owners[client] = name
        move = self.moving.get(client)
        is_moving = move is not None and before in (move.source, move.target) and before != move.newer
        if move is not None and move.is_begun_at(name):
            move.newer, move.newer_user = name, asker
            self.note(move)
        other = self._peer(before)
        if other is not None and before != name and not is_moving:
            self._ask_to_end(other, client, name, asker)

    def on_gone(self, peer: Peer, value: dict[str, Any]) -> None:
        if self.owners.get(value["client"]) == peer.name:
            del self.owners[value["client"]]

    def note(self, move: Moving) -> None:
        """What the head must know to go on with a move."""
        self._keep_record(
            move.client,
            {
                "step": move.step,
                "source": move.source,
                "target": move.target,
                "address": move.address,
                "about": move.about,
                "inbound": move.inbound,
                "newer": move.newer,
                "is_cut_short": move.is_cut_short,
            },
        )

    def start(self) -> None:
        """The head is up again: do what only it can do next."""
        for move in list(self.moving.values()):
            peer = self._peer(move.target)
            if move.step == "complete":
                self._try_to_push(move)
            elif move.step == "collect" and not move.source:
                self._when_loaded((MOVING + move.client,), partial(self._stay, move))
            elif move.step == "installed" and peer is not None:
                self._when_loaded((MOVING + move.client,), partial(self._finish, move, peer))

    def look(self) -> None:
        """An edge that is away keeps nobody waiting for a session for long; when it is back it may keep it."""
        limit = self._node.core.now() - OWNER_TIMEOUT
        for key in [key for key, (_, since) in self._sent_to_owner.items() if since < limit]:
            del self._sent_to_owner[key]
        for move in list(self.moving.values()):
            if move.step == "complete":
                self._try_to_push(move)
            if move.since >= limit:
                continue
            source, target = self._peer(move.source), self._peer(move.target)
            if move.step == "freeze" and (source is None or not source.is_connected):
                log.warning("session not given up", extra={"client": move.client, "node": move.source})
                self._give_up(move)
            elif move.step == "collect" and move.source and (source is None or self._is_long_away(source)):
                log.warning("session goes on without its queue", extra={"client": move.client})
                move.is_cut_short = True
                self._complete(move)
            elif move.step in ("complete", *AT_TARGET) and (target is None or not target.is_connected):
                self._answer(move, False)  # whoever waits for the end of it need not

    @staticmethod
    def _answer(move: Moving, is_moved: bool) -> None:
        if move.done is not None and not move.done.done():
            move.done.set_result(is_moved)

    def _stay(self, move: Moving) -> None:
        """The head went down while it took a session from itself: it has it still, if it has not ended."""
        local = self._node.core.sessions.get(move.client)
        if local is not None and move.session is not None:
            self._add(local, list(transfer.contents(move.session, self._node.core.now())))
        self.end(move)
        del self.moving[move.client]
