"""How long a message of ours takes to come back from the node. Pure: times come in, on a clock that only goes forward.

One probe is out at a time. While it is, the time it has been out is the least that its answer will say: a node that
became slow is seen at once, and not when it is quick again.
"""

from __future__ import annotations

from collections import deque
from statistics import quantiles
from typing import Final

KEPT: Final = 60  # probes: a minute of them
LOST: Final = 10.0  # seconds after which one that did not come back is given up


class Latency:
    """Milliseconds of the last minute."""

    def __init__(self) -> None:
        self._known: deque[float] = deque(maxlen=KEPT)
        self._number = 0
        self._sent: float | None = None  # when the probe that is out was sent

    def next_probe(self, now: float) -> bytes | None:
        """What to publish now; None while another one is out."""
        if self._sent is not None:
            if now - self._sent < LOST:
                return None
            self._known.append((now - self._sent) * 1e3)
        self._number += 1
        self._sent = now
        return b"%d" % self._number

    def on_probe(self, payload: bytes, now: float) -> None:
        """One is back; that of one which was given up is no answer to the next."""
        if self._sent is not None and payload == b"%d" % self._number:
            self._known.append((now - self._sent) * 1e3)
            self._sent = None

    def forget_probe(self) -> None:
        """The connection it was sent on is gone."""
        self._sent = None

    def current(self, now: float) -> float | None:
        """The latest, or what the one that is out has taken already, if that is more."""
        latest = self._known[-1] if self._known else None
        if self._sent is None:
            return latest
        waited = (now - self._sent) * 1e3
        return waited if latest is None or waited > latest else latest

    def summary(self, now: float) -> dict[str, float | None]:
        """The latest, the middle and the slow end of the last minute."""
        current = self.current(now)
        if current is None:
            return {"latest": None, "p50": None, "p95": None}
        is_waiting = not self._known or current > self._known[-1]
        known = sorted([*self._known, current] if is_waiting else self._known)
        p95 = quantiles(known, n=20, method="inclusive")[18] if len(known) > 1 else known[0]
        return {"latest": round(current, 3), "p50": round(known[len(known) // 2], 3), "p95": round(p95, 3)}
