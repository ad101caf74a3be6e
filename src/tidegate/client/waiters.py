"""Those who wait for one word, in the order they came. Whoever gives up leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable


class Waiters:
    """`on_missed` is called when one who was woken gave up before it could act on it, so that another may."""

    def __init__(self, on_missed: Callable[[], None] | None = None) -> None:
        self._on_missed = on_missed
        # A queue that one can leave from the middle of.
        self._futures: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._futures)

    async def wait(self) -> None:
        """Until somebody wakes us."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures[future] = None
        try:
            await future
        except asyncio.CancelledError:
            self._futures.pop(future, None)
            if future.done() and not future.cancelled() and self._on_missed is not None:
                self._on_missed()
            raise

    def wake_one(self) -> bool:
        """Wake who came first; False if nobody waits."""
        while self._futures:
            future, _ = self._futures.popitem(last=False)
            if not future.done():
                future.set_result(None)
                return True
        return False

    def wake_all(self) -> None:
        while self.wake_one():
            pass
