"""Publishers that wait until somebody, or something, has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection


class Waitable(Protocol):
    """A session, a group, the store or the node: what publishers wait for while it has no room."""

    waiters: dict[Connection, None] | None


def release(full: Waitable) -> None:
    """There may be room: those who wait try again, each in a turn of its own."""
    waiters, full.waiters = full.waiters, None
    for conn in waiters or ():
        conn.core.loop.call_soon(conn.release)
