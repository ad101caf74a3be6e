"""The product's back-off: learns what is normal for each publisher and slows those that leave it, when it matters.

Theory of operation (docs/design/backoff.md has the reasons and the numbers). Each publisher has a leaky bucket, which
is a one-sided CUSUM of its intervals: a message adds `allowance` (0.7), a second takes away the trained rate. At the
normal rate the bucket stays near empty; at twice the rate it gains 0.2 a message. Its depth follows the dispersion
that was learnt: shallow for a clock, deep for a Poisson stream. Over the depth the publisher is suspicious. When the
node's load is not low it is held for the time the bucket needs to fall back to its depth: proportional to the
excess, continuous at the threshold, and in effect a pace of the trained rate over `allowance`.

Learning happens at the end of a block of messages, so that `observe` does a handful of float operations. Only
accepted blocks teach; learning is limited by a quota and, under load, by what is usual among all publishers.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Final

from tidegate.flow.backoff.base import REFUSE, Load, Mode, Prior, Publisher, State, Verdict
from tidegate.flow.backoff.population import Population
from tidegate.flow.backoff.training import Training

FASTEST: Final = 1e9  # messages per second; stands for "no limit" where an infinity would make NaN
UNTRAINED: Final = -1.0  # a depth that sends every message the long way
BLOCK: Final = 8  # messages that are judged together when learning
BLOCK_SECONDS: Final = 0.01  # and the least time, so that a fast publisher does not learn all day


@dataclass(slots=True, kw_only=True, frozen=True)
class AdaptiveSettings:
    """Times in seconds, rates in messages per second."""

    n: int = 16  # messages of training
    training_time: float = 0.5  # and its least time: the first chunk of a fast publisher is not its rate
    allowance: float = 0.7  # what a message adds to the bucket; CUSUM reference between 1 and 1/2
    tolerance: float = 8.0  # depth per unit of dispersion, in messages
    burst: float = 2.0  # depth per usual height of the level between two empty moments
    depth_max: float = 64.0  # messages; with one second's worth, the most a burst may be over the trained rate
    slack: float = 1.5  # depth that even a clock gets, in messages
    slack_time: float = 0.05  # and in seconds: a stall of the network that is caught up
    confidence: float = 1.0  # standard errors by which the trained rate is rounded up
    memory: int = 96  # messages; the time constant of learning the rate
    memory_dispersion: int = 512  # messages
    evidence: float = 3.5  # what is kept over the depth when nobody is held; bounds the way back
    drift: float = 1.85  # a suspicious rate that is surely below this multiple is taken for a drift and learnt
    doubt: float = 2.0  # standard errors that make it sure
    forgive: float = 0.125  # learning of what is beyond, relative; how a changed publisher is accepted at last
    d_max: float = 5.0  # longest hold
    floor_rate: float = 50.0  # below it nobody is held
    population_least: int = 8  # publishers it takes to know what is usual
    population_factor: float = 16.0  # times the median rate that a stranger may send under load
    trust_doubling: float = 600.0  # good conduct that doubles what a stranger may send

    def __post_init__(self) -> None:
        if self.n < 8:
            raise ValueError("n must be at least 8: fewer intervals say nothing about dispersion")
        if not 0.5 < self.allowance < 1.0:
            raise ValueError("allowance must be between 0.5 and 1: between the doubled rate and the trained one")
        if not 0.0 <= self.d_max < inf or self.floor_rate < 0.0:
            raise ValueError("d_max and floor_rate must not be negative, d_max finite")


class AdaptiveBackoff:
    """The rule and what publishers share: the node's load and the rates that are usual."""

    __slots__ = ("is_per_message", "load", "mode", "population", "settings")

    def __init__(self, settings: AdaptiveSettings | None = None, *, mode: Mode = Mode.BACKPRESSURE) -> None:
        self.settings = settings or AdaptiveSettings()
        self.mode = Mode(mode)
        self.load = Load.LOW
        self.is_per_message = self.mode is Mode.DROP
        self.population = Population(self.settings.population_least)

    def publisher(self, key: Hashable, prior: Prior | None = None) -> AdaptivePublisher:
        return AdaptivePublisher(key, self, prior)

    def forget(self, publisher: Publisher) -> None:
        if isinstance(publisher, AdaptivePublisher):
            publisher.leave_population()

    def usual_rate(self) -> float:
        """What a stranger may send under load; `FASTEST` while there are too few publishers to tell."""
        median = self.population.median()
        if median == 0.0:
            return FASTEST
        settings = self.settings
        return max(settings.floor_rate, settings.population_factor * median)


