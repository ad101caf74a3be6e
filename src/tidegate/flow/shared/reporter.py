"""When a client should report its load, and what: the other end of `ClientLoad`.

The broker knows what it sent and predicts the rest from the speed it was told. So a report is worth its bytes when
that prediction has gone wrong (spec 5 (e) 4): the client adds up how much longer, or shorter, its messages took than it
said, and reports as soon as that exceeds a message's worth, or when its speed has changed. Otherwise it reports slowly.
"""

from __future__ import annotations

from math import inf

from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared.service import ServiceTime


class LoadReporter:
    """Pure; `now` in seconds. `interval` between reports at the latest; `gap` between them at the soonest.

    `drift`: messages' worth of time by which the broker may be wrong. With infinity there are reports at fixed
    intervals only, the first after one interval, as in the thesis; `has_totals` False leaves out our own fields.
    """

    __slots__ = (
        "_count",
        "_drift",
        "_estimate",
        "_has_changed",
        "_last",
        "_time",
        "_told",
        "drift",
        "gap",
        "has_totals",
        "interval",
        "processed",
    )

    def __init__(
        self,
        now: float,
        *,
        interval: float,
        gap: float | None = None,
        drift: float = 1.0,
        has_totals: bool = True,
    ) -> None:
        self.interval = interval
        self.gap = interval / 20.0 if gap is None else gap
        self.drift = drift
        self.has_totals = has_totals
        self.processed = 0
        self._last = now
        self._count = 0
        self._time = 0.0
        self._told = 0.0  # the speed the broker believes; 0 while it knows none
        self._drift = 0.0
        self._estimate = ServiceTime()
        self._has_changed = False

    def on_processed(self, seconds: float) -> None:
        """A message is done that took this long."""
        self.processed += 1
        self._count += 1
        self._time += seconds
        self._drift += seconds - self._told
        if self.drift < inf:
            run = int(self._estimate.add(seconds))
            if run:
                # What was before the change would only blur it.
                self._has_changed = True
                self._count = run
                self._time = run * self._estimate.mean

    def due(self) -> float:
        """When the next report is due; may be over. Ask again after every message."""
        if self.drift == inf:
            return self._last + self.interval
        if self._told == 0.0:
            return self._last if self._count else self._last + self.interval
        if self._has_changed:
            return self._last
        if abs(self._drift) > self.drift * self._told * 0.999:
            return self._last + self.gap
        return self._last + self.interval

    def report(self, now: float, queue_length: int) -> LoadReport:
        """What to send now; begins a new interval."""
        count = self._count
        mean = self._time / count if count else 0.0
        self._last = now
        self._count = 0
        self._time = 0.0
        if count:
            self._told = mean
        self._drift = 0.0
        self._has_changed = False
        if not self.has_totals:
            return LoadReport(queue_length=queue_length, processing_time=mean)
        return LoadReport(
            queue_length=queue_length, processing_time=mean, count=count, processed=self.processed
        )
