"""The dispatcher: puts tasks on the queue, and tells what became of them; also what lies among the dead letters."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from tidegate.rpc.backends import make_queue
from tidegate.rpc.correlation import Calls, Signer
from tidegate.rpc.deadline import LONGEST
from tidegate.rpc.errors import Malformed, RpcError, Unavailable
from tidegate.rpc.messages import PRIORITIES, UNREADABLE, Reply, Task, decode_replies, decode_task
from tidegate.rpc.options import Options, check_name, new_name
from tidegate.rpc.outcome import Outcome
from tidegate.rpc.telemetry import Hop, Observer, Step
from tidegate.rpc.worker import TASKS

_PAUSE = 0.2  # seconds between two tries to put a task


@dataclass(slots=True, kw_only=True)
class TaskResult:
    """What became of a task; `value` is what the worker's coroutine returned, and must be JSON."""

    id: str
    outcome: Outcome
    reason: str = ""
    attempts: int = 1
    value: Any = None

    @property
    def is_ok(self) -> bool:
        return self.outcome is Outcome.ACK


class Tracked:
    """A task under way: await it for its result."""

    def __init__(self, task_id: str, waiter: asyncio.Future[Reply]) -> None:
        self.id = task_id
        self._waiter = waiter

    @property
    def is_done(self) -> bool:
        return self._waiter.done()

    def __await__(self) -> Any:
        return self._wait().__await__()

    async def _wait(self) -> TaskResult:
        reply = await asyncio.shield(self._waiter)
        return TaskResult(
            id=self.id,
            outcome=reply.outcome,
            reason=reply.reason,
            attempts=int(reply.data.get("attempts", 1)),
            value=reply.data.get("value"),
        )


class Dispatcher:
    """`async with Dispatcher(options) as dispatcher: await (await dispatcher.submit("price", {...}))`."""

    def __init__(self, options: Options, *, name: str = "", observer: Observer | None = None) -> None:
        self.options = options
        self.name = check_name("name", name or new_name("dispatcher"))
        self.observer = observer
        self.counters: Counter[str] = Counter()
        self._queue = make_queue(options, self.name)
        self._calls: Calls[asyncio.Future[Reply]] = Calls(
            self.name, Signer(options.secret), secrets.randbits(48)
        )
        self._address = ""
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._queue.open()
        self._address = await self._queue.open_inbox(self.name, self._on_replies)
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        self._calls.each(lambda call: self._give_up(call.what))
        await self._queue.close()

    async def submit(
        self,
        kind: str,
        body: dict[str, Any],
        *,
        deadline: float = 180.0,
        priority: str = "normal",
        id: str = "",
        patience: float = 0.0,
    ) -> Tracked:
        """Returns when the task is safe; raises `Unavailable`, after trying for `patience` seconds. Devices know what
        was done for the same `id` before."""
        if priority not in PRIORITIES:
            raise RpcError(f"priority {priority!r}", hint=f"use one of {', '.join(PRIORITIES)}")
        if not 0.0 < deadline <= LONGEST:
            raise RpcError(f"a deadline of {deadline} seconds", hint="give seconds from now, at most a day")
        now = time.time()
        task_id = check_name("task id", id or secrets.token_hex(8))
        waiter: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        call = self._calls.open(task_id, now + deadline, waiter)
        task = Task(
            id=task_id,
            kind=kind,
            body=body,
            created=now,
            deadline=now + deadline,
            reply_to=self._address,
            correlation=call.correlation,
            priority=priority,
        )
        while True:
            try:
                # It does not expire in the queue: if no worker takes it in time, one buries it with that reason.
                await self._queue.put(f"{TASKS}.{priority}", task.encode(), deadline=None)
                break
            except Unavailable:
                if time.time() >= now + min(patience, deadline):
                    self._calls.close(call.correlation)
                    raise
                await asyncio.sleep(_PAUSE)
        self.counters["submitted"] += 1
        if self.observer is not None:
            self.observer.on_hop(Hop(now, Step.ENQUEUED, task_id, "", self.name, task=task_id))
        return Tracked(task_id, waiter)

    async def cancel(self, task_id: str) -> None:
        """Ask workers not to begin it; best effort, as with all that is under way."""
        await self._queue.announce("cancel-task", task_id.encode())

    async def dead(self) -> list[Task]:
        """Tasks that failed for good, each with its reason."""
        return [task for _, task in await self._letters()]

    async def replay(self, task_id: str, *, deadline: float = 180.0) -> bool:
        """Put a dead task back on its queue with a new deadline and its first attempt; whether it was there.

        It is put before it is taken out: killed in between, it runs twice, which devices bear, and is not lost.
        """
        return bool(await self._replay(task_id, deadline))

    async def replay_all(self, *, deadline: float = 180.0) -> list[Task]:
        """As `replay`, all that can be; gives them as they were."""
        return await self._replay(None, deadline)

    async def drop(self, task_id: str) -> bool:
        """Forget a dead task; whether it was there."""
        return bool(await self._drop(task_id))

    async def drop_all(self) -> list[Task]:
        """Forget all of them; gives them as they were."""
        return await self._drop(None)

    async def _replay(self, task_id: str | None, deadline: float) -> list[Task]:
        """One of them, or all."""
        replayed: dict[str, Task] = {}
        letter_ids = []
        for letter_id, task in await self._letters():
            if task.kind == UNREADABLE or task_id not in (None, task.id):
                continue
            letter_ids.append(letter_id)
            if task.id not in replayed:
                replayed[task.id] = task
                now = time.time()
                again = replace(task, attempt=1, not_before=0.0, deadline=now + deadline, reason="")
                await self._queue.put(f"{TASKS}.{task.priority}", again.encode(), deadline=None)
        if letter_ids:
            await self._queue.exhume(TASKS, letter_ids)
        return list(replayed.values())

    async def _drop(self, task_id: str | None) -> list[Task]:
        letters = await self._letters()
        chosen = {letter_id: task for letter_id, task in letters if task_id in (None, task.id)}
        if not chosen:
            return []
        dropped = await self._queue.exhume(TASKS, chosen)
        return [task for letter_id, task in chosen.items() if letter_id in dropped]

    async def _letters(self) -> list[tuple[str, Task]]:
        """Dead letters by their own names; what cannot be read is a task of the kind `UNREADABLE`, of that name."""
        letters = []
        for letter in await self._queue.dead(TASKS):
            try:
                task = decode_task(letter.body)
            except Malformed as error:
                task = Task(
                    id=letter.id, kind=UNREADABLE, body={}, created=0.0, deadline=0.0, reason=str(error)
                )
            letters.append((letter.id, task))
        return letters

    def statistics(self) -> dict[str, int]:
        calls = self._calls
        return {**self.counters, "open": len(calls), "late": calls.late, "duplicate": calls.duplicate}

    def _on_replies(self, body: bytes) -> None:
        try:
            replies = decode_replies(body)
        except Malformed:
            self.counters["malformed replies"] += 1
            return
        for reply in replies:
            call = self._calls.match(reply.correlation, reply.device)
            if call is not None and not call.what.done():
                self.counters[reply.outcome] += 1
                call.what.set_result(reply)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            for call in self._calls.expire(time.time()):
                self.counters[Outcome.TIMEOUT] += 1
                self._give_up(call.what)

    @staticmethod
    def _give_up(waiter: asyncio.Future[Reply]) -> None:
        if not waiter.done():
            waiter.set_result(Reply(correlation="", device="", outcome=Outcome.TIMEOUT))
