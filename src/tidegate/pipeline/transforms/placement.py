"""Which edge serves which topic (spec 2): subscribers of a topic together, correlated topics apart, nobody overfull.

A plan has as many rows as topics, so it is made on the driver: topics by demand, each to the edge whose fullest
metric stays lowest, with a penalty for company that it bursts with; then moves and exchanges as long as one helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.pipeline.settings import Edge

PENALTY: Final = 0.1  # utilisation that a correlation of 1 is worth avoiding
MOVES: Final = 1_000  # that the search makes at most
LARGEST: Final = 200  # topics that the search looks at; the rest is small change


@dataclass(slots=True, kw_only=True, frozen=True)
class Demand:
    """A topic: messages per second, and bits per second to all of its subscribers."""

    topic: str
    rate: float
    uplink_bits: float


@dataclass(slots=True, kw_only=True, frozen=True)
class Placed:
    """A row of the plan; utilisations are those of the edge with all its topics."""

    topic: str
    edge: str
    rate: float
    util_up: float
    util_match: float


def plan(
    demands: Sequence[Demand], edges: Sequence[Edge], rho: Mapping[tuple[str, str], float]
) -> list[Placed]:
    """A topic is in the plan once. `rho` has pairs with their names in order; others are 0. No edges: no plan."""
    if not edges:
        return []
    table = _Plan(edges, rho)
    for demand in sorted(demands, key=lambda each: (-each.uplink_bits, -each.rate, each.topic)):
        table.add(demand)
    table.improve()
    return table.rows()


class _Plan:
    def __init__(self, edges: Sequence[Edge], rho: Mapping[tuple[str, str], float]) -> None:
        self._edges = list(edges)
        self._rho: dict[str, dict[str, float]] = {}
        for (a, b), value in rho.items():
            self._rho.setdefault(a, {})[b] = value
            self._rho.setdefault(b, {})[a] = value
        self._bits = [0.0] * len(edges)
        self._rate = [0.0] * len(edges)
        self._at: dict[str, int] = {}
        self._demands: list[Demand] = []

    def add(self, demand: Demand) -> None:
        costs = [
            # Ties: the larger bandwidth, then the lower name (spec 2, [R]).
            (
                self._fullest(at, demand) + PENALTY * self._company(at, demand.topic),
                -edge.uplink_bits,
                edge.name,
                at,
            )
            for at, edge in enumerate(self._edges)
        ]
        self._demands.append(demand)
        self._put(demand, min(costs)[3])

    def improve(self) -> None:
        """Moves of one topic, and exchanges of two, while the worst edge or the company gets better."""
        largest = self._demands[:LARGEST]
        for _ in range(MOVES):
            if not (self._move(largest) or self._exchange(largest)):
                return

    def rows(self) -> list[Placed]:
        return [
            Placed(
                topic=demand.topic,
                edge=self._edges[self._at[demand.topic]].name,
                rate=demand.rate,
                util_up=self._bits[self._at[demand.topic]] / self._edges[self._at[demand.topic]].uplink_bits,
                util_match=self._rate[self._at[demand.topic]]
                / self._edges[self._at[demand.topic]].match_rate,
            )
            for demand in sorted(self._demands, key=lambda each: each.topic)
        ]

    def _fullest(self, at: int, demand: Demand | None = None) -> float:
        edge = self._edges[at]
        bits = self._bits[at] + (demand.uplink_bits if demand else 0.0)
        rate = self._rate[at] + (demand.rate if demand else 0.0)
        return max(bits / edge.uplink_bits, rate / edge.match_rate)

    def _company(self, at: int, topic: str) -> float:
        return sum(value for other, value in self._rho.get(topic, {}).items() if self._at.get(other) == at)

    def _put(self, demand: Demand, at: int) -> None:
        old = self._at.get(demand.topic)
        if old is not None:
            self._bits[old] -= demand.uplink_bits
            self._rate[old] -= demand.rate
        self._at[demand.topic] = at
        self._bits[at] += demand.uplink_bits
        self._rate[at] += demand.rate

    def _worth(self, demands: Sequence[Demand], places: Sequence[int]) -> float:
        """What the edges concerned would cost if these topics were at these places; puts them back."""
        before = [self._at[demand.topic] for demand in demands]
        concerned = {*before, *places}
        for demand, place in zip(demands, places, strict=True):
            self._put(demand, place)
        cost = max(self._fullest(at) for at in concerned)
        cost += PENALTY * sum(self._company(self._at[d.topic], d.topic) for d in demands)
        for demand, place in zip(demands, before, strict=True):
            self._put(demand, place)
        return cost

    def _move(self, demands: Sequence[Demand]) -> bool:
        worst = max(range(len(self._edges)), key=self._fullest)
        for demand in demands:
            here = self._at[demand.topic]
            if here != worst and not self._company(here, demand.topic):
                continue
            for at in range(len(self._edges)):
                if at != here and self._better([demand], [at], {here, at}):
                    self._put(demand, at)
                    return True
        return False

    def _exchange(self, demands: Sequence[Demand]) -> bool:
        worst = max(range(len(self._edges)), key=self._fullest)
        for mine in demands:
            if self._at[mine.topic] != worst:
                continue
            for other in demands:
                there = self._at[other.topic]
                if there != worst and self._better([mine, other], [there, worst], {worst, there}):
                    self._put(mine, there)
                    self._put(other, worst)
                    return True
        return False

    def _better(self, demands: Sequence[Demand], places: Sequence[int], concerned: set[int]) -> bool:
        now = max(self._fullest(at) for at in concerned)
        now += PENALTY * sum(self._company(self._at[d.topic], d.topic) for d in demands)
        return self._worth(demands, places) < now - 1e-9
