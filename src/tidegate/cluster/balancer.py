"""The management agent of a head: places subscribers, balances its edges, drains one when an operator asks.

Decisions are `flow/` objects. Edges send their views every interval, so the first two steps of a phase (locate,
select) are answered from what is known; the third is made of hand-overs, each confirmed by the edge that has the
session then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from itertools import islice
from math import inf
from time import time
from typing import TYPE_CHECKING, Any, Final

from tidegate import flow
from tidegate.broker import wills
from tidegate.broker.reasons import CloseReason
from tidegate.cluster.agent import NOMINAL_BYTES, NOMINAL_RATE, UNKNOWN, edge_of
from tidegate.cluster.settings import Role
from tidegate.flow.balance import Bundle, Edge, Metric, Move, Overlay, State, Thresholds
from tidegate.flow.balance import overlay as messages
from tidegate.flow.balance.overlay import Command, Step
from tidegate.flow.placement import RateHistory
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.properties import Property

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.cluster.membership import ClusterNode, Peer
    from tidegate.mqtt.packets import Subscribe

log = logging.getLogger("tidegate.cluster")

REMEMBERED: Final = 10_000  # clients that were sent on; the oldest is forgotten
RETURNED: Final = 60.0  # seconds within which a client that is back does not follow: it is served where it is
PARALLEL: Final = 50  # hand-overs of a drain at once
KNOWN_FILTERS: Final = 500  # of an edge that does not count
SHOWN_PHASES: Final = 20  # told in $SYS
SHOWN_METRICS: Final = (Metric.UPLINK, Metric.DOWNLINK, Metric.MATCHING)
SHOWN_QUEUES: Final = 5  # of each edge: the longest


class Balancer:
    """State of one head's decisions."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        settings = node.settings
        thresholds = Thresholds(interval=settings.interval)
        self._policy = flow.balance_policy(settings.balance)(thresholds)
        self._placement = flow.placement_policy(settings.placement)()
        self._thresholds = thresholds
        self.overlay = Overlay(node.name)
        self.history = RateHistory()
        self._views: dict[str, Edge] = {}
        self._seen: dict[str, float] = {}  # edge: when its view came
        self._counting: set[str] = set()  # edges that say what their topics ask for
        self._placed: dict[
            str, dict[str, int]
        ] = {}  # edge: subscribers by filter that were sent there of late
        self._sent_on: OrderedDict[str, float] = OrderedDict()
        self._picks: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._picked: dict[int, list[Any]] = {}  # parts of answers
        self._next_pick = 0
        self.is_on = True  # an operator may stop balancing for a while; placement goes on
        self.migrations = 0  # moves of a phase that are over, and
        self.migrated = 0  # the clients that moved by them
        self.draining: dict[str, dict[str, Any]] = {}
        self._drains: dict[str, asyncio.Task[None]] = {}

    # -- views ----------------------------------------------------------------------------------------------

    def on_view(self, peer: Peer, value: dict[str, Any]) -> None:
        """An edge's state arrived."""
        view = value.get("view") or {}
        edge = self._views[peer.name] = edge_of(peer.name, view)
        if view:
            self._counting.add(peer.name)
        else:
            self._counting.discard(peer.name)
            edge.bundles = _wanted_by(peer)
        carried = self._node.links.meter.capacity(peer)
        if carried and edge.downlink == UNKNOWN:
            edge.downlink = carried
            self._node.send(peer, "watch", {})
        self._seen[peer.name] = self._node.core.now()
        self._placed[peer.name] = {}  # who was sent there is counted by the edge from now on

    def forget(self, name: str) -> None:
        """The edge is gone: a phase that waits for it goes on without."""
        self._views.pop(name, None)
        self._seen.pop(name, None)
        self._counting.discard(name)
        self._placed.pop(name, None)
        self._carry(self.overlay.on_lost(self._node.core.now(), name))

    def _edges(self) -> list[Edge]:
        """Linked edges that may get clients, with those on their way."""
        found = []
        for peer in self._node.peers.values():
            if peer.role is not Role.EDGE or not peer.is_connected or not peer.address:
                continue
            edge = self._views.get(peer.name) or edge_of(peer.name, {})
            edge.is_locked = peer.name in self.overlay.locks or peer.name in self.draining
            for topic, count in self._placed.get(peer.name, {}).items():
                known = edge.bundles.get(topic)
                if known is not None and known.subscribers:
                    edge = edge.with_bundle(known.part(count))
                else:
                    edge = edge.with_bundle(_newcomer(topic, count))
            found.append(edge)
        return found

    def open_edges(self) -> list[Edge]:
        """Those that new subscribers could go to, now or when a phase is over."""
        return [edge for edge in self._edges() if edge.name not in self.draining]

    # -- placement ------------------------------------------------------------------------------------------

    def sends_on(self, conn: Connection, packet: Subscribe) -> bool:
        """An MQTT 5 client that begins to subscribe at the head goes to an edge, unless it came back from there."""
        session = conn.session
        if not conn.v5 or session.subscriptions or not self._node.settings.redirect:
            return False
        topic = packet.subscriptions[0].topic_filter
        if topic.startswith("$SYS"):
            return False  # who looks at this node wants this node
        now = self._node.core.now()
        if now - self._sent_on.pop(session.client_id, -RETURNED) < RETURNED:
            return False
        edges = self._edges()
        if all(edge.is_locked for edge in edges):
            return False
        admission = self._node.admission
        wanted = (each.topic_filter for each in packet.subscriptions)
        if not any(admission.has_room(each, packet) for each in wanted):
            return False  # refused here
        name = self.place(topic, edges)
        peer = self._node.named(name)
        assert peer is not None
        self._sent_on[session.client_id] = now
        while len(self._sent_on) > REMEMBERED:
            self._sent_on.popitem(last=False)
        # Nothing of it stays here: the client begins at the edge.
        wills.keep(session, None)
        session.expiry = 0
        conn.close(
            CloseReason.MOVED,
            ReasonCode.USE_ANOTHER_SERVER,
            properties={Property.SERVER_REFERENCE: peer.address},
        )
        return True

    def place(self, topic: str, edges: list[Edge]) -> str:
        """The edge for one more subscriber of a filter."""
        name = self._placement.place(
            _newcomer(topic, 1), edges, self.history.correlation, self._node.core.random
        )
        placed = self._placed.setdefault(name, {})
        placed[topic] = placed.get(topic, 0) + 1
        return name

    # -- balancing ------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Once an interval: end what took too long, and begin a phase if an edge is in trouble."""
        now = self._node.core.now()
        self.history.tick(
            {
                bundle.topic: bundle.incoming
                for edge in self._views.values()
                for bundle in edge.bundles.values()
            }
        )
        self._carry(self.overlay.tick(now))
        edges = [edge for edge in self._edges() if edge.name in self._views and self._is_fresh(edge.name)]
        self._ask_others()
        for edge in edges:
            if self.overlay.step is not Step.IDLE or edge.is_locked or not self.is_on:
                continue
            metric = self._policy.trigger(edge, now)
            if metric is not None:
                others = [e for e in edges if e is not edge and e.name in self._counting]
                helpers = [e.name for e in others if self._policy.may_help(e, now)]
                log.info(
                    "edge in trouble", extra={"edge": edge.name, "metric": metric.value, "helpers": helpers}
                )
                self._carry(self.overlay.request(now, edge.name, metric, helpers))
        self.say()

    def _ask_others(self) -> None:
        """When one edge counts what its topics ask for, all do: it is not known else whether they can help."""
        if not self._counting or self._node.settings.balance == "off":
            return
        for peer in self._node.peers.values():
            if peer.role is Role.EDGE and peer.is_connected and peer.name not in self._counting:
                self._node.send(peer, "watch", {})

    def _is_fresh(self, name: str) -> bool:
        """Whether all of an edge's latest interval was after the last phase that it was part of."""
        began = self._seen.get(name, 0.0) - self._node.settings.interval
        for phase in reversed(self.overlay.history[-SHOWN_PHASES:]):
            if name == phase.owner or any(name in (move.source, move.target) for move in phase.moves):
                return phase.ended is None or began >= phase.ended
        return True

    def say(self) -> None:
        """In $SYS/cluster/balancing."""
        self._node.say("balancing", self._balancing(self._node.core.now()))

    def _balancing(self, now: float) -> dict[str, Any]:
        """How full the edges are, and what was moved of late; times are seconds since the epoch."""
        phases = [*self.overlay.history[-SHOWN_PHASES:]]
        if self.overlay.phase is not None and self.overlay.phase.moves:
            phases.append(self.overlay.phase)
        clock = time()
        return {
            "policy": self._node.settings.balance,
            "is_on": self.is_on,
            "step": self.overlay.step.value,
            "phases": [
                {
                    "number": phase.number,
                    "edge": phase.owner,
                    "metric": phase.metric.value,
                    "at": round(clock - (now - phase.began), 2),
                    "moves": [[each.topic, each.clients, each.source, each.target] for each in phase.moves],
                    "is_over": phase.ended is not None,
                    "is_timed_out": phase.is_timed_out,
                }
                for phase in phases
            ],
            "edges": {
                name: {
                    "state": self._state(edge).name,
                    "uplink": round(edge.utilisation(Metric.UPLINK), 3),
                    "waiting": {
                        bundle.topic: round(bundle.depth)
                        for bundle in sorted(edge.bundles.values(), key=lambda each: -each.depth)[
                            :SHOWN_QUEUES
                        ]
                        if bundle.depth
                    },
                    "budgets": _tightest(edge),
                }
                for name, edge in self._views.items()
            },
        }

    def _carry(self, commands: list[Command]) -> None:
        for command in commands:
            self._carry_one(command)

    def _carry_one(self, command: Command) -> None:
        now = self._node.core.now()
        if isinstance(command, messages.Ask):
            view = next((edge for edge in self._edges() if edge.name == command.to), None)
            if view is None:
                self._carry(self.overlay.on_lost(now, command.to))
            else:
                self._carry(self.overlay.on_view(now, command.phase, view))
        elif isinstance(command, messages.Offer):
            edges = [each for each in command.views if isinstance(each, Edge)]
            source = self._views.get(command.to)
            if source is None:
                return
            selection = self._policy.select(source, edges, command.metric, now, self._node.core.random)
            self._carry(self.overlay.on_plan(now, command.phase, selection.moves, selection.is_enough))
        elif isinstance(command, messages.Migrate):
            phase = self.overlay.phase
            if phase is not None and phase.moves and command.move == phase.moves[0]:
                self._policy.on_moved(phase.moves, now)
            self._node.core.spawn(self._migrate(command.phase, command.move))

    async def _migrate(self, phase: int, move: Move) -> None:
        """Hand over so many clients of a topic; those that cannot move stay."""
        found = await self.pick(move.source, move.topic, move.clients)
        clients = [client for client, _ in found.get("clients", ())]
        log.info(
            "moving clients",
            extra={"topic": move.topic, "from": move.source, "to": move.target, "clients": len(clients)},
        )
        self.migrated += await self._hand_over([(client, move.target) for client in clients])
        self.migrations += 1
        self._carry(self.overlay.on_confirmed(self._node.core.now(), phase, move))

    async def _hand_over(self, pairs: list[tuple[str, str]], progress: dict[str, Any] | None = None) -> int:
        """How many were moved. At most `PARALLEL` at once; each has the phase's time."""
        slots = asyncio.Semaphore(PARALLEL)

        async def one(client: str, target: str) -> bool:
            async with slots:
                is_moved = False
                try:
                    async with asyncio.timeout(self.overlay.timeout):
                        is_moved = await asyncio.shield(self._node.handover.move(client, target))
                except TimeoutError:
                    log.warning("client not moved in time", extra={"client": client, "to": target})
                if progress is not None:
                    progress["moved" if is_moved else "failed"] += 1
                    self._say_drain(progress)
                return is_moved

        return sum(await asyncio.gather(*(one(client, target) for client, target in pairs)))

    # -- asking an edge for clients -------------------------------------------------------------------------

    async def pick(self, edge: str, topic: str | None, clients: int | None) -> dict[str, Any]:
        """Clients of an edge that can be moved: `[[client, filter], …]`; empty if it does not answer."""
        peer = self._node.named(edge)
        if peer is None:
            return {}
        self._next_pick += 1
        number = self._next_pick
        future: asyncio.Future[dict[str, Any]] = self._node.core.loop.create_future()
        self._picks[number] = future
        self._node.send(peer, "pick", {"id": number, "topic": topic, "clients": clients})
        try:
            async with asyncio.timeout(self.overlay.timeout):
                return await future
        except TimeoutError:
            return {}
        finally:
            self._picks.pop(number, None)
            self._picked.pop(number, None)

    def on_picked(self, peer: Peer, value: dict[str, Any]) -> None:
        number = value.get("id", 0)
        future = self._picks.get(number)
        if future is None or future.done():
            return
        found = self._picked.setdefault(number, [])
        found += value["clients"]
        if value["is_last"]:
            future.set_result(value | {"clients": found})

    # -- an operator ----------------------------------------------------------------------------------------

    def _refusal(self, name: str) -> str:
        """Why nothing can be asked of an edge; empty if it can."""
        peer = self._node.named(name)
        if peer is None or peer.role is not Role.EDGE:
            edges = sorted(each.name for each in self._node.peers.values() if each.role is Role.EDGE)
            return f"no such edge: {name}; this head knows {', '.join(edges) or 'none'}"
        return "" if peer.is_connected else f"{name} is not linked"

    async def plan(self, name: str) -> dict[str, Any]:
        """Where the clients of an edge would go if it were drained, or the reason why not; nothing is done."""
        reason = self._refusal(name)
        found = {} if reason else await self.pick(name, None, None)
        edges = [edge for edge in self._edges() if edge.name != name and not edge.is_locked]
        targets: dict[str, int] = {}
        pairs = []
        for client, topic in found.get("clients", ()) if edges else ():
            bundle = _newcomer(topic, 1)
            target = self._placement.place(bundle, edges, self.history.correlation, self._node.core.random)
            edges = [edge.with_bundle(bundle) if edge.name == target else edge for edge in edges]
            targets[target] = targets.get(target, 0) + 1
            pairs.append((client, target))
        if not found:
            reason = reason or f"{name} did not answer"
        elif found["clients"] and not edges:
            reason = "no other edge takes clients"
        stay = found.get("stay", 0)
        return {"node": name, "targets": targets, "stay": stay, "pairs": pairs, "reason": reason}

    async def show_plan(self, name: str) -> None:
        plan = await self.plan(name)
        plan["moves"] = len(plan.pop("pairs"))
        self._node.say(f"plan/{name}", plan | {"at": time()})  # who asks twice is answered twice

    def drain(self, name: str) -> None:
        """Move everybody away who can be moved; new clients are sent elsewhere until `resume`."""
        known = self.draining.get(name)
        reason = self._refusal(name)
        if known is not None and known["state"] == "running":
            self._say_drain(known)
        elif reason:
            self._say_drain(_progress(name, "refused", reason))
        else:
            self.draining[name] = _progress(name, "running")
            self._say_drain(self.draining[name])
            self._drains[name] = self._node.core.spawn(self._drain(name))

    async def _drain(self, name: str) -> None:
        progress = self.draining[name]
        plan = await self.plan(name)
        progress |= {"total": len(plan["pairs"]), "stay": plan["stay"], "targets": plan["targets"]}
        self._say_drain(progress)
        await self._hand_over(plan["pairs"], progress)
        progress |= {"state": "failed" if plan["reason"] else "done", "reason": plan["reason"]}
        self._say_drain(progress)

    def resume(self, name: str) -> None:
        """The edge takes clients again; a drain that runs is stopped, what was moved stays moved."""
        task = self._drains.pop(name, None)
        if task is not None:
            task.cancel()
        progress = self.draining.pop(name, None)
        if progress is None and (reason := self._refusal(name)):
            self._say_drain(_progress(name, "refused", reason))
            return
        progress = progress or _progress(name, "resumed")
        progress["state"] = "stopped" if progress["state"] == "running" else "resumed"
        self._say_drain(progress | {"reason": ""})

    def count_stay(self, name: str) -> None:
        """A client came back to an edge that is being drained, and cannot be sent away."""
        self.draining[name]["stay"] += 1
        self._say_drain(self.draining[name])

    def drain_state(self, name: str) -> str:
        """For those who look at an edge: empty, `draining` or `drained`."""
        progress = self.draining.get(name)
        if progress is None:
            return ""
        return "drained" if progress["state"] == "done" else "draining"

    def _say_drain(self, progress: dict[str, Any]) -> None:
        self._node.say(f"drain/{progress['node']}", progress | {"at": time()})

    def statistics(self) -> dict[str, Any]:
        return {
            "step": self.overlay.step.value,
            "phases": self.overlay.number,
            "migrations": self.migrations,
            "migrated": self.migrated,
            "draining": sorted(self.draining),
            "states": {name: self._state(edge).name for name, edge in list(self._views.items())},
            "utilisation": {
                name: {metric.value: edge.utilisation(metric) for metric in SHOWN_METRICS}
                for name, edge in list(self._views.items())
            },
        }

    def _state(self, edge: Edge) -> State:
        return self._thresholds.edge_state(edge)


