"""The forward router: takes requests from the queue, finds their gateways, and publishes them there.

It keeps nothing a request needs: the return address is stored (or in the correlation) before the request is published,
and a bundle is acknowledged after the broker has what was in it (hazard 4). Whatever cannot be sent is answered at once
by name. Any number of them may run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tidegate.client import Message
from tidegate.errors import TidegateError
from tidegate.rpc.backbone import ROUTING
from tidegate.rpc.backends import make_queue, make_store
from tidegate.rpc.budget import Budget
from tidegate.rpc.deadline import LONGEST, message_expiry, time_to_live
from tidegate.rpc.errors import Malformed, Refusal, Unavailable
from tidegate.rpc.fencing import Recent
from tidegate.rpc.inflight import Windows
from tidegate.rpc.labels import SHELF_LABEL
from tidegate.rpc.messages import MAX_BUNDLE_BYTES, PRIORITIES, Reply, Request, decode_requests
from tidegate.rpc.opened import Opened
from tidegate.rpc.options import Options, check_name, new_name
from tidegate.rpc.outcome import Outcome, Reason
from tidegate.rpc.protocols import Consumer, Delivery, Entry, ReturnStore
from tidegate.rpc.returning import Returning
from tidegate.rpc.schema import DeviceType, Names, Types
from tidegate.rpc.stats import Meter
from tidegate.rpc.telemetry import Hop, Observer, Step

log = logging.getLogger(__name__)

PREFETCH = 256  # bundles a router may hold
_BATCH = 64  # bundles taken together: one round trip to the store for all of them
_AT_ONCE = 4  # batches under way: while one waits for PUBACKs, the next is read
_FURTHEST = 2.0 * LONGEST  # seconds to a deadline: clocks differ, but not by a day

_dumps = json.JSONEncoder(separators=(",", ":")).encode


class ForwardRouter(Opened):
    """`prefetch` bounds what it holds; `budget` limits its processor time, and `store` is another than the
    backend's, for experiments."""

    def __init__(
        self,
        options: Options,
        types: Iterable[DeviceType] = (SHELF_LABEL,),
        *,
        name: str = "",
        prefetch: int = PREFETCH,
        observer: Observer | None = None,
        budget: Budget | None = None,
        store: ReturnStore | None = None,
    ) -> None:
        self.options = options
        self.types = Types(tuple(types))
        self.name = check_name("name", name or new_name("fwd"))
        self.observer = observer
        self.counters: Counter[str] = Counter()
        self.windows = Windows(options.window)
        self.meter = Meter()
        self._budget = budget
        self._prefetch = prefetch
        self._queue = make_queue(options, self.name)
        self._store = store or make_store(options, self.name)
        self._client = options.client(f"rpc-{options.namespace}-{self.name}-out")
        self._returning = Returning(self._queue, self.counters)
        self._cancelled: Recent[bool] = Recent(10_000)
        self._consumer: Consumer | None = None
        self._topics: dict[tuple[str, str], str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and begin; raises `Unavailable`."""
        await self._queue.open()
        await self._store.open()
        try:
            await self._client.connect()
            await self._client.subscribe(f"{self.options.root}/done/{self.name}", callback=self._on_done)
        except TidegateError as error:
            raise Unavailable(f"the MQTT broker: {error}", hint=getattr(error, "hint", "")) from error
        await self._queue.listen("cancel", self._on_cancel)
        self._consumer = await self._queue.consume(
            [f"{ROUTING}.{priority}" for priority in PRIORITIES], prefetch=self._prefetch
        )
        self._runner = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def close(self, patience: float = 5.0) -> None:
        """Stop taking, finish what is under way, leave. What is not finished after `patience` seconds is not
        acknowledged, and goes to another."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._returning.close()
        if self._consumer is not None:
            await self._consumer.close()
        await self._client.disconnect(session_expiry_interval=0)
        await self._store.close()
        await self._queue.close()

    async def wait_closed(self) -> None:
        """Until it ends, which is a fault unless somebody closed it."""
        assert self._runner is not None
        await asyncio.wait([self._runner])
        if not self._runner.cancelled():
            self._runner.result()

    def statistics(self) -> dict[str, int]:
        return {**self.counters, "in flight": len(self.windows)}

    async def _run(self) -> None:
        assert self._consumer is not None
        limit = asyncio.Semaphore(_AT_ONCE)
        loop = asyncio.get_running_loop()
        while True:
            await limit.acquire()
            deliveries = await self._consumer.take(_BATCH)
            task = loop.create_task(self._handle(deliveries))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: limit.release())
            if self._budget is not None:
                await self._budget.wait()

    async def _handle(self, deliveries: list[Delivery]) -> None:
        began = time.thread_time()
        requests: list[Request] = []
        for delivery in deliveries:
            try:
                requests += decode_requests(delivery.body)
            except Malformed as error:
                self.counters["malformed"] += 1
                log.warning("a bundle of requests is malformed", extra={"error": str(error)})
        now = time.time()
        self.counters["taken"] += len(requests)
        for request in requests:
            self.meter.arrived(now - request.sent)
            if self.observer is not None:
                self._observe(Step.FORWARD, request, now)
        kept = self._sort_out(requests, now)
        try:
            await self._send_all(kept, now, began)
        except Exception as error:  # any: what is never acknowledged stops its consumer, and then the next one
            log.warning(
                "requests could not be sent",
                exc_info=not isinstance(error, Unavailable),
                extra={"error": str(error)},
            )
            for request, _ in kept:
                self._refuse(request, Reason.UNAVAILABLE)
        for delivery in deliveries:
            delivery.ack()

    def _sort_out(self, requests: list[Request], now: float) -> list[tuple[Request, DeviceType]]:
        """Those that can be sent; the others are answered."""
        kept = []
        for request in requests:
            if request.correlation in self._cancelled:
                self._refuse(request, Reason.CANCELLED)
                continue
            if request.deadline <= now:
                self._answer(request, Outcome.EXPIRED, "")
                continue
            if request.deadline > now + _FURTHEST:
                self._refuse(request, Reason.MALFORMED)
                continue
            try:
                kind = self.types.named(request.type)
                kind.method(request.method)
            except Refusal as refusal:
                self._refuse(request, refusal.reason)
                continue
            kept.append((request, kind))
        return kept

    async def _send_all(self, kept: list[tuple[Request, DeviceType]], now: float, began: float) -> None:
        echoing = [each for each in kept if each[1].can_echo]
        silent = [each for each in kept if not each[1].can_echo]
        entries, unechoed = ([self._entry(r, now) for r, _ in part] for part in (echoing, silent))
        if self._budget is not None:
            # Not over an await: others use the processor meanwhile.
            self._budget.spend(time.thread_time() - began)
        gateways = await self._store.send_off(entries, unechoed) if kept else []
        began = time.thread_time()
        # By name: the hash of a whole device type would cost more than the rest of this.
        by_target: defaultdict[tuple[str, str], list[Request]] = defaultdict(list)
        for (request, kind), gateway in zip((*echoing, *silent), gateways, strict=True):
            if gateway is None:
                self._refuse(request, Reason.NO_ROUTE)
            elif not self.windows.take(gateway, request.deadline, now):
                self._refuse(request, Reason.BUSY)
            else:
                by_target[gateway, kind.name].append(request)
        sends = []
        for (gateway, name), requests in by_target.items():
            kind = self.types.named(name)
            sends += [self._publish(gateway, kind, *each) for each in _messages(requests, kind)]
        if self._budget is not None:
            self._budget.spend(time.thread_time() - began)
        if len(sends) == 1:
            await sends[0]
        elif sends:
            await asyncio.gather(*sends)

    def _entry(self, request: Request, now: float) -> Entry:
        return Entry(
            request.device, request.correlation, request.reply_to, time_to_live(request.deadline, now)
        )

    async def _publish(
        self, gateway: str, kind: DeviceType, requests: list[Request], texts: list[str]
    ) -> None:
        began = time.thread_time()
        via = self.name
        if kind.bundle == 1:
            # A gateway that takes one at a time may know no more than MQTT 5: its answer echoes this.
            via = f"{via}|{requests[0].correlation}"
        topic = self._topics.get((gateway, kind.name))
        if topic is None:
            topic = self._topics[gateway, kind.name] = kind.topics.action.format(gateway=gateway)
        body = f"[{','.join(texts)}]" if kind.bundle > 1 else texts[0]
        deadline = max(request.deadline for request in requests)
        sending = self._client.publish(
            topic,
            body,
            qos=1,
            retain=False,  # hazard 8: a gateway that comes back must not repeat the last command
            message_expiry_interval=message_expiry(deadline, time.time()),
            response_topic=kind.topics.response.format(gateway=gateway),
            correlation_data=via.encode(),
            timeout=max(0.1, deadline - time.time()),
        )
        if self._budget is not None:
            self._budget.spend(time.thread_time() - began)
        try:
            await sending
        except TidegateError as error:
            log.warning("a gateway could not be told", extra={"gateway": gateway, "error": str(error)})
            for request in requests:
                self._refuse(request, Reason.UNAVAILABLE)
            self.windows.answered(gateway, len(requests))
            return
        self.counters["sent"] += len(requests)
        self.counters["messages"] += 1
        if self.observer is not None:
            now = time.time()
            for request in requests:
                self._observe(Step.PUBLISHED, request, now, gateway)

    def _refuse(self, request: Request, reason: str) -> None:
        self._answer(request, Outcome.REFUSED, reason)

    def _answer(self, request: Request, outcome: Outcome, reason: str) -> None:
        self.counters[f"{outcome}: {reason}" if reason else outcome] += 1
        reply = Reply(correlation=request.correlation, device=request.device, outcome=outcome, reason=reason)
        self._returning.add(request.reply_to, reply)

    def _on_done(self, message: Message) -> None:
        """A back router tells how many of ours were answered at which gateways."""
        try:
            for gateway, count in message.json().items():
                self.windows.answered(str(gateway), int(count))
        except (ValueError, AttributeError, TypeError):
            self.counters["malformed"] += 1

    def _on_cancel(self, body: bytes) -> None:
        for correlation in body.decode(errors="replace").split("\n"):
            self._cancelled.put(correlation, True)

    def _observe(self, step: Step, request: Request, now: float, gateway: str = "") -> None:
        assert self.observer is not None
        self.observer.on_hop(
            Hop(now, step, request.key, request.device, self.name, gateway, "", request.attempt)
        )


def _messages(requests: list[Request], kind: DeviceType) -> Iterator[tuple[list[Request], list[str]]]:
    """Requests for one gateway, as many together as may be, with their texts."""
    start, size = 0, 0
    texts: list[str] = []
    for place, request in enumerate(requests):
        text = _encode(request, kind, kind.names)
        if texts and (len(texts) == kind.bundle or size + len(text) > MAX_BUNDLE_BYTES):
            yield requests[start:place], texts
            start, size, texts = place, 0, []
        texts.append(text)
        size += len(text)
    yield requests[start:], texts


def _encode(request: Request, kind: DeviceType, names: Names) -> str:
    """A request as its gateways know it."""
    content = {
        names.device: request.device,
        names.method: kind.code(request.method),
        names.fields: request.fields,
        names.id: request.correlation,
        names.key: request.key,
        names.token: request.token,
        names.deadline: request.deadline,
    }
    content.pop("", None)
    return _dumps(content)
