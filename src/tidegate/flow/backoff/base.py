"""What every back-off policy offers, and the records that leave it.

A policy makes one `Publisher` for each client that publishes. The caller tells it of every message that arrives and
is told how long to wait before it reads on. Policies know no clock: `now` is seconds on any monotonic clock, and
never goes back for one publisher.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, Protocol

REFUSE: Final = -1.0
"""Answer of `Publisher.observe` in mode `drop`: discard what was just observed."""


class Mode(StrEnum):
    """What the caller does with a publisher that is too fast; the paper says all three (spec 1, ambiguity 7)."""

    BACKPRESSURE = "backpressure"  # stop reading this client, so that TCP slows the sender
    HOLD = "hold"  # keep the message, forward it later; later ones of this client wait behind it
    DROP = "drop"  # discard the message


class Load(IntEnum):
    """State of the node, set on the policy by whoever measures it."""

    LOW = 0
    HIGH = 1
    OVERLOAD = 2


class State(StrEnum):
    """What a policy thinks of a publisher."""

    TRAINING = "training"
    NORMAL = "normal"
    SUSPICIOUS = "suspicious"
    HELD = "held"


@dataclass(slots=True, kw_only=True, frozen=True)
class Prior:
    """What is known of a publisher before its first message, from a policy snapshot or an administrator.

    0 stands for unknown. `rate` and `limit` in messages per second; `dispersion` is the variance of the number of
    messages in a time over its mean (0 like a clock, 1 like a Poisson stream); `limit` is a quota that no amount of
    learning exceeds; `rank` 1 is served first.
    """

    rate: float = 0.0
    dispersion: float = 0.0
    limit: float = 0.0
    rank: int = 0


@dataclass(slots=True, kw_only=True)
class Verdict:
    """A publisher as seen from outside, for `$SYS`, metrics and the terminal. Rates in messages per second.

    `hold` is the last answer in seconds while the publisher is held, else 0. Rates are 0 until they are known.
    `allowed` is what it may send now without being held where that is less than its habit, or where it is held; else 0.
    """

    state: State
    rate: float
    trained_rate: float
    dispersion: float
    hold: float
    rank: int
    allowed: float = 0.0


@dataclass(slots=True, kw_only=True)
class Event:
    """One message as the experiments record it (spec 1 (c)); times in seconds, rates in messages per second."""

    run: str
    broker_mode: str
    client_id: str
    msg_seq: int
    t_sent: float
    t_read: float
    t_forwarded: float
    bytes: int
    fr_avg: float
    fr_new: float
    d_f: float
    rank: int
    label_anomalous: bool
    dropped: bool


class Publisher(Protocol):
    """State of one publisher."""

    @property
    def key(self) -> Hashable: ...

    @property
    def trained_rate(self) -> float:
        """Messages per second that are normal for it; 0 while that is unknown."""

    @property
    def likely_rate(self) -> float:
        """The trained rate, or while that is unknown a first guess; 0 without any."""

    @property
    def is_suspicious(self) -> bool:
        """Whether the last message observed was one too many."""

    @property
    def is_in_good_standing(self) -> bool:
        """Whether it is known well enough, and nothing of late is held against it."""

    def observe(self, now: float, count: int = 1, size: int = 0) -> float:
        """Tell of `count` messages of `size` bytes in all that were read together at `now`.

        Answers with the seconds to hold (0.0: go on), finite and bounded, or with `REFUSE`. Constant cost.
        """

    def snapshot(self, now: float, rank: int = 0) -> Verdict:
        """The publisher at `now`; `rank` is passed through."""


class BackoffPolicy(Protocol):
    """One rule for all publishers of a node. `load` may be set at any time."""

    mode: Mode
    load: Load
    is_per_message: bool
    """Whether `observe` must be called for each message; else once for all that arrived together."""

    def publisher(self, key: Hashable, prior: Prior | None = None) -> Publisher:
        """State for a publisher that was not seen before and is connected."""

    def join(self, publisher: Publisher) -> None:
        """The publisher is connected again and counts among the others, with what is known of it."""

    def leave(self, publisher: Publisher) -> None:
        """The publisher is not connected and does not count among the others."""