def _progress(name: str, state: str, reason: str = "") -> dict[str, Any]:
    """Of a drain, before anybody was moved."""
    return {"node": name, "state": state, "moved": 0, "failed": 0, "stay": 0, "reason": reason}


def _tightest(edge: Edge) -> list[dict[str, Any]]:
    """The topics of an edge that have used most of their budget: seconds a message may wait there, and does."""
    found = [
        {
            "topic": bundle.topic,
            "budget": round(bundle.budget, 3),
            "wait": round(bundle.depth / bundle.leaving, 3) if bundle.leaving else None,
            "subscribers": bundle.subscribers,
        }
        for bundle in edge.bundles.values()
        if bundle.subscribers and 0.0 < bundle.budget < inf and (bundle.leaving or bundle.depth)
    ]
    found.sort(key=lambda each: (-_used(each), each["budget"], each["topic"]))
    return found[:SHOWN_QUEUES]


def _used(budget: dict[str, Any]) -> float:
    """The share that is used up; all of it, if nothing leaves."""
    return inf if budget["wait"] is None else float(budget["wait"]) / float(budget["budget"])


def _wanted_by(peer: Peer) -> dict[str, Bundle]:
    """Of an edge that does not count: what it asked for, so that subscribers of one topic come together there, too."""
    wanted = (each.topic_filter.decode() for each in peer.session.subscriptions.values() if not each.share)
    return {topic: _newcomer(topic, 1) for topic in islice(wanted, KNOWN_FILTERS)}


def _newcomer(topic: str, subscribers: int) -> Bundle:
    rate = NOMINAL_RATE * subscribers
    return Bundle(
        topic=topic,
        subscribers=subscribers,
        size_bytes=NOMINAL_BYTES,
        budget=1.0,
        arriving=rate,
        leaving=rate,
    )
