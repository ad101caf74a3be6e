"""What a run of the pipeline is told. All of it has a default but the lake."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.pipeline.errors import PipelineError

OUT: Final = "_pipeline"  # below the lake unless told otherwise; readers of the lake pass over it
POLICY: Final = "_policy"


def local_folder(place: str, option: str) -> str:
    """A folder of this machine, also if it is written as `file://`. Raises `PipelineError`."""
    path = place.removeprefix("file://")
    if "://" in path:
        raise PipelineError(f"{place} is not a folder of this machine", f"name one with {option} DIR")
    return path


@dataclass(slots=True, kw_only=True, frozen=True)
class Edge:
    """Capacity of an edge for the placement: bits per second towards subscribers, messages per second matched."""

    name: str
    uplink_bits: float = 100e6
    match_rate: float = 50_000.0

    @classmethod
    def parse(cls, text: str) -> Edge:
        """`NAME=MBIT` or `NAME=MBIT,MESSAGES_PER_SECOND`."""
        name, _, rest = text.partition("=")
        mbit, _, match = rest.partition(",")
        try:
            edge = cls(name=name, uplink_bits=float(mbit) * 1e6, match_rate=float(match or 50_000.0))
        except ValueError:
            edge = cls(name="", uplink_bits=0.0)
        if not edge.name or not edge.uplink_bits > 0.0 or not edge.match_rate > 0.0:
            raise PipelineError(
                f"{text!r} is not an edge", "as in --edge edge-1=100 or --edge edge-1=100,50000"
            )
        return edge


@dataclass(slots=True, kw_only=True, frozen=True)
class PipelineSettings:
    """Addresses are folders or what Spark reads (`file://`, `s3a://`, `hdfs://`); times are UTC."""

    lake: str
    out: str = ""
    policy: str = ""
    since: datetime | None = None
    until: datetime | None = None  # exclusive
    is_full: bool = False  # compute all hours again, changed or not

    gap_hours: int = 6  # hours that share one histogram of gaps; a divisor of 24
    top_topics: int = 256  # topics that are looked at second by second
    correlated: float = 0.7  # ρ from which topics belong together (spec 2)
    change_ratio: float = 1.5  # times the usual rate that is a change of behaviour, or its reciprocal
    limit_factor: float = 4.0  # times the busiest normal hour that is suggested as a quota
    edges: tuple[Edge, ...] = ()
    hysteresis_db: float = 5.0  # spec 4
    route_age_slots: int = 2  # slots of five minutes without a word that make a route old
    target_staleness: float = 5.0  # seconds; what the timeouts of spec 3 are tuned for
    grace_seconds: float = 120.0  # after its end an hour is still being written

    @property
    def out_folder(self) -> str:
        return self.out or f"{self.lake.rstrip('/')}/{OUT}"

    @property
    def policy_folder(self) -> str:
        return local_folder(self.policy or f"{self.lake.rstrip('/')}/{POLICY}", "--policy")

    def __post_init__(self) -> None:
        if self.gap_hours < 1 or 24 % self.gap_hours:
            raise PipelineError(f"gap_hours is {self.gap_hours}", "choose 1, 2, 3, 4, 6, 8, 12 or 24")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise PipelineError("--since is not before --until", "both are UTC: 2026-01-05T00:00")
