"""What is to be written in one transaction.

Nearly everything is a map from key to the last value, so what cancels out before the disk sees it (a message queued and
acknowledged, a retained topic set twice) is never written. Keys are unique for ever (sessions, messages and
sequence numbers are never reused while the broker runs), so the order between kinds is free, except that ended
sessions go before new ones.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidegate.broker.store.clock import Seen

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.session import Session


class Batch:
    """One group commit. Belongs to the loop until it is handed to the writer."""

    __slots__ = (
        "acks", "cancelled", "clock", "deletes", "ended", "freed", "gone", "inbound", "inserts", "is_committed",
        "is_hopeful", "is_lazy", "is_lingering", "messages", "releases", "retained", "sent", "sessions",
        "size_bytes", "subscriptions", "waiters", "wake", "wills",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ended: set[int] = set()
        self.sessions: dict[int, tuple[Any, ...]] = {}
        self.subscriptions: dict[tuple[int, bytes], tuple[Any, ...] | None] = {}
        self.messages: dict[int, tuple[Any, ...]] = {}
        self.inserts: dict[tuple[int, int], tuple[Any, ...]] = {}
        self.releases: dict[tuple[int, int], None] = {}
        self.deletes: list[tuple[int, int]] = []
        self.gone: list[int] = []
        self.inbound: dict[tuple[int, int], bool] = {}
        self.retained: dict[bytes, tuple[int, str | None] | None] = {}
        self.wills: dict[str, tuple[Any, ...] | None] = {}
        self.clock: Seen | None = None
        self.sent: dict[int, int] = {}
        self.size_bytes = 0
        self.is_hopeful = (
            False  # some of it was sent to clients whose acknowledgement may make writing needless
        )
        self.is_lingering = False  # it waits for acknowledgements,
        self.is_lazy = False  # or, with deletes alone, for company
        self.cancelled = 0  # entries that were taken back before they were written
        # What happens after the commit: acknowledgements to write, sessions that may send up to a sequence number.
        self.acks: list[tuple[Connection, bytes]] = []
        self.wake: dict[Session, int] = {}
        self.waiters: list[asyncio.Future[None]] = []  # told when all of it is on disk, deletes too
        self.is_committed = False
        # Found by the writer: messages of ended sessions that were in their queue on disk only, one for each entry.
        self.freed: list[int] = []

    @property
    def has_rows(self) -> bool:
        """Whether there is a reason to write; `sent` alone is none, it goes along with the rest."""
        return bool(
            self.inserts or self.messages or self.deletes or self.gone or self.releases or self.inbound
            or self.retained or self.subscriptions or self.sessions or self.ended or self.wills
            or self.clock
        )  # fmt: skip

    @property
    def has_promises(self) -> bool:
        """Whether there is something that acknowledgements wait for; a delete is not: losing it repeats, not loses."""
        return bool(
            self.inserts
            or self.releases
            or self.inbound
            or self.retained
            or self.subscriptions
            or self.messages
        )

    @property
    def is_empty(self) -> bool:
        return not self.acks and not self.wake and not self.has_rows
