"""What a decision about load may know: nodes, their capacities, and the bundles of clients they serve.

A **bundle** is all clients of one topic on one node; it is moved or kept as a whole where that is possible, because
a topic that is served in two places crosses two links. Rates are messages per second, capacities bits per second,
times seconds. Uplink means towards subscribers, downlink towards the node.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from math import inf

BITS = 8


class Metric(StrEnum):
    """What can be too much (spec 2, Tables I and II)."""

    DOWNLINK = "downlink"
    UPLINK = "uplink"
    MATCHING = "matching"
    QUEUE = "queue"


class State(IntEnum):
    """Load of a node (Table III)."""

    LOW = 0
    HIGH = 1
    OVERLOAD = 2


class Reach(StrEnum):
    """Where the other side of a topic is: for subscribers its publishers, for publishers its subscribers."""

    NONE = "none"
    LOCAL = "local"
    BOTH = "remote and local"
    REMOTE = "remote"


@dataclass(slots=True, kw_only=True)
class Bundle:
    """The subscribers of one topic on one edge, as one output queue.

    `arriving` (λ) and `leaving` (μ) count each copy: a message for eight subscribers arrives eight times. `depth` is
    the number of copies that wait, `budget` how long a copy may wait here (t_e of equation 1).
    """

    topic: str
    subscribers: int
    size_bytes: float
    budget: float
    arriving: float = 0.0
    leaving: float = 0.0
    depth: float = 0.0
    reach: Reach = Reach.LOCAL

    @property
    def uplink_bits(self) -> float:
        return self.arriving * self.size_bytes * BITS

    @property
    def incoming(self) -> float:
        """Messages per second that reach the edge for this topic, once for all subscribers."""
        return self.arriving / self.subscribers if self.subscribers else 0.0

    @property
    def downlink_bits(self) -> float:
        return self.incoming * self.size_bytes * BITS

    @property
    def depth_bits(self) -> float:
        return self.depth * self.size_bytes * BITS

    def part(self, subscribers: int) -> Bundle:
        """Some of its subscribers, with their share of everything but the budget."""
        share = subscribers / self.subscribers
        return replace(
            self,
            subscribers=subscribers,
            arriving=self.arriving * share,
            leaving=self.leaving * share,
            depth=self.depth * share,
        )


@dataclass(slots=True, kw_only=True)
class Edge:
    """An edge as its detector sees it. `is_locked`: a balancing phase has it, or it is being drained."""

    name: str
    uplink: float
    downlink: float
    matching: float = inf
    bundles: dict[str, Bundle] = field(default_factory=dict)
    is_locked: bool = False
    cluster: str = ""

    @property
    def uplink_bits(self) -> float:
        return sum(bundle.uplink_bits for bundle in self.bundles.values())

    @property
    def downlink_bits(self) -> float:
        return sum(bundle.downlink_bits for bundle in self.bundles.values())

    @property
    def incoming(self) -> float:
        return sum(bundle.incoming for bundle in self.bundles.values())

    def utilisation(self, metric: Metric) -> float:
        """Share of the capacity that is asked for; it may be over 1."""
        if metric is Metric.UPLINK:
            return self.uplink_bits / self.uplink
        if metric is Metric.DOWNLINK:
            return self.downlink_bits / self.downlink
        if metric is Metric.MATCHING:
            return self.incoming / self.matching
        return max((bundle.depth for bundle in self.bundles.values()), default=0.0)

    def with_bundle(self, bundle: Bundle) -> Edge:
        """As it would be with these subscribers as well; their queue stays where it is."""
        bundles = dict(self.bundles)
        known = bundles.get(bundle.topic)
        added = replace(bundle, depth=0.0, leaving=bundle.arriving)
        if known is not None:
            added = replace(
                known,
                subscribers=known.subscribers + bundle.subscribers,
                arriving=known.arriving + bundle.arriving,
                leaving=known.leaving + bundle.arriving,
            )
        bundles[bundle.topic] = added
        return replace(self, bundles=bundles)

    def without(self, topic: str, subscribers: int) -> Edge:
        """As it would be without these subscribers; what waits for them is still to be sent."""
        bundles = dict(self.bundles)
        known = bundles[topic]
        left = known.subscribers - subscribers
        if left:
            bundles[topic] = replace(known.part(left), depth=known.depth)
        else:
            bundles[topic] = replace(known, subscribers=0, arriving=0.0)
        return replace(self, bundles=bundles)


@dataclass(slots=True, kw_only=True)
class PublisherBundle:
    """The publishers of one topic on one head; `copies` is to how many edges and heads each message goes on."""

    topic: str
    publishers: int
    size_bytes: float
    rate: float
    copies: int
    budget: float = inf
    reach: Reach = Reach.LOCAL

    @property
    def downlink_bits(self) -> float:
        return self.rate * self.size_bytes * BITS

    @property
    def uplink_bits(self) -> float:
        return self.downlink_bits * self.copies


@dataclass(slots=True, kw_only=True)
class Head:
    """A head as its detector sees it."""

    name: str
    uplink: float
    downlink: float
    bundles: dict[str, PublisherBundle] = field(default_factory=dict)
    is_locked: bool = False

    def utilisation(self, metric: Metric) -> float:
        if metric is Metric.UPLINK:
            return sum(bundle.uplink_bits for bundle in self.bundles.values()) / self.uplink
        if metric is Metric.DOWNLINK:
            return sum(bundle.downlink_bits for bundle in self.bundles.values()) / self.downlink
        return 0.0

    def with_bundle(self, bundle: PublisherBundle) -> Head:
        bundles = dict(self.bundles)
        known = bundles.get(bundle.topic)
        if known is not None:
            bundle = replace(
                known, publishers=known.publishers + bundle.publishers, rate=known.rate + bundle.rate
            )
        bundles[bundle.topic] = bundle
        return replace(self, bundles=bundles)

    def without(self, topic: str) -> Head:
        return replace(self, bundles={name: each for name, each in self.bundles.items() if name != topic})


@dataclass(slots=True, kw_only=True, frozen=True)
class Move:
    """So many clients of a topic from one node to another."""

    topic: str
    clients: int
    source: str
    target: str
