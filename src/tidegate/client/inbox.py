"""The queue between the network and the application: bounded, closed with or without an error."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Protocol

from tidegate.client.message import Message
from tidegate.client.waiters import Waiters


class Meter(Protocol):
    """Who measures how long the application takes; see `LoadReports`."""

    is_on: bool

    def on_taken(self, message: Message, taker: Hashable) -> None: ...
    def on_ended(self, taker: Hashable) -> None: ...


class Inbox:
    """Messages that wait for the application, in the order they came.

    It does not refuse: whoever fills it looks at the sum of all (see `Routes`) and stops reading. `on_taken` is
    called for each message that leaves, before the application sees it.
    """

    def __init__(self, on_taken: Callable[[Message], None]) -> None:
        self._on_taken = on_taken
        self._messages: deque[Message] = deque()
        self._takers = Waiters(on_missed=self._pass_on)
        self._is_closed = False
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def put_nowait(self, message: Message) -> None:
        self._messages.append(message)
        self._takers.wake_one()

    def get_nowait(self) -> Message | None:
        """The next message, or None if there is none now."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._on_taken(message)
        return message

    async def get_many(self, maximum: int) -> list[Message]:
        """As `get`, for all that wait, up to `maximum`; at least one."""
        messages = [await self.get()]
        waiting = self._messages
        if len(waiting) < maximum:
            messages += waiting
            waiting.clear()
        else:
            messages += [waiting.popleft() for _ in range(maximum - 1)]
        for message in messages[1:]:
            self._on_taken(message)
        return messages

    async def get(self) -> Message:
        """The next message. When closed and empty: raises the error that ended it, or `StopAsyncIteration`.

        It waits without a limit of its own: a subscriber may be idle for days, and the end of the connection
        wakes it.
        """
        while True:
            message = self.get_nowait()
            if message is not None:
                return message
            if self._is_closed:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                raise StopAsyncIteration
            await self._takers.wait()

    def count(self, is_wanted: Callable[[Message], bool]) -> int:
        return sum(map(is_wanted, self._messages))

    def discard_unacknowledged(self) -> None:
        """Drop what the server is going to send again; see `Session`."""
        self._messages = deque(message for message in self._messages if message.is_acknowledged)

    def close(self, error: Exception | None) -> None:
        """Nothing comes any more; what is here can still be taken."""
        if not self._is_closed:
            self._is_closed = True
            self._error = error
            self._takers.wake_all()

    def _pass_on(self) -> None:
        """A message was announced to one who left."""
        if self._messages:
            self._takers.wake_one()


class Messages:
    """`client.messages`, or those of a `subscribed` block: an asynchronous iterator that any number of tasks may
    share. For load reports, a task has processed a message when it asks for the next, or acknowledges it.
    """

    def __init__(self, inbox: Inbox, meter: Meter) -> None:
        self._inbox = inbox
        self._meter = meter

    def __len__(self) -> int:
        """How many wait to be taken."""
        return len(self._inbox)

    def __aiter__(self) -> Messages:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        # No coroutine function: whoever calls `anext` does the work, even if `asyncio.wait_for` awaits it in a
        # task of its own, as it does before Python 3.12.
        if not self._meter.is_on:
            return self._inbox.get()
        taker = asyncio.current_task()
        self._meter.on_ended(taker)
        return self._next(taker)

    async def get_many(self, maximum: int = 1000) -> list[Message]:
        """All that wait, up to `maximum`, and at least one; for those who handle messages by the thousand.

        Raises `StopAsyncIteration` at the end, or what ended the connection. To load reports all but the last are
        processed at once, unless acknowledgements are manual: measure by yourself and use `Client.report_load`.
        """
        if not self._meter.is_on:
            return await self._inbox.get_many(maximum)
        taker = asyncio.current_task()
        self._meter.on_ended(taker)
        messages = await self._inbox.get_many(maximum)
        for message in messages:
            self._meter.on_taken(message, taker)
        return messages

    def get_nowait(self) -> Message | None:
        """The next message, or None if none is here yet."""
        message = self._inbox.get_nowait()
        if self._meter.is_on:
            taker = asyncio.current_task()
            if message is None:
                self._meter.on_ended(taker)
            else:
                self._meter.on_taken(message, taker)
        return message

    async def _next(self, taker: Hashable) -> Message:
        message = await self._inbox.get()
        self._meter.on_taken(message, taker)
        return message
