"""The default: act when a deadline is in danger, enough to be rid of the backlog, and never back and forth.

Beyond the paper (spec 2 (e) 1 to 5):
- The trigger looks ahead: the time until a message would be too late, against the time that acting and draining take.
- What is moved must drain the queues in danger within `drain` seconds, not merely stop their growth.
- The uplink is shared by deadline (`Sharing.DEADLINE`), so a topic that may wait a minute takes the shortage first.
- A bundle that was moved stays for `cool_down`, does not return for `memory`; its source rests for `settle`.
- A plan that costs more messages than it saves, or saves too little, is not made.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf
from operator import itemgetter
from random import Random

from tidegate.flow.balance.base import Selection, Sharing
from tidegate.flow.balance.paper import PaperBalance
from tidegate.flow.balance.thresholds import Thresholds, time_to_violation
from tidegate.flow.balance.view import Bundle, Edge, Metric, Move

ROUNDING = 1e-6


class Room:
    """What an edge has left while a plan is made: its sums, taken once, not at each look at it."""

    __slots__ = ("_edge", "downlink", "downlink_bits", "incoming", "matching", "name", "uplink", "uplink_bits")

    def __init__(self, edge: Edge) -> None:
        self.name = edge.name
        self.uplink = edge.uplink
        self.downlink = edge.downlink
        self.matching = edge.matching
        self._sum(edge)

    def _sum(self, edge: Edge) -> None:
        self._edge = edge
        self.uplink_bits = edge.uplink_bits
        self.downlink_bits = edge.downlink_bits
        self.incoming = edge.incoming

    def take(self, part: Bundle) -> None:
        self._sum(self._edge.with_bundle(part))


class DeadlineBalance(PaperBalance):
    """Times in seconds. `fill` is how full an uplink may be made; `horizon` over which gain and cost are compared."""

    __slots__ = ("_acted", "_moved", "cool_down", "drain", "fill", "horizon", "memory", "settle", "sharing")

    def __init__(
        self,
        thresholds: Thresholds | None = None,
        *,
        sharing: Sharing = Sharing.DEADLINE,
        drain: float = 4.0,
        fill: float = 0.98,
        cool_down: float = 20.0,
        memory: float = 120.0,
        settle: float = 3.0,
        horizon: float = 10.0,
    ) -> None:
        super().__init__(thresholds)
        self.sharing = sharing
        self.drain = drain
        self.fill = fill
        self.cool_down = cool_down
        self.memory = memory
        self.settle = settle
        self.horizon = horizon
        self._moved: dict[tuple[str, str], tuple[float, str]] = {}  # (topic, where): since when, from where
        self._acted: dict[str, float] = {}  # edge: when it last gave something away

    # -- when -----------------------------------------------------------------------------------------------

    def trigger(self, edge: Edge, now: float) -> Metric | None:
        if now - self._acted.get(edge.name, -inf) < self.settle:
            return None  # what was done has not shown yet
        for metric in (Metric.DOWNLINK, Metric.MATCHING):
            if edge.utilisation(metric) >= self.thresholds.high:
                return metric
        return Metric.QUEUE if self._endangered(edge) else None

    def _endangered(self, edge: Edge) -> list[Bundle]:
        """Queues that will be too late unless something is done at this look or the next."""
        limit = self.thresholds.balancing + self.thresholds.interval + self.drain
        return [
            bundle
            for bundle in edge.bundles.values()
            if bundle.subscribers
            and time_to_violation(bundle.depth, bundle.arriving, bundle.leaving, bundle.budget) < limit
            # A queue that does not grow and is in time stays in time.
            and (
                bundle.arriving > bundle.leaving * (1 + ROUNDING)
                or bundle.depth > bundle.budget * bundle.leaving
            )
        ]

    def may_help(self, edge: Edge, now: float) -> bool:
        return (
            not edge.is_locked and edge.utilisation(Metric.UPLINK) < self.fill and not self._endangered(edge)
        )

    # -- what -----------------------------------------------------------------------------------------------

    def select(
        self, edge: Edge, candidates: Sequence[Edge], metric: Metric, now: float, random: Random
    ) -> Selection:
        endangered = self._endangered(edge)
        need = self._need(edge, endangered, metric)
        if need <= 0.0:
            return Selection()
        rooms = [Room(each) for each in candidates]
        left = {
            bundle.topic: bundle
            for bundle in edge.bundles.values()
            if bundle.subscribers
            and now - self._moved.get((bundle.topic, edge.name), (-inf, ""))[0] >= self.cool_down
        }
        moves: list[Move] = []
        gained = 0.0
        while gained < need - ROUNDING and left:
            found = self._whole(edge, left, rooms, need - gained, metric, now) or (
                self._part(edge, left, rooms, need - gained, metric, now)
            )
            if found is None:
                break
            bundle, clients, room = found
            part = bundle.part(clients)
            gained += self._relief(part, metric)
            room.take(part)
            moves.append(Move(topic=bundle.topic, clients=clients, source=edge.name, target=room.name))
            del left[bundle.topic]
        is_enough = gained >= need - ROUNDING
        if moves and (self._gain(endangered, gained / need) <= self._cost(edge, moves) or gained < need / 2):
            return Selection(is_enough=False)
        return Selection(moves=moves, is_enough=is_enough)

    def _need(self, edge: Edge, endangered: list[Bundle], metric: Metric) -> float:
        """Bits per second (messages per second for matching) that should go."""
        if metric is Metric.MATCHING:
            return edge.incoming - self.thresholds.low * edge.matching
        if metric is Metric.DOWNLINK:
            return edge.downlink_bits - self.thresholds.low * edge.downlink
        shortage = max(0.0, edge.uplink_bits - edge.uplink)
        return shortage + sum(bundle.depth_bits for bundle in endangered) / self.drain

    def _relief(self, part: Bundle, metric: Metric) -> float:
        if metric is Metric.MATCHING:
            return part.incoming
        return part.downlink_bits if metric is Metric.DOWNLINK else part.uplink_bits

    def _whole(
        self, edge: Edge, left: dict[str, Bundle], rooms: list[Room], need: float, metric: Metric, now: float
    ) -> tuple[Bundle, int, Room] | None:
        """The bundle of fewest clients that is enough; if none is, the one that helps most."""
        ranked: list[tuple[tuple[float, ...], Bundle]] = []
        for bundle in left.values():
            relief = self._relief(bundle, metric)
            if relief >= need - ROUNDING:
                ranked.append(((0.0, bundle.subscribers, -bundle.budget), bundle))
            elif relief > 0.0:
                ranked.append(((1.0, -relief, -bundle.budget), bundle))
        for _, bundle in sorted(ranked, key=itemgetter(0)):
            room = self._roomiest(edge, bundle, rooms, now)
            if room is not None:
                return bundle, bundle.subscribers, room
        return None

    def _part(
        self, edge: Edge, left: dict[str, Bundle], rooms: list[Room], need: float, metric: Metric, now: float
    ) -> tuple[Bundle, int, Room] | None:
        """Some subscribers of one bundle: those that may wait longest, as many as needed and as fit."""
        for bundle in sorted(left.values(), key=lambda each: (-each.budget, each.topic)):
            one = bundle.part(1)
            relief = self._relief(one, metric)
            if bundle.subscribers < 2 or relief <= 0.0:
                continue
            room = self._roomiest(edge, one, rooms, now)
            if room is None:
                continue
            free = room.uplink * self.fill - room.uplink_bits
            fits = floor(free / one.uplink_bits + ROUNDING) if one.uplink_bits else bundle.subscribers
            clients = max(1, min(ceil(need / relief - ROUNDING), fits, bundle.subscribers - 1))
            return bundle, clients, room
        return None

    def _roomiest(self, edge: Edge, bundle: Bundle, rooms: list[Room], now: float) -> Room | None:
        """Who is left with most room; nobody who gave the bundle away a while ago."""
        since, origin = self._moved.get((bundle.topic, edge.name), (-inf, ""))
        barred = origin if now - since < self.memory else None
        uplink_bits, downlink_bits, incoming = bundle.uplink_bits, bundle.downlink_bits, bundle.incoming
        high, limit = self.thresholds.high, self.fill + ROUNDING
        best: Room | None = None
        best_share = inf
        for room in rooms:
            share = (room.uplink_bits + uplink_bits) / room.uplink
            if share > limit or share > best_share or room.name == barred:
                continue
            if room.downlink_bits + downlink_bits >= high * room.downlink:
                continue
            if room.incoming + incoming >= high * room.matching:
                continue
            if best is None or share < best_share or room.name < best.name:
                best, best_share = room, share
        return best

    # -- whether --------------------------------------------------------------------------------------------

    def _gain(self, endangered: list[Bundle], share: float) -> float:
        """Messages that would be late within the horizon, as far as the plan helps; static overload counts as all."""
        if not endangered:
            return inf
        late = 0.0
        for bundle in endangered:
            wait = time_to_violation(bundle.depth, bundle.arriving, bundle.leaving, bundle.budget)
            late += bundle.arriving * max(0.0, self.horizon - wait)
        return late * min(1.0, share)

    def _cost(self, edge: Edge, moves: list[Move]) -> float:
        """One message of effort a client, and what becomes late because its client was moving."""
        cost = 0.0
        for move in moves:
            bundle = edge.bundles[move.topic]
            cost += move.clients
            if bundle.budget < self.thresholds.balancing:
                cost += bundle.part(move.clients).arriving * self.thresholds.balancing
        return cost

    def on_moved(self, moves: Sequence[Move], now: float) -> None:
        for move in moves:
            self._moved[move.topic, move.target] = (now, move.source)
            self._acted[move.source] = now
        for key, (since, _) in list(self._moved.items()):
            if now - since > self.memory:
                del self._moved[key]
