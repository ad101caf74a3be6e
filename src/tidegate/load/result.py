"""What a run found, as one record that becomes JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(kw_only=True, slots=True)
class Result:
    """One run. What a mode does not measure is None.

    `delivered`, `messages_per_second`, CPU and latency belong to the measured window; `sent`, `received`,
    `drops`, `repeats` and `refused` to the whole run, warm-up and drain included, so that the count is
    exact.
    """

    mode: str
    protocol: int
    qos: int
    publishers: int
    subscribers: int
    payload_bytes: int
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    sent: int = 0
    expected: int = 0
    received: int = 0
    drops: int = 0
    repeats: int = 0
    refused: int = 0
    disconnects: int = 0
    delivered: int = 0
    messages_per_second: float = 0.0
    broker_cpu_seconds: float | None = None
    broker_cpu_us_per_message: float | None = None
    broker_cpu_share: float | None = None
    tool_cpu_share: float = 0.0
    # What disturbed the run: time the host took from this machine's processors, and time that broker and tool
    # were ready to run but waited for a processor.
    steal_share: float = 0.0
    broker_wait_share: float = 0.0
    tool_wait_share: float = 0.0
    latency_samples: int = 0
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    late_sends: int | None = None  # trickle: sent more than 5 ms after their time
    pings: int | None = None
    unanswered_pings: int | None = None
    connects_per_second: float | None = None
    rss_before_bytes: int | None = None
    rss_after_bytes: int | None = None
    rss_bytes_per_connection: float | None = None
    pss_bytes_per_connection: float | None = None

    @property
    def disturbance(self) -> float:
        """Return the largest share of the time that others took away; above a few percent, measure again.

        A trickle that leaves late is no trickle: its late messages count too.
        """
        late = (self.late_sends or 0) / max(1, self.delivered)
        return max(self.steal_share, self.broker_wait_share, self.tool_wait_share, late)

    @property
    def is_exact(self) -> bool:
        """Say whether every message arrived once and only once, and no client was lost."""
        return not (self.drops or self.repeats or self.refused or self.disconnects or self.unanswered_pings)

    def as_dict(self) -> dict[str, Any]:
        """Return the record for JSON, without what this mode does not measure."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of values in ascending order; `share` 0.99 for the 99th."""
    if not ordered:
        raise ValueError("no values")
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
