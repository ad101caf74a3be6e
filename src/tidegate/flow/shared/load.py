"""What the broker knows of a client's load, from whatever the client lets it know.

Three sources, each better than the one before it: nothing but what was sent; reports (extended PINGREQ and its
relatives); acknowledgements at QoS 1 and 2, if the client acknowledges after processing. All of them end in two
numbers: `service`, the seconds a message takes, and `free_at`, the moment at which the client will have worked off all
it was given. Sending moves `free_at`, time passes by itself, reports and acknowledgements put it right. Choosing a
member is then one subtraction per member.

Reports fix the number of messages outstanding and leave the phase inside the running message to the prediction,
which knows it better; acknowledgements fix both.
"""

from __future__ import annotations

from typing import Final, Protocol
from weakref import ref

from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared.service import ServiceTime

HISTORY: Final = 5  # reports the thesis averages over
WEIGHT_UNKNOWN: Final = 4.0  # messages that a report without `count` is taken to cover
PROBE: Final = 1.0  # seconds that a client without a sample is left alone with one message
DELAY_STEP: Final = 0.005  # a difference of half round trips below this is not worth preferring a member for
WAY: Final = 0.25  # of a half round trip counts against a member: see `EarliestFinish`
NOTABLE: Final = 0.125  # of a message's time: a smaller change of `free_at` is not announced


class Watcher(Protocol):
    """Keeps members in order and must know of those whose prediction was put right."""

    changed: set[int]


