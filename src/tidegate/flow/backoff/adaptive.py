"""The product's back-off: learns what is normal for each publisher, and slows those that leave it when it matters.

Theory of operation; docs/design/backoff.md has the reasons and the numbers. Each publisher has a leaky bucket, which
is a one-sided CUSUM of its intervals: a message adds `allowance` (0.73), a second takes away the trained rate. At the
normal rate the bucket is empty again and again; at twice the rate it gains 0.23 a message. Its depth follows what was
learnt about dispersion: shallow for a clock, deep for a Poisson stream. Over the depth the publisher is suspicious.
If the node's load is not low it is then held for the time the bucket needs to fall back to its depth: proportional to
the excess, continuous at the threshold, in effect a pace somewhat over the trained rate.

Learning happens at the end of a block of messages, and a block only ends when the bucket is empty: then all messages
since it was last empty are normal, together. Messages that take the bucket over its depth teach nothing, unless they
turn out to be a drift. A quota and, under load, what is usual among all publishers bound what learning can achieve.

`AdaptiveBackoff` is the rule and what publishers share; the bucket is in `bucket.py`.
"""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.flow.backoff.base import Load, Mode, Prior, Publisher
from tidegate.flow.backoff.bucket import FASTEST, AdaptivePublisher
from tidegate.flow.backoff.population import Population
from tidegate.flow.backoff.settings import AdaptiveSettings


class AdaptiveBackoff:
    """`load` LOW: nobody is held, only watched. HIGH: who is over its limit is held. OVERLOAD: twice as long."""

    __slots__ = ("is_per_message", "load", "mode", "population", "settings")

    def __init__(self, settings: AdaptiveSettings | None = None, *, mode: Mode = Mode.BACKPRESSURE) -> None:
        self.settings = settings or AdaptiveSettings()
        self.mode = Mode(mode)
        self.load = Load.LOW
        # A whole chunk must not be refused, or acknowledged early, because its last message was one too many.
        self.is_per_message = self.mode is not Mode.BACKPRESSURE
        self.population = Population(self.settings.population_least)

    def publisher(self, key: Hashable, prior: Prior | None = None) -> AdaptivePublisher:
        return AdaptivePublisher(key, self, prior)

    def join(self, publisher: Publisher) -> None:
        if isinstance(publisher, AdaptivePublisher):
            publisher.stand(publisher.trained_rate)

    def leave(self, publisher: Publisher) -> None:
        if isinstance(publisher, AdaptivePublisher):
            publisher.stand(0.0)

    def usual_rate(self) -> float:
        """What a stranger may send under load; `FASTEST` while there are too few publishers to tell."""
        median = self.population.median()
        if median == 0.0:
            return FASTEST
        return max(self.settings.floor_rate, self.settings.population_factor * median)


__all__ = ["AdaptiveBackoff", "AdaptivePublisher", "AdaptiveSettings"]
