"""How much may be on its way to one gateway, so that a slow one fills neither the routers nor the broker.

A forward router counts what it sent and what was answered; an answer that never comes is forgotten at its deadline.
What does not fit is refused at once (`gateway busy`), not queued: a router acknowledges in order, and one request that
waits for a stalled gateway would hold back those for all others. The caller comes again after a jittered wait.
"""

from __future__ import annotations

from heapq import heappop, heappush


class Windows:
    """One window of `limit` unanswered requests for each gateway."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: dict[str, list[float]] = {}  # deadlines, a heap

    def open(self, gateway: str) -> int:
        return len(self._open.get(gateway, ()))

    def take(self, gateway: str, deadline: float, now: float) -> bool:
        """Whether one more may be sent; it is counted, then, until `answered` or its deadline."""
        deadlines = self._open.get(gateway)
        if deadlines is None:
            deadlines = self._open[gateway] = []
        elif len(deadlines) >= self.limit:
            while deadlines and deadlines[0] <= now:
                heappop(deadlines)
            if len(deadlines) >= self.limit:
                return False
        heappush(deadlines, deadline)
        return True

    def answered(self, gateway: str, count: int) -> None:
        """So many were answered. Which ones is not told; the earliest deadlines are taken, which errs to fewer."""
        deadlines = self._open.get(gateway)
        if deadlines is None:
            return
        if count >= len(deadlines):
            # A gateway that is gone for good must not stay here for ever.
            del self._open[gateway]
            return
        for _ in range(count):
            heappop(deadlines)

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))
