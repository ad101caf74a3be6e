"""Which gateway reaches a device: rules that learn it from the strength of its advertisements (spec 4, route table).

`ThesisRule` is the published rule. Nothing lowers the strength of a gateway that died, so its devices never leave it.
`AgedRule` (default) remembers when each gateway heard a device last, lets old entries lose, and asks a newcomer to be
stronger by a margin before it moves a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class RouteRule(Protocol):
    """Learns routes. `now` is any clock in seconds, the same in all calls; RSSI is in dBm."""

    def heard(self, device: str, gateway: str, rssi: float, now: float) -> str | None:
        """An advertisement; gives the device's new gateway if this changed it."""

    def lost(self, gateway: str, now: float) -> dict[str, str | None]:
        """A gateway's will says that it is gone; gives the new gateways of its devices, None for those without."""

    def expire(self, now: float) -> dict[str, str | None]:
        """To be called every now and then; gives what changed, as `lost` does."""

    def gateway(self, device: str) -> str | None:
        """The route."""


class ThesisRule:
    """No entry: store. Stronger than stored: store. Weaker, same gateway: store. Otherwise ignore."""

    def __init__(self) -> None:
        self._routes: dict[str, tuple[str, float]] = {}

    def heard(self, device: str, gateway: str, rssi: float, now: float) -> str | None:
        known = self._routes.get(device)
        if known is None or rssi > known[1] or gateway == known[0]:
            self._routes[device] = (gateway, rssi)
            if known is None or known[0] != gateway:
                return gateway
        return None

    def lost(self, gateway: str, now: float) -> dict[str, str | None]:
        return {}  # the thesis does not say

    def expire(self, now: float) -> dict[str, str | None]:
        return {}

    def gateway(self, device: str) -> str | None:
        known = self._routes.get(device)
        return known[0] if known else None


@dataclass(slots=True)
class _Heard:
    rssi: float
    at: float


@dataclass(slots=True)
class _Entry:
    gateway: str | None
    heard: dict[str, _Heard]


class AgedRule:
    """`max_age`: an entry not renewed for this long loses (three or more advertisement periods; spec 4 [R]: 10 s).
    `margin`: how many dB a newcomer must be stronger by. `smoothing`: the weight of the latest advertisement in a
    gateway's strength; one advertisement in a fading channel says little. At most `remembered` gateways a device.
    """

    def __init__(
        self, *, max_age: float = 10.0, margin: float = 5.0, smoothing: float = 0.3, remembered: int = 8
    ) -> None:
        self.max_age = max_age
        self.margin = margin
        self.smoothing = smoothing
        self.remembered = remembered
        self._entries: dict[str, _Entry] = {}

    def heard(self, device: str, gateway: str, rssi: float, now: float) -> str | None:
        entry = self._entries.get(device)
        if entry is None:
            self._entries[device] = _Entry(gateway, {gateway: _Heard(rssi, now)})
            return gateway
        known = entry.heard.get(gateway)
        if known is None:
            self._make_room(entry)
            entry.heard[gateway] = _Heard(rssi, now)
        else:
            # What was learnt before a long silence says nothing about now.
            weight = self.smoothing if now - known.at < self.max_age else 1.0
            known.rssi += weight * (rssi - known.rssi)
            known.at = now
        return self._choose(entry, now)

    def lost(self, gateway: str, now: float) -> dict[str, str | None]:
        changes: dict[str, str | None] = {}
        for device, entry in self._entries.items():
            entry.heard.pop(gateway, None)
            if entry.gateway == gateway:
                self._choose(entry, now)
                changes[device] = entry.gateway
        return changes

    def expire(self, now: float) -> dict[str, str | None]:
        """A device that no gateway hears keeps its last route: trying is better than refusing."""
        changes: dict[str, str | None] = {}
        for device, entry in self._entries.items():
            if self._choose(entry, now) is not None:
                changes[device] = entry.gateway
        return changes

    def gateway(self, device: str) -> str | None:
        entry = self._entries.get(device)
        return entry.gateway if entry else None

    def _choose(self, entry: _Entry, now: float) -> str | None:
        """The new gateway if there is reason to change."""
        live = {name: each for name, each in entry.heard.items() if now - each.at < self.max_age}
        current = entry.heard.get(entry.gateway) if entry.gateway is not None else None
        if not live:
            if current is None:
                entry.gateway = None
            return None
        best = max(live, key=lambda name: live[name].rssi)
        if best == entry.gateway:
            return None
        # From here on `best` is another; the current one is left if it is silent or clearly weaker.
        if current is not None and entry.gateway in live and live[best].rssi < current.rssi + self.margin:
            return None
        entry.gateway = best
        return best

    def _make_room(self, entry: _Entry) -> None:
        if len(entry.heard) >= self.remembered:
            others = [name for name in entry.heard if name != entry.gateway]
            del entry.heard[min(others, key=lambda name: entry.heard[name].at)]


RULES: dict[str, type[ThesisRule] | type[AgedRule]] = {"thesis": ThesisRule, "aged": AgedRule}
