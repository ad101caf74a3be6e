"""Keeps a session connected: opens links, comes back after losses, applies back-pressure, ends everything.

States: NEW → OPEN ⇄ RECONNECTING → CLOSED. There is one link at a time. The only task is the one that
reconnects; it exists while the state is RECONNECTING and is awaited by `close`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import StrEnum
from random import Random

from tidegate.client.calls import Calls
from tidegate.client.errors import ClientError, ConnectionLost, NotConnected, OperationTimeout
from tidegate.client.inbox import Inbox
from tidegate.client.message import Message
from tidegate.client.options import ClientOptions
from tidegate.client.protocol import Link
from tidegate.client.reconnect import DecorrelatedJitter, is_final
from tidegate.client.room import Room
from tidegate.client.session import Session
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
        self._endpoint = endpoint
        self._options = options
        self.state = State.NEW
        self.calls = Calls()
        self.inbox = Inbox(options.receive_queue_size, self._on_taken)
        self.session = Session(options, self._deliver, self.inbox.discard_unacknowledged)
        self.connack = Connack()
        self.reconnects = 0
        self.received = 0
        self.dropped = 0
        self._link: Link | None = None
        self._error: Exception | None = None
        self._was_full = False
        self._opened_at = 0.0
        self._jitter = DecorrelatedJitter(options.reconnect_min_delay, options.reconnect_max_delay, Random())
        self._supervisor: asyncio.Task[None] | None = None
        self.room = Room(options.send_queue_size, lambda: len(self.session.publisher))
        """For QoS 1 and 2 messages that are not acknowledged."""
        self._connection_waiters: deque[asyncio.Future[None]] = deque()

    async def open(self) -> None:
        """Connect; raises `ConnectRefused`, `DialError` or `ConnectionLost`."""
        if self.state is not State.NEW:
            raise ClientError("a client connects once", hint="make a new one")
        await self._open()

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
                waiter = asyncio.get_running_loop().create_future()
                self._connection_waiters.append(waiter)
                await waiter

    @property
    def must_wait(self) -> bool:
        """Whether what is written now would only pile up."""
        return not self.session.wire.is_open or self._link is None or self._link.must_wait

    async def close(self, packet: Disconnect, timeout: float) -> None:
        """Say goodbye, end everything, wait until the socket is gone."""
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
            if self.inbox.is_full and not awaits_answer:
                link.set_reading(False)
        elif self.inbox.has_room or awaits_answer:
            self._was_full = self.inbox.is_full
            link.set_reading(True)

    async def _open(self) -> None:
        options = self._options
        deadline = asyncio.get_running_loop().time() + options.connect_timeout
        _, link = await dial(
            self._endpoint,
            lambda: Link(self.session, options, self._on_lost, self._on_chunk),
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
                f"{self._endpoint} did not answer CONNECT within {options.connect_timeout:g} s",
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

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(self._jitter.next_delay())
            try:
                await self._open()
            except TidegateError as error:
                if is_final(error):
                    self._end(error)
                    return
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
        if self.state is not State.OPEN or link is not self._link:
            return  # Closed by us, or a handshake whose own waiter sees the error.
        self._link = None
        if not self._options.reconnect or is_final(error):
            self._end(error)
            return
        loop = asyncio.get_running_loop()
        self.state = State.RECONNECTING
        self._jitter.on_lost(loop.time() - self._opened_at)
        self._supervisor = loop.create_task(self._reconnect(), name="tidegate client reconnect")
        self._supervisor.add_done_callback(self._on_supervisor_done)

    def _end(self, error: Exception | None) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._error = error
        told = error or NotConnected("the client was closed", hint="await what is open before closing")
        self.session.fail(told)
        self.calls.fail(told)
        self.inbox.close(error)
        self._wake_all()

    def _deliver(self, message: Message) -> None:
        if self.calls.on_message(message):
            message.ack()
        elif message.qos == 0 and self._was_full and self.inbox.is_full:
            self.dropped += 1
        else:
            self.received += 1
            self.inbox.put_nowait(message)

    def _on_taken(self, message: Message) -> None:
        if not self._options.manual_ack:
            message.ack()
        if self._link is not None and not self._link.is_reading:
            self.update_reading()

    def _on_chunk(self) -> None:
        self._was_full = self.inbox.is_full
        self.update_reading()
        self.room.wake()

    def _wake_all(self) -> None:
        self.room.wake()
        while self._connection_waiters:
            waiter = self._connection_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
