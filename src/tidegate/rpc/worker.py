"""The task worker: takes tasks, runs the user's coroutine, and answers for it.

At least once: a task is acknowledged after it was done, put back with its attempt counted, or buried with its reason
(hazard 5). What it calls has keys made of the task's, so that a second run of the same task, here or at another worker,
does nothing twice at a device.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

from tidegate.rpc.backbone import Backbone, Call
from tidegate.rpc.backends import make_queue
from tidegate.rpc.errors import Impossible, Malformed, RpcError, Unavailable
from tidegate.rpc.fencing import Recent
from tidegate.rpc.labels import SHELF_LABEL
from tidegate.rpc.messages import PRIORITIES, UNREADABLE, Reply, Task, decode_task
from tidegate.rpc.opened import Opened
from tidegate.rpc.options import Options, check_name, new_name
from tidegate.rpc.outcome import Outcome, Reason, Result
from tidegate.rpc.protocols import Consumer, Delivery, Letter
from tidegate.rpc.retry import Retry
from tidegate.rpc.returning import Returning
from tidegate.rpc.schema import DeviceType
from tidegate.rpc.telemetry import Hop, Observer, Step

log = logging.getLogger(__name__)

TASKS = "tasks"
_LONGEST_REASON = 500  # characters, in a dead letter
_LARGEST_VALUE = 512 * 1024  # bytes a coroutine may return, as JSON


class TaskFailed(RpcError):
    """For the user's coroutine to raise: the task is tried again, then buried. So does every other exception."""


class Job:
    """A task in the hands of the user's coroutine."""

    def __init__(self, task: Task, backbone: Backbone) -> None:
        self.task = task
        self.body = task.body
        self._backbone = backbone
        self._made: Counter[str] = Counter()

    async def call(self, device: str, method: str, fields: Mapping[str, Any] | None = None) -> Result:
        """As `Backbone.call`, until the task's deadline; the n-th call to a device has the same key in every run."""
        return (await self.call_many([Call(device=device, method=method, fields=fields or {})]))[0]

    async def call_many(self, calls: Iterable[Call]) -> list[Result]:
        keyed = []
        for call in calls:
            number = self._made[call.device]
            self._made[call.device] += 1
            token = call.token or int(self.task.created * 1e6) + number
            keyed.append(replace(call, key=f"{self.task.id}/{call.device}/{number}", token=token))
        return await self._backbone.call_many(
            keyed,
            deadline=self.task.deadline - time.time(),
            priority=self.task.priority,
            task=self.task.id,
        )

    async def require(self, calls: Iterable[Call]) -> list[Result]:
        """As `call_many`, but raises `TaskFailed` unless all devices did it. A price that a newer one has overtaken
        is as good as done."""
        results = await self.call_many(calls)
        missing = [each for each in results if not each.is_ok and each.reason != Reason.SUPERSEDED]
        if missing:
            raise TaskFailed(f"{len(missing)} of {len(results)} devices: {missing[0]}")
        return results


Handler: TypeAlias = Callable[[Job], Awaitable[Any]]


