"""Calls over the RPC backbone as its parts announce them: times between hops, outcomes, and dead tasks.

Parts started with `--telemetry` announce every hop; dead tasks are retained messages of the `mqtt` backend. Hops are
joined by the RPC room's own `Joiner`, so that the console shows what the lake would record; without that room the page
says so.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from datetime import datetime
from typing import Any, Final

from tidegate.console.rooms import find_room

MAX_CALLS: Final = 5_000  # ended calls that percentiles are of
WINDOW: Final = 300.0  # seconds that they are kept
MAX_DEAD: Final = 1_000
HOPS: Final = (
    ("router", "t_worker", "t_fwd", "waits for a forward router"),
    ("publish", "t_fwd", "t_mqtt", "router to broker"),
    ("gateway", "t_mqtt", "t_gw", "broker to gateway, and the device"),
    ("back", "t_gw", "t_bck", "gateway back to a router"),
    ("reply", "t_bck", "t_reply", "router to caller"),
    ("total", "t_worker", "t_reply", "the whole call"),
)


class RpcView:
    """What was heard of late in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.root = f"tide/rpc/{namespace}/"
        self.topics = (f"{self.root}telemetry/hops", f"{self.root}dead/#", f"{self.root}note/stats")
        self.dead: dict[str, dict[str, Any]] = {}
        self.outcomes: Counter[str] = Counter()
        self.heard = 0
        self._calls: deque[tuple[float, dict[str, float], str]] = deque(maxlen=MAX_CALLS)
        self._joiner: Any = None
        self._stats: dict[str, Any] = {}

    @property
    def is_available(self) -> bool:
        return find_room("rpc.recording") is not None

    def clear(self) -> None:
        self.dead = {}
        self._joiner = None

    def take(self, topic: str, payload: bytes, now: float) -> None:
        kind = topic.removeprefix(self.root)
        if kind.startswith("dead/"):
            self._take_dead(kind, payload)
            return
        try:
            content = json.loads(payload)
        except ValueError:
            return
        if kind == "note/stats" and isinstance(content, dict):
            self._stats = content
        elif kind == "telemetry/hops" and isinstance(content, list):
            self._take_hops(content, now)

    def _take_dead(self, kind: str, payload: bytes) -> None:
        name = kind.rpartition("/")[2]
        if not payload:
            self.dead.pop(name, None)
            return
        try:
            task = json.loads(payload)
        except ValueError:
            return
        if isinstance(task, dict) and (name in self.dead or len(self.dead) < MAX_DEAD):
            self.dead[name] = task

    def _take_hops(self, rows: list[Any], now: float) -> None:
        recording, telemetry = find_room("rpc.recording"), find_room("rpc.telemetry")
        if recording is None or telemetry is None:
            return
        if self._joiner is None:
            self._joiner = recording.Joiner("console", settle=0.6)
        for row in rows:
            try:
                hop = telemetry.Hop(*row)._replace(step=telemetry.Step(row[1]))
            except (ValueError, TypeError, IndexError):
                continue
            self.heard += 1
            self._joiner.add(hop, now)
        self.settle(now)

    def settle(self, now: float) -> None:
        """Calls that have ended become numbers."""
        for row in self._joiner.rows(now) if self._joiner is not None else ():
            times = {}
            for name, first, last, _ in HOPS:
                begin, end = row.get(first), row.get(last)
                if isinstance(begin, datetime) and isinstance(end, datetime):
                    times[name] = max(0.0, (end - begin).total_seconds() * 1e3)
            outcome = str(row.get("outcome") or "unknown")
            self.outcomes[outcome] += 1
            self._calls.append((now, times, outcome))

    def as_object(self, now: float) -> dict[str, Any]:
        self.settle(now)
        while self._calls and self._calls[0][0] < now - WINDOW:
            self._calls.popleft()
        hops = []
        for name, _, _, words in HOPS:
            values = sorted(times[name] for _, times, _ in self._calls if name in times)
            hops.append({"name": name, "words": words, "count": len(values)} | _percentiles(values))
        return {
            "is_available": self.is_available,
            "namespace": self.namespace,
            "heard": self.heard,
            "calls": len(self._calls),
            "outcomes": dict(self.outcomes.most_common()),
            "hops": hops,
            "stats": self._stats,
            "dead": [
                {
                    name: task.get(name)
                    for name in ("kind", "attempt", "reason", "created", "deadline", "body")
                }
                | {"id": task_id}
                for task_id, task in list(self.dead.items())[:200]
            ],
            "dead_total": len(self.dead),
        }


def _percentiles(values: list[float]) -> dict[str, float | None]:
    """Nearest rank; None without any."""
    if not values:
        return {"p50": None, "p95": None, "p99": None}
    return {
        f"p{share}": round(values[min(len(values) - 1, len(values) * share // 100)], 3)
        for share in (50, 95, 99)
    }