class AdaptivePublisher:
    """One publisher. Everything `observe` touches lies in slots of this object."""

    __slots__ = (
        "_allowance",
        "_block_start",
        "_burst",
        "_depth",
        "_drain",
        "_due",
        "_floor_last",
        "_floor_level",
        "_gap",
        "_hold",
        "_is_doubtful",
        "_last",
        "_level",
        "_limit",
        "_peak",
        "_pending",
        "_policy",
        "_samples",
        "_silence",
        "_trained_gap",
        "_training",
        "_trust",
        "_trusted_rate",
        "_vote",
        "_was_held",
        "dispersion",
        "key",
    )

    def __init__(self, key: Hashable, policy: AdaptiveBackoff, prior: Prior | None = None) -> None:
        settings = policy.settings
        self.key = key
        self._policy = policy
        self._allowance = settings.allowance
        self._level = 0.0  # the bucket, in messages
        self._last = 0.0  # when it was last observed
        self._pending = 0  # messages of the current block
        self._block_start = 0.0
        self._due = 1  # messages that end the block
        self._drain = 0.0  # messages per second that leave the bucket
        self._depth = UNTRAINED
        self._silence = inf  # level that means: it was silent, which is no reason to learn a lower rate
        self._trained_gap = 0.0  # seconds a message; 0 while untrained
        self._gap = 0.0  # the same of late
        self._samples = 0.0  # messages behind the trained gap
        self.dispersion = 1.0
        self._training: Training | None = None
        self._limit = FASTEST
        self._trusted_rate = 0.0  # from a snapshot
        self._trust = 0.0  # seconds of good conduct
        self._vote = 0.0  # rate this publisher has in the population
        self._peak = 0.0  # highest level in the current block
        self._burst = 0.0  # and usually
        self._hold = 0.0
        self._was_held = False  # in the current block
        self._is_doubtful = False  # the current block was over the depth
        self._floor_level = 0.0
        self._floor_last = 0.0
        if prior is not None and prior.limit > 0.0:
            self._limit = prior.limit
        if prior is not None and prior.rate > 0.0:
            self._trusted_rate = prior.rate
            self.dispersion = prior.dispersion if prior.dispersion > 0.0 else 1.0
            self._learnt(1.0 / prior.rate, settings.memory)
        else:
            self._training = Training(settings.n, settings.training_time)

    @property
    def trained_rate(self) -> float:
        return 1.0 / self._trained_gap if self._trained_gap > 0.0 else 0.0

    @property
    def is_suspicious(self) -> bool:
        return self._level > self._depth and self._training is None

    def observe(self, now: float, count: int = 1, size: int = 0) -> float:
        """See `Publisher.observe`. Messages read together are taken as sent since the last ones: no flood."""
        level = self._level + count * self._allowance - (now - self._last) * self._drain
        self._last = now
        self._pending += count
        if 0.0 < level <= self._depth:
            self._level = level
            if level > self._peak:
                self._peak = level
            return 0.0
        if self._silence <= level <= 0.0 and self._pending < self._due:
            self._level = 0.0
            return 0.0
        return self._judge(now, count, level)

    def _judge(self, now: float, count: int, level: float) -> float:
        """The rest of `observe`: too fast, silent for long, or time to learn."""
        if self._training is not None:
            return self._train(now, count, level)
        if level > self._depth:
            hold = self._over(now, count, level)
            if not self._is_doubtful:
                # What led here is a mixture of before and after; the question is what comes now.
                self._is_doubtful = True
                self._was_held = hold != 0.0
                self._end_block(now)
                self._due = BLOCK
            elif self._pending >= self._due:
                self._doubt(now)
            return hold
        if level < self._silence:
            self._block_start += (self._silence - level) / self._drain
        self._level = 0.0
        if self._pending >= self._due:
            self._learn(now)
        return 0.0

    def _over(self, now: float, count: int, level: float) -> float:
        policy = self._policy
        settings = policy.settings
        hold = self._pace(now, count, level - self._depth) if policy.load else 0.0
        self._hold = hold
        if hold <= 0.0:
            # Unpunished evidence is bounded, so that whoever returns to normal is soon free.
            self._level = min(level, self._depth + settings.evidence * max(1.0, self.dispersion))
            return 0.0
        self._was_held = True
        if policy.mode is Mode.DROP:
            # What is refused is not admitted: it costs nothing, as a cell that does not conform to GCRA.
            self._level = max(self._depth, level - count * self._allowance) + 1e-9
            return REFUSE
        self._level = min(level, self._depth + self._drain * settings.d_max)
        return hold

    def _pace(self, now: float, count: int, excess: float) -> float:
        """Seconds until the bucket is back at its depth, but no more than keeps the publisher at the floor rate."""
        policy = self._policy
        settings = policy.settings
        hold = excess / self._drain
        floor = settings.floor_rate
        if policy.load is Load.OVERLOAD:
            hold *= 2.0
            floor *= 0.25
        if floor > 0.0:
            # A second bucket, of messages over the limit only: one second of the floor rate is free.
            self._floor_level = max(0.0, self._floor_level - (now - self._floor_last) * floor) + count
            self._floor_last = now
            over = self._floor_level - floor
            hold = min(hold, over / floor)
            self._floor_level = min(self._floor_level, floor * (1.0 + settings.d_max))
        return min(hold, settings.d_max)

    def _train(self, now: float, count: int, level: float) -> float:
        """While nothing is known of its own rate, only the quota and, under load, the usual rate bind."""
        training = self._training
        assert training is not None
        training.add(now, count)
        if training.is_complete:
            self._training = None
            self._level = 0.0
            self._pending = 0
            self._block_start = now
            self.dispersion = training.dispersion()
            self._learnt(training.gap(), training.messages)
            return 0.0
        hold = 0.0
        bound = self._bound()
        if bound < FASTEST and self._drain > 0.0:
            self._depth = max(bound, float(self._policy.settings.n))
            self._level = max(level, 0.0)
            if level > self._depth:
                hold = self._over(now, count, level)
        else:
            self._level = 0.0
        self._drain = bound if bound < FASTEST else 0.0
        self._depth = UNTRAINED
        return hold

    def _bound(self) -> float:
        """Messages per second beyond which own training does not count."""
        policy = self._policy
        if not policy.load:
            return self._limit
        settings = policy.settings
        usual = policy.usual_rate()
        if usual < FASTEST:
            usual *= 2.0 ** min(30.0, self._trust / settings.trust_doubling)
        return min(self._limit, max(usual, 2.0 * self._trusted_rate))

    def _end_block(self, now: float) -> tuple[int, float]:
        messages = self._pending
        time = now - self._block_start
        self._pending = 0
        self._block_start = now
        self._gap += (time / messages - self._gap) * min(1.0, messages / 16.0)
        return messages, time

    def _learn(self, now: float) -> None:
        """The bucket is empty: all messages since it last was are normal, together."""
        settings = self._policy.settings
        messages, time = self._end_block(now)
        if self._is_doubtful:
            self._is_doubtful = self._was_held = False
            self._peak = 0.0
            self._tune()
            return
        self._trust += time
        trained = self._trained_gap
        samples = self._samples + messages
        error = time / trained - messages
        spread = min(error * error / messages, 4.0 + 9.0 * self.dispersion)
        self.dispersion += (spread - self.dispersion) * min(0.25, messages / min(settings.memory_dispersion, samples))
        self._burst += (self._peak - self._burst) * min(0.25, messages / settings.memory)
        self._peak = 0.0
        weight = min(0.25, messages / min(settings.memory, samples))
        gap = min(time / messages, 4.0 * trained)
        self._learnt(trained + (gap - trained) * weight, messages)

    def _doubt(self, now: float) -> None:
        """Suspicious for a while: a drift that may be followed, or too fast to be believed?"""
        settings = self._policy.settings
        messages = self._pending
        time = now - self._block_start
        trained = self._trained_gap
        gap = time / messages
        self._due = messages + BLOCK
        if self._was_held:
            # The pace was ours, not the publisher's: nothing can be learnt from it.
            self._was_held = False
            self._end_block(now)
            self._tune()
            self._due = BLOCK
            return
        error = settings.doubt * sqrt(self.dispersion / messages)
        if trained < gap * settings.drift * (1.0 - error):
            weight = 0.75
        elif messages < 4 * BLOCK:
            return
        else:
            weight = settings.forgive * messages / settings.memory
        self._end_block(now)
        gap = max(gap, 0.5 * trained)
        learnt = trained + (gap - trained) * weight
        if learnt < trained:
            # The evidence was counted against the old rate: count it again, for the messages that are in it.
            self._level = max(0.0, self._level - (1.0 / learnt - 1.0 / trained) * time)
        self._learnt(learnt, messages)
        self._due = BLOCK

    def _learnt(self, gap: float, messages: float) -> None:
        self._trained_gap = max(gap, 1.0 / FASTEST)
        if self._gap == 0.0:
            self._gap = self._trained_gap
        self._samples = min(self._samples + messages, self._policy.settings.memory_dispersion)
        rate = 1.0 / self._trained_gap
        # A tenth is nothing among rates that differ by orders of magnitude.
        if not 0.9 * self._vote < rate < 1.1 * self._vote:
            self._policy.population.replace(self._vote, rate)
            self._vote = rate
        self._tune()

    def _tune(self) -> None:
        """Bucket and block for what is known now."""
        settings = self._policy.settings
        rate = 1.0 / self._trained_gap
        error = sqrt(self.dispersion / min(self._samples, 2.0 * settings.memory))
        drain = rate * (1.0 + settings.confidence * error)
        depth = settings.slack + settings.slack_time * rate + settings.tolerance * self.dispersion * (1.0 + error)
        depth = min(max(depth, settings.burst * self._burst), settings.depth_max + rate)
        bound = self._bound()
        if bound < drain:
            # A quota, not a habit: one second's worth at once, whatever the dispersion.
            drain, depth = bound, max(settings.slack, bound)
        self._drain = drain
        self._depth = depth
        self._due = max(BLOCK, int(BLOCK_SECONDS * rate))
        self._silence = -0.5 * self._due

    def leave_population(self) -> None:
        self._policy.population.replace(self._vote, 0.0)
        self._vote = 0.0

    def snapshot(self, now: float, rank: int = 0) -> Verdict:
        is_suspicious = self._level - max(0.0, now - self._last) * self._drain > self._depth
        if self._training is not None:
            state = State.TRAINING
        elif is_suspicious:
            state = State.HELD if self._hold > 0.0 else State.SUSPICIOUS
        else:
            state = State.NORMAL
        silent = max(self._gap, now - self._last)  # a publisher that stopped has no rate any more
        return Verdict(
            state=state,
            rate=1.0 / silent if self._gap > 0.0 else 0.0,
            trained_rate=self.trained_rate,
            dispersion=self.dispersion,
            hold=self._hold if is_suspicious else 0.0,
            rank=rank,
        )