class TaskWorker(Opened):
    """Runs `handlers[task.kind](job)`, at most `concurrency` at a time; what it returns goes back to the dispatcher.

    `prefetch` tasks at most are held, those that wait for their next attempt included.
    """

    def __init__(
        self,
        options: Options,
        handlers: Mapping[str, Handler],
        types: Iterable[DeviceType] = (SHELF_LABEL,),
        *,
        name: str = "",
        concurrency: int = 1,
        prefetch: int = 0,
        retry: Retry | None = None,
        call_retry: Retry | None = None,
        observer: Observer | None = None,
        random: Random | None = None,
    ) -> None:
        self.name = check_name("name", name or new_name("worker"))
        self.observer = observer
        self.counters: Counter[str] = Counter()
        self.backbone = Backbone(
            options, types, name=f"{self.name[:25]}-calls", retry=call_retry, observer=observer, random=random
        )
        self._handlers = dict(handlers)
        self._retry = retry or Retry(attempts=5, base=0.2, longest=5.0)
        self._random = random or Random()
        self._concurrency = concurrency
        self._prefetch = prefetch or 2 * concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._queue = make_queue(options, self.name)
        self._returning = Returning(self._queue, self.counters)
        self._cancelled: Recent[bool] = Recent(10_000)
        self._consumer: Consumer | None = None
        self._runner: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self._queue.open()
        await self.backbone.open()
        await self._queue.listen("cancel-task", self._on_cancel)
        names = [f"{TASKS}.{priority}" for priority in PRIORITIES]
        self._consumer = await self._queue.consume(names, prefetch=self._prefetch)
        self._runner = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def close(self) -> None:
        """Stop taking; tasks under way are given up, unacknowledged, and go to others."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._returning.close()
        if self._consumer is not None:
            await self._consumer.close()
        await self.backbone.close()
        await self._queue.close()

    async def wait_closed(self) -> None:
        assert self._runner is not None
        await asyncio.wait([self._runner])
        if not self._runner.cancelled():
            self._runner.result()

    def statistics(self) -> dict[str, int]:
        calls = {f"calls {name}": value for name, value in self.backbone.statistics().items()}
        return {**self.counters, **calls}

    async def _run(self) -> None:
        assert self._consumer is not None
        loop = asyncio.get_running_loop()
        while True:
            for delivery in await self._consumer.take(self._prefetch):
                task = loop.create_task(self._handle(delivery))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _handle(self, delivery: Delivery) -> None:
        try:
            task = decode_task(delivery.body)
        except Malformed as error:
            self.counters["malformed"] += 1
            await self._bury(delivery.body, str(error))
        else:
            self.counters["taken"] += 1
            await self._wait(task)
            async with self._slots:
                await self._do(task)
        delivery.ack()

    async def _wait(self, task: Task) -> None:
        """Until its next attempt, but no longer than we would have put it off ourselves."""
        now = time.time()
        wait = min(task.not_before - now, self._retry.longest, task.deadline - now)
        if wait > 0.0:
            await asyncio.sleep(wait)

    async def _do(self, task: Task) -> None:
        handler = self._handlers.get(task.kind)
        if task.id in self._cancelled:
            await self._finish(task, Outcome.REFUSED, Reason.CANCELLED)
        elif handler is None:
            await self._fail(task, f"no worker knows tasks of the kind {task.kind!r}", is_final=True)
        elif task.deadline <= time.time():
            await self._fail(task, "its deadline was over before it was done", is_final=True)
        else:
            if self.observer is not None:
                self.observer.on_hop(
                    Hop(time.time(), Step.WORKER, task.id, "", self.name, attempt=task.attempt, task=task.id)
                )
            try:
                value = await handler(Job(task, self.backbone))
                _check(value)
            except (
                Exception,
                asyncio.CancelledError,
            ) as error:  # the user's fault is the task's, not the worker's
                current = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and current is not None and current.cancelling():
                    raise
                log.info("a task failed", exc_info=True, extra={"task": task.id, "attempt": task.attempt})
                await self._fail(task, f"{type(error).__name__}: {error}", is_final=False)
            else:
                await self._finish(task, Outcome.ACK, "", value)

    async def _fail(self, task: Task, reason: str, *, is_final: bool) -> None:
        reason = reason[:_LONGEST_REASON]
        now = time.time()
        delay = None if is_final else self._retry.after(task.attempt, now, task.deadline, self._random)
        if delay is not None:
            self.counters["retried"] += 1
            again = replace(task, attempt=task.attempt + 1, not_before=now + delay, reason=reason)
            if await self._put(again):
                return
        task.reason = reason
        await self._bury(task.encode(), reason, task)
        await self._finish(task, Outcome.NACK, reason)

    async def _put(self, task: Task) -> bool:
        while time.time() < task.deadline:
            try:
                await self._queue.put(f"{TASKS}.{task.priority}", task.encode(), deadline=None)
                return True
            except Impossible:
                return False
            except Unavailable:
                await asyncio.sleep(0.2)
        return False

    async def _bury(self, body: bytes, reason: str, task: Task | None = None) -> None:
        """Until it is buried: a task must not vanish because a server is away."""
        self.counters["buried"] += 1
        log.warning("a task failed for good", extra={"reason": reason, "task": task.id[:100] if task else ""})
        # A name of its own: a task that is replayed may die again before its first letter is taken out, and what
        # strangers call a task may be no name at all.
        letter = Letter(f"letter-{secrets.token_hex(8)}", body)
        try:
            await self._keep(letter)
        except Impossible as error:
            log.warning("a dead task is kept in short", extra={"error": str(error), "size": len(body)})
            try:
                await self._keep(letter._replace(body=_short(letter, reason, task)))
            except Impossible:
                self.counters["not buried"] += 1
                log.exception("a dead task could not be kept", extra={"reason": reason})

    async def _keep(self, letter: Letter) -> None:
        while True:
            try:
                await self._queue.bury(TASKS, letter)
                return
            except Impossible:
                raise
            except Unavailable:
                await asyncio.sleep(0.2)

    async def _finish(self, task: Task, outcome: Outcome, reason: str, value: Any = None) -> None:
        self.counters[f"tasks {outcome}"] += 1
        if task.reply_to:
            data = {"value": value, "attempts": task.attempt}
            reply = Reply(
                correlation=task.correlation, device=task.id, outcome=outcome, reason=reason, data=data
            )
            self._returning.add(task.reply_to, reply)

    def _on_cancel(self, body: bytes) -> None:
        for task_id in body.decode(errors="replace").split("\n"):
            self._cancelled.put(task_id, True)


def _check(value: Any) -> None:
    """What cannot travel is the task's fault, too, and not that of others in its bundle."""
    size = len(json.dumps(value))
    if size > _LARGEST_VALUE:
        raise TaskFailed(f"it returned {size} bytes, at most {_LARGEST_VALUE}")


def _short(letter: Letter, reason: str, task: Task | None) -> bytes:
    """What is kept of a task that is too large to be kept: people learn of it, nobody can run it again."""
    stub = Task(
        id=task.id[:100] if task else letter.id,
        kind=UNREADABLE,
        body={"kind": task.kind[:100] if task else "", "size": len(letter.body)},
        created=task.created if task else 0.0,
        deadline=task.deadline if task else 0.0,
        attempt=task.attempt if task else 1,
        reason=f"{reason[:_LONGEST_REASON]} ({len(letter.body)} bytes, too many to be kept)",
    )
    return stub.encode()
