"""Something that sends after one interval and another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from tidegate.sim.clock import Simulation


class Pace(Enum):
    """What a message that is not accepted yet does to the next one."""

    OPEN = "open"  # nothing: the source sends by its clock
    PATIENT = (
        "patient"  # the next is sent when its interval is over and the last was accepted, whichever is later
    )
    BLOCKED = (
        "blocked"  # the next interval begins when the last was accepted: a program that waits for its calls
    )


class Source:
    """Calls `send` with the number of the message, from 0, each time an interval is over; ends with its intervals.

    Unless its pace is OPEN, `accepted` must be called once for each message, at any later time or from within `send`.
    """

    __slots__ = ("_intervals", "_is_due", "_is_waiting", "_send", "_sim", "pace", "sent")

    def __init__(
        self,
        sim: Simulation,
        intervals: Iterator[float],
        send: Callable[[int], None],
        *,
        pace: Pace = Pace.OPEN,
        start: float = 0.0,
    ) -> None:
        self._sim = sim
        self._intervals = intervals
        self._send = send
        self._is_waiting = False  # for the last message to be accepted
        self._is_due = False  # a message that waits for that
        self.pace = pace
        self.sent = 0
        sim.at(start, self._begin)

    def accepted(self) -> None:
        """The last message was taken; an open source does not care."""
        if not self._is_waiting:
            return
        self._is_waiting = False
        if self.pace is Pace.BLOCKED:
            self._begin()
        elif self._is_due:
            self._is_due = False
            self._emit()

    def _begin(self) -> None:
        interval = next(self._intervals, None)
        if interval is not None:
            self._sim.after(interval, self._emit)

    def _emit(self) -> None:
        if self._is_waiting:
            self._is_due = True
            return
        number = self.sent
        self.sent += 1
        self._is_waiting = self.pace is not Pace.OPEN
        if self.pace is not Pace.BLOCKED:
            self._begin()
        self._send(number)
