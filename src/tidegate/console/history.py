"""What the node told over the last minutes: points for charts, made of the counters in its pulse. Pure, bounded."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.console.values import number, objects

POINTS: Final = 900  # a quarter of an hour at one a second
GROUP_POINTS: Final = 300
MAX_GROUPS: Final = 100
COUNTERS: Final = (
    "received",
    "sent",
    "dropped",
    "bytes_received",
    "bytes_sent",
    "moved",
    "shed",
    "held_total",
)


class NodeHistory:
    """Rates and levels over time. A node that began anew (its uptime went back) leaves a gap, not a cliff."""

    def __init__(self) -> None:
        self.points: deque[dict[str, float | None]] = deque(maxlen=POINTS)
        self._before: dict[str, Any] = {}

    def take(self, pulse: dict[str, Any], latency_ms: float | None) -> None:
        before, self._before = self._before, pulse
        seconds = number(pulse.get("uptime")) - number(before.get("uptime"))
        is_rate = bool(before) and seconds > 0
        load = pulse.get("load") if isinstance(pulse.get("load"), dict) else {}
        assert isinstance(load, dict)
        point: dict[str, float | None] = {"at": number(pulse.get("at"))}
        for name in COUNTERS:
            grown = number(pulse.get(name)) - number(before.get(name))
            point[name] = round(max(0.0, grown) / seconds, 3) if is_rate else None
        # What held publishers lose is counted among the dropped: a reader that is too slow is another matter.
        lost, shed = point["dropped"], point["shed"]
        point["lost"] = None if lost is None or shed is None else round(max(0.0, lost - shed), 3)
        for name in ("connections", "memory_bytes", "queued_messages", "queued_bytes"):
            point[name] = number(pulse.get(name))
        for name in ("wait_ms", "lag_ms", "held", "waiting"):
            point[name] = number(load.get(name))
        point["latency_ms"] = latency_ms
        self.points.append(point)

    @property
    def latest(self) -> dict[str, float | None]:
        return self.points[-1] if self.points else {}

    def columns(self) -> dict[str, list[float | None]]:
        """All points as one list a name, for charts."""
        names = list(self.points[-1]) if self.points else []
        return {name: [point.get(name) for point in self.points] for name in names}


@dataclass(slots=True)
class GroupHistory:
    """Messages a second that each member of one group got."""

    at: deque[float] = field(default_factory=lambda: deque(maxlen=GROUP_POINTS))
    shares: dict[str, deque[float]] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)


class GroupsHistory:
    """The same for all groups; those longest without a word are forgotten first."""

    def __init__(self) -> None:
        self._groups: OrderedDict[tuple[str, str], GroupHistory] = OrderedDict()

    def take(self, document: dict[str, Any]) -> None:
        at = number(document.get("at"))
        for row in objects(document.get("rows")):
            self._take_group(at, row)
        while len(self._groups) > MAX_GROUPS:
            self._groups.popitem(last=False)

    def _take_group(self, at: float, row: dict[str, Any]) -> None:
        key = (str(row.get("group")), str(row.get("filter")))
        history = self._groups.setdefault(key, GroupHistory())
        self._groups.move_to_end(key)
        seconds = at - history.at[-1] if history.at else 0.0
        known = dict(history.sent)
        history.at.append(at)
        history.sent = {}
        for member in objects(row.get("members")):
            name, sent = str(member.get("client")), number(member.get("sent"))
            history.sent[name] = sent
            rates = history.shares.setdefault(name, deque([0.0] * (len(history.at) - 1), maxlen=GROUP_POINTS))
            grown = max(0.0, sent - known[name]) if name in known else 0.0
            rates.append(round(grown / seconds, 3) if seconds > 0 else 0.0)
        for name in [name for name in history.shares if name not in history.sent]:
            rates = history.shares[name]
            rates.append(0.0)
            if not any(rates):
                del history.shares[name]

    def columns(self, group: str, topic_filter: str) -> dict[str, Any]:
        history = self._groups.get((group, topic_filter))
        if history is None:
            return {"at": [], "members": {}}
        return {
            "at": list(history.at),
            "members": {name: list(each) for name, each in history.shares.items()},
        }
