"""Runs a callback for each message of its queue, one after another, and acknowledges what it has handled."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from tidegate.client.inbox import Inbox
from tidegate.client.load_reports import LoadReports
from tidegate.client.message import Message
from tidegate.errors import TidegateError
from tidegate.mqtt.codes import ReasonCode

log = logging.getLogger(__name__)

Callback: TypeAlias = Callable[[Message], Awaitable[None] | None]

# A callback that never waits would keep everybody else from the loop while its queue is long.
_MESSAGES_A_TURN: Final = 20


class CallbackRunner:
    """A message is acknowledged when its callback is done; with manual acknowledgement by the callback itself.

    A callback that raises has its message refused unless it had acknowledged it (0x83, Implementation specific error;
    MQTT 3.1.1 has no way to say so): what fails once would fail again, and a missing acknowledgement holds back all
    behind it. The error is logged and counted.
    """

    def __init__(self, callback: Callback, inbox: Inbox, reports: LoadReports, *, manual_ack: bool) -> None:
        self._callback = callback
        self._inbox = inbox
        self._reports = reports
        self._manual_ack = manual_ack
        self.errors = 0

    async def run(self) -> None:
        """Until the queue is closed; what ended the connection is told to those who call the client."""
        number = 0
        while True:
            try:
                message = await self._inbox.get()
            except (StopAsyncIteration, TidegateError):
                return
            await self._handle(message)
            number += 1
            if number % _MESSAGES_A_TURN == 0:
                await asyncio.sleep(0)

    async def _handle(self, message: Message) -> None:
        reports = self._reports if self._reports.is_on else None
        if reports is not None:
            reports.on_taken(message, self)
        reason_code = ReasonCode.SUCCESS
        try:
            result = self._callback(message)
            if inspect.isawaitable(result):
                await result
        except (Exception, asyncio.CancelledError) as error:
            # The application's fault must not end the client.
            if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                raise
            self.errors += 1
            reason_code = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
            log.exception("a callback failed", extra={"topic": message.topic})
        if reports is not None:
            reports.on_ended(self)
        if reason_code or not self._manual_ack:
            message.ack(reason_code)


def _is_being_cancelled() -> bool:
    """Whether somebody ends this task; else the callback met something else that was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Callbacks:
    """The callbacks of one client, each with its queue and its task; `close` awaits them."""

    def __init__(
        self, reports: LoadReports, on_taken: Callable[[Message], None], *, manual_ack: bool
    ) -> None:
        self._reports = reports
        self._on_taken = on_taken
        self._manual_ack = manual_ack
        self._tasks: dict[CallbackRunner, asyncio.Task[None]] = {}
        self._past_errors = 0

    @property
    def errors(self) -> int:
        return self._past_errors + sum(runner.errors for runner in self._tasks)

    def start(self, callback: Callback) -> Inbox:
        """A queue that `callback` empties until it is closed."""
        inbox = Inbox(self._on_taken)
        runner = CallbackRunner(callback, inbox, self._reports, manual_ack=self._manual_ack)
        task = asyncio.get_running_loop().create_task(runner.run(), name="tidegate client callback")
        self._tasks[runner] = task
        task.add_done_callback(lambda _: self._on_ended(runner))
        return inbox

    async def close(self) -> None:
        """End them; what they have not handled is not acknowledged, and comes again in the same session."""
        # One of them may be the caller, who then ends by himself.
        running = [task for task in self._tasks.values() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _on_ended(self, runner: CallbackRunner) -> None:
        self._tasks.pop(runner, None)
        self._past_errors += runner.errors
