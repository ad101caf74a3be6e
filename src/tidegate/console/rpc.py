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

from tidegate.console.rooms import find_room, how_to_install
from tidegate.console.values import number

MAX_CALLS: Final = 5_000  # ended calls that percentiles are of
WINDOW: Final = 300.0  # seconds that they are kept
MAX_DEAD: Final = 1_000
MAX_OPEN: Final = 20_000  # calls whose end has not been told
LONGEST: Final = 200  # characters of a text that is shown
LONGEST_ID: Final = 1_000  # of a task, and of all names in a hop: they are not cut, or nothing would match
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
        self.topics = (f"{self.root}telemetry/hops", f"{self.root}dead/#")
        self.dead: dict[str, dict[str, Any]] = {}  # by the name of the letter, which is not the task's
        self.outcomes: Counter[str] = Counter()
        self.heard = 0
        self._calls: deque[tuple[float, dict[str, float], str]] = deque(maxlen=MAX_CALLS)
        self._joiner: Any = None

    @property
    def is_available(self) -> bool:
        return find_room("rpc.recording") is not None

    def _missing(self) -> dict[str, str]:
        """Why nothing may be heard."""
        if self.is_available:
            text = f"No calls are heard in the namespace {self.namespace}."
            return {"missing": text, "hint": "tidegate rpc --telemetry router"}
        return {"missing": "Support for calls is not installed.", "hint": how_to_install("rpc")}

    def clear(self) -> None:
        self.dead = {}
        self._joiner = None

    def take(self, topic: str, payload: bytes, now: float) -> None:
        kind = topic.removeprefix(self.root)
        if kind.startswith("dead/"):
            self._take_dead(kind, payload)
            return
        content = _load(payload)
        if kind == "telemetry/hops" and isinstance(content, list):
            self._take_hops(content, now)

    def _take_dead(self, kind: str, payload: bytes) -> None:
        name = kind.rpartition("/")[2]
        if not payload:
            self.dead.pop(name, None)
            return
        task = _load(payload)
        if isinstance(task, dict) and (name in self.dead or len(self.dead) < MAX_DEAD):
            self.dead[name] = _shown(name, task)

    def _take_hops(self, rows: list[Any], now: float) -> None:
        recording = find_room("rpc.recording")
        if recording is None:
            return
        if self._joiner is None:
            self._joiner = recording.Joiner("console", settle=0.6, size=MAX_OPEN)
        for row in rows:
            try:
                hop = recording.read_hop(row)
            except (ValueError, TypeError):
                continue
            if sum(len(each) for each in hop if isinstance(each, str)) > LONGEST_ID:
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
            outcome = _outcome(row.get("outcome"))
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
            "missing": self._missing(),
            "namespace": self.namespace,
            "heard": self.heard,
            "calls": len(self._calls),
            "outcomes": dict(self.outcomes.most_common()),
            "hops": hops,
            "dead": list(self.dead.values())[:200],
            "dead_total": len(self.dead),
        }


def _load(payload: bytes) -> Any:
    """The JSON of a message; None if it is none, or nested without end."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None


def _shown(letter: str, task: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of a dead task, and nothing else of it: anybody may have written it."""
    name = task.get("id")
    return {
        "id": name if isinstance(name, str) and len(name) <= LONGEST_ID else letter,
        "kind": _text(task.get("kind")),
        "reason": _text(task.get("reason")),
        "attempt": int(number(task.get("attempt"))),
        "created": number(task.get("created")) or None,
        "deadline": number(task.get("deadline")) or None,
    }


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"


def _outcome(value: object) -> str:
    """One of those that a call can have; what else is told is counted together."""
    known = find_room("rpc.outcome")
    return str(value) if known is not None and value in list(known.Outcome) else "other"


def _percentiles(values: list[float]) -> dict[str, float | None]:
    """Nearest rank; None without any."""
    if not values:
        return {"p50": None, "p95": None, "p99": None}
    return {
        f"p{share}": round(values[min(len(values) - 1, len(values) * share // 100)], 3)
        for share in (50, 95, 99)
    }
