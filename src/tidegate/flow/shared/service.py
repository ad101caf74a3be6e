"""How long a member takes for a message: an average that forgets slowly, and at once when the member has changed."""

from __future__ import annotations

from typing import Final

GAIN: Final = 0.125  # weight of one message
TOLERANCE: Final = 3.0  # mean deviations that are still the same speed
MARGIN: Final = 0.15  # and this share of the mean in any case: timers are not exact
RUN: Final = 3.0  # messages beyond the tolerance, all on one side, that make a change


class ServiceTime:
    """Seconds a message takes: exponentially weighted mean with change detection (spec 5 (e) 5).

    A sample beyond the tolerance counts only as far as the tolerance goes. After messages of weight `RUN` beyond it on
    the same side the mean is theirs: a member that halves its speed is believed after three messages, or after one
    report that covers three. `mean` is 0 until there was a sample.
    """

    __slots__ = ("_deviation", "_run_error", "_run_sum", "_run_weight", "mean")

    def __init__(self) -> None:
        self.mean = 0.0
        self._deviation = 0.0
        self._run_weight = 0.0  # negative below the mean
        self._run_sum = 0.0
        self._run_error = 0.0  # of its last sample

    def add(self, seconds: float, weight: float = 1.0) -> float:
        """A mean over `weight` messages; 0 seconds or no weight is no sample.

        Answers with the weight of the messages that make a change, if they do, else with 0.
        """
        if seconds <= 0.0 or weight <= 0.0:
            return 0.0
        mean = self.mean
        if mean == 0.0:
            self.mean = seconds
            return 0.0
        error = seconds - mean
        limit = TOLERANCE * self._deviation + MARGIN * mean
        gain = 1.0 - (1.0 - GAIN) ** min(weight, 32.0)
        size = abs(error)
        if size <= limit:
            self._end_run()
            self.mean = mean + gain * error
            self._deviation += gain * (size - self._deviation)
            return 0.0
        if (error > 0.0) != (self._run_weight > 0.0):
            self._end_run()
        self._run_sum += seconds * weight
        self._run_weight += weight if error > 0.0 else -weight
        self._run_error = size
        run = abs(self._run_weight)
        if run >= RUN:
            self.mean = self._run_sum / run
            self._run_weight = self._run_sum = 0.0
            return run
        self.mean = mean + gain * (limit if error > 0.0 else -limit)
        return 0.0

    def _end_run(self) -> None:
        """What was beyond the tolerance was no change, so the member is less regular than was thought."""
        if self._run_weight != 0.0:
            self._deviation += GAIN * (self._run_error - self._deviation)
            self._run_weight = self._run_sum = 0.0
