"""Return addresses and leases in the memory of one process: what the keeper of the `mqtt` backend serves. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

_SPARE = 1000  # ends of values that were taken, kept besides as many as are here


class Memory:
    """Keys with an end. `capacity` bounds them: full, what ends first is forgotten."""

    def __init__(self, capacity: int = 1_000_000) -> None:
        self._capacity = capacity
        self._values: dict[str, tuple[str, float]] = {}
        self._ends: list[tuple[float, str]] = []
        self._leases: dict[str, tuple[str, float]] = {}
        self._token = 0
        self.forgotten = 0
        """Values that had to go before their end."""

    def __len__(self) -> int:
        return len(self._values)

    def put(self, key: str, value: str, now: float, seconds: float) -> None:
        self._expire(now)
        while len(self._values) >= self._capacity:
            self._values.pop(heappop(self._ends)[1], None)
            self.forgotten += 1
        self._values[key] = (value, now + seconds)
        heappush(self._ends, (now + seconds, key))
        if len(self._ends) > 2 * len(self._values) + _SPARE:
            # Most values are taken long before their ends.
            self._ends = [(end, name) for name, (_, end) in self._values.items()]
            heapify(self._ends)

    def take(self, key: str, now: float) -> str | None:
        """The value, once."""
        value = self._values.pop(key, None)
        return value[0] if value is not None and value[1] > now else None

    def lease(self, device: str, holder: str, now: float, seconds: float) -> int | None:
        """A token if nobody else holds it. Tokens are of the clock, so that they grow over a restart, too."""
        held = self._leases.get(device)
        if held is not None and held[1] > now and held[0] != holder:
            return None
        if len(self._leases) >= self._capacity:
            self._leases = {name: each for name, each in self._leases.items() if each[1] > now}
        self._leases[device] = (holder, now + seconds)
        self._token = max(self._token + 1, int(now * 1e6))
        return self._token

    def release(self, device: str, holder: str) -> None:
        if self._leases.get(device, ("",))[0] == holder:
            del self._leases[device]

    def _expire(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            end, key = heappop(self._ends)
            known = self._values.get(key)
            if known is not None and known[1] <= end:
                del self._values[key]
