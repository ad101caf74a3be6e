"""A cluster of heads and edges on the virtual clock, run by the decisions that run the real one.

Every edge is a `FluidNode` with a detector; every head has an overlay manager. Control messages take `control_delay`
seconds each, so what a decision costs in time can be varied. A moved client's messages go to the new edge from the
moment of the move; what waits at the old one is sent from there (the paper's double connection).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from typing import Any

from tidegate.flow.balance import (
    BalancePolicy,
    BudgetRule,
    Bundle,
    Edge,
    EdgeDetector,
    Head,
    HeadDetector,
    Metric,
    Move,
    Path,
    PublishSample,
    Reach,
    Sharing,
    State,
    Thresholds,
    edge_budget,
)
from tidegate.flow.balance import overlay as messages
from tidegate.flow.balance.overlay import Command, Overlay, Step
from tidegate.flow.balance.predictors import LastValue, Predictor
from tidegate.flow.placement import Correlation, PlacementPolicy, unrelated
from tidegate.sim.clock import Simulation
from tidegate.sim.fluid import FluidNode, FluidQueue

STEP = 0.1  # seconds of one step of the fluid


@dataclass(slots=True, kw_only=True, frozen=True)
class Topic:
    """A line of Table VI; `rate` is messages per second of one publisher, `head` where its publishers are."""

    name: str
    publishers: int
    subscribers: int
    latency: float
    size_bytes: int
    rate: float = 50.0
    head: str = "h"


@dataclass(slots=True, kw_only=True, frozen=True)
class NodeSpec:
    """A line of Table V: bits per second each way, matching in messages per second."""

    bandwidth: float
    matching: float = inf
    head: str = "h"


@dataclass(slots=True, kw_only=True)
class Event:
    """The event record of spec 2 (c), one for each queue at each look."""

    run: str
    policy: str
    t: float
    broker: str
    topic: str
    # `lambda` is a word of the language.
    arriving: float
    mu: float
    qd: float
    th: float
    util_up: float
    util_down: float
    util_match: float
    state: str
    action: str
    moved_bundle: str
    src: str
    dst: str
    deadline_miss: float


@dataclass(slots=True, kw_only=True)
class Action:
    """One balancing that moved something."""

    time: float
    source: str
    moves: tuple[Move, ...]
    is_needless: bool


@dataclass(slots=True, kw_only=True)
class Times:
    """Latencies of the links in seconds, and the seconds between two looks."""

    client: float = 0.2
    broker: float = 0.1
    interval: float = 1.0
    control_delay: float = 0.0


@dataclass(slots=True)
class _Edge:
    node: FluidNode
    detector: EdgeDetector
    spec: NodeSpec
    view: Edge
    late: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Head:
    overlay: Overlay
    detector: HeadDetector
    node: FluidNode | None
    view: Head
    random: Random


class ClusterSimulation:
    """`heads` may be several: each has the edges that name it. `until` is when the run ends, for the counterfactual."""

    def __init__(
        self,
        sim: Simulation,
        edges: dict[str, NodeSpec],
        policy: BalancePolicy,
        placement: PlacementPolicy,
        *,
        until: float,
        heads: dict[str, NodeSpec] | None = None,
        times: Times | None = None,
        rule: BudgetRule = BudgetRule.PAPER,
        thresholds: Thresholds | None = None,
        allowed_from: float = 0.0,
        predictor: Callable[[], Predictor] = LastValue,
        correlation: Correlation = unrelated,
        judge: bool = True,
        record: Callable[[Event], None] | None = None,
        run: str = "",
        policy_name: str = "",
    ) -> None:
        self.sim = sim
        self.policy = policy
        self.placement = placement
        self.until = until
        self.times = times or Times()
        self.rule = rule
        self.thresholds = thresholds or Thresholds()
        self.allowed_from = allowed_from
        self.correlation = correlation
        self.judge = judge
        self.topics: dict[str, Topic] = {}
        self.factors: dict[str, float] = {}
        self.publisher_heads: dict[str, str] = {}
        self.actions: list[Action] = []
        self.drained: dict[
            tuple[str, str], float
        ] = {}  # (edge, topic): when its queue was last seen to vanish
        self._record = record
        self._run = (run, policy_name)
        self._random = sim.random("balance")
        specs = heads or {"h": NodeSpec(bandwidth=inf)}
        names = list(specs)
        self.edges: dict[str, _Edge] = {}
        for name, spec in edges.items():
            detector = EdgeDetector(
                name,
                uplink=spec.bandwidth,
                downlink=spec.bandwidth,
                matching=spec.matching,
                predictor=predictor,
            )
            node = FluidNode(name, spec.bandwidth, policy.sharing)
            self.edges[name] = _Edge(node, detector, spec, detector.view((), 1.0))
        self.heads: dict[str, _Head] = {}
        for name, spec in specs.items():
            overlay = Overlay(name, neighbours=[each for each in names if each != name])
            head_detector = HeadDetector(name, uplink=spec.bandwidth, downlink=spec.bandwidth)
            head_node = None if spec.bandwidth == inf else FluidNode(name, spec.bandwidth, Sharing.FAIR)
            self.heads[name] = _Head(
                overlay, head_detector, head_node, head_detector.view((), 1.0), sim.random(f"head/{name}")
            )
        self._steps = 0
        self._planned: dict[int, list[Callable[[], object]]] = {}
        self._per_look = max(1, round(self.times.interval / STEP))
        sim.after(STEP, self._step)

    def at(self, time: float, action: Callable[[], object]) -> None:
        """Let something happen at the end of the step that ends at `time`."""
        self._planned.setdefault(round(time / STEP), []).append(action)

    # -- clients --------------------------------------------------------------------------------------------

    def budget(self, topic: Topic, edge: str) -> float:
        """t_e of a topic on an edge; another cluster's edge is one link further."""
        far = self.publisher_heads.get(topic.name, topic.head) != self.edges[edge].spec.head
        path = Path(
            publisher_to_head=self.times.client,
            head_to_head=self.times.broker if far else 0.0,
            head_to_edge=self.times.broker,
            edge_to_subscriber=self.times.client,
        )
        return edge_budget(topic.latency, path, self.rule)

    def join(self, topic: Topic, edge: str | None = None) -> str:
        """The subscribers of a topic come; without `edge`, placement decides where they go."""
        self.topics[topic.name] = topic
        self.factors.setdefault(topic.name, 1.0)
        self.publisher_heads.setdefault(topic.name, topic.head)
        rate = topic.publishers * topic.rate * self.factors[topic.name] * topic.subscribers
        if edge is None:
            bundle = Bundle(
                topic=topic.name,
                subscribers=topic.subscribers,
                size_bytes=topic.size_bytes,
                budget=0.0,
                arriving=rate,
            )
            views = [self._now(name) for name in self.edges]
            edge = self.placement.place(bundle, views, self.correlation, self._random)
        queue = FluidQueue(topic.name, topic.subscribers, topic.size_bytes, self.budget(topic, edge), rate)
        queue.reach = self._reach(topic, edge)
        self.edges[edge].node.add(queue)
        self._feed_head(topic)
        return edge

    def _reach(self, topic: Topic, edge: str) -> Reach:
        is_local = self.publisher_heads[topic.name] == self.edges[edge].spec.head
        return Reach.LOCAL if is_local else Reach.REMOTE

    def _now(self, name: str) -> Edge:
        """An edge by what is on it at this moment: placement must see who came a second ago."""
        edge = self.edges[name]
        bundles = {
            topic: Bundle(
                topic=topic, subscribers=queue.subscribers, size_bytes=queue.size_bytes, budget=queue.budget,
                arriving=queue.rate, leaving=queue.rate, depth=queue.depth,
            )
            for topic, queue in edge.node.queues.items()
            if queue.subscribers
        }  # fmt: skip
        return Edge(
            name=name, uplink=edge.node.uplink, downlink=edge.spec.bandwidth, matching=edge.spec.matching,
            bundles=bundles, cluster=edge.spec.head,
        )  # fmt: skip

    def set_factor(self, name: str, factor: float) -> None:
        """All publishers of a topic send at so many times their rate."""
        before = self.factors.get(name, 1.0)
        self.factors[name] = factor
        for edge in self.edges.values():
            queue = edge.node.queues.get(name)
            if queue is not None and queue.subscribers:
                edge.node.set_rate(name, queue.rate * factor / before)
        if name in self.topics:
            self._feed_head(self.topics[name])

    def set_uplink(self, edge: str, share: float) -> None:
        """The capacity of an edge changes, as by slow subscribers; its detector knows."""
        found = self.edges[edge]
        found.node.set_uplink(found.spec.bandwidth * share)
        found.detector.uplink = found.node.uplink

    # -- heads ----------------------------------------------------------------------------------------------

    def _copies(self, topic: str) -> int:
        """To how many nodes the publishers' head sends each message: its own edges, and other heads with edges."""
        home = self.publisher_heads[topic]
        edges = [edge for edge in self.edges.values() if topic in edge.node.queues]
        active = [edge for edge in edges if edge.node.queues[topic].subscribers]
        local = sum(edge.spec.head == home for edge in active)
        return local + len({edge.spec.head for edge in active} - {home})

    def _feed_head(self, topic: Topic) -> None:
        node = self.heads[self.publisher_heads[topic.name]].node
        if node is None:
            return
        copies = max(1, self._copies(topic.name))
        rate = topic.publishers * topic.rate * self.factors[topic.name]
        budget = min(
            (self.budget(topic, name) for name, edge in self.edges.items() if topic.name in edge.node.queues),
            default=inf,
        )
        known = node.queues.get(topic.name)
        if known is None:
            node.add(FluidQueue(topic.name, topic.publishers, topic.size_bytes * copies, budget, rate))
        else:
            node.set_rate(topic.name, rate)
            known.size_bytes = topic.size_bytes * copies
            known.subscribers = topic.publishers

    def _sample_head(self, name: str) -> Head:
        head = self.heads[name]
        samples = []
        for topic in self.topics.values():
            if self.publisher_heads[topic.name] != name:
                continue
            homes = {
                edge.spec.head
                for edge in self.edges.values()
                if topic.name in edge.node.queues and edge.node.queues[topic.name].subscribers
            }
            samples.append(
                PublishSample(
                    topic=topic.name,
                    publishers=topic.publishers,
                    size_bytes=topic.size_bytes,
                    arrived=topic.publishers * topic.rate * self.factors[topic.name],
                    copies=self._copies(topic.name),
                    budget=topic.latency,
                    reach=_reach_of(name, homes),
                )
            )
        return head.detector.view(samples, 1.0)

    # -- time -----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        now = self.sim.now
        for edge in self.edges.values():
            edge.node.step(now - STEP, STEP)
        for head in self.heads.values():
            if head.node is not None:
                head.node.step(now - STEP, STEP)
        self._steps += 1
        for action in self._planned.pop(self._steps, ()):
            action()
        if self._steps % self._per_look == 0:
            self._look(round(now / self.times.interval) * self.times.interval)
        self.sim.at((self._steps + 1) * STEP, self._step)

    def _look(self, now: float) -> None:
        for name, edge in self.edges.items():
            before = edge.view.bundles
            edge.view = edge.detector.view(edge.node.sample(), self.times.interval)
            edge.view.cluster = edge.spec.head
            for topic, bundle in edge.view.bundles.items():
                if bundle.depth <= 0.0 and topic in before and before[topic].depth > 0.0:
                    self.drained[name, topic] = now
        if self._record is not None:
            self._note(now, self._record)
        if now < self.allowed_from:
            return
        for name, head in self.heads.items():
            self._carry(name, head.overlay.tick(now))
            self._trigger(name, now)

    def _trigger(self, name: str, now: float) -> None:
        """What the agents of one cluster ask for at a look."""
        head = self.heads[name]
        views = [edge.view for edge in self.edges.values() if edge.spec.head == name]
        for view in views:
            view.is_locked = view.name in head.overlay.locks
        if not self.policy.is_serialised:
            self._act_in_pairs(views, now)
            return
        for view in views:
            metric = self.policy.trigger(view, now)
            if metric is not None and head.overlay.step is Step.IDLE:
                helpers = [v.name for v in views if v is not view and self.policy.may_help(v, now)]
                self._carry(name, head.overlay.request(now, view.name, metric, helpers))
        if head.node is not None and head.overlay.step is Step.IDLE:
            head.view = self._sample_head(name)
            metric = self.policy.trigger_head(head.view, now)
            if metric is not None:
                self._carry(name, head.overlay.request(now, name, metric, [], is_head=True))

    def _act_in_pairs(self, views: list[Edge], now: float) -> None:
        """Without a head, each broker decides by what all looked like at this look."""
        chosen: list[tuple[Move, ...]] = []
        for view in views:
            metric = self.policy.trigger(view, now)
            if metric is not None:
                helpers = [each for each in views if each is not view and self.policy.may_help(each, now)]
                chosen.append(tuple(self.policy.select(view, helpers, metric, now, self._random).moves))
        pair = self.policy.even_out(views, now)
        if pair is not None and not any(moves and moves[0].source == pair[0] for moves in chosen):
            source, target = (self.edges[name].view for name in pair)
            chosen.append(tuple(self.policy.select(source, [target], Metric.UPLINK, now, self._random).moves))
        for moves in chosen:
            if moves:
                self._count(moves)
                for move in moves:
                    self._move_subscribers(move)

    # -- control messages -----------------------------------------------------------------------------------

    def _carry(self, origin: str, commands: list[Command]) -> None:
        for command in commands:
            self.sim.after(self.times.control_delay, partial(self._deliver, origin, command))

    def _answer(self, to: str, what: Callable[[Overlay, float], list[Command]]) -> None:
        def arrive() -> None:
            self._carry(to, what(self.heads[to].overlay, self.sim.now))

        self.sim.after(self.times.control_delay, arrive)

    def _deliver(self, origin: str, command: Command) -> None:
        now = self.sim.now
        phase = command.phase
        if isinstance(command, messages.Ask):
            view = self.edges[command.to].view
            self._answer(origin, lambda overlay, at: overlay.on_view(at, phase, view))
        elif isinstance(command, messages.Borrow):
            lender = self.heads[command.to]
            views: list[Any] = self._lendable(command.to, is_head=command.is_head, now=now)
            self._carry(command.to, lender.overlay.lend(now, origin, phase, views))
        elif isinstance(command, messages.Lend):
            self._carry(command.to, self.heads[command.to].overlay.on_lend(now, phase, origin, command.views))
        elif isinstance(command, messages.Return):
            self.heads[command.to].overlay.on_return(now, origin)
        elif isinstance(command, messages.Offer):
            self._plan(origin, command)
        elif isinstance(command, messages.Migrate):
            self._migrate(origin, command)

    def _lendable(self, name: str, *, is_head: bool, now: float) -> list[Any]:
        if is_head:
            view = self._sample_head(name)
            return [view] if self.thresholds.head_state(view) is State.LOW else []
        views = [edge.view for edge in self.edges.values() if edge.spec.head == name]
        return [view for view in views if self.policy.may_help(view, now)]

    def _plan(self, head: str, offer: messages.Offer) -> None:
        now = self.sim.now
        if offer.to in self.heads:
            view = self._sample_head(offer.to)
            heads = [each for each in offer.views if isinstance(each, Head)]
            selection = self.policy.select_publishers(view, heads, offer.metric)
        else:
            edges = [each for each in offer.views if isinstance(each, Edge)]
            source = self.edges[offer.to].view
            selection = self.policy.select(source, edges, offer.metric, now, self._random)
        self._answer(
            head, lambda overlay, at: overlay.on_plan(at, offer.phase, selection.moves, selection.is_enough)
        )

    def _migrate(self, head: str, command: messages.Migrate) -> None:
        move = command.move
        overlay = self.heads[head].overlay
        if overlay.phase is not None and move == overlay.phase.moves[0]:
            self._count(overlay.phase.moves)
        if move.source in self.heads:
            self._move_publishers(move)
        else:
            self._move_subscribers(move)
        self._answer(head, lambda overlay, at: overlay.on_confirmed(at, command.phase, move))

    def _move_subscribers(self, move: Move) -> None:
        topic = self.topics[move.topic]
        rate = self.edges[move.source].node.take(move.topic, move.clients)
        queue = FluidQueue(move.topic, move.clients, topic.size_bytes, self.budget(topic, move.target), rate)
        queue.reach = self._reach(topic, move.target)
        self.edges[move.target].node.add(queue)
        self._feed_head(topic)

    def _count(self, moves: tuple[Move, ...]) -> None:
        source = moves[0].source
        is_needless = False
        if source in self.edges and self.judge:
            is_needless = not self.edges[source].node.will_be_late(self.sim.now, self.until, STEP)
        self.actions.append(Action(time=self.sim.now, source=source, moves=moves, is_needless=is_needless))
        self.policy.on_moved(moves, self.sim.now)

    def _move_publishers(self, move: Move) -> None:
        topic = self.topics[move.topic]
        old = self.heads[move.source].node
        if old is not None and move.topic in old.queues:
            old.set_rate(move.topic, 0.0)
            old.queues[move.topic].subscribers = 0
        self.publisher_heads[move.topic] = move.target
        self._feed_head(topic)

    # -- what came of it ------------------------------------------------------------------------------------

    def finish(self) -> None:
        """At the end of the run: count what is late by now."""
        for edge in self.edges.values():
            edge.node.finish(self.sim.now)
        for head in self.heads.values():
            if head.node is not None:
                head.node.finish(self.sim.now)

    @property
    def missed(self) -> dict[str, float]:
        """Copies of each topic that were late or given up; at heads every copy that goes on counts once."""
        found: dict[str, float] = {}
        nodes = [edge.node for edge in self.edges.values()]
        nodes += [head.node for head in self.heads.values() if head.node is not None]
        for node in nodes:
            for topic, queue in node.queues.items():
                found[topic] = found.get(topic, 0.0) + queue.late + queue.given_up
        return found

    @property
    def oscillations(self) -> int:
        """Moves that take a topic back to where it came from."""
        seen: set[tuple[str, str, str]] = set()
        count = 0
        for action in self.actions:
            for move in action.moves:
                count += (move.topic, move.target, move.source) in seen
                seen.add((move.topic, move.source, move.target))
        return count

    def share_of_budget(self, percentile: float) -> float:
        """The wait over the budget that so many of all copies stay below; in twentieths."""
        waits = [sum(each) for each in zip(*(edge.node.waits for edge in self.edges.values()), strict=True)]
        wanted = sum(waits) * percentile
        for index, count in enumerate(waits):
            wanted -= count
            if wanted <= 0.0:
                return index / 20
        return len(waits) / 20

    def _note(self, now: float, record: Callable[[Event], None]) -> None:
        run, policy = self._run
        for name, edge in self.edges.items():
            view = edge.view
            state = self.thresholds.edge_state(view).name
            for topic, bundle in view.bundles.items():
                queue = edge.node.queues[topic]
                missed = queue.late + queue.given_up
                record(
                    Event(
                        run=run, policy=policy, t=now, broker=name, topic=topic, arriving=bundle.arriving,
                        mu=bundle.leaving, qd=bundle.depth, th=self.thresholds.depth(bundle),
                        util_up=view.utilisation(Metric.UPLINK), util_down=view.utilisation(Metric.DOWNLINK),
                        util_match=view.utilisation(Metric.MATCHING), state=state, action="", moved_bundle="",
                        src="", dst="", deadline_miss=missed - edge.late.get(topic, 0.0),
                    )
                )  # fmt: skip
                edge.late[topic] = missed


def _reach_of(name: str, homes: set[str]) -> Reach:
    if not homes:
        return Reach.NONE
    if homes == {name}:
        return Reach.LOCAL
    return Reach.BOTH if name in homes else Reach.REMOTE
