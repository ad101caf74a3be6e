"""The published back-off (Al Enany, Harb, Attiya 2022), as the experiments need it; spec 1 (b) B1.

The first N messages of a publisher train its rate FR_avg, which stays for ever. A later message whose interval is
shorter than the trained one is delayed by exp(FR_new) seconds, FR_new being one over that interval. Where the paper
is silent or contradicts itself, the reading is an option; the numbers are those of the table of ambiguities.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import exp, inf, log
from typing import Final, Literal

from tidegate.flow.backoff.base import REFUSE, Load, Mode, Prior, Publisher, State, Verdict

D_MAX: Final = exp(2.0)
"""End of Table I. The paper speaks of a maximum and never states it."""


class PaperBackoff:
    """Parameters of the paper, the same for all publishers.

    - `n`: messages of training.
    - `training` (1): `intervals` divides the N - 1 intervals by their time; `literal` sums N intervals and divides
      by N - 1 as eq (2) is printed, which takes a perfectly regular publisher for a third too fast.
    - `margin` (3): a message is too fast above `margin` times FR_avg; 1 is the paper.
    - `d_max` (6): largest delay in seconds, applied before the exponential can overflow.
    - `mode` (7).

    The load of the node plays no part.
    """

    __slots__ = ("d_max", "is_per_message", "load", "log_d_max", "margin", "mode", "n", "training_intervals")

    def __init__(
        self,
        *,
        n: int = 4,
        training: Literal["intervals", "literal"] = "intervals",
        margin: float = 1.0,
        d_max: float = D_MAX,
        mode: Mode = Mode.BACKPRESSURE,
    ) -> None:
        if n < 2 or margin <= 0.0 or not 0.0 < d_max < inf:
            raise ValueError("n must be at least 2, margin and d_max positive, d_max finite")
        self.n = n
        self.training_intervals = n if training == "literal" else n - 1
        self.margin = margin
        self.d_max = d_max
        self.log_d_max = log(d_max)
        self.mode = Mode(mode)
        self.load = Load.LOW
        self.is_per_message = True

    def publisher(self, key: Hashable, prior: Prior | None = None) -> PaperPublisher:
        return PaperPublisher(key, self, prior)

    def join(self, publisher: Publisher) -> None:
        """Nothing is shared between publishers."""

    def leave(self, publisher: Publisher) -> None:
        """Nothing is shared between publishers."""

    def delay(self, fr_new: float) -> float:
        """D_f in seconds for a rate that is too fast (eq 4)."""
        return self.d_max if fr_new >= self.log_d_max else exp(fr_new)


class PaperPublisher:
    """Training and last interval of one publisher; `fr_avg`, `fr_new` and `d_f` are those of the last message."""

    __slots__ = ("_first", "_last", "_policy", "_seen", "d_f", "fr_avg", "fr_new", "key")

    def __init__(self, key: Hashable, policy: PaperBackoff, prior: Prior | None = None) -> None:
        self.key = key
        self._policy = policy
        self._seen = 0
        self._first = 0.0
        self._last = 0.0
        self.fr_avg = 0.0
        self.fr_new = 0.0
        self.d_f = 0.0
        if prior is not None and prior.rate > 0.0:
            self.fr_avg = prior.rate

    @property
    def trained_rate(self) -> float:
        return self.fr_avg

    @property
    def likely_rate(self) -> float:
        return self.fr_avg  # the paper ranks who is not trained in the middle

    @property
    def is_suspicious(self) -> bool:
        return self.d_f > 0.0

    @property
    def is_in_good_standing(self) -> bool:
        return self.fr_avg > 0.0 and self.d_f == 0.0

    def observe(self, now: float, count: int = 1, size: int = 0) -> float:
        """`count` messages at one instant are judged one by one; the longest delay is the answer."""
        longest = 0.0
        for _ in range(count):
            delay = self._one(now)
            if delay > longest:
                longest = delay
        if longest > 0.0 and self._policy.mode is Mode.DROP:
            return REFUSE
        return longest

    def _one(self, now: float) -> float:
        interval = now - self._last
        self._last = now
        self._seen += 1
        self.d_f = 0.0
        if self._seen == 1:
            self._first = now
            return 0.0
        # Identical timestamps: infinitely fast (ambiguity 11). The reciprocal of a denormal overflows, too.
        self.fr_new = 1.0 / interval if interval > 1e-300 else inf
        policy = self._policy
        if self.fr_avg == 0.0:
            if self._seen > policy.training_intervals:
                time = now - self._first
                self.fr_avg = (policy.n - 1) / time if time > 1e-300 else inf
            return 0.0
        if self.fr_new > policy.margin * self.fr_avg:
            self.d_f = policy.delay(self.fr_new)
        return self.d_f

    def snapshot(self, now: float, rank: int = 0) -> Verdict:
        if self.fr_avg == 0.0:
            state = State.TRAINING
        else:
            state = State.HELD if self.d_f > 0.0 else State.NORMAL
        return Verdict(
            state=state,
            rate=self.fr_new,
            trained_rate=self.fr_avg,
            dispersion=0.0,
            hold=self.d_f,
            rank=rank,
            allowed=self._policy.margin * self.fr_avg if self.d_f > 0.0 else 0.0,
        )
