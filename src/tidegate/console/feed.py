"""What a node tells about itself in its `$SYS` topics, gathered: the data behind `tidegate top` and the console.

Messages come in one by one through `take`; whoever draws reads the fields whenever it wants. Counters are
published at an interval that is longer than the screen's, so rates are the difference of two publications, and
until there are two, the node's own average over the last minute.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from tidegate.console.values import number, objects, text

LOAD: Final = "$SYS/tide/load"
PUBLISHERS: Final = "$SYS/tide/publishers"
QUEUES: Final = "$SYS/tide/queues"
GROUPS: Final = "$SYS/tide/groups"
ACCOUNTS: Final = "$SYS/tide/accounts"
NODE: Final = "$SYS/tide/node"
UPTIME: Final = "$SYS/broker/uptime"
VERSION: Final = "$SYS/broker/version"
CONNECTED: Final = "$SYS/broker/clients/connected"
MEMORY: Final = "$SYS/broker/heap/current"
RECEIVED: Final = "$SYS/broker/publish/messages/received"
SENT: Final = "$SYS/broker/publish/messages/sent"
DROPPED: Final = "$SYS/broker/publish/messages/dropped"
# Messages a minute, averaged by the node; what stands in for a counter that was seen only once.
AVERAGES: Final = {
    RECEIVED: "$SYS/broker/load/publish/received/1min",
    SENT: "$SYS/broker/load/publish/sent/1min",
    DROPPED: "$SYS/broker/load/publish/dropped/1min",
}

DOCUMENTS: Final = (LOAD, PUBLISHERS, QUEUES, GROUPS, ACCOUNTS)
# In this order: retained messages come as the filters do, and the uptime must come before the counters.
TOPICS: Final = (
    *(*DOCUMENTS, NODE),
    *(UPTIME, VERSION, CONNECTED, MEMORY, RECEIVED, SENT, DROPPED),
    *AVERAGES.values(),
)


UNITS: Final = 1e6  # of work a second that take all of a core, about


class Sort(StrEnum):
    """What puts a publisher at the top."""

    RATE = "rate"
    HOLD = "hold"
    RANK = "rank"
    QUEUE = "queue"


class View(StrEnum):
    """What is shown under the line about the node."""

    TRAFFIC = "traffic"
    GROUPS = "groups"
    ACCOUNTS = "accounts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """One row of `$SYS/tide/publishers`. Rates in messages a second, `hold` in seconds."""

    client: str
    user: str
    address: str
    rate: float
    trained_rate: float
    state: str
    hold: float
    rank: int
    class_name: str
    held_bytes: int
    pinned: str = ""
    excused: float = 0.0
    allowed: float = 0.0

    @classmethod
    def read(cls, row: dict[str, Any]) -> Self:
        return cls(
            client=text(row.get("client")),
            user=text(row.get("user")),
            address=text(row.get("address")),
            rate=number(row.get("rate")),
            trained_rate=number(row.get("trained_rate")),
            state=text(row.get("state")),
            hold=number(row.get("hold")),
            rank=int(number(row.get("rank"))),
            class_name=text(row.get("class")),
            held_bytes=int(number(row.get("held_bytes"))),
            pinned=text(row.get("pinned")),
            excused=number(row.get("excused")),
            allowed=number(row.get("allowed")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One row of `$SYS/tide/queues`: what waits for one session."""

    client: str
    is_connected: bool
    is_blocked: bool
    messages: int
    size_bytes: int
    inflight: int
    dropped: int

    @classmethod
    def read(cls, row: dict[str, Any]) -> Self:
        return cls(
            client=text(row.get("client")),
            is_connected=row.get("connected") is True,
            is_blocked=row.get("is_blocked") is True,
            messages=int(number(row.get("queued_messages"))),
            size_bytes=int(number(row.get("queued_bytes"))),
            inflight=int(number(row.get("inflight"))),
            dropped=int(number(row.get("dropped"))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One row of `$SYS/tide/accounts`: what one user's clients cost. `work` is a share of one core."""

    user: str
    sessions: int
    connected: int
    kept_bytes: int
    retained: int
    work: float
    busiest: str
    busiest_work: float

    @classmethod
    def read(cls, row: dict[str, Any]) -> Self:
        return cls(
            user=text(row.get("user")),
            sessions=int(number(row.get("sessions"))),
            connected=int(number(row.get("connected"))),
            kept_bytes=int(number(row.get("kept_bytes"))),
            retained=int(number(row.get("retained"))),
            work=number(row.get("work")) / UNITS,
            busiest=text(row.get("busiest")),
            busiest_work=number(row.get("busiest_work")) / UNITS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One member in a row of `$SYS/tide/groups`. Times in milliseconds, `share` of 1."""

    client: str
    is_connected: bool
    is_stalled: bool
    outstanding: int
    service_ms: float
    wait_ms: float
    share: float
    reports: bool
    expected_ms: float = 0.0  # until it could begin with one more message, as the policy sees it
    sent_ago_ms: float | None = None  # since it got its last message; None: it never got one
    sent: int = 0

    @classmethod
    def read(cls, row: dict[str, Any]) -> Self:
        return cls(
            client=text(row.get("client")),
            is_connected=row.get("connected") is True,
            is_stalled=row.get("is_stalled") is True,
            outstanding=int(number(row.get("outstanding"))),
            service_ms=number(row.get("service_ms")),
            wait_ms=number(row.get("wait_ms")),
            share=number(row.get("share")),
            reports=row.get("reports") is True,
            expected_ms=number(row.get("expected_ms")),
            sent_ago_ms=None if row.get("sent_ago_ms") is None else number(row.get("sent_ago_ms")),
            sent=int(number(row.get("sent"))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGroup:
    """One row of `$SYS/tide/groups`: a shared subscription; `members` has those with the most to do."""

    group: str
    filter: str
    policy: str
    total: int
    connected: int
    outstanding: int
    moved: int
    members: tuple[GroupMember, ...]

    @classmethod
    def read(cls, row: dict[str, Any]) -> Self:
        return cls(
            group=text(row.get("group")),
            filter=text(row.get("filter")),
            policy=text(row.get("policy")),
            total=int(number(row.get("total"))),
            connected=int(number(row.get("connected"))),
            outstanding=int(number(row.get("outstanding"))),
            moved=int(number(row.get("moved"))),
            members=tuple(GroupMember.read(member) for member in objects(row.get("members"))),
        )


@dataclass(slots=True)
class Feed:
    """The latest of everything. `arrived` has the time of each topic's latest message, on the caller's clock."""

    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)
    _before: dict[str, str] = field(default_factory=dict)  # the values when the current interval began
    _interval: float = 0.0
    _interval_began: float | None = None

    def take(self, topic: str, payload: bytes, now: float, *, is_retained: bool = False) -> None:
        """One message. What is not understood is left out: a newer node may tell more than we know."""
        if topic in DOCUMENTS:
            try:
                document = json.loads(payload)
            except (ValueError, RecursionError):
                return
            if isinstance(document, dict):
                self.documents[topic] = document
                self.arrived[topic] = now
            return
        text = payload.decode(errors="replace")
        if topic == UPTIME:
            self._begin_interval(text, now, is_retained=is_retained)
        self.values[topic] = text
        self.arrived[topic] = now

    @property
    def is_tidegate(self) -> bool:
        """Whether the server has told anything that only a node of ours tells."""
        return bool(self.documents) or NODE in self.values

    @property
    def is_complete(self) -> bool:
        return self.documents.keys() >= set(DOCUMENTS)

    @property
    def load(self) -> dict[str, Any]:
        return self.documents.get(LOAD, {})

    @property
    def publishers(self) -> list[Publisher]:
        return [Publisher.read(row) for row in self._rows(PUBLISHERS)]

    @property
    def queues(self) -> list[Queue]:
        return [Queue.read(row) for row in self._rows(QUEUES)]

    @property
    def groups(self) -> list[SharedGroup]:
        return [SharedGroup.read(row) for row in self._rows(GROUPS)]

    @property
    def accounts(self) -> list[Account]:
        return [Account.read(row) for row in self._rows(ACCOUNTS)]

    def total(self, topic: str) -> int:
        """How many rows there would be; the node sends the most important ones only."""
        return int(number(self.documents.get(topic, {}).get("total")))

    def number(self, topic: str) -> float | None:
        try:
            return float(self.values[topic])
        except (KeyError, ValueError):
            return None

    def rate(self, topic: str) -> float | None:
        """Growth of a counter a second; None as long as nobody can know."""
        now, before = self.number(topic), _parse(self._before.get(topic))
        if now is not None and before is not None and self._interval > 0:
            return max(0.0, now - before) / self._interval
        average = self.number(AVERAGES[topic])
        return None if average is None else average / 60.0

    def age(self, now: float) -> float | None:
        """Seconds since the latest list, which comes every second; None before the first."""
        arrived = [self.arrived[topic] for topic in (PUBLISHERS, QUEUES, GROUPS, ACCOUNTS) if topic in self.arrived]
        return now - max(arrived) if arrived else None

    def _begin_interval(self, uptime: str, now: float, *, is_retained: bool) -> None:
        """The uptime changes at every publication and comes before the counters, so it marks a new interval."""
        old, new = _seconds(self.values.get(UPTIME)), _seconds(uptime)
        if old is None or new is None or new <= old:
            # The first one, the same one again, or another life of the node, whose counters began anew.
            if old is not None and new is not None and new < old:
                self._before = {}
            self._interval_began = None if is_retained else now
            return
        # When both came as they were published, our clock tells the interval better than whole seconds do.
        began = self._interval_began
        self._interval = new - old if began is None or is_retained else now - began
        self._interval_began = None if is_retained else now
        self._before = dict(self.values)

    def _rows(self, topic: str) -> list[dict[str, Any]]:
        return objects(self.documents.get(topic, {}).get("rows"))


def _parse(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _seconds(uptime: str | None) -> float | None:
    """`123 seconds`, as Mosquitto words it."""
    return _parse((uptime or "").partition(" ")[0])
