"""TLS listeners that tell whose handshake failed, and why.

An event loop that accepts TLS connections itself drops failed ones without a word, and nothing it calls knows the
peer. So the loop accepts plain connections here. Their sockets are taken from the transports before these read, and
handed to the loop again as TLS connections, this time with somebody who waits for the result. That happens when the
client has begun to speak: one that leaves without a word checks whether the port is open, and did not fail at
anything. Against a handshake all this costs little, and the finished connection is the same as before.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl as ssl_module
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from tidegate.net.addresses import join_host_port
from tidegate.net.doorway import Doorway

log = logging.getLogger("tidegate.net.tls")

# Scanners and clients with a wrong certificate come again and again: a line a second is enough to notice.
LOG_INTERVAL = 1.0

CLIENT_HELLO = 0x16  # begins every TLS connection
HTTP_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"CONNECT ")  # OpenSSL knows them, and says so in the log

# What OpenSSL calls the mistakes that people make, and what they are.
_MEANINGS = {
    "WRONG_VERSION_NUMBER": "the client does not speak TLS, or a version that is too old",
    "UNSUPPORTED_PROTOCOL": "the client's version of TLS is too old",
    "HTTP_REQUEST": "the client speaks plain HTTP",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "to the client our certificate has expired",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and this listener requires one",
    "NO_SHARED_CIPHER": "client and listener have no cipher in common",
}


class HandshakeLog:
    """Failures of one listener: all are counted, one a second is written at most."""

    __slots__ = ("_clock", "_next", "_unsaid", "failed")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.failed = 0
        self._clock = clock
        self._next = -LOG_INTERVAL
        self._unsaid = 0

    def add(self, peer: object, error: OSError) -> None:
        """A handshake failed that the client had begun."""
        self.failed += 1
        facts = {"peer": describe_peer(peer), "reason": describe_failure(error)}
        now = self._clock()
        if now < self._next:
            self._unsaid += 1
            return
        self._next = now + LOG_INTERVAL
        log.warning(
            "TLS handshake failed", extra={**facts, "unsaid": self._unsaid} if self._unsaid else facts
        )
        self._unsaid = 0


class TLSGate:
    """One listener's handshakes: the protocol factory for the event loop; `factory` makes the protocols behind."""

    __slots__ = ("context", "door", "factory", "handshake_timeout", "handshakes", "waiting")

    def __init__(
        self,
        factory: Callable[[], asyncio.Protocol],
        context: ssl_module.SSLContext,
        handshake_timeout: float | None,
        handshakes: HandshakeLog,
        door: Doorway,
    ) -> None:
        self.door = door
        self.factory = factory
        self.context = context
        self.handshake_timeout = handshake_timeout
        self.handshakes = handshakes
        self.waiting: set[_Handshake] = set()

    def __call__(self) -> asyncio.Protocol:
        return _Handshake(self)

    def abort_waiting(self) -> None:
        for handshake in tuple(self.waiting):
            handshake.abort()


class Gate(Protocol):
    """Where connections wait, beside their place in the door."""

    waiting: set[Any]
    door: Doorway


class TakenSocket(asyncio.Protocol):
    """A connection whose socket was taken from its transport, while a coroutine works on it."""

    __slots__ = ("_has_begun", "_task", "_waits_at")

    _task: asyncio.Task[None]

    def __init__(self, gate: Gate) -> None:
        self._waits_at = gate
        self._has_begun = False

    def abort(self) -> None:
        self._task.cancel()

    def _work(
        self, taken: socket.socket, transport: asyncio.BaseTransport, work: Callable[[socket.socket], Awaitable[None]]
    ) -> None:
        """The work closes the socket whatever comes; if it is called off before it begins, that is done here."""
        self._waits_at.waiting.add(self)
        self._waits_at.door.enter(self, transport)
        self._task = asyncio.get_running_loop().create_task(self._begin(taken, work))
        self._task.add_done_callback(lambda _: self._end(taken))

    async def _begin(self, taken: socket.socket, work: Callable[[socket.socket], Awaitable[None]]) -> None:
        self._has_begun = True
        await work(taken)

    def _end(self, taken: socket.socket) -> None:
        self._waits_at.waiting.discard(self)
        self._waits_at.door.leave(self)
        if not self._has_begun:
            taken.close()


class _Handshake(TakenSocket):
    """A connection until its handshake is over, one way or the other."""

    __slots__ = ("_gate", "_peer")

    def __init__(self, gate: TLSGate) -> None:
        super().__init__(gate)
        self._gate = gate
        self._peer: object = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._peer = transport.get_extra_info("peername")
        try:
            taken = take_socket(cast(asyncio.Transport, transport))
        except OSError as error:  # no descriptor is left
            self._gate.handshakes.add(self._peer, error)
            return
        self._work(taken, transport, self._shake_hands)

    async def _shake_hands(self, taken: socket.socket) -> None:
        gate = self._gate
        try:
            if not await wait_hello(taken, gate.handshake_timeout):
                return
            await asyncio.get_running_loop().connect_accepted_socket(
                gate.factory, taken, ssl=gate.context, ssl_handshake_timeout=gate.handshake_timeout
            )
        except OSError as error:
            gate.handshakes.add(self._peer, error)


async def wait_hello(taken: socket.socket, timeout: float | None) -> bool:
    """Wait until the client speaks; False, and the socket is closed, if it leaves before. TimeoutError likewise."""
    loop = asyncio.get_running_loop()
    has_spoken = asyncio.Event()
    loop.add_reader(taken, has_spoken.set)
    try:
        async with asyncio.timeout(timeout):
            await has_spoken.wait()
        loop.remove_reader(taken)
        first = taken.recv(8, socket.MSG_PEEK)
        if first and first[0] != CLIENT_HELLO and not first.startswith(HTTP_METHODS):
            raise OSError("the client does not speak TLS")  # OpenSSL would wait for more bytes
        if first:
            return True
    except ConnectionError:
        pass  # gone, too, only less politely
    except TimeoutError:
        _close(loop, taken)
        raise TimeoutError("the client said nothing in time") from None
    except BaseException:
        _close(loop, taken)
        raise
    _close(loop, taken)
    return False


def _close(loop: asyncio.AbstractEventLoop, taken: socket.socket) -> None:
    loop.remove_reader(taken)
    taken.close()


def take_socket(transport: asyncio.Transport) -> socket.socket:
    """The connection, out of a transport that has not begun to read and never will; OSError if none can be made."""
    try:
        taken = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    finally:
        transport.abort()  # the connection lives on in the duplicate
    taken.setblocking(False)
    return taken


def describe_peer(peer: object) -> str:
    """Host and port as people write them; peers of Unix sockets have no name."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        return join_host_port(str(peer[0]), int(peer[1]))
    return str(peer or "local")


def describe_failure(error: OSError) -> str:
    """Why a handshake failed, in words where OpenSSL has only a name for it."""
    if isinstance(error, ssl_module.SSLCertVerificationError):
        return f"the client's certificate was refused: {error.verify_message}"
    if isinstance(error, ssl_module.SSLError) and error.reason:
        return _MEANINGS.get(error.reason, error.reason.replace("_", " ").lower())
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        # Not every TLS library says goodbye to a server that it does not trust.
        return "broken off by the client; perhaps it does not trust our certificate"
    return error.strerror or str(error)
