"""The right moment to take a connected client's session away.

A client of ours is told where it will go, and has the time to open a connection there: then it is away for one round
trip. Any other MQTT 5 client is left alone until nothing waits for it, so that it gets nothing twice. Neither is
waited for longer than `PATIENCE`: what waits then moves with the session.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegate.flow.moving import MOVING_TOPIC
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.packets import Publish

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.session import Session

PATIENCE: Final = 2.0  # seconds
LOOK: Final = 0.01  # seconds between two looks at clients that are waited for


@dataclass(slots=True)
class _Leaving:
    conn: Connection
    act: Callable[[], None]
    deadline: float
    is_ready: bool = False


class Farewell:
    """`act` is called once for each client."""

    def __init__(self) -> None:
        self.patience = PATIENCE
        self._leaving: dict[str, _Leaving] = {}
        self._timer: TimerHandle | None = None

    def wait(self, core: Core, client: str, address: str, act: Callable[[], None]) -> None:
        """Act when the client may go to `address`; without one at once: it is elsewhere already."""
        session = core.sessions.get(client)
        conn = None if session is None else session.conn
        known = self._leaving.pop(client, None)
        if not address or session is None or conn is None or _is_free(session, conn):
            act()
            return
        self._leaving[client] = known or _Leaving(conn, act, core.now() + self.patience)
        if known is None and conn.hears_moves:
            session.write(encode_packet(Publish(topic=MOVING_TOPIC, payload=address.encode()), 5))
        if self._timer is None:
            self._timer = core.loop.call_later(LOOK, self._look, core)

    def on_ready(self, conn: Connection) -> None:
        """The client has a connection to where it will go."""
        leaving = self._leaving.get(conn.session.client_id)
        if leaving is not None and leaving.conn is conn:
            leaving.is_ready = True

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, core: Core) -> None:
        self._timer = None
        now = core.now()
        for client, each in list(self._leaving.items()):
            session = core.sessions.get(client)
            is_gone = session is None or session.conn is not each.conn
            if is_gone or each.is_ready or now >= each.deadline or _is_free(each.conn.session, each.conn):
                del self._leaving[client]
                each.act()
        if self._leaving and not core.is_stopping:
            self._timer = core.loop.call_later(LOOK, self._look, core)


def _is_free(session: Session, conn: Connection) -> bool:
    """Whether nothing waits for a client that has to be told nothing first."""
    if conn.hears_moves or session.out or session.backlog or session.pending or session.inflight:
        return False
    durable = session.durable
    return not (durable is not None and durable.tail) and not conn.transport.get_write_buffer_size()
