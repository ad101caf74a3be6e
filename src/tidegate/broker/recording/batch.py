"""What the broker hands to a recorder: columns of numbers for messages, rows for all else.

The broker only appends; turning this into tables is the recorder's work, on a thread of its own. Times are those of
the broker's monotonic clock; `clock` tells how far the wall clock was ahead of it, in seconds, at the hand-over.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from tidegate.broker.index import Route

RUN_WIDTH: Final = 4  # numbers a run: stream, messages, bytes, time


class Level(StrEnum):
    """How much is recorded."""

    OFF = "off"
    SUMMARY = "summary"  # sums over windows
    FULL = "full"  # one row a message, and everything that decisions depend on


@dataclass(slots=True, frozen=True)
class Shape:
    """Rows of one kind: a tuple begins with the time, the rest are these columns; `constants` are the same in all."""

    table: str
    columns: tuple[str, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Runs:
    """Messages in the order of arrival, neighbours of one stream together.

    A stream is a client, a route and a QoS, numbered from 0 in each window; the new ones come with the first batch
    that has them. Clients are numbered for as long as `generation` stays. `is_last`: the window ends with this batch;
    if that batch is lost, the next one is of another `window`.
    """

    clock: float
    numbers: array[float]
    window: int
    window_start: float
    window_end: float
    is_last: bool
    generation: int
    clients: list[str]
    routes: list[Route]
    streams: list[tuple[int, int, int]]  # client, route, QoS
    lost: int = 0  # messages before this batch that were not recorded


@dataclass(slots=True, kw_only=True)
class Rows:
    """Rows of one shape; `lost` of its table before them were not recorded."""

    clock: float
    shape: Shape
    rows: list[tuple[Any, ...]]
    lost: int = 0


@dataclass(slots=True, kw_only=True, frozen=True)
class Recording:
    """What a broker is told about its recorder. `window`: seconds that summaries cover."""

    sink: Sink
    level: Level = Level.SUMMARY
    window: float = 10.0


class Sink(Protocol):
    """Takes batches without ever waiting."""

    def offer(self, batch: Runs | Rows) -> bool:
        """False: there is no room, and the batch is not recorded."""
