"""A real broker or node on a thread of its own, for tests that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import uvloop

from tidegate.broker import Broker
from tidegate.net.operators import place_for

if TYPE_CHECKING:
    from tidegate.settings import Settings

T = TypeVar("T")
START_TIMEOUT = 10.0


class LoopThread:
    """Runs one server, an asynchronous context, on a thread and a loop of its own."""

    host = "127.0.0.1"
    port = 0

    def __init__(self, server: AbstractAsyncContextManager[Any]) -> None:
        self._server = server
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="tidegate-server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(START_TIMEOUT):
            raise TimeoutError("the server did not start")
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *exc: object) -> None:
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        self._thread.join(START_TIMEOUT)

    def _run(self) -> None:
        uvloop.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            async with self._server:
                self._on_started()
                self._started.set()
                await self._stop.wait()
        except BaseException as error:
            self._error = error
            self._started.set()
            if not isinstance(error, Exception):
                raise

    def _on_started(self) -> None:
        """The server runs, and nobody knows it yet."""

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the broker's loop and give its result."""

        async def run() -> T:
            return function()

        return self.wait(run())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it on the server's loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_TIMEOUT)


class BrokerThread(LoopThread):
    """Runs `Broker(**options)` on a free port: `with BrokerThread() as broker: connect(broker.port)`."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("port", 0)
        self.broker = Broker(**options)
        self._operator_socket: Path | None = None
        super().__init__(self.broker)

    def _on_started(self) -> None:
        self.port = self.broker.port

    def operator_socket(self) -> Path:
        """Where its operator connects, as a node has it; opened when it is first asked for."""
        if self._operator_socket is None:
            self._operator_socket = place_for(self.broker.endpoints[0])
            self.wait(self.broker.open_for_operator(self._operator_socket))
        return self._operator_socket

    def statistics(self) -> dict[str, Any]:
        return self.call(self.broker.statistics)


class NodeThread(LoopThread):
    """Runs `Node(settings)`, which has listeners, accounts and rights as its settings say."""

    def __init__(self, settings: Settings) -> None:
        from tidegate.node import Node

        self.node = Node(settings)
        super().__init__(self.node)

    def _on_started(self) -> None:
        self.port = self.node.broker.port

    def reload(self, settings: Settings | None = None) -> None:
        """What SIGHUP does."""
        self.wait(self.node.reload(settings or self.node.settings))

    def operator_socket(self) -> Path:
        """Where its operator connects."""
        assert self.node.operator_socket is not None
        return self.node.operator_socket
