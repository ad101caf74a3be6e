"""A real broker on a thread of its own, for tests that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

import uvloop

from tidegate.broker import Broker

T = TypeVar("T")
START_TIMEOUT = 10.0


class BrokerThread:
    """Runs `Broker(**options)` on a free port: `with BrokerThread() as broker: connect(broker.port)`."""

    host = "127.0.0.1"

    def __init__(self, **options: Any) -> None:
        options.setdefault("port", 0)
        self._options = options
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="tidegate-broker", daemon=True)
        self.broker = Broker(**options)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(START_TIMEOUT):
            raise TimeoutError("the broker did not start")
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
            async with self.broker:
                self.port = self.broker.port
                self._started.set()
                await self._stop.wait()
        except BaseException as error:
            self._error = error
            self._started.set()
            if not isinstance(error, Exception):
                raise

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the broker's loop and give its result."""
        assert self._loop is not None

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(START_TIMEOUT)

    def statistics(self) -> dict[str, Any]:
        return self.call(self.broker.statistics)
