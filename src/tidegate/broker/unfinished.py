"""Packets of which not all has come yet, of all connections together: how long they take, and what they come to.

The large ones have a bound together. Over it, of the user or address with most bytes of them, who takes longest gives
way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tidegate.net.doorway import site_of

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core

LARGE = 1_024  # bytes; smaller ones are not counted

Owner: TypeAlias = tuple[str | None, str]


def owner_of(conn: Connection) -> Owner:
    """Whose fault it is what a connection has here: of a user, or of a site where there are none."""
    if conn.username is not None:
        return conn.username, ""
    return None, conn.address and site_of((conn.address,))


class Unfinished:
    """At most one of each connection. `size_bytes`: of large ones."""

    __slots__ = ("_core", "_of", "_since", "_sizes", "size_bytes")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._since: dict[Connection, float] = {}  # in order of time
        self._of: dict[Owner, dict[Connection, int]] = {}  # bytes, in order of time
        self._sizes: dict[Owner, int] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, conn: Connection, size: int, whole: int) -> None:
        """So many bytes of a packet have come, of at least as many as it has."""
        self._since[conn] = self._core.now()
        if whole > LARGE and not conn.listener.is_link and not conn.listener.is_operator:
            self._of.setdefault(owner_of(conn), {})[conn] = 0
            self.add(conn, size)

    def add(self, conn: Connection, size: int) -> None:
        """So many bytes more, or less."""
        owner = owner_of(conn)
        of_owner = self._of.get(owner)
        if of_owner is None or conn not in of_owner:
            return
        of_owner[conn] += size
        self._sizes[owner] = self._sizes.get(owner, 0) + size
        self.size_bytes += size
        # One packet as large as it may be has room whatever the bound is.
        most = max(self._core.memory.part_bytes, self._core.limits.max_packet_size)
        while size > 0 and self.size_bytes > most:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            oldest = next(iter(self._of[largest]))
            self._core.memory.gave_way += 1
            oldest.give_way()  # which ends it here

    def end(self, conn: Connection) -> None:
        """It is complete, or the connection is over; nothing if there is none."""
        if self._since.pop(conn, None) is None or not self._of:
            return
        owner = owner_of(conn)
        of_owner = self._of.get(owner, {})
        if conn in of_owner:
            self.add(conn, -of_owner[conn])
            del of_owner[conn]
            if not of_owner:
                del self._of[owner], self._sizes[owner]

    def late(self, timeout: float) -> list[Connection]:
        """Those that take longer. Of whom is not read, the delay is ours: their time begins anew."""
        now = self._core.now()
        found: list[Connection] = []
        for conn, since in list(self._since.items()):
            if since >= now - timeout:
                break
            if conn.is_reading:
                found.append(conn)
            else:
                del self._since[conn]
                self._since[conn] = now
        return found
