"""Ends of connections the tests of this room share: real protocols on real sockets, nothing pretended."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

DEADLINE = 10.0


def run_on(loop_name: str, main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine on the named loop, with a deadline for the whole."""

    async def bounded() -> T:
        async with asyncio.timeout(4 * DEADLINE):
            return await main

    with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
        return runner.run(bounded())


async def wait_for(condition: Callable[[], bool], timeout: float = DEADLINE) -> None:
    """Wait for something nobody announces: a counter, for one."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.001)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def raw_server(handler: Handler) -> AsyncIterator[int]:
    """The port of a server of plain bytes; at the end every connection is closed and its handler done."""
    finished: list[asyncio.Event] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done = asyncio.Event()
        finished.append(done)
        with contextlib.suppress(ConnectionError):
            try:
                await handler(reader, writer)
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
                done.set()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
        async with asyncio.timeout(DEADLINE):
            for done in finished:
                await done.wait()


class Recorder(asyncio.Protocol):
    """Keeps what it is given and lets a test wait for it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = bytearray()
        self.chunks: list[bytes] = []
        self.lost: list[BaseException | None] = []
        self.eofs = 0
        self.writing_pauses = 0
        self.writing_resumes = 0
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._changed.set()

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        self.received += data
        self._changed.set()

    def eof_received(self) -> bool | None:
        self.eofs += 1
        self._changed.set()
        return None

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)
        self._changed.set()

    def pause_writing(self) -> None:
        self.writing_pauses += 1
        self._changed.set()

    def resume_writing(self) -> None:
        self.writing_resumes += 1
        self._changed.set()

    @property
    def link(self) -> asyncio.Transport:
        assert self.transport is not None
        return self.transport

    async def wait_until(self, condition: Callable[[], bool], timeout: float = DEADLINE) -> None:
        async with asyncio.timeout(timeout):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def wait_received(self, count: int) -> None:
        await self.wait_until(lambda: len(self.received) >= count)

    async def wait_lost(self) -> None:
        await self.wait_until(lambda: bool(self.lost))


class Echo(Recorder):
    """Sends back what it gets."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.link.write(data)


class Acceptor:
    """A protocol factory that remembers what it made, in order."""

    def __init__(self, kind: type[Recorder] = Recorder) -> None:
        self._kind = kind
        self.made: list[Recorder] = []
        self._changed = asyncio.Event()

    def __call__(self) -> Recorder:
        protocol = self._kind()
        self.made.append(protocol)
        self._changed.set()
        return protocol

    async def wait_made(self, count: int = 1) -> Recorder:
        """The newest protocol, once `count` were made and the newest has its transport."""
        async with asyncio.timeout(DEADLINE):
            while len(self.made) < count:
                self._changed.clear()
                await self._changed.wait()
        newest = self.made[count - 1]
        await newest.wait_until(lambda: newest.transport is not None)
        return newest
