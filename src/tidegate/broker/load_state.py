"""How far the node is behind: LOW, HIGH or OVERLOAD.

The measure is the wait of a message that arrives at a random moment. The loop works in turns; who arrives in a turn of
length t waits t / 2 on average, and is t / T likely to arrive in it. So over a time T the mean wait is Σt² / 2T: one
long turn counts more than many short ones, and an idle loop makes it 0. Turns are measured from the first message
they take to the flush at their end, two clock reads a turn. What waits in lanes waits over many turns, so the mean age
of what is served there counts as well, and so does the lateness of the loop's own tick.
"""

from __future__ import annotations

from math import inf

from tidegate.broker.flow_settings import LoadLimits
from tidegate.flow.backoff import Load

# Over this share of what a queue or the memory may hold, the load is HIGH, and OVERLOAD.
HIGH_SHARE = 0.5
OVERLOAD_SHARE = 0.8
WINDOW = 0.25  # seconds that a wait is averaged over,
ALARM_WINDOW = 0.05  # and that are enough to raise the state
LATE = 0.01  # seconds; less may be the machine's doing, not the node's
LONGEST_TURN = 1.0  # seconds; a suspended machine is no load


class LoadMeter:
    """Fed with turns and shares; `state` rises at once and falls after `calm` seconds."""

    __slots__ = (
        "_ages",
        "_alarm_began",
        "_alarm_squares",
        "_began",
        "_chunks",
        "_high_at",
        "_limits",
        "_longest",
        "_overload_at",
        "_squares",
        "state",
        "wait",
    )

    def __init__(self, limits: LoadLimits, now: float) -> None:
        self._limits = limits
        self._began = now
        self._high_at = self._overload_at = -inf  # when the state was last found to be so, or higher
        self._squares = 0.0
        self._longest = self._ages = 0.0
        self._chunks = 0
        self._alarm_began = now
        self._alarm_squares = 0.0
        self.wait = 0.0  # seconds, of the last whole window
        self.state = Load.LOW

    def turn(self, now: float, length: float) -> bool:
        """A turn that ended now took so many seconds. True if the state should be looked at before the window ends."""
        square = length * length if length < LONGEST_TURN else LONGEST_TURN
        self._squares += square
        if now - self._alarm_began > ALARM_WINDOW:
            self._alarm_began = now
            self._alarm_squares = 0.0
        self._alarm_squares += square
        return self._alarm_squares > 2.0 * ALARM_WINDOW * self._limits.high_wait and self.state is Load.LOW

    def lag(self, seconds: float) -> None:
        """The loop was so late: the wait also of what is too small to be measured as a turn."""
        if seconds > LATE:
            self._longest = max(self._longest, seconds)

    def chunk(self, age: float) -> None:
        """A chunk waited so long in the lanes."""
        self._ages += age
        self._chunks += 1

    def update(self, now: float, share: float) -> Load:
        """Look at the state; `share` is how full the fullest of queues and memory is, 0 to 1."""
        elapsed = now - self._began
        wait = self._squares / (2.0 * max(elapsed, WINDOW))
        # An older alarm is history; an idle node measures no new one.
        if now - self._alarm_began <= ALARM_WINDOW:
            wait = max(wait, self._alarm_squares / (2.0 * ALARM_WINDOW))
        wait = max(wait, self._longest)
        if self._chunks:
            wait = max(wait, self._ages / self._chunks)
        if elapsed >= WINDOW:
            self._longest = self._ages = 0.0
            self._chunks = 0
            self.wait = wait
            self._squares = 0.0
            self._began = now
        found = self._judge(wait, share)
        if found:
            self._high_at = now
        if found is Load.OVERLOAD:
            self._overload_at = now
        # Each state lasts until it was not found for `calm`: one quiet moment does not make all of it quiet.
        since = now - self._limits.calm
        lasting = (
            Load.OVERLOAD if self._overload_at > since else Load.HIGH if self._high_at > since else Load.LOW
        )
        self.state = max(found, lasting)
        return self.state

    def _judge(self, wait: float, share: float) -> Load:
        if wait > self._limits.overload_wait or share > OVERLOAD_SHARE:
            return Load.OVERLOAD
        if wait > self._limits.high_wait or share > HIGH_SHARE:
            return Load.HIGH
        return Load.LOW
