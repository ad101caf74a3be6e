"""Measures how the application keeps up, and says when that is worth a report. Pure: the time comes in as `now`.

A report is due when the queue or the speed has changed by more than a threshold since the last one, when messages took
one message's time more or less than the server must think by what it was told, and else slowly while messages are
processed; the first as soon as the first message was processed. A change of speed is told as soon as three messages in
a row show it, and with these alone: those before would only blur it. An application that has nothing to do says so once
and is then silent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.client.errors import ClientError
from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared import ServiceTime

_DRIFT: Final = 0.999  # messages' time that the server may be wrong by; a hair less than one, as sums are not exact
_DRIFT_SECONDS: Final = 0.005  # and this long in any case
_FINE: Final = 0.001  # seconds; messages that take less are too many, and too uneven, to look at each


class Carrier(StrEnum):
    """How reports reach the server."""

    AUTO = "auto"
    """By extended PINGREQ if the server offers it, else not at all."""
    PING = "ping"
    """The same, said aloud: no server is sent an extended PINGREQ that did not ask for it."""
    PUBACK = "puback"
    """As a User Property of PUBACK packets (MQTT 5, messages of QoS 1)."""
    PUBLISH = "publish"
    """As messages to `$tide/load`."""
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """When load reports are sent. Times in seconds.

    - `interval`: between reports while messages are processed and nothing changes.
    - `min_interval`: never more often than this.
    - `queue_change`: report when the queue differs from what was said by more than this many messages and by more
      than half. `speed_change`: or when the mean processing time differs by more than this share.
    - `on_change`: whether changes are reported at all; without, there are only the intervals, as in the thesis.
    - `when_idle`: report every interval, even if nothing was processed in it, as the thesis does.
    - `totals`: tell `count` and `processed` as well; without, there are only the two numbers of the thesis.
    - `manual`: nothing is measured; the application calls `Client.report_load` when it has something to say.
    """

    carrier: Carrier | str = Carrier.AUTO
    interval: float = 1.0
    min_interval: float = 0.1
    queue_change: int = 2
    speed_change: float = 0.25
    on_change: bool = True
    when_idle: bool = False
    totals: bool = True
    manual: bool = False

    def __post_init__(self) -> None:
        if self.carrier not in list(Carrier):
            raise ClientError(
                f"no report travels by {self.carrier!r}", hint=f"use one of {', '.join(Carrier)}"
            )
        if not 0 < self.min_interval <= self.interval:
            raise ClientError(
                f"reports every {self.interval:g} s, at least {self.min_interval:g} s apart",
                hint="use a min_interval above 0 and not above interval",
            )


@dataclass(slots=True)
class _InProcess:
    since: float
    connection: int


class LoadMeter:
    """State of one client. `taker` is whoever handles one message at a time: a task, or a callback."""

    def __init__(self, options: ReportOptions) -> None:
        self._options = options
        self._in_process: dict[Hashable, _InProcess] = {}
        self._connection = 0
        self._count = 0
        self._seconds = 0.0
        self._processed = 0
        self._reported_at: float | None = None
        self._reported_queue = 0
        self._reported_mean = 0.0
        self._began = 0.0
        self._estimate = ServiceTime()
        self._has_changed = False
        self._drift = 0.0  # seconds that messages took longer than was told

    @property
    def has_news(self) -> bool:
        """Whether anything was processed since the last report."""
        return self._count > 0

    @property
    def takers(self) -> int:
        return len(self._in_process)

    @property
    def has_reported(self) -> bool:
        return self._reported_at is not None

    def on_connected(self, now: float) -> None:
        """A new connection: the server counts what it sends from 0, so do we."""
        self._connection += 1
        self._processed = 0
        self._reported_at = None
        self._began = now

    def on_taken(self, taker: Hashable, now: float, *, is_of_this_connection: bool = True) -> None:
        """A message was given to `taker`; whatever it had before is done."""
        self.on_ended(taker, now)
        self._in_process[taker] = _InProcess(now, self._connection if is_of_this_connection else -1)

    def on_ended(self, taker: Hashable, now: float) -> None:
        """`taker` is done with what it had, if it had something."""
        work = self._in_process.pop(taker, None)
        if work is not None:
            self.on_done(now - work.since, is_of_this_connection=work.connection == self._connection)

    def forget(self, has_left: Callable[[Hashable], bool], now: float) -> None:
        """Takers that will not come again are done with what they had."""
        for taker in [taker for taker in self._in_process if has_left(taker)]:
            self.on_ended(taker, now)

    def on_done(self, seconds: float, *, is_of_this_connection: bool = True) -> None:
        """A message was processed in so many seconds."""
        self._count += 1
        self._seconds += seconds
        self._processed += is_of_this_connection
        self._drift += seconds - self._reported_mean
        if not self._options.on_change or (seconds < _FINE and self._reported_mean < _FINE):
            return
        changed = int(self._estimate.add(seconds))
        if changed:
            self._has_changed = True
            self._count = changed
            self._seconds = changed * self._estimate.mean

    def on_skipped(self, number: int = 1) -> None:
        """Messages came that the application will never see; for the server they are done."""
        self._processed += number

    def is_due(self, queue_length: int, now: float) -> bool:
        options = self._options
        if self._reported_at is None:
            if options.on_change and self._count:
                return True
            return now - self._began >= options.interval and (options.when_idle or self._count > 0)
        waited = now - self._reported_at
        if waited < options.min_interval:
            return False
        if options.on_change:
            if self._has_changed or abs(self._drift) > max(_DRIFT * self._reported_mean, _DRIFT_SECONDS):
                return True
            difference = abs(queue_length - self._reported_queue)
            if difference > options.queue_change and difference * 2 > self._reported_queue:
                return True
            if self._count:
                mean = self._seconds / self._count
                if abs(mean - self._reported_mean) > options.speed_change * self._reported_mean:
                    return True
        if waited < options.interval:
            return False
        return options.when_idle or self._count > 0 or queue_length != self._reported_queue

    def next_look(self, now: float) -> float:
        """Seconds until a report may be due, if nothing happens before."""
        options = self._options
        if options.on_change:
            return options.min_interval
        last = self._began if self._reported_at is None else self._reported_at
        return min(max(last + options.interval - now, 0.001), options.interval)

    def take_report(self, queue_length: int, now: float) -> LoadReport:
        """The report to send now; counting begins anew."""
        mean = self._seconds / self._count if self._count else 0.0
        report = LoadReport(queue_length=queue_length, processing_time=mean)
        if self._options.totals:
            report.count = self._count
            report.processed = self._processed
        if self._count:
            self._reported_mean = mean
        self._reported_at = now
        self._reported_queue = queue_length
        self._count, self._seconds = 0, 0.0
        self._has_changed, self._drift = False, 0.0
        return report
