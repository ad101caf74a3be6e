"""The store's own time: what expires while the node is down is decided by it, and not by a wall clock alone.

It goes on by the loop's clock while the node runs, and by the wall clock from when the node was last seen to the next
start. If that is implausible (the clock went back, or by more than a downtime is expected to last), nothing is added:
what was kept lives longer, and nothing is lost. A gateway without a clock of its own begins every start in another
year.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TypeAlias

log = logging.getLogger("tidegate.store")

Seen: TypeAlias = tuple[float, float]
"""Store time and wall time of one moment."""


class StoreClock:
    """Begins with its first start as wall time, so that times of older files mean the same."""

    __slots__ = ("_offset",)

    def __init__(self, loop_time: float, wall: float, last: Seen | None, plausible_downtime: float) -> None:
        store_time = wall
        if last is not None:
            before, then = last
            elapsed = wall - then
            if not 0.0 <= elapsed <= plausible_downtime:
                log.warning(
                    "the clock jumped while the node was down: nothing that is stored expires for it",
                    extra={"last_seen": _text(then), "now": _text(wall)},
                )
                elapsed = 0.0
            store_time = before + elapsed
        self._offset = store_time - loop_time

    def at(self, loop_time: float) -> float:
        """Store time."""
        return loop_time + self._offset

    def loop_time(self, store_time: float) -> float:
        return store_time - self._offset


def _text(wall: float) -> str:
    try:
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{wall:.0f} s"
