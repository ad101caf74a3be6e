"""`$SYS` topics: the names Mosquitto users know under `$SYS/broker/`, and ours under `$SYS/tide/`.

All are retained and published at each interval, when their value has changed.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import tidegate
from tidegate.broker.message import Message
from tidegate.broker.views import Views

if TYPE_CHECKING:
    from tidegate.broker.core import Core

MAX_SUMMED = 50_000  # sessions that are added up in one turn of the loop
WINDOWS = (("1min", 60.0), ("5min", 300.0), ("15min", 900.0))


class SysTopics:
    """Publishes until closed."""

    __slots__ = ("_core", "_interval", "_last", "_loads", "_said", "_started", "_timer", "_totals", "_views")

    def __init__(self, core: Core, interval: float) -> None:
        self._core = core
        self._interval = interval
        self._started = self._last = core.now()
        self._said: dict[bytes, bytes] = {}
        self._totals: dict[str, int] = {}
        self._loads: dict[str, float] = {}
        self._views = Views(core, interval)
        core.views = self._views
        self._publish()
        self._timer = core.loop.call_later(interval, self._tick)

    def close(self) -> None:
        self._timer.cancel()
        self._views.close()

    def _tick(self) -> None:
        self._timer = self._core.loop.call_later(self._interval, self._tick)
        self._publish()

    def _publish(self) -> None:
        for name, value in self._values().items():
            self._say(name, value)

    def load_changed(self) -> None:
        """Said at once, not at the next interval."""
        self._say("tide/load", json.dumps(self._core.load()))

    def _say(self, name: str, value: object) -> None:
        topic = b"$SYS/" + name.encode()
        payload = str(value).encode()
        if self._said.get(topic) != payload:
            self._said[topic] = payload
            self._core.publish(Message(topic, payload, 0, True))

    def _values(self) -> dict[str, object]:
        core = self._core
        counters = core.counters
        now = core.now()
        connected = len(core.connections)
        sessions = len(core.sessions)
        values: dict[str, object] = {
            "broker/version": f"tidegate version {tidegate.__version__}",
            "broker/uptime": f"{int(now - self._started)} seconds",
            "broker/clients/connected": connected,
            "broker/clients/active": connected,
            "broker/clients/disconnected": sessions - connected,
            "broker/clients/inactive": sessions - connected,
            "broker/clients/total": sessions,
            "broker/clients/maximum": counters.connections_maximum,
            "broker/clients/expired": counters.sessions_expired,
            "broker/messages/received": counters.messages_received,
            "broker/messages/sent": counters.publish_sent,
            "broker/messages/stored": len(core.retained) + counters.queued_messages,
            "broker/publish/messages/received": counters.publish_received,
            "broker/publish/messages/sent": counters.publish_sent,
            "broker/publish/messages/dropped": counters.dropped,
            "broker/publish/bytes/received": counters.publish_bytes_received,
            "broker/bytes/received": counters.bytes_received,
            "broker/bytes/sent": counters.bytes_sent,
            "broker/subscriptions/count": core.index.count,
            "broker/shared_subscriptions/count": core.index.shared_count,
            "broker/retained messages/count": len(core.retained),
            "broker/store/messages/count": len(core.retained) + counters.queued_messages,
            "broker/store/messages/bytes": core.retained.size_bytes + core.queued_bytes,
            "broker/heap/current": core.memory.resident_bytes,
            "tide/node": core.name,
            "tide/loop/lag_ms": round(core.loop_lag * 1e3, 1),
            "tide/load": json.dumps(core.load()),
            "tide/memory/pressure": core.memory.pressure.name,
            "tide/connects/waiting": len(core.waiting),
            "tide/queued/bytes": core.queued_bytes,
            "tide/queued/messages": counters.queued_messages,
            "tide/sessions/full": len(core.full),
            "tide/publish/held": counters.publish_held,
            "tide/publish/refused": counters.publish_refused,
            "tide/publish/denied": counters.publish_denied,
            "tide/messages/discarded": counters.discarded,
            "tide/messages/expired": counters.expired,
            "tide/messages/too_large": counters.too_large,
            "tide/connects/refused": counters.connects_refused,
            "tide/protocol/errors": counters.protocol_errors,
        }
        if core.policy_version:
            values["tide/policy/version"] = core.policy_version
        if sessions <= MAX_SUMMED:
            values["broker/messages/inflight"] = sum(len(s.inflight) for s in core.sessions.values())
        values.update(self._load_averages(now))
        return values

    def _load_averages(self, now: float) -> dict[str, object]:
        """Exponentially weighted rates per minute over 1, 5 and 15 minutes, as Mosquitto has them."""
        counters = self._core.counters
        totals = {
            "messages/received": counters.messages_received,
            "messages/sent": counters.publish_sent,
            "publish/received": counters.publish_received,
            "publish/sent": counters.publish_sent,
            "publish/dropped": counters.dropped,
            "bytes/received": counters.bytes_received,
            "bytes/sent": counters.bytes_sent,
            "connections": counters.connections_total,
            "sockets": counters.connections_total + counters.connects_refused,
        }
        elapsed = now - self._last
        self._last = now
        found: dict[str, object] = {}
        for name, total in totals.items():
            rate = (total - self._totals.get(name, 0)) * 60.0 / elapsed if elapsed > 0 else 0.0
            for window, seconds in WINDOWS:
                key = f"broker/load/{name}/{window}"
                weight = math.exp(-elapsed / seconds)
                self._loads[key] = rate + weight * (self._loads.get(key, 0.0) - rate)
                found[key] = f"{self._loads[key]:.2f}"
        self._totals = totals
        return found
