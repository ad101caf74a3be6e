"""What the gate decides, and at level full everything it decides by.

At level full the back-off policy is wrapped: every call that can change a verdict or a rank becomes a row, numbered in
order. The policies are pure, so the same calls on new objects of the same parameters give the same answers, to the
last bit; that is what replay does. At level summary only holds and refusals are recorded.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from tidegate.broker.recording.batch import Shape
from tidegate.flow.backoff import Identity, Load, Mode, Prior, Publisher, Verdict

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.flow_settings import FlowSettings
    from tidegate.broker.recording.tap import Tap
    from tidegate.flow.backoff import BackoffPolicy
    from tidegate.flow.priority import Band

_WHO = ("client_id", "user")
_VERDICT = (
    "d_f",
    "count",
    "state",
    "fr_new",
    "fr_avg",
    "dispersion",
    "rank",
    "policy",
    "mode",
    "load",
    "policy_version",
)
POLICY = Shape("check", ("seq", "policy", "mode", "load", "policy_version", "detail"), {"kind": "policy"})
LOAD = Shape("check", ("seq", "load"), {"kind": "load"})
OPEN = Shape(
    "check",
    (
        "seq",
        *_WHO,
        "address",
        "publisher",
        "prior_rate",
        "prior_dispersion",
        "limit",
        "prior_rank",
        "policy_version",
        "detail",
    ),
    {"kind": "open"},
)
CLOSE = Shape("check", ("seq", *_WHO, "address"), {"kind": "close"})
OBSERVE = Shape("check", ("seq", *_WHO, "publisher", "count", "bytes", "d_f", "fr_avg"), {"kind": "observe"})
RATE = Shape("check", ("seq", *_WHO, "rate"), {"kind": "rate"})
RANK = Shape("check", ("seq", *_WHO, "rank", "place", "detail"), {"kind": "rank"})
HOLD = Shape("check", (*_WHO, *_VERDICT), {"kind": "hold"})
REFUSE = Shape("check", (*_WHO, *_VERDICT), {"kind": "refuse"})


class GateRecord:
    """Rows of table `check` that the gate makes."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._add = tap.add
        self.seq = 0
        self._refused: dict[Connection, int] = {}

    def _next(self) -> int:
        self.seq += 1
        return self.seq

    # -- level full -----------------------------------------------------------------------------------------

    def begin(self, policy: BackoffPolicy, settings: FlowSettings, now: float) -> RecordedBackoff:
        """A gate begins with this policy and knows nobody; gives the policy to use in its place."""
        detail = json.dumps(parameters(settings))
        name = settings.backoff.policy
        version = self._tap.policy_version
        row = (now, self._next(), name, str(policy.mode), policy.load.name, version, detail)
        self._add(POLICY, row)
        return RecordedBackoff(policy, self)

    def load(self, load: Load) -> None:
        self._add(LOAD, (self._tap.now(), self._next(), load.name))

    def opened(
        self, conn: Connection, publisher: Publisher, prior: Prior | None, band: Band | None, now: float
    ) -> None:
        assert isinstance(publisher, RecordedPublisher)
        known = prior or Prior()
        self._add(
            OPEN,
            (
                now,
                self._next(),
                conn.session.client_id,
                conn.username or "",
                conn.address,
                publisher.number,
                None if prior is None else known.rate,
                None if prior is None else known.dispersion,
                None if prior is None else known.limit,
                None if prior is None else known.rank,
                self._tap.policy_version,
                None if band is None else json.dumps([band.first, band.last]),
            ),
        )

    def closed(self, conn: Connection, now: float) -> None:
        row = (now, self._next(), conn.session.client_id, conn.username or "", conn.address)
        self._add(CLOSE, row)

    def rate(self, key: Hashable, rate: float, now: float) -> None:
        """The order of service was told a rate."""
        self._add(RATE, (now, self._next(), *_identity(key), rate))

    def ranked(
        self, key: Hashable, now: float, *, rank: int | None = None, place: float | None = None,
        band: Band | None = None,
    ) -> None:  # fmt: skip
        """The order of service was asked for a rank, or for the place of a message among those that wait."""
        detail = None if band is None else json.dumps([band.first, band.last])
        self._add(RANK, (now, self._next(), *_identity(key), rank, place, detail))

    def observed(self, publisher: RecordedPublisher, now: float, count: int, size: int, d_f: float) -> None:
        self.seq = seq = self.seq + 1
        self._add(
            OBSERVE,
            (
                now,
                seq,
                publisher.client_id,
                publisher.user,
                publisher.number,
                count,
                size,
                d_f,
                publisher.inner.trained_rate,
            ),
        )

    # -- both levels ----------------------------------------------------------------------------------------

    def held(self, conn: Connection, seconds: float, now: float) -> None:
        """A publisher has to wait."""
        self._decided(HOLD, conn, seconds, 1, now)

    def refused(self, conn: Connection) -> None:
        """A message was refused. A flood has many of them: they are counted, and told once a window."""
        self._refused[conn] = self._refused.get(conn, 0) + 1

    def end_window(self, now: float) -> None:
        refused, self._refused = self._refused, {}
        for conn, count in refused.items():
            self._decided(REFUSE, conn, -1.0, count, now)

    def _decided(self, shape: Shape, conn: Connection, d_f: float, count: int, now: float) -> None:
        gate = conn.core.gate
        publisher = conn.publisher
        if gate is None or publisher is None:
            return
        verdict = publisher.snapshot(now)
        # Not `gate.rank`, which tells the order of service about new rates: recording must not change a decision.
        rank = gate.priority.rank(publisher.key)
        self._add(
            shape,
            (
                now,
                conn.session.client_id,
                conn.username or "",
                d_f,
                count,
                str(verdict.state),
                verdict.rate,
                verdict.trained_rate,
                verdict.dispersion,
                rank,
                gate.settings.backoff.policy,
                str(gate.mode),
                gate.policy.load.name,
                self._tap.policy_version,
            ),
        )


