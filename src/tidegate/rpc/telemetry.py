"""What every hop tells: an observer gets it synchronously and must not wait; the lake and trace files are observers.

The hops of one request, joined by its key, give the event record of spec 4: t_enqueued, t_worker, t_fwd, t_mqtt, t_gw,
t_bck, t_reply. Nobody observing costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

Row: TypeAlias = dict[str, Any]


class Step(StrEnum):
    """Where a request is; in the order of its way."""

    ENQUEUED = "enqueued"  # the dispatcher put the task
    WORKER = "worker"  # a worker took it
    CALL = "call"  # a caller made the request
    FORWARD = "forward"  # a forward router took it
    PUBLISHED = "published"  # the broker has it for the gateway
    GATEWAY = "gateway"  # the gateway took it
    BACK = "back"  # a back router got the reply
    REPLY = "reply"  # the caller got it, or gave up


class Hop(NamedTuple):
    """`key` is the request's, the same on every attempt; `at` a moment of the wall clock; `part` who tells. A back
    router knows only the `correlation`, so callers tell both."""

    at: float
    step: Step
    key: str
    device: str
    part: str
    gateway: str = ""
    outcome: str = ""
    attempt: int = 1
    task: str = ""
    correlation: str = ""


class Beacon(NamedTuple):
    """An advertisement as the route manager saw it; `route` is the device's gateway afterwards."""

    at: float
    device: str
    gateway: str
    rssi: float
    route: str
    is_changed: bool


class Observer(Protocol):
    """Called for every hop and every advertisement."""

    def on_hop(self, hop: Hop) -> None: ...
    def on_beacon(self, beacon: Beacon) -> None: ...


class Sink(Protocol):
    """Keeps rows of the lake's tables `rpc` and `beacon`. The lake's recorder is one as it is."""

    def record(self, table: str, rows: Iterable[Row]) -> bool:
        """Rows by column name, moments as aware datetimes; False if they were dropped. Must not wait."""


class Several:
    """More than one observer."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def on_hop(self, hop: Hop) -> None:
        for observer in self._observers:
            observer.on_hop(hop)

    def on_beacon(self, beacon: Beacon) -> None:
        for observer in self._observers:
            observer.on_beacon(beacon)
