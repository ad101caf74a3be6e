"""What every timeout policy offers, and the records that go in and out of it.

A client that must not miss changes asks again and again (spec 3 calls it active control). A policy makes one `Loop`
for each thing that is asked for. The caller tells it how each check went and is told how long to wait until the next.
Policies know no clock and no chance: `now` is seconds on any monotonic clock, `random` comes from the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidegate.flow.timeout.announcement import UNKNOWN, Announcement


@dataclass(slots=True, kw_only=True)
class Check:
    """How one check went; times in seconds.

    `interval` is the time since the check before (t_i), `duration` until the answer, or until the client gave up
    (then it `is_dropped`), `losses` (k_i) the updates that were neither notified nor seen before. `load` is what the
    broker announced with the answer.
    """

    interval: float
    duration: float
    losses: int = 0
    is_dropped: bool = False
    load: Announcement = UNKNOWN


@dataclass(slots=True, kw_only=True)
class Event:
    """One check as the experiments record it (spec 3 (c)); times in seconds."""

    run: str
    level: str
    requirement: str
    init_mode: str
    kp: int
    check: int
    t_send: float
    t_resp: float
    dropped: bool
    losses: int
    t_ast: float
    t_bck: float
    t_avg: float
    congested: bool
    version_seen: int
    version_true: int


class Random(Protocol):
    """The part of `random.Random` that policies need."""

    def random(self) -> float: ...
    def gauss(self, mu: float, sigma: float) -> float: ...
    def uniform(self, a: float, b: float) -> float: ...


class Loop(Protocol):
    """State of one request loop; the properties are those of the last check."""

    counts_reactions: bool
    """Whether an answered reaction is as good as a check: it is then told as one, and the next check is put off."""

    @property
    def t_ast(self) -> float:
        """The adaptive part of the timeout; infinite if there is no loop."""

    @property
    def t_bck(self) -> float:
        """The random back-off in it."""

    @property
    def t_avg(self) -> float:
        """Smoothed response time; 0 before the first answer."""

    @property
    def threshold(self) -> float:
        """Seconds of waiting that mean congestion before the answer is there; infinite while nothing is known."""

    @property
    def is_congested(self) -> bool:
        """Whether the last check was taken for congestion."""

    def start(self, random: Random) -> float:
        """Seconds until the first check: loops that begin together do not ask together."""

    def check(self, check: Check, random: Random) -> float:
        """Tell of a check that ended now; seconds until the next one."""

    def react(self, random: Random, load: Announcement = UNKNOWN) -> float:
        """Seconds to wait before asking because of a notification; `load` is what came with it, if anything."""

    def retry(self, check: Check, random: Random) -> float | None:
        """Seconds until a reaction that was dropped is tried again; None leaves it to the next check."""


class TimeoutPolicy(Protocol):
    """One rule; `loop` begins it for one thing that is watched."""

    def loop(self) -> Loop: ...