def _identity(key: Hashable) -> tuple[str, str]:
    return (key.client_id, key.user) if isinstance(key, Identity) else (str(key), "")


def parameters(settings: FlowSettings) -> dict[str, Any]:
    """What it takes to make the same policies: names in the registries of `flow`, and keywords."""
    backoff = settings.backoff
    name = backoff.policy
    if name == "paper":
        options: dict[str, Any] = {
            "n": backoff.paper_n,
            "training": str(backoff.paper_training),
            "margin": backoff.paper_margin,
            "d_max": backoff.paper_d_max,
        }
    else:  # "off" learns rates all the same, for the ranks
        name = "adaptive"
        options = {"settings": dataclasses.asdict(backoff.adaptive())}
    mode = Mode.BACKPRESSURE if backoff.policy == "off" else backoff.mode
    priority = settings.priority
    return {
        "backoff": {"name": name, "mode": str(mode), "options": options},
        "priority": {
            "name": priority.policy,
            "options": {"patience": priority.patience} if priority.policy == "ageing" else {},
        },
    }


class RecordedBackoff:
    """A back-off policy whose calls are recorded."""

    __slots__ = ("_count", "_policy", "_record", "is_per_message", "mode")

    def __init__(self, policy: BackoffPolicy, record: GateRecord) -> None:
        self._policy = policy
        self._record = record
        self._count = 0
        self.mode = policy.mode
        self.is_per_message = policy.is_per_message

    @property
    def load(self) -> Load:
        return self._policy.load

    @load.setter
    def load(self, load: Load) -> None:
        if load is not self._policy.load:
            self._policy.load = load
            self._record.load(load)

    def publisher(self, key: Hashable, prior: Prior | None = None) -> RecordedPublisher:
        self._count += 1
        return RecordedPublisher(self._policy.publisher(key, prior), self._record, self._count)

    def join(self, publisher: Publisher) -> None:
        assert isinstance(publisher, RecordedPublisher)
        self._policy.join(publisher.inner)

    def leave(self, publisher: Publisher) -> None:
        assert isinstance(publisher, RecordedPublisher)
        self._policy.leave(publisher.inner)


class RecordedPublisher:
    """State of one publisher whose verdicts are recorded. `number`: in the order of creation, from 1."""

    __slots__ = ("_observe", "_observed", "client_id", "inner", "number", "user")

    def __init__(self, inner: Publisher, record: GateRecord, number: int) -> None:
        self.inner = inner
        self.number = number
        self.client_id, self.user = _identity(inner.key)
        self._observe = inner.observe
        self._observed = record.observed

    @property
    def key(self) -> Hashable:
        return self.inner.key

    @property
    def trained_rate(self) -> float:
        return self.inner.trained_rate

    @property
    def likely_rate(self) -> float:
        return self.inner.likely_rate

    @property
    def is_suspicious(self) -> bool:
        return self.inner.is_suspicious

    @property
    def is_in_good_standing(self) -> bool:
        return self.inner.is_in_good_standing

    def observe(self, now: float, count: int = 1, size: int = 0) -> float:
        answer = self._observe(now, count, size)
        self._observed(self, now, count, size, answer)
        return answer

    def snapshot(self, now: float, rank: int = 0) -> Verdict:
        return self.inner.snapshot(now, rank)
