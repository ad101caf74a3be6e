"""How far the node is behind: LOW, HIGH or OVERLOAD.

The measure is the wait of a message that arrives at a random moment. The loop works in turns; who arrives in a turn of
length t waits t / 2 on average, and is t / T likely to arrive in it. So over a time T the mean wait is Σt² / 2T: one
long turn counts more than many short ones, and an idle loop makes it 0. Turns are measured from the first message
they take to the flush at their end, two clock reads a turn.
"""

from __future__ import annotations

from tidegate.broker.flow_settings import LoadLimits
from tidegate.flow.backoff import Load

# Over this share of what a queue or the memory may hold, the load is HIGH, and OVERLOAD.
HIGH_SHARE = 0.5
OVERLOAD_SHARE = 0.8
WINDOW = 0.25  # seconds that a wait is averaged over
LONGEST_TURN = 1.0  # seconds; a suspended machine is no load


class LoadMeter:
    """Fed with turns and shares; `state` rises at once and falls after `calm` seconds."""

    __slots__ = ("_began", "_calm_since", "_limits", "_squares", "_trigger", "state", "wait")

    def __init__(self, limits: LoadLimits, now: float) -> None:
        self._limits = limits
        self._began = now
        self._calm_since = now
        self._squares = 0.0
        # Squares that make the window HIGH, whatever comes in the rest of it.
        self._trigger = 2.0 * WINDOW * limits.high_wait
        self.wait = 0.0  # seconds, of the last whole window
        self.state = Load.LOW

    def turn(self, length: float) -> bool:
        """A turn took so many seconds. True if the state should be looked at before the window ends."""
        self._squares += length * length if length < LONGEST_TURN else LONGEST_TURN
        return self._squares > self._trigger and self.state is Load.LOW

    def update(self, now: float, share: float) -> Load:
        """Look at the state; `share` is how full the fullest of queues and memory is, 0 to 1."""
        elapsed = now - self._began
        wait = self._squares / (2.0 * max(elapsed, WINDOW))
        if elapsed >= WINDOW:
            self.wait = wait
            self._squares = 0.0
            self._began = now
        found = self._judge(wait, share)
        if found >= self.state:
            self.state = found
            self._calm_since = now
        elif now - self._calm_since >= self._limits.calm:
            self.state = found
        return self.state

    def _judge(self, wait: float, share: float) -> Load:
        if wait > self._limits.overload_wait or share > OVERLOAD_SHARE:
            return Load.OVERLOAD
        if wait > self._limits.high_wait or share > HIGH_SHARE:
            return Load.HIGH
        return Load.LOW
