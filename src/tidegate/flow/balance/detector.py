"""Load detectors (ELD, HLD): counters of one interval in, the view of a node out.

The caller samples its counters every interval; what a decision sees are predictions for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from tidegate.flow.balance.predictors import LastValue, Predictor
from tidegate.flow.balance.view import Bundle, Edge, Head, PublisherBundle, Reach


@dataclass(slots=True, kw_only=True)
class QueueSample:
    """One topic of an edge: copies that arrived and left within the interval, and what waits at its end."""

    topic: str
    subscribers: int
    size_bytes: float
    budget: float
    arrived: float
    departed: float
    depth: float
    reach: Reach = Reach.LOCAL


@dataclass(slots=True, kw_only=True)
class PublishSample:
    """One topic of a head: messages that came within the interval, and to how many nodes each goes on."""

    topic: str
    publishers: int
    size_bytes: float
    arrived: float
    copies: int
    budget: float = inf
    reach: Reach = Reach.LOCAL


class EdgeDetector:
    """ELD: rates of every queue. `confidence` deviations are added to what arrives: better early than late."""

    __slots__ = ("_arriving", "_confidence", "_leaving", "_make", "downlink", "matching", "name", "uplink")

    def __init__(
        self,
        name: str,
        *,
        uplink: float,
        downlink: float,
        matching: float = inf,
        predictor: Callable[[], Predictor] = LastValue,
        confidence: float = 0.0,
    ) -> None:
        self.name = name
        self.uplink = uplink
        self.downlink = downlink
        self.matching = matching
        self._make = predictor
        self._confidence = confidence
        self._arriving: dict[str, Predictor] = {}
        self._leaving: dict[str, Predictor] = {}

    def view(self, samples: Iterable[QueueSample], interval: float) -> Edge:
        """The edge after an interval with these samples; a topic that is not among them is forgotten."""
        bundles: dict[str, Bundle] = {}
        for sample in samples:
            topic = sample.topic
            arriving = self._arriving.get(topic) or self._arriving.setdefault(topic, self._make())
            leaving = self._leaving.get(topic) or self._leaving.setdefault(topic, self._make())
            arriving.update(sample.arrived / interval)
            leaving.update(sample.departed / interval)
            bundles[topic] = Bundle(
                topic=topic,
                subscribers=sample.subscribers,
                size_bytes=sample.size_bytes,
                budget=sample.budget,
                arriving=arriving.predict() + self._confidence * arriving.deviation,
                leaving=leaving.predict(),
                depth=sample.depth,
                reach=sample.reach,
            )
        for table in (self._arriving, self._leaving):
            for topic in table.keys() - bundles.keys():
                del table[topic]
        return Edge(
            name=self.name,
            uplink=self.uplink,
            downlink=self.downlink,
            matching=self.matching,
            bundles=bundles,
        )


class HeadDetector:
    """HLD: rates of every topic that is published here."""

    __slots__ = ("_make", "_rates", "downlink", "name", "uplink")

    def __init__(
        self, name: str, *, uplink: float, downlink: float, predictor: Callable[[], Predictor] = LastValue
    ) -> None:
        self.name = name
        self.uplink = uplink
        self.downlink = downlink
        self._make = predictor
        self._rates: dict[str, Predictor] = {}

    def view(self, samples: Iterable[PublishSample], interval: float) -> Head:
        bundles: dict[str, PublisherBundle] = {}
        for sample in samples:
            rate = self._rates.get(sample.topic) or self._rates.setdefault(sample.topic, self._make())
            rate.update(sample.arrived / interval)
            bundles[sample.topic] = PublisherBundle(
                topic=sample.topic,
                publishers=sample.publishers,
                size_bytes=sample.size_bytes,
                rate=rate.predict(),
                copies=sample.copies,
                budget=sample.budget,
                reach=sample.reach,
            )
        for topic in self._rates.keys() - bundles.keys():
            del self._rates[topic]
        return Head(name=self.name, uplink=self.uplink, downlink=self.downlink, bundles=bundles)
