"""An event loop on a thread of its own, for asyncio libraries behind a blocking interface."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from tests.interop.peers.base import DEADLINE

T = TypeVar("T")


class LoopThread:
    """Started when made; `run` waits for one coroutine, `close` cancels what a library left and ends the loop."""

    def __init__(self) -> None:
        self.is_closed = False
        self._stop: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main()), name="interop-peer", daemon=True
        )
        self._thread.start()
        self.loop = self._stop.result(DEADLINE)[0]

    async def _main(self) -> None:
        stop = asyncio.Event()
        self._stop.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(DEADLINE):
                return await coroutine

        return asyncio.run_coroutine_threadsafe(bounded(), self.loop).result()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.loop.call_soon_threadsafe(self._stop.result()[1].set)
            self._thread.join(DEADLINE)
