"""The caller's side: `await backbone.call(device, method, fields)`, many at once, or one to be asked about later.

One long-lived inbox for each caller (spec 4, e2), opened before the first request (hazard 9); every call ends with one
`Result`, by its reply, a refusal of a router, or its deadline, whatever has died meanwhile. Calls made in the same turn
travel in one message.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tidegate.rpc.backends import make_queue, make_store
from tidegate.rpc.bundler import Bundler
from tidegate.rpc.correlation import Calls, Open, Signer
from tidegate.rpc.deadline import GRACE, LONGEST
from tidegate.rpc.errors import Full, Malformed, Refusal, RpcError, Unavailable
from tidegate.rpc.fencing import TokenClock
from tidegate.rpc.labels import SHELF_LABEL
from tidegate.rpc.messages import (
    MAX_BUNDLE_BYTES,
    PRIORITIES,
    Reply,
    Request,
    decode_replies,
    encode_requests,
    is_text,
    request_size,
)
from tidegate.rpc.opened import Opened
from tidegate.rpc.options import Options, check_name, new_name
from tidegate.rpc.outcome import RETRYABLE, Outcome, Reason, Result
from tidegate.rpc.protocols import ReturnStore, TaskQueue
from tidegate.rpc.retry import Retry
from tidegate.rpc.schema import DeviceType, Types
from tidegate.rpc.telemetry import Hop, Observer, Step

log = logging.getLogger(__name__)

ROUTING = "routing"
_BUNDLE = 64  # requests a message: a few kilobytes, and a hundredth of a second of a slow router


@dataclass(slots=True, kw_only=True)
class Call:
    """One of several calls; the fields are the arguments of `Backbone.call`."""

    device: str
    method: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    token: int = 0


class Ticket:
    """A call under way: await it for its result, cancel it, or ask whether it is done."""

    def __init__(self, task: asyncio.Task[Result], key: str, device: str) -> None:
        self._task = task
        self._device = device
        self.key = key

    def __await__(self) -> Any:
        return self._wait().__await__()

    @property
    def is_done(self) -> bool:
        return self._task.done()

    def cancel(self) -> None:
        """Nobody wants it any more; whoever awaits it gets REFUSED, cancelled. It may have been done already."""
        self._task.cancel()

    async def _wait(self) -> Result:
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if not self._task.cancelled() or (waiting is not None and waiting.cancelling()):
                raise
            return _cancelled(self._device, self.key)  # before it had begun


def _cancelled(device: str, key: str) -> Result:
    return Result(outcome=Outcome.REFUSED, device=device, reason=Reason.CANCELLED, request_id=key)


class Backbone(Opened):
    """Makes calls. `options` or the URL of a broker; `types` are the device types it knows.

    At most `max_open` calls are open: `call` waits for a place, `submit` raises `Full`.
    """

    def __init__(
        self,
        options: Options | str = "mqtt://localhost",
        types: Iterable[DeviceType] = (SHELF_LABEL,),
        *,
        name: str = "",
        retry: Retry | None = None,
        max_open: int = 10_000,
        observer: Observer | None = None,
        random: Random | None = None,
    ) -> None:
        self.options = Options(url=options) if isinstance(options, str) else options
        self.types = Types(tuple(types))
        self.name = check_name("name", name or new_name("caller"))
        self.retry = retry or Retry()
        self.observer = observer
        self.counters: Counter[str] = Counter()
        self._random = random or Random()
        self._queue: TaskQueue = make_queue(self.options, self.name)
        self._store: ReturnStore | None = None
        if not all(each.can_echo for each in self.types.all):
            self._store = make_store(self.options, self.name)
        self._calls: Calls[asyncio.Future[Reply]] = Calls(
            self.name, Signer(self.options.secret), secrets.randbits(48)
        )
        self._tokens = TokenClock()
        self._max_open = max_open
        self._room = asyncio.Semaphore(max_open)
        self._out = {
            name: Bundler(
                self._sender(name),
                limit=_BUNDLE,
                at_once=self._queue.sends_at_once,
                pause=self._queue.pause,
                size=request_size,
                max_size=MAX_BUNDLE_BYTES,
            )
            for name in PRIORITIES
        }
        self._cancelled: Bundler[str] = Bundler(self._tell_cancelled, limit=1000, at_once=1)
        self._tickets: set[asyncio.Task[Result]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._address = ""

    async def open(self) -> None:
        """Connect; raises `Unavailable`."""
        await self._queue.open()
        if self._store is not None:
            await self._store.open()
        self._address = await self._queue.open_inbox(self.name, self._on_replies)

    async def close(self) -> None:
        """Calls that are open end as cancelled."""
        for task in self._tickets:
            task.cancel()
        if self._tickets:
            await asyncio.wait(self._tickets)
        self._calls.each(lambda call: self._end(call, Outcome.REFUSED, Reason.CANCELLED))
        if self._timer is not None:
            self._timer.cancel()
        for bundler in (*self._out.values(), self._cancelled):
            await bundler.close()
        await self._queue.close()
        if self._store is not None:
            await self._store.close()

    async def call(
        self,
        device: str,
        method: str,
        fields: Mapping[str, Any] | None = None,
        *,
        deadline: float = 10.0,
        priority: str = "normal",
        key: str = "",
        token: int = 0,
        task: str = "",
    ) -> Result:
        """Tell a device something and wait for its answer, at most `deadline` seconds. Raises only for `priority`
        and `deadline` that are none: what can happen to a call is a `Result`.

        `key`: the same for repetitions of one call, also by another process; the device obeys it once. `token`: orders
        calls to one device, larger is newer. Both are made up if absent. Cancelling the task that waits forgets the
        call, and tells the routers, which drop it if it has not been sent.
        """
        if priority not in PRIORITIES:
            raise RpcError(f"priority {priority!r}", hint=f"use one of {', '.join(PRIORITIES)}")
        if not deadline <= LONGEST:
            raise RpcError(f"a deadline of {deadline} seconds", hint="give seconds from now, at most a day")
        began = time.time()
        result = await self._call(
            device, method, fields or {}, began + deadline, priority, key, token, began, task
        )
        result.seconds = time.time() - began
        self.counters[result.outcome] += 1
        if result.reason:
            self.counters[f"{result.outcome}: {result.reason}"] += 1
        if self.observer is not None:
            self._observe(
                Step.REPLY, result.request_id, device, result.gateway, result.outcome, result.attempts, task
            )
        return result

    async def call_many(
        self, calls: Iterable[Call], *, deadline: float = 10.0, priority: str = "normal", task: str = ""
    ) -> list[Result]:
        """All of them at once; results in the same order."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    self.call(
                        each.device,
                        each.method,
                        each.fields,
                        deadline=deadline,
                        priority=priority,
                        key=each.key,
                        token=each.token,
                        task=task,
                    )
                )
                for each in calls
            ]
        return [each.result() for each in tasks]

    def submit(
        self,
        device: str,
        method: str,
        fields: Mapping[str, Any] | None = None,
        *,
        deadline: float = 10.0,
        priority: str = "normal",
    ) -> Ticket:
        """Fire and track: the call goes on by itself. Raises `Full`."""
        # Tickets that have not begun yet have no place, but will want one.
        if self._room.locked() or len(self._tickets) >= self._max_open:
            raise Full("as many calls are open as may be", hint="await call() instead, or raise max_open")
        key = secrets.token_hex(8)
        task = asyncio.get_running_loop().create_task(
            self._submitted(device, method, fields, deadline, priority, key)
        )
        self._tickets.add(task)
        task.add_done_callback(self._tickets.discard)
        return Ticket(task, key, device)

    def statistics(self) -> dict[str, int]:
        """Outcomes and reasons so far, what is open, and replies that came for nobody."""
        calls = self._calls
        return {
            **{str(name): count for name, count in self.counters.items()},
            "open": len(calls),
            "late": calls.late,
            "duplicate": calls.duplicate,
            "unknown": calls.unknown,
            "mismatched": calls.mismatched,
        }

    # Private: one call.

    async def _submitted(
        self,
        device: str,
        method: str,
        fields: Mapping[str, Any] | None,
        deadline: float,
        priority: str,
        key: str,
    ) -> Result:
        try:
            return await self.call(device, method, fields, deadline=deadline, priority=priority, key=key)
        except asyncio.CancelledError:
            return _cancelled(device, key)

    async def _call(
        self,
        device: str,
        method: str,
        fields: Mapping[str, Any],
        deadline: float,
        priority: str,
        key: str,
        token: int,
        now: float,
        task: str,
    ) -> Result:
        if deadline <= now:
            return Result(outcome=Outcome.EXPIRED, device=device, request_id=key)
        try:
            if not isinstance(device, str):
                raise Refusal(Reason.UNKNOWN_DEVICE, f"a device is named by text, not by {type(device).__name__}")
            if not is_text(device) or not is_text(key):
                raise Refusal(Reason.MALFORMED, "a device or key with half a character")
            kind = self.types.of(device)
            encoded = kind.encode(method, fields)
        except Refusal as refusal:
            return Result(
                outcome=Outcome.REFUSED,
                device=device,
                reason=refusal.reason,
                detail=str(refusal),
                request_id=key,
            )
        request = Request(
            correlation="",
            key=key,
            device=device,
            type=kind.name,
            method=method,
            fields=encoded,
            token=token or self._tokens.next(now),
            deadline=deadline,
            sent=now,
            reply_to=self._address,
        )
        if self._room.locked():
            try:
                async with asyncio.timeout(deadline - now):
                    await self._room.acquire()
            except TimeoutError:
                return Result(outcome=Outcome.EXPIRED, device=device, request_id=key)
        else:
            await self._room.acquire()  # without waiting
        try:
            if kind.can_echo:
                return await self._attempts(request, priority, task, self.retry.silence)
            return await self._leased(request, priority, task)
        finally:
            self._room.release()

    async def _attempts(
        self, request: Request, priority: str, task: str, silence: float | None = None
    ) -> Result:
        """Send; again if a router refused it for a reason that may pass, or nobody answers for `silence` seconds."""
        loop = asyncio.get_running_loop()
        while True:
            waiter: asyncio.Future[Reply] = loop.create_future()
            call = self._calls.open(request.device, request.deadline, waiter)
            request.correlation = call.correlation
            request.key = request.key or call.correlation
            self._watch(request.deadline)
            if self.observer is not None:
                self._observe_call(request, task)
            self._out[priority].add(request)
            again = None
            if silence is not None:
                again = loop.call_later(silence, self._send_again, request, call, priority)
            try:
                reply = await waiter
            except asyncio.CancelledError:
                self._calls.close(call.correlation)
                self._cancelled.add(call.correlation)
                self.counters["cancelled"] += 1
                raise
            finally:
                if again is not None:
                    again.cancel()
            if reply.outcome is Outcome.REFUSED and reply.reason in RETRYABLE:
                now = time.time()
                delay = self.retry.after(request.attempt, now, request.deadline, self._random)
                if delay is not None:
                    await asyncio.sleep(delay)
                    request.attempt += 1
                    request.sent = time.time()
                    self.counters["retries"] += 1
                    continue
            return Result(
                outcome=reply.outcome,
                device=request.device,
                reason=reply.reason,
                gateway=reply.gateway,
                request_id=request.key,
                attempts=request.attempt,
                data=reply.data,
            )

    async def _leased(self, request: Request, priority: str, task: str) -> Result:
        """For a device that cannot echo: nobody else calls it until its answer is here or cannot come any more."""
        assert self._store is not None
        holder = f"{self.name}/{secrets.token_hex(4)}"
        attempt = 0
        while True:
            now = time.time()
            attempt += 1
            try:
                token = await self._store.lease(request.device, holder, request.deadline - now + GRACE)
                reason = Reason.LEASED
            except Unavailable:
                token, reason = None, Reason.UNAVAILABLE
            if token is not None:
                break
            delay = min(0.5, self.retry.delay(attempt, self._random))
            if time.time() + delay >= request.deadline:
                return Result(
                    outcome=Outcome.REFUSED, device=request.device, reason=reason, request_id=request.key
                )
            await asyncio.sleep(delay)
        request.token = token
        # Without repetition: two answers cannot be told apart, and the second would be taken for the next call's.
        result = await self._attempts(request, priority, task)
        if result.outcome is not Outcome.TIMEOUT:
            # After a timeout its answer may still come, and would be taken for the next call's: let the lease run out.
            try:
                await self._store.release(request.device, holder)
            except Unavailable:
                self.counters["leases not released"] += 1
        return result

    def _send_again(self, request: Request, call: Open[asyncio.Future[Reply]], priority: str) -> None:
        """No answer at all; the same request, which the gateway knows by its key."""
        now = time.time()
        if (
            call.correlation in self._calls
            and now < request.deadline
            and request.attempt < self.retry.attempts
        ):
            request.attempt += 1
            request.sent = now
            self.counters["sent again"] += 1
            self._out[priority].add(request)
            assert self.retry.silence is not None
            asyncio.get_running_loop().call_later(
                self.retry.silence, self._send_again, request, call, priority
            )

    # Private: what all calls share.

    def _sender(self, priority: str) -> Any:
        queue = f"{ROUTING}.{priority}"

        async def send(requests: list[Request]) -> None:
            try:
                deadline = max(request.deadline for request in requests)
                await self._queue.put(queue, encode_requests(requests), deadline=deadline)
            except Unavailable as error:
                self.counters["bundles not sent"] += 1
                log.debug("requests could not be sent", extra={"error": str(error)})
                for request in requests:
                    call = self._calls.match(request.correlation, "")
                    if call is not None:
                        self._end(call, Outcome.REFUSED, Reason.UNAVAILABLE)

        return send

    async def _tell_cancelled(self, correlations: list[str]) -> None:
        """By their correlations, not their keys: a repetition of the same call is wanted."""
        try:
            await self._queue.announce("cancel", "\n".join(correlations).encode())
        except Unavailable:
            pass  # best effort: who is away has not sent it either

    def _on_replies(self, body: bytes) -> None:
        try:
            replies = decode_replies(body)
        except Malformed as error:
            self.counters["malformed replies"] += 1
            log.warning("a reply that is none", extra={"error": str(error)})
            return
        for reply in replies:
            call = self._calls.match(reply.correlation, reply.device)
            if call is not None and not call.what.done():
                call.what.set_result(reply)

    def _end(self, call: Open[asyncio.Future[Reply]], outcome: Outcome, reason: str = "") -> None:
        self._calls.close(call.correlation)
        if not call.what.done():
            call.what.set_result(
                Reply(correlation=call.correlation, device=call.device, outcome=outcome, reason=reason)
            )

    def _watch(self, deadline: float) -> None:
        """One timer for all deadlines: for the earliest."""
        if self._timer is not None and self._timer_at <= deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer_at = deadline
        self._timer = loop.call_at(loop.time() + max(0.0, deadline - time.time()), self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        # The two clocks differ by less than this; without it the timer would be set again for nothing.
        for call in self._calls.expire(time.time() + 0.001):
            self._end(call, Outcome.TIMEOUT)
        following = self._calls.next_deadline()
        if following is not None:
            self._watch(following)

    def _observe_call(self, request: Request, task: str) -> None:
        assert self.observer is not None
        self.observer.on_hop(
            Hop(
                time.time(),
                Step.CALL,
                request.key,
                request.device,
                self.name,
                attempt=request.attempt,
                task=task,
                correlation=request.correlation,
            )
        )

    def _observe(
        self, step: Step, key: str, device: str, gateway: str, outcome: str, attempt: int, task: str
    ) -> None:
        assert self.observer is not None
        self.observer.on_hop(Hop(time.time(), step, key, device, self.name, gateway, outcome, attempt, task))
