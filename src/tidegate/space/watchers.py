"""Who watches what: clients are counted for the announced load, and a watch that nobody asks for any more ends."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

MOST: Final = 10_000  # clients that are counted for a watch: anybody can claim to be another one


class Watchers:
    """Clients by (space, watch), with the time at which each asked last; `lease` in seconds."""

    def __init__(self, known: Iterable[tuple[str, str]], lease: float) -> None:
        # What was recovered from disk has a lease to be asked for again; nobody counts for it.
        now = time.monotonic()
        self.seen: dict[tuple[str, str], dict[str, float]] = {key: {"": now} for key in known}
        self._lease = lease
        self._counted: dict[str, tuple[float, int]] = {}

    def note(self, space: str, watch: str, client: str) -> None:
        clients = self.seen.setdefault((space, watch), {})
        clients.pop("", None)
        if clients.pop(client, None) is None:
            self._counted.pop(space, None)
            if len(clients) >= MOST:
                del clients[next(iter(clients))]  # who asked longest ago
        clients[client] = time.monotonic()

    def forget(self, space: str, watch: str) -> None:
        self.seen.pop((space, watch), None)
        self._counted.pop(space, None)

    def of_watch(self, space: str, watch: str) -> int:
        return len(self.seen.get((space, watch), ()))

    def of_space(self, space: str) -> int:
        """Clients that watch anything here; counted once a second, since every answer tells it."""
        now = time.monotonic()
        then, count = self._counted.get(space, (-1.0, 0))
        if now - then > 1.0:
            found = (clients for (name, _), clients in self.seen.items() if name == space)
            count = len({client for clients in found for client in clients})
            self._counted[space] = (now, count)
        return count

    def take_forgotten(self) -> list[tuple[str, str]]:
        """Watches that nobody asked for within the lease; they are not known here any more."""
        oldest = time.monotonic() - self._lease
        for clients in self.seen.values():
            for client in [client for client, then in clients.items() if then < oldest]:
                del clients[client]
        forgotten = [key for key, clients in self.seen.items() if not clients]
        for key in forgotten:
            del self.seen[key]
        return forgotten
