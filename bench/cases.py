"""What is measured, and what Tidegate may cost at most."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a case is judged by."""

    CPU = "cpu"  # broker CPU time per message, as a ratio to Mosquitto's
    MEMORY = "memory"  # bytes per idle connection
    RATE = "rate"  # messages a second with a durable store; the lower of the limit and Mosquitto's rate is enough
    RECORD = "record"  # broker CPU time per message while it records, as a ratio to the same broker without
    EXACT = "exact"  # nothing lost, nothing doubled, nobody disconnected


@dataclass(kw_only=True, frozen=True)
class Case:
    """One row. `options` go to `tidegate.load.run`; `quick` replaces some of them in a quick run."""

    name: str
    title: str
    mode: str
    kind: Kind = Kind.CPU
    limit: float = 0.0
    record: str = ""  # level of `lake.level`
    options: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case(name="pairs-0", title="QoS 0, 10→10", mode="pairs", limit=0.25),
    Case(name="fanout-0", title="QoS 0, 1→50 fan-out", mode="fanout", limit=0.10),
    Case(name="fanin-0", title="QoS 0, 50→1 fan-in", mode="fanin", limit=0.30),
    Case(name="pairs-1", title="QoS 1, 10→10", mode="pairs", limit=0.30, options={"qos": 1}),
    Case(name="pairs-2", title="QoS 2, 10→10", mode="pairs", limit=0.30, options={"qos": 2}),
    Case(name="shared-0", title="QoS 0, 10→shared group of 10, MQTT 5", mode="shared", limit=0.30),
    Case(name="trickle-0", title="QoS 0, 200→200 at 20 msg/s each", mode="trickle", limit=1.25),
    Case(
        name="durable-1",
        title="QoS 1, 10→10 persistent subscribers, durable",
        mode="pairs",
        kind=Kind.RATE,
        limit=20_000,
        options={"qos": 1, "persistent": True},
    ),
    Case(
        name="record-summary",
        title="recording summaries, QoS 0, 10→10",
        mode="pairs",
        kind=Kind.RECORD,
        limit=1.05,
        record="summary",
    ),
    Case(
        name="record-full",
        title="recording every message, QoS 0, 10→10",
        mode="pairs",
        kind=Kind.RECORD,
        limit=1.60,
        record="full",
    ),
    Case(
        name="idle",
        title="memory of 10 000 idle connections, each",
        mode="idle",
        kind=Kind.MEMORY,
        limit=6144,
        quick={"subscribers": 2000},
    ),
    Case(
        name="hold",
        title="15 000 connections held for a minute, one QoS 1 message each",
        mode="hold",
        kind=Kind.EXACT,
        quick={"subscribers": 1000, "seconds": 3.0, "keep_alive": 2},
    ),
)
