"""The product's test for congestion: a band of deviations over what is normal here, with a memory for what is possible.

Theory of operation (spec 3 (e) 5, ambiguities 5 and 8). Mean and mean deviation are learnt from responses that were
not taken for congestion, so neither rises with it and detection does not fade. A response is congested if it is over
the mean by more than `deviations` mean deviations, and over twice the shortest of the last `window`: one of an
exponential time is, in about 1 % of all cases. If every one of the last `window` responses was over the threshold,
then this is what is normal now, and it is learnt afresh; so a broker on a slower machine is not congested for ever.
"""

from __future__ import annotations

from collections import deque
from math import inf
from statistics import fmean
from typing import Final

GAIN: Final = 0.125
GAIN_DEVIATION: Final = 0.0625  # one learnt quickly is often too small, and everything an alarm
FIRST: Final = 8  # responses before anything is judged
BAND: Final = 2.0  # times the shortest response


class RobustTest:
    """State of one loop. `mean` is the smoothed response time without congestion, in seconds."""

    __slots__ = ("_deviation", "_deviations", "_recent", "_seen", "mean")

    def __init__(self, deviations: float = 5.0, window: int = 24) -> None:
        if deviations <= 0.0 or window < FIRST:
            raise ValueError(f"deviations must be positive and window at least {FIRST}")
        self._deviations = deviations
        self._recent: deque[float] = deque(maxlen=window)
        self._deviation = 0.0
        self._seen = 0
        self.mean = 0.0

    def threshold(self) -> float:
        """Seconds over which a response means congestion; infinite until there was something to compare with."""
        if self._seen < FIRST:
            return inf
        return max(self.mean + self._deviations * self._deviation, BAND * min(self._recent))

    def add(self, duration: float, *, is_dropped: bool = False) -> bool:
        """Whether this response means congestion. One that never came does, and teaches nothing."""
        if is_dropped:
            return True
        is_congested = duration > self.threshold()
        self._recent.append(duration)
        if not is_congested:
            self._learn(duration)
        elif min(self._recent) > self.mean + self._deviations * self._deviation:
            self._relearn()
        return is_congested

    def _learn(self, duration: float) -> None:
        self._seen += 1
        if self._seen == 1:
            self.mean, self._deviation = duration, duration / 2.0  # as RFC 6298 begins
            return
        # The plain mean until the smoothed one has seen enough: the first response is not worth more than others.
        error = duration - self.mean
        self.mean += max(GAIN, 1.0 / self._seen) * error
        self._deviation += max(GAIN_DEVIATION, 1.0 / self._seen) * (abs(error) - self._deviation)

    def _relearn(self) -> None:
        if len(self._recent) == self._recent.maxlen:
            self.mean = fmean(self._recent)
            self._deviation = fmean(abs(each - self.mean) for each in self._recent)
