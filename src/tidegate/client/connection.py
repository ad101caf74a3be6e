"""Keeps a session connected: opens links, comes back after losses, applies back-pressure, ends everything.

States: NEW → OPEN ⇄ RECONNECTING → CLOSED. There is one link at a time. Its tasks are the one that reconnects, which
exists while the state is RECONNECTING, and one for each callback; `close` awaits them.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from random import Random

from tidegate.client.callbacks import Callbacks
from tidegate.client.calls import Calls
from tidegate.client.deadlines import Deadlines
from tidegate.client.errors import (
    ClientError,
    ConnectionLost,
    ConnectRefused,
    NotConnected,
    OperationTimeout,
    ServerDisconnected,
)
from tidegate.client.inbox import Inbox
from tidegate.client.load_reports import LoadReports
from tidegate.client.message import Message
from tidegate.client.options import ClientOptions, WhenFull
from tidegate.client.outbox import Outbox
from tidegate.client.protocol import Link
from tidegate.client.reconnect import DecorrelatedJitter, is_final
from tidegate.client.redirect import TooManyRedirects, Whereabouts
from tidegate.client.room import Room
from tidegate.client.routes import Routes
from tidegate.client.session import Session
from tidegate.client.waiters import Waiters
from tidegate.errors import TidegateError
from tidegate.mqtt.packets import Connack, Disconnect
from tidegate.net.addresses import Endpoint
from tidegate.net.dial import dial


class State(StrEnum):
    NEW = "new"
    OPEN = "open"
    RECONNECTING = "reconnecting"
    CLOSED = "closed"


class Connection:
    """What `Client` stands on. Must be made inside a running loop's thread, used from that loop only."""

    def __init__(self, endpoint: Endpoint, options: ClientOptions) -> None:
        self._whereabouts = Whereabouts(endpoint, options.max_redirects)
        self._options = options
        self.state = State.NEW
        self.calls = Calls()
        self.routes = Routes(options.receive_queue_size, self._on_taken)
        self.session = Session(options, self._deliver, self.routes.discard_unacknowledged)
        self.reports = LoadReports(
            options.report_options,
            self.session,
            lambda: len(self.routes),
            manual_ack=options.manual_ack,
        )
        self.session.on_open = self._on_open
        self.outbox: Outbox | None = None
        self.callbacks = Callbacks(self.reports, self._on_taken_by_callback, manual_ack=options.manual_ack)
        self.connack = Connack()
        self.reconnects = 0
        self.received = 0
        self.dropped = 0
        self.deadlines = Deadlines()
        self._link: Link | None = None
        self._error: Exception | None = None
        self._was_full = False
        self._opened_at = 0.0
        self._jitter = DecorrelatedJitter(options.reconnect_min_delay, options.reconnect_max_delay, Random())
        self._supervisor: asyncio.Task[None] | None = None
        self.room = Room(options.send_queue_size, lambda: len(self.session.publisher))
        """For QoS 1 and 2 messages that are not acknowledged."""
        self._connection_waiters = Waiters()
        self._acknowledged_waiters = Waiters()
        self._end_waiters = Waiters()

    async def open(self) -> None:
        """Connect; raises `ConnectRefused`, `DialError`, `ConnectionLost`, or `OutboxError`.

        With an outbox and `reconnect`, a server that is away is no error: what is published waits on disk for it.
        """
        if self.state is not State.NEW:
            raise ClientError("a client connects once", hint="make a new one")
        options = self._options
        if options.outbox is not None:
            outbox = Outbox(
                Path(options.outbox),
                size=options.outbox_size,
                when_full=WhenFull(options.outbox_when_full),
                window=options.send_queue_size,
                publisher=self.session.publisher,
            )
            await outbox.open()
            self.outbox = outbox
        try:
            await self._open()
        except BaseException as error:
            if self.outbox is None:
                raise
            if not options.reconnect or not isinstance(error, TidegateError) or is_final(error):
                await self._close_outbox()
                raise
            self._start_reconnecting(at_once=False)

    def check(self) -> None:
        """Raise unless there is, or will be, a connection."""
        if self.state is State.NEW:
            raise NotConnected("the client is not connected", hint="use `async with`, or call connect()")
        if self.state is State.CLOSED:
            error = self._error or NotConnected("the client was closed", hint="make a new one")
            # One object for everybody who asks: without this its traceback would grow with each of them.
            raise error.with_traceback(None)

    async def wait_writable(self) -> None:
        """Wait for a connection whose network keeps up, and give others their turn."""
        while True:
            self.check()
            if self.state is State.OPEN and self._link is not None:
                await self._link.drain()
                if self.session.wire.is_open:
                    return
            else:
                await self._connection_waiters.wait()

    @property
    def must_wait(self) -> bool:
        """Whether what is written now would only pile up."""
        return not self.session.wire.is_open or self._link is None or self._link.must_wait

    async def wait_ended(self) -> None:
        """Wait until there is no connection and will be none; raises what ended it if that was not us."""
        while self.state is not State.CLOSED:
            await self._end_waiters.wait()
        if self._error is not None:
            raise self._error.with_traceback(None)

    async def close(self, packet: Disconnect, timeout: float) -> None:
        """Say goodbye, end everything, wait until the socket is gone and callbacks have ended."""
        try:
            await self._close_link(packet, timeout)
        finally:
            await self.callbacks.close()
            await self._close_outbox()

    async def _close_outbox(self) -> None:
        """What is not acknowledged stays in the file alone: another `open` reads it from there."""
        outbox, self.outbox = self.outbox, None
        if outbox is not None:
            outbox.seal()
            self.session.publisher.fail(NotConnected("there is no connection"))
            await outbox.close()

    async def _close_link(self, packet: Disconnect, timeout: float) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        if self.state is State.CLOSED:
            return
        link = self._link
        if link is not None and self.session.wire.is_open:
            # A transport that does not read may not notice the end of its peer.
            link.set_reading(True)
            link.disconnect(packet)
        self._end(None)
        if link is not None and not link.lost.done():
            await asyncio.wait([link.lost], timeout=timeout)
            if not link.lost.done():
                link.abort(None)
                await link.lost  # The transport's next turn, by contract of `abort`.

    def update_reading(self) -> None:
        """Read unless the inbox is full; but who waits for an answer of the server must get it.

        Without the second half an application that publishes while it handles a message would wait for a
        PUBACK that stands in line behind messages nobody takes. While it applies, QoS 0 messages that do not
        fit are dropped and counted; QoS 1 and 2 never are, Receive Maximum bounds them.
        """
        link = self._link
        if link is None:
            return
        awaits_answer = self.session.has_open_exchanges or len(self.calls) > 0
        if link.is_reading:
            if self.routes.is_full and not awaits_answer:
                link.set_reading(False)
        elif self.routes.has_room or awaits_answer:
            self._was_full = self.routes.is_full
            link.set_reading(True)

    def expect_answer(self) -> None:
        """A packet was sent that the server answers."""
        if self._link is not None and not self._link.is_reading:
            self.update_reading()

    async def wait_acknowledged(self) -> None:
        """Wait until the server has acknowledged all QoS 1 and 2 messages, those of the outbox included."""
        if self.outbox is not None:
            await self.outbox.wait_empty()
        while len(self.session.publisher):
            self.check()
            await self._acknowledged_waiters.wait()
        self.check()

    def statistics(self) -> dict[str, int | str]:
        """See `Client.statistics`."""
        session = self.session
        counters: dict[str, int | str] = {
            "state": str(self.state),
            "connections": session.connections,
            "reconnects": self.reconnects,
            "messages_received": self.received,
            "messages_dropped": self.dropped,
            "messages_waiting": len(self.routes),
            "acknowledgements_owed": len(session.receiver),
            "over_receive_maximum": session.receiver.over_receive_maximum,
            "publishes_open": len(session.publisher),
            "requests_open": len(self.calls),
            "responses_late": self.calls.late,
            "callback_errors": self.callbacks.errors,
            "reports": str(self.reports.carrier),
            "reports_sent": self.reports.sent,
            "report_bytes_sent": self.reports.sent_bytes,
        }
        if self.outbox is not None:
            counters.update(self.outbox.statistics())
        return counters

    def new_inbox(self) -> Inbox:
        """A queue for a `subscribed` block; it takes part once its filters are added to `routes`."""
        return Inbox(self._on_taken)

    def drop(self, inbox: Inbox) -> None:
        """Nobody takes from this queue any more: acknowledge what is in it, or it would hold back what follows."""
        inbox.close(None)
        while (message := inbox.get_nowait()) is not None:
            message.ack()
            self.reports.on_skipped()

    async def _open(self) -> None:
        """Connect where we belong, or where servers send us, hop by hop."""
        while True:
            try:
                await self._open_here()
                return
            except (ConnectRefused, ServerDisconnected) as error:
                if not self._whereabouts.follow(error):
                    raise

    async def _open_here(self) -> None:
        options = self._options
        deadline = asyncio.get_running_loop().time() + options.connect_timeout
        _, link = await dial(
            self._whereabouts.current,
            lambda: Link(self.session, options, self._on_lost, self._on_chunk, self.reports.ping),
            ssl=options.ssl,
            timeout=options.connect_timeout,
            headers=options.headers,
        )
        self._link = link
        try:
            async with asyncio.timeout_at(deadline):
                await self._handshake(link)
        except TimeoutError:
            raise OperationTimeout(
                f"{self._whereabouts.current} did not answer CONNECT within {options.connect_timeout:g} s",
                hint="check that an MQTT server listens there",
            ) from None

    async def _handshake(self, link: Link) -> None:
        try:
            link.send_connect()
            self.connack = await asyncio.shield(link.connack)
            if link.lost.done():
                raise link.error or ConnectionLost("the connection ended right after it was accepted")
        except BaseException:
            link.abort(None)
            self._link = None
            raise
        self.state = State.OPEN
        self._opened_at = asyncio.get_running_loop().time()
        self._wake_all()
        self.update_reading()

    async def _reconnect(self, *, at_once: bool) -> None:
        while True:
            if not at_once:
                await asyncio.sleep(self._jitter.next_delay())
            at_once = False
            try:
                await self._open()
            except TidegateError as error:
                if is_final(error) or not self._options.reconnect:
                    # The latter if we only followed a server that sent us away.
                    self._end(error)
                    return
                self._whereabouts.go_home()
            else:
                self.reconnects += 1
                return

    def _on_supervisor_done(self, task: asyncio.Task[None]) -> None:
        self._supervisor = None
        if not task.cancelled() and (fault := task.exception()) is not None:
            # Nobody awaits this task while the client is in use, so those who use it must learn of it.
            self._end(fault if isinstance(fault, Exception) else ConnectionLost(str(fault)))

    def _on_lost(self, link: Link, error: Exception | None) -> None:
        self.session.on_connection_lost()
        self.reports.on_connection_lost()
        if self.state is not State.OPEN or link is not self._link:
            return  # Closed by us, or a handshake whose own waiter sees the error.
        self._link = None
        lived = asyncio.get_running_loop().time() - self._opened_at
        self._whereabouts.on_lost(lived)
        try:
            is_sent_on = self._whereabouts.follow(error)
        except TooManyRedirects as circle:
            error, is_sent_on = circle, False
        if not is_sent_on and (not self._options.reconnect or is_final(error)):
            self._end(error)
            return
        if not is_sent_on:
            self._whereabouts.go_home()
        self._jitter.on_lost(lived)
        self._start_reconnecting(at_once=is_sent_on)

    def _start_reconnecting(self, *, at_once: bool) -> None:
        self.state = State.RECONNECTING
        loop = asyncio.get_running_loop()
        self._supervisor = loop.create_task(
            self._reconnect(at_once=at_once), name="tidegate client reconnect"
        )
        self._supervisor.add_done_callback(self._on_supervisor_done)

    def _end(self, error: Exception | None) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._error = error
        told = error or NotConnected("the client was closed", hint="await what is open before closing")
        if self.outbox is not None:
            self.outbox.seal()
        self.session.fail(told)
        self.calls.fail(told)
        self.routes.close(error)
        self.deadlines.close()
        self._wake_all()
        self._end_waiters.wake_all()
        self._acknowledged_waiters.wake_all()

    def _on_open(self, connack: Connack) -> None:
        left_over = sum(inbox.count(lambda message: not message.qos) for inbox in self.routes)
        self.reports.on_connected(connack, left_over)

    def _deliver(self, message: Message) -> None:
        if self.calls.topic and self.calls.on_message(message):
            message.ack()
            self.reports.on_skipped()
        elif message.qos == 0 and self._was_full and self.routes.is_full:
            self.dropped += 1
            self.reports.on_skipped()
        else:
            self.received += 1
            self.routes.inbox_for(message.topic).put_nowait(message)

    def _on_taken(self, message: Message) -> None:
        if message.receipt is not None and not self._options.manual_ack:
            message.ack()
        self._on_taken_by_callback(message)

    def _on_taken_by_callback(self, _message: Message) -> None:
        if self._link is not None and not self._link.is_reading:
            self.update_reading()

    def _on_chunk(self) -> None:
        self._was_full = self.routes.is_full
        self.update_reading()
        self.room.wake()
        if self._acknowledged_waiters and not len(self.session.publisher):
            self._acknowledged_waiters.wake_all()
        if self.reports.is_on:
            self.reports.on_changed()

    def _wake_all(self) -> None:
        self.room.wake()
        self._connection_waiters.wake_all()
