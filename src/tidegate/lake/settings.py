"""What is recorded, and where."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.broker.recording.batch import Level
from tidegate.broker.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """Where the node records its traffic for the pipeline: see docs/lake.md."""

    path: str = setting("", "folder or address (file://, s3://, …) of the lake; empty: nothing is recorded")
    level: Level = setting(
        Level.SUMMARY,
        "summary: sums for each client and topic; full: every message, and all that decisions depend on; off",
    )
    window: float = setting(10.0, "seconds that a summary covers; at level full one at most", minimum=0.1)
    roll_seconds: float = setting(
        30.0, "longest that a file is written to before it is complete", minimum=0.1
    )
    roll_bytes: int = setting(134_217_728, "size at which a file is complete", minimum=65_536)
    max_pending: int = setting(
        512, "batches that may wait for the disk; more are dropped and counted", minimum=8, maximum=65_536
    )

    @property
    def is_on(self) -> bool:
        return bool(self.path) and self.level is not Level.OFF
