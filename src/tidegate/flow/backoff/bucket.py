"""State of one publisher under the adaptive back-off: a bucket, what fills it, and what it learns. See `adaptive.py`.

Long for one class, because `observe` is in the hot path and everything it decides on lies in slots of one object.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf, sqrt
from typing import TYPE_CHECKING, Final

from tidegate.flow.backoff.base import REFUSE, Load, Mode, Prior, State, Verdict
from tidegate.flow.backoff.training import Training

if TYPE_CHECKING:
    from tidegate.flow.backoff.adaptive import AdaptiveBackoff

FASTEST: Final = 1e9  # messages per second; stands for "no limit" where an infinity would make NaN
UNTRAINED: Final = -1.0  # a depth that sends every message the long way
BLOCK: Final = 8  # messages that are learnt from together,
MATURE: Final = 256.0  # and when so many were learnt,
MATURE_BLOCK: Final = 16  # so many: learning costs ten times as much as observing
DOUBT_SECONDS: Final = 1.0
BLOCK_SECONDS: Final = 0.05  # and the least time, so that a fast publisher does not learn all day


class AdaptivePublisher:
    """One publisher. Levels and depths in messages, times in seconds."""

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
        "_memory",
        "_peak",
        "_pending",
        "_policy",
        "_refused_at",
        "_samples",
        "_silence",
        "_trained_gap",
        "_training",
        "_trust",
        "_trusted_rate",
        "_tuned_for",
        "_vote",
        "_was_held",
        "dispersion",
        "key",
    )

    def __init__(self, key: Hashable, policy: AdaptiveBackoff, prior: Prior | None = None) -> None:
        settings = policy.settings
        self.key = key
        self._policy = policy
        # The bucket.
        self._allowance = settings.allowance
        self._level = 0.0
        self._last = 0.0  # when it was last observed
        self._drain = 0.0  # messages per second that leave
        self._depth = UNTRAINED
        # The block that will be learnt from.
        self._pending = 0
        self._block_start = 0.0
        self._due = 1  # messages that may end it
        self._silence = inf  # a level below it means a pause, which says nothing about the rate
        self._peak = 0.0  # highest level
        self._is_doubtful = False  # the level was over the depth
        self._was_held = False
        # What is known.
        self._training: Training | None = None
        self._trained_gap = 0.0  # seconds a message; 0 while untrained
        self._gap = 0.0  # the same of late
        self._samples = 0.0  # messages behind it
        self._memory = float(settings.memory)
        self._burst = 0.0  # usual peak
        self.dispersion = 1.0
        # What bounds it.
        self._limit = FASTEST
        self._trusted_rate = 0.0  # from a snapshot
        self._trust = 0.0  # seconds of good conduct
        self._vote = 0.0  # its rate in the population
        # Holding.
        self._hold = 0.0
        self._refused_at = -inf
        self._tuned_for = Load.LOW
        self._floor_level = 0.0
        self._floor_last = 0.0
        if prior is not None and prior.limit > 0.0:
            self._limit = prior.limit
        if prior is not None and prior.rate > 0.0:
            self._trusted_rate = prior.rate
            if prior.dispersion > 0.0:
                self.dispersion = prior.dispersion
            self._learnt(1.0 / prior.rate, settings.memory)
        else:
            self._training = Training(settings.n, settings.training_time)

    @property
    def trained_rate(self) -> float:
        return 1.0 / self._trained_gap if self._trained_gap > 0.0 else 0.0

    @property
    def likely_rate(self) -> float:
        return self.trained_rate if self._training is None else self._training.first_guess()

    @property
    def is_suspicious(self) -> bool:
        return self._training is None and (self._level > self._depth or self._refused_at == self._last)

    @property
    def is_in_good_standing(self) -> bool:
        return self._trust >= self._policy.settings.probation and not self._is_doubtful

    def observe(self, now: float, count: int = 1, size: int = 0) -> float:
        """See `Publisher.observe`. Messages read together count as sent since the last ones: no flood by itself."""
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
        """The rest of `observe`: too fast, back from a pause, or time to learn."""
        if self._training is not None:
            return self._train(self._training, now, count, level)
        if level <= self._depth:
            self._level = 0.0
            if level < self._silence:
                self._block_start += (self._silence - level) / self._drain
            if self._pending >= self._due:
                self._learn(now)
            return 0.0
        hold = self._over(now, count, level)
        if not self._is_doubtful:
            # What led here is a mixture of before and after; the question is what comes now.
            self._is_doubtful = True
            self._was_held = False
            self._end_block(now)
            self._due = self._doubt_block()
        elif self._pending >= self._due:
            self._doubt(now)
        if hold != 0.0:
            self._was_held = True
        return hold

    def _over(self, now: float, count: int, level: float) -> float:
        policy = self._policy
        if self._tuned_for is not policy.load and self._training is None:
            self._tune()  # at once, not at the end of a block that may be long
        depth = self._depth
        settings = policy.settings
        hold = 0.0
        if policy.load and level > depth:
            if policy.load is Load.OVERLOAD:
                level += level - depth  # what is too much costs double
            hold = self._pace(now, count, level - depth)
        self._hold = hold
        if hold <= 0.0:
            # Unpunished evidence is bounded, so that whoever returns to normal is soon free.
            self._level = min(level, depth + settings.evidence * max(1.0, self.dispersion))
            return 0.0
        if policy.mode is Mode.DROP:
            # What is refused is not admitted and costs nothing, like a cell that does not conform to a GCRA.
            self._level = max(0.0, min(level - count * self._allowance, depth))
            self._refused_at = now
            return REFUSE
        self._level = min(level, depth + self._drain * settings.d_max)
        return hold

    def _pace(self, now: float, count: int, excess: float) -> float:
        """Seconds until the bucket is back at its depth, but no more than keeps the publisher at the floor rate."""
        policy = self._policy
        settings = policy.settings
        hold = excess / self._drain
        floor = settings.floor_rate if policy.load is Load.HIGH else 0.25 * settings.floor_rate
        if floor > 0.0:
            # A second bucket, for messages over the limit only: one second of the floor rate is free.
            level = max(0.0, self._floor_level - (now - self._floor_last) * floor) + count
            self._floor_last = now
            self._floor_level = min(level, floor * (1.0 + settings.d_max))
            hold = min(hold, level / floor - 1.0)
        return min(hold, settings.d_max)

    def _train(self, training: Training, now: float, count: int, level: float) -> float:
        """While nothing is known of its own rate, only the quota and, under load, the usual rate bind."""
        training.add(now, count)
        if training.is_complete:
            self._training = None
            self._level = 0.0
            self._pending = 0
            self._block_start = now
            self.dispersion = training.dispersion()
            self._learnt(training.gap(), training.messages)
            return 0.0
        if self._vote == 0.0:
            # Slow publishers take long to train, and they are the ones that tell what is usual.
            self.stand(training.first_guess())
        hold = 0.0
        bound = self._bound()
        if bound < FASTEST and self._drain > 0.0:
            self._level = max(level, 0.0)
            self._depth = max(bound, float(self._policy.settings.n))
            if level > self._depth:
                hold = self._over(now, count, level)
            self._depth = UNTRAINED
        else:
            self._level = 0.0
        self._drain = bound * self._allowance if bound < FASTEST else 0.0
        return hold

    def _bound(self) -> float:
        """Messages per second beyond which its own training does not count."""
        policy = self._policy
        if not policy.load:
            return self._limit
        usual = policy.usual_rate()
        if usual < FASTEST:
            usual *= 2.0 ** min(30.0, self._trust / policy.settings.trust_doubling)
        return min(self._limit, max(usual, 2.0 * self._trusted_rate))

    def _end_block(self, now: float) -> tuple[int, float]:
        messages = self._pending or 1
        time = now - self._block_start
        self._pending = 0
        self._block_start = now
        self._peak = 0.0
        self._gap += (time / messages - self._gap) * (messages / 16.0 if messages < 16 else 1.0)
        return messages, time

    def _learn(self, now: float) -> None:
        """The bucket is empty: what came since it last was is normal."""
        peak = self._peak
        messages, time = self._end_block(now)
        if self._is_doubtful:
            self._is_doubtful = False
            self._tune()
            return
        settings = self._policy.settings
        trained = self._trained_gap
        dispersion = self.dispersion
        samples = self._samples + messages
        self._trust += time
        error = time / trained - messages
        # One block may not make a clock of a Poisson stream, nor the reverse.
        spread = min(error * error / messages, 4.0 + 9.0 * dispersion)
        slow = min(0.25, messages / min(max(settings.memory_dispersion, 2.0 * self._memory), samples))
        self.dispersion += (spread - dispersion) * slow
        self._burst += (peak - self._burst) * min(0.25, messages / max(settings.memory, self._memory))
        gap = min(time / messages, 4.0 * trained)
        self._learnt(trained + (gap - trained) * min(0.5, messages / min(self._memory, samples)), messages)

    def _doubt(self, now: float) -> None:
        """Suspicious for some messages: a drift that may be followed, or too fast to be believed?"""
        settings = self._policy.settings
        messages = self._pending
        time = now - self._block_start
        trained = self._trained_gap
        gap = max(time, 0.0) / messages
        if self._was_held:
            # The pace was ours, not the publisher's: nothing can be learnt from it.
            self._was_held = False
            self._end_block(now)
            self._tune()
            self._due = self._doubt_block()
            return
        error = settings.doubt * sqrt(self.dispersion / messages)
        if trained < gap * settings.drift * (1.0 - error):
            weight = 0.75
        elif messages < 4 * self._doubt_block():
            self._due = messages + self._doubt_block()
            return
        elif self._samples < self._memory:
            # So little was learnt that the training may be what is wrong: an innocent one must not stay suspicious.
            # An attacker gains nothing by it, who could as well have been fast from the beginning.
            weight = min(0.5, messages / (self._samples + messages))
        else:
            weight = min(0.5, settings.forgive * messages / max(settings.memory, self._memory))
        self._end_block(now)
        learnt = trained + (max(gap, 0.5 * trained) - trained) * weight
        if learnt < trained:
            # The evidence was counted against the old rate: count it again, for the messages that are in it.
            self._level = max(0.0, self._level - (1.0 / learnt - 1.0 / trained) * time)
        self._learnt(learnt, messages)
        self._due = self._doubt_block()

    def _doubt_block(self) -> int:
        """Messages between two looks at a suspicious publisher, at least a second's worth.

        Without the second a fast one could walk its trained rate up in leaps that all look like a drift.
        """
        return max(BLOCK, int(DOUBT_SECONDS / self._trained_gap))

    def _learnt(self, gap: float, messages: float) -> None:
        if gap < 1.0 / FASTEST:
            gap = 1.0 / FASTEST
        self._trained_gap = gap
        if self._gap == 0.0:
            self._gap = gap
        settings = self._policy.settings
        rate = 1.0 / gap
        # A regular publisher shows its rate in a few messages, so a drift can be followed sooner. A fast one sends
        # many in no time, and what is normal is a matter of time, too.
        few = settings.memory * min(1.0, max(0.125, 2.0 * self.dispersion))
        self._memory = max(few, settings.memory_time * rate)
        self._samples = min(self._samples + messages, max(settings.memory_dispersion, 2.0 * self._memory))
        # A tenth is nothing among rates that differ by orders of magnitude.
        if not 0.9 * self._vote < rate < 1.1 * self._vote:
            self.stand(rate)
        self._tune()

    def stand(self, rate: float) -> None:
        """Stand in the population with this rate, 0 for not at all."""
        self._policy.population.replace(self._vote, rate)
        self._vote = rate

    def _tune(self) -> None:
        """Bucket and block for what is known now."""
        settings = self._policy.settings
        rate = 1.0 / self._trained_gap
        dispersion = self.dispersion
        error = sqrt(dispersion / min(self._samples, 2.0 * self._memory))
        drain = rate * (1.0 + settings.confidence * error)
        depth = settings.slack + settings.slack_time * rate + settings.tolerance * dispersion * (1.0 + error)
        depth = min(max(depth, settings.burst * self._burst), settings.depth_max + rate)
        self._tuned_for = self._policy.load
        bound = self._bound()
        if bound * settings.allowance < drain:
            # A quota, not a habit: exactly that pace, and one second's worth at once, whatever the dispersion.
            drain, depth = bound * settings.allowance, max(settings.slack, bound)
        self._drain = drain
        self._depth = depth
        self._due = max(BLOCK if self._samples < MATURE else MATURE_BLOCK, int(BLOCK_SECONDS * rate))
        self._silence = -0.5 * self._due

    def snapshot(self, now: float, rank: int = 0) -> Verdict:
        silence = max(0.0, now - self._last)
        # Between two messages of one that is paced it is held, too.
        is_held = self._hold > 0.0 and self.is_suspicious and silence <= self._hold + self._trained_gap
        gap = self._gap
        # What is read together counts as sent at once, and who is held is not read: both are no silence.
        quiet = max(0.0, silence - DOUBT_SECONDS - (self._hold if is_held else 0.0))
        pace = self._drain / self._allowance
        if self._training is not None:
            state = State.TRAINING
            gap = 1.0 / self.likely_rate if self.likely_rate > 0.0 else 0.0
        elif is_held:
            state = State.HELD
        elif self._level - silence * self._drain > self._depth:
            state = State.SUSPICIOUS
        else:
            state = State.NORMAL
        return Verdict(
            state=state,
            # A publisher that stopped has no rate any more.
            rate=1.0 / max(gap, quiet) if gap > 0.0 else 0.0,
            trained_rate=self.trained_rate,
            dispersion=self.dispersion,
            hold=self._hold if is_held else 0.0,
            rank=rank,
            allowed=pace if is_held or 0.0 < pace < self.trained_rate else 0.0,
        )
