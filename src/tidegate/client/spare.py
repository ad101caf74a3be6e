"""A connection to where the server will send us, opened before we leave (`tidegate.flow.moving`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidegate.client.options import ClientOptions
from tidegate.client.protocol import Link
from tidegate.errors import TidegateError
from tidegate.net.addresses import Endpoint
from tidegate.net.dial import dial

KEPT_SECONDS = 15.0  # a server that does not send us there after all


class Spare:
    """At most one. `make` makes a link that nothing has been sent over."""

    def __init__(self, options: ClientOptions, make: Callable[[], Link]) -> None:
        self._options = options
        self._make = make
        self._task: asyncio.Task[Link | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._endpoint: Endpoint | None = None
        self._tasks: set[asyncio.Task[Link | None]] = set()
        self._links: set[Link] = set()
        self.used = 0

    def open(self, endpoint: Endpoint, on_ready: Callable[[], None]) -> None:
        """Begin to connect; `on_ready` is called when that is done, not if it fails."""
        self.close()
        loop = asyncio.get_running_loop()
        self._endpoint = endpoint
        self._task = loop.create_task(self._dial(endpoint, on_ready), name="tidegate client spare")
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)
        self._timer = loop.call_later(KEPT_SECONDS, self.close)

    async def take(self, endpoint: Endpoint) -> Link | None:
        """The connection to there, which is the caller's then; None if there is none."""
        task = self._task
        if task is None:
            return None
        if self._endpoint != endpoint:
            self.close()
            return None
        await asyncio.wait([task])
        if self._timer is not None:
            self._timer.cancel()
        self._task = None
        link = None if task.cancelled() else task.result()
        if link is None or link.lost.done():
            return None
        self._links.discard(link)
        link.is_spare = False
        self.used += 1
        return link

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        for link in self._links:
            link.abort(None)

    async def wait_closed(self) -> None:
        """After `close`, until nothing of it is left."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._links:
            await asyncio.wait([link.lost for link in self._links])

    async def _dial(self, endpoint: Endpoint, on_ready: Callable[[], None]) -> Link | None:
        options = self._options
        try:
            _, link = await dial(
                endpoint, self._new, ssl=options.ssl, timeout=options.connect_timeout, headers=options.headers
            )
        except TidegateError:
            return None  # whoever is sent there tries again, and says what is wrong
        if link.lost.done():
            return None
        self._links.add(link)
        link.lost.add_done_callback(lambda _: self._links.discard(link))
        on_ready()
        return link

    def _new(self) -> Link:
        link = self._make()
        link.is_spare = True
        return link