class ClientLoad:
    """State of one client, whatever groups it is in. `now` is seconds on any monotonic clock.

    The fields of the thesis (Table 3) are `queue_length` m_q, `mean_time` t_p, `reported_at` t_r and
    `sent_since_report` m_s, kept exactly as it says; the others are ours.
    """

    __slots__ = (
        "_acknowledges_late",
        "_base",
        "_busy_since",
        "_estimate",
        "_has_acknowledged",
        "_history",
        "_last_sent",
        "_sent_at_report",
        "awaiting",
        "delay",
        "discount",
        "free_at",
        "half_rtt",
        "has_sample",
        "is_known",
        "mean_time",
        "processed",
        "queue_length",
        "report_interval",
        "reported_at",
        "sent",
        "service",
        "watchers",
    )

    def __init__(self, now: float = 0.0) -> None:
        # Groups come and go without telling their members' loads, hence weak; with the index a watcher knows it by.
        self.watchers: list[tuple[ref[Watcher], int]] = []
        self.forget(now)

    def forget(self, now: float) -> None:
        """The client is new, or its session begins anew: nothing is known."""
        self.queue_length = 0
        self.mean_time = 0.0
        self.reported_at = now
        self.report_interval = 0.0  # between the last two reports; 0 before
        self._history: list[float] = []
        self._sent_at_report = 0

        self.sent = 0
        self.processed = 0  # as far as reports and acknowledgements tell
        self.awaiting = 0  # sent at QoS 1 or 2 and not done
        self.is_known = False  # whether more than what was sent is known; or will be, if the caller sets it
        self.has_sample = False
        self.service = 0.0  # seconds per message; without a sample what a policy lends
        self.free_at = now
        self.half_rtt = 0.0
        self.delay = 0.0  # what counts of half_rtt, in whole steps
        self.discount = 0.0  # and what does not
        self._estimate = ServiceTime()
        self._base: int | None = None  # added to the client's total it gives `processed`
        self._acknowledges_late = True  # after processing, until a report shows otherwise
        self._has_acknowledged = False
        self._busy_since = now
        self._last_sent = now

    def prime(self, seconds: float) -> None:
        """How long a message takes it, as was learnt before it came; nothing if it showed that itself already."""
        if not self.has_sample and seconds > 0.0:
            self._sample(seconds, 1.0)
            self.is_known = True

    def watch(self, watcher: ref[Watcher], index: int) -> None:
        """Announce corrections to it from now on; those that are gone make room."""
        self.watchers = [entry for entry in self.watchers if entry[0]() is not None]
        self.watchers.append((watcher, index))

    @property
    def sent_since_report(self) -> int:
        return self.sent - self._sent_at_report

    @property
    def outstanding(self) -> int:
        """Messages it was given and has not finished, as far as anything tells; 0 for who says nothing."""
        if self._has_acknowledged and self._acknowledges_late:
            return self.awaiting  # exact; what it reported before it acknowledged anything is over
        if self._base is not None:
            return max(self.awaiting, self.sent - self.processed)
        if self._history:
            return max(self.awaiting, self.queue_length + self.sent_since_report)
        return self.awaiting

    def backlog(self, now: float) -> float:
        """Seconds until it has worked off all it was given."""
        return max(self.free_at - now, 0.0)

    def on_rtt(self, rtt: float) -> None:
        """A round trip was measured. Half of it is the least that a message takes to get there."""
        self.half_rtt = rtt / 2.0
        way = int(self.half_rtt / DELAY_STEP) * DELAY_STEP
        self.delay = WAY * way
        self.discount = way - self.delay

    def on_sent(self, now: float, qos: int = 0) -> None:
        """A message was given to it, at a QoS that it will acknowledge or at 0."""
        self.sent += 1
        self._last_sent = now
        arrival = now + self.half_rtt
        if qos:
            if not self.awaiting:
                self._busy_since = arrival + self.half_rtt
            self.awaiting += 1
            self.is_known = True
            if not self.has_sample:
                # One at a time until the first is done; but one that never is must not shut it out for ever.
                self.free_at = arrival + PROBE
                return
        free_at = self.free_at
        self.free_at = (
            free_at if free_at > arrival else arrival  # noqa: FURB136 - half the price of max()
        ) + self.service

    def owes(self, left: int, now: float) -> None:
        """So many sent messages are not done; others were taken from it, or will never be sent."""
        had, self.awaiting = self.awaiting, left
        if had and not left and self.free_at > now:
            self._correct(now)

    def on_done(self, now: float, count: int = 1, left: int | None = None) -> None:
        """It acknowledged `count` messages. `left`: how many it still has, where the caller knows exactly."""
        before = self.awaiting
        after = max(before - count, 0) if left is None else left
        self.awaiting = after
        if self._base is None:
            self.processed += count
        if not self._acknowledges_late or count <= 0:
            return
        self._has_acknowledged = True
        if before:
            seconds = (now - self._busy_since) / count
            if count == 1 and not after:
                # It was the last one sent, and cannot have been in work before it arrived.
                seconds = min(seconds, now - self._last_sent - 2.0 * self.half_rtt)
            self._sample(seconds, count)
        self._busy_since = now
        # The next began when this one ended, half a round trip ago; the last cannot end before it has arrived.
        service = self.service
        free_at = now - self.half_rtt + after * service
        if after:
            free_at = max(free_at, self._last_sent + self.half_rtt + service)
        self._correct(free_at)

    def on_report(self, now: float, report: LoadReport) -> None:
        """It told its load."""
        interval = now - self.reported_at
        sent_between = self.sent_since_report
        # Table 3, with the zeros of reports that cover no message (spec 5, ambiguity 3).
        history = self._history
        history.append(report.processing_time)
        del history[:-HISTORY]
        self.mean_time = sum(history) / len(history)
        if len(history) > 1:
            self.report_interval = interval
        self.queue_length = queue_length = report.queue_length
        self.reported_at = now
        self._sent_at_report = self.sent
        self.is_known = True

        if queue_length > self.awaiting:
            # It has more than it owes, so it acknowledges what it only took, and that tells nothing of its speed.
            if self._acknowledges_late and self._has_acknowledged:
                self._estimate = ServiceTime()
            self._acknowledges_late = False
        elif self.awaiting:
            return  # acknowledgements are more exact
        if report.count != 0:
            self._sample(
                report.processing_time, WEIGHT_UNKNOWN if report.count is None else float(report.count)
            )
        if report.processed is None:
            least, most = queue_length, queue_length + 1  # and perhaps one in process
        else:
            most = self._count(report.processed, queue_length, sent_between, interval)
            least = max(most - 1, 0)
        service = self.service
        then = now - self.half_rtt
        self._correct(min(max(self.free_at, then + least * service), then + most * service))

    def _correct(self, free_at: float) -> None:
        before = self.free_at
        self.free_at = free_at
        if self.watchers and abs(free_at - before) > NOTABLE * self.service:
            for watcher, index in self.watchers:
                found = watcher()
                if found is not None:
                    found.changed.add(index)

    def _count(self, total: int, queue_length: int, sent_between: int, interval: float) -> int:
        """How many are outstanding, given the client's own total; corrects for what was lost or came from elsewhere."""
        base = self._base or 0
        outstanding = self.sent - total - base
        if outstanding < queue_length:  # it counts messages that were not counted here
            outstanding = queue_length
        elif queue_length == 0 and interval >= 2.0 * self.half_rtt:
            # Its queue is empty, so all that was sent before its last report is done, lost, or the one in process.
            outstanding = min(outstanding, sent_between + 1)
        self._base = self.sent - outstanding - total
        self.processed = self.sent - outstanding
        return outstanding

    def _sample(self, seconds: float, weight: float) -> None:
        if seconds > 0.0:
            self._estimate.add(seconds, weight)
            self.service = self._estimate.mean
            self.has_sample = True


class Member:
    """A client in a group. `share` is how many of the group's messages it got, `last_sent` when the last."""

    __slots__ = ("key", "last_sent", "load", "share")

    def __init__(self, key: str, load: ClientLoad, now: float = 0.0) -> None:
        self.key = key
        self.load = load
        self.last_sent = now
        self.share = 0

    def on_sent(self, now: float, qos: int = 0) -> None:
        """A message of the group was given to it."""
        self.last_sent = now
        self.share += 1
        self.load.on_sent(now, qos)
