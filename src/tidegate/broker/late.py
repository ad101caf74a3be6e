"""Messages that were acknowledged and are handed on when their publisher may: mode `hold` of the back-off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.broker.publishing import distribute

if TYPE_CHECKING:
    from tidegate.broker.alarms import Alarm
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.message import Message


class LateMessages:
    """All of a node. What one publisher has here is bounded: it is not read beyond `max_held_bytes`."""

    __slots__ = ("_core", "_due")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._due: dict[Alarm, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._due)

    def add(self, conn: Connection, message: Message) -> None:
        core = self._core
        session = conn.session
        size = message.size_bytes
        session.late_bytes += size
        core.queued_bytes += size
        if session.late_bytes > core.memory.read_ahead_bytes:
            conn.set_reading(False)

        def now_due() -> None:
            self._due.pop(alarm, None)
            session.late_bytes -= size
            core.queued_bytes -= size
            if not session.late_bytes:
                session.late_until = 0.0
            if message.retain:
                core.retained.keep(message)
            distribute(core, message, core.index.route(message.topic), session)
            reader = session.conn
            if reader is not None and not reader.is_closing and not reader.is_reading:
                reader.resume_reading()

        alarm = core.alarms.at(session.late_until, now_due)
        self._due[alarm] = now_due

    def hand_on_all(self) -> None:
        """The node stops: now rather than never."""
        for alarm, now_due in list(self._due.items()):
            self._core.alarms.cancel(alarm)
            now_due()
