"""Shared subscriptions: at level full everything a choice depends on, in order; see `gate.py` for the idea."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from tidegate.broker.recording.batch import Shape
from tidegate.broker.shared import Roster, SharedGroup
from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared import ClientLoad, Member, SharedPolicy

if TYPE_CHECKING:
    from tidegate.broker.recording.tap import Tap

_GROUP = ("seq", "group", "topic_filter")
GROUP = Shape("member", (*_GROUP, "policy", "detail"), {"kind": "group"})
JOIN = Shape("member", (*_GROUP, "client_id"), {"kind": "join"})
LEAVE = Shape("member", (*_GROUP, "client_id"), {"kind": "leave"})
CHOOSE = Shape(
    "member",
    (
        *_GROUP,
        "client_id",
        "topic",
        "publisher",
        "place",
        "members",
        "m_q",
        "m_s",
        "t_p",
        "service",
        "detail",
    ),
    {"kind": "choose"},
)
SENT = Shape("member", (*_GROUP, "client_id", "qos"), {"kind": "sent"})
DONE = Shape("member", ("seq", "client_id", "count", "left"), {"kind": "done"})
OWES = Shape("member", ("seq", "client_id", "left"), {"kind": "owes"})
REPORT = Shape("member", ("seq", "client_id", "m_q", "t_p", "count", "processed"), {"kind": "report"})
RTT = Shape("member", ("seq", "client_id", "rtt"), {"kind": "rtt"})
FORGET = Shape("member", ("seq", "client_id"), {"kind": "forget"})
PRIOR = Shape("member", ("seq", "client_id", "service"), {"kind": "prior"})


class MemberRecord(Roster):
    """The roster of a node at level full: loads, members and policies that record what is done to them."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self._tap = tap
        self.seq = 0

    def add(self, shape: Shape, now: float, *values: Any) -> None:
        """One event; `now` as the policy saw it, 0 for one that has no time of its own."""
        self.seq += 1
        self._tap.add(shape, (now or self._tap.now(), self.seq, *values))

    def load(self, client_id: str, now: float) -> ClientLoad:
        return RecordedLoad(client_id, self, now)

    def member(self, group: SharedGroup, client_id: str, load: ClientLoad, now: float) -> Member:
        self._prime(load, group.name, client_id)
        name, topic_filter = group.name, group.topic_filter.decode()
        self.add(JOIN, now, name, topic_filter, client_id)
        return RecordedMember(client_id, load, now, self, name, topic_filter)

    def left(self, group: SharedGroup, client_id: str) -> None:
        self.add(LEAVE, 0.0, group.name, group.topic_filter.decode(), client_id)

    def wrap(
        self, group: SharedGroup, policy: SharedPolicy, name: str, options: dict[str, Any], now: float
    ) -> SharedPolicy:
        """The policy to use in place of `policy` for the group, from now on."""
        self.add(GROUP, now, group.name, group.topic_filter.decode(), name, json.dumps(options))
        return RecordedShared(policy, group, self)


class RecordedLoad(ClientLoad):
    """Load of one client, and all it is told. What members tell it of messages sent is recorded there."""

    __slots__ = ("_client_id", "_record")

    def __init__(self, client_id: str, record: MemberRecord, now: float) -> None:
        self._client_id = client_id
        self._record = record
        super().__init__(now)

    def forget(self, now: float) -> None:
        super().forget(now)
        self._record.add(FORGET, now, self._client_id)

    def prime(self, seconds: float) -> None:
        super().prime(seconds)
        self._record.add(PRIOR, 0.0, self._client_id, seconds)

    def owes(self, left: int, now: float) -> None:
        super().owes(left, now)
        self._record.add(OWES, now, self._client_id, left)

    def on_rtt(self, rtt: float) -> None:
        super().on_rtt(rtt)
        self._record.add(RTT, 0.0, self._client_id, rtt)

    def on_done(self, now: float, count: int = 1, left: int | None = None) -> None:
        super().on_done(now, count, left)
        self._record.add(DONE, now, self._client_id, count, left)

    def on_report(self, now: float, report: LoadReport) -> None:
        super().on_report(now, report)
        self._record.add(
            REPORT,
            now,
            self._client_id,
            report.queue_length,
            report.processing_time,
            report.count,
            report.processed,
        )


class RecordedMember(Member):
    """A member, and the messages it was given."""

    __slots__ = ("_group", "_record", "_topic_filter")

    def __init__(
        self, key: str, load: ClientLoad, now: float, record: MemberRecord, group: str, topic_filter: str
    ) -> None:
        super().__init__(key, load, now)
        self._record = record
        self._group = group
        self._topic_filter = topic_filter

    def on_sent(self, now: float, qos: int = 0) -> None:
        super().on_sent(now, qos)
        self._record.add(SENT, now, self._group, self._topic_filter, self.key, qos)


class RecordedShared:
    """A policy of one group, and its choices."""

    __slots__ = ("_group", "_inner", "_record", "_topic_filter")

    def __init__(self, inner: SharedPolicy, group: SharedGroup, record: MemberRecord) -> None:
        self._inner = inner
        self._group = group
        self._topic_filter = group.topic_filter.decode()
        self._record = record

    @property
    def is_counting(self) -> bool:
        return self._inner.is_counting

    @is_counting.setter
    def is_counting(self, value: bool) -> None:
        self._inner.is_counting = value

    def choose(
        self, members: tuple[Member, ...], topic: bytes, publisher: str, now: float, random: Random
    ) -> int:
        place = self._inner.choose(members, topic, publisher, now, random)
        chosen = members[place]
        load = chosen.load
        some = None if self._group.are_all(members) else json.dumps([member.key for member in members])
        self._record.add(
            CHOOSE,
            now,
            self._group.name,
            self._topic_filter,
            chosen.key,
            topic.decode(),
            publisher,
            place,
            len(members),
            load.queue_length,
            load.sent_since_report,
            load.mean_time,
            load.service,
            some,
        )
        return place
