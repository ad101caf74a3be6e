"""The back router: takes what gateways answer, finds who asked, and sends it there.

All of them share one subscription, so any may get any reply; that is no misrouting, since none of them holds a caller's
connection. A message of a gateway is acknowledged after its replies were handed on. Replies to nobody are counted and
dropped (hazards 2 and 3), forged ones as well.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tidegate.client import Message
from tidegate.errors import TidegateError
from tidegate.rpc.backends import make_queue, make_store
from tidegate.rpc.budget import Budget
from tidegate.rpc.bundler import Bundler
from tidegate.rpc.errors import Malformed, Refusal, Unavailable
from tidegate.rpc.labels import SHELF_LABEL
from tidegate.rpc.messages import Reply, is_text
from tidegate.rpc.opened import Opened
from tidegate.rpc.options import BackendName, Options, check_name, new_name
from tidegate.rpc.outcome import Outcome, Reason
from tidegate.rpc.protocols import Address, ReturnStore
from tidegate.rpc.returning import Returning
from tidegate.rpc.schema import DeviceType, Types
from tidegate.rpc.telemetry import Hop, Observer, Step

log = logging.getLogger(__name__)

GROUP = "router-bck-group"
_MAX_SIZE = 1 << 20  # bytes of one answer; a bundle of replies has some kilobytes
_TELL_EVERY = 0.05
_TRIES = 50
_PAUSE = 0.2  # 10 s in all: a store that is away longer has forgotten the addresses anyway


def shared_filter(response: str, namespace: str = "main", backend: str = BackendName.RABBITMQ_REDIS) -> str:
    """What back routers subscribe to: a group and a filter, not the bare prefix of the thesis's text (hazard 11), and a
    name that gateways do not use (hazard 13). Routers of the other backend know nobody of whom these answers speak."""
    suffix = "" if backend == BackendName.RABBITMQ_REDIS else f"-{backend}"
    suffix += "" if namespace == "main" else f"-{namespace}"
    return f"$share/{GROUP}{suffix}/{response.format(gateway='+')}"


class _Answer(NamedTuple):
    """One reply as its gateway sent it."""

    device: str
    correlation: str
    is_ack: bool
    reason: str
    data: dict[str, Any]
    gateway: str
    done: Callable[[], None]


class BackRouter(Opened):
    """Any number of them may run; `budget` limits its processor time, and `store` is another than the
    backend's, for experiments."""

    def __init__(
        self,
        options: Options,
        types: Iterable[DeviceType] = (SHELF_LABEL,),
        *,
        name: str = "",
        prefetch: int = 1000,
        observer: Observer | None = None,
        budget: Budget | None = None,
        store: ReturnStore | None = None,
    ) -> None:
        self.options = options
        self.types = Types(tuple(types))
        self.name = check_name("name", name or new_name("bck"))
        self.observer = observer
        self.counters: Counter[str] = Counter()
        self._budget = budget
        self._queue = make_queue(options, self.name)
        self._store = store or make_store(options, self.name)
        self._returning = Returning(self._queue, self.counters)
        self._client = options.client(
            f"rpc-{options.namespace}-{self.name}-in", manual_ack=True, receive_maximum=prefetch
        )
        self._tell = options.client(f"rpc-{options.namespace}-{self.name}-tell")
        self._found: Bundler[_Answer] = Bundler(self._find, limit=256, at_once=4, pause=self._queue.pause)
        self._answered: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._telling: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Connect and begin; raises `Unavailable`."""
        await self._queue.open()
        await self._store.open()
        try:
            await self._tell.connect()
            await self._client.connect()
            for response, kinds in self.types.by_topic("response").items():
                await self._client.subscribe(
                    shared_filter(response, self.options.namespace, self.options.backend),
                    qos=1,
                    callback=partial(self._on_message, kinds),
                )
        except TidegateError as error:
            raise Unavailable(f"the MQTT broker: {error}", hint=getattr(error, "hint", "")) from error

    async def close(self) -> None:
        """Stop taking, hand on what is here, leave."""
        try:
            async with asyncio.timeout(2.0):
                await self._found.drain()
        except TimeoutError:
            pass  # it is not acknowledged, so another gets it
        await self._found.close()
        await self._returning.close()
        if self._telling is not None:
            self._telling.cancel()
        await self._client.disconnect(session_expiry_interval=0)
        await self._tell.disconnect(session_expiry_interval=0)
        await self._store.close()
        await self._queue.close()

    async def wait_closed(self) -> None:
        await self._client.wait_closed()

    def statistics(self) -> dict[str, int]:
        forged = getattr(self._store, "forged", 0)
        return {**self.counters, "forged": forged} if forged else dict(self.counters)

    async def _on_message(self, kinds: Sequence[DeviceType], message: Message) -> None:
        if self._budget is not None:
            await self._budget.wait()
        began = time.thread_time()
        try:
            topics = kinds[0].topics
            gateway = topics.gateway(topics.response, message.topic)
            via, _, single = (message.correlation_data or b"").decode(errors="replace").partition("|")
            rows = _read(message.payload)
        except Malformed as error:
            self.counters["malformed"] += 1
            log.warning("an answer that is none", extra={"topic": message.topic, "error": str(error)})
            message.ack()
            return
        self.counters["taken"] += len(rows)
        done = _Countdown(len(rows), message.ack)
        for row in rows:
            self._found.add(self._parse(row, kinds, single, gateway, done))
        if via:
            self._answered[via][gateway] += len(rows)
            if self._telling is None:
                self._telling = asyncio.get_running_loop().call_later(_TELL_EVERY, self._tell_routers)
        if self._budget is not None:
            self._budget.spend(time.thread_time() - began)

    def _parse(
        self,
        row: dict[str, Any],
        kinds: Sequence[DeviceType],
        single: str,
        gateway: str,
        done: Callable[[], None],
    ) -> _Answer:
        names = kinds[0].names  # the same for all that share a topic
        device, is_ack = row.get(names.device), row.get(names.ack)
        reason, data = row.get(names.reason, ""), row.get(names.data, {})
        # Counted as an answer to nobody, so that the others of its message are not lost with it.
        nobody = _Answer("", "?", False, "", {}, gateway, done)
        if not isinstance(device, str) or not is_text(device) or not isinstance(is_ack, bool):
            return nobody
        # What cannot echo is found by its device, whatever else it says.
        correlation = row.get(names.id, single) if self._can_echo(device, kinds) else ""
        if not isinstance(correlation, str) or not is_text(correlation):
            return nobody
        if not isinstance(data, dict):
            data = {}
        return _Answer(device, correlation, is_ack, str(reason)[:200], data, gateway, done)

    def _can_echo(self, device: str, kinds: Sequence[DeviceType]) -> bool:
        if len(kinds) == 1:
            return kinds[0].can_echo
        try:
            return self.types.of(device).can_echo
        except Refusal:
            return True

    async def _find(self, answers: list[_Answer]) -> None:
        addresses = await self._addresses([(each.device, each.correlation) for each in answers])
        began = time.thread_time()
        now = time.time()
        for answer, address in zip(answers, addresses, strict=True):
            if address is None:
                self.counters["answers to nobody"] += 1
                answer.done()
            else:
                self._hand_on(answer, address, now)
        if self._budget is not None:
            self._budget.spend(time.thread_time() - began)

    def _hand_on(self, answer: _Answer, address: Address, now: float) -> None:
        reply = Reply(
            correlation=address.correlation,
            device=answer.device,
            outcome=Outcome.ACK if answer.is_ack else Outcome.NACK,
            reason=answer.reason or ("" if answer.is_ack else Reason.DEVICE),
            gateway=answer.gateway,
            data=answer.data,
        )
        self._returning.add(address.reply_to, reply, answer.done)
        if self.observer is not None:
            self.observer.on_hop(
                Hop(
                    now,
                    Step.BACK,
                    "",
                    answer.device,
                    self.name,
                    answer.gateway,
                    reply.outcome,
                    correlation=address.correlation,
                )
            )

    async def _addresses(self, keys: list[tuple[str, str]]) -> list[Address | None]:
        for _ in range(_TRIES):
            try:
                return await self._store.take(keys)
            except Unavailable as error:
                self.counters["store away"] += 1
                log.warning("return addresses cannot be read", extra={"error": str(error)})
                await asyncio.sleep(_PAUSE)
            except Exception:  # whatever it is: answers that are never done with stop those that follow
                log.exception("return addresses cannot be read")
                break
        return [None] * len(keys)

    def _tell_routers(self) -> None:
        """How many were answered: each forward router learns what it may send on."""
        self._telling = None
        for via, counts in self._answered.items():
            topic = f"{self.options.root}/done/{via}"
            try:
                self._tell.publish_nowait(topic, json.dumps(counts, separators=(",", ":")))
            except TidegateError:
                self.counters["not told"] += 1  # their windows open by the deadlines, then
        self._answered.clear()


class _Countdown:
    """Calls `act` when it was called so many times."""

    __slots__ = ("_act", "_left")

    def __init__(self, count: int, act: Callable[[], None]) -> None:
        self._left = count
        self._act = act
        if not count:
            act()

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._act()


def _read(payload: bytes) -> list[Any]:
    """The objects of an answer, alone or in an array."""
    if len(payload) > _MAX_SIZE:
        raise Malformed(f"{len(payload)} bytes, at most {_MAX_SIZE}")
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):
        raise Malformed(f"{len(payload)} bytes that are no JSON") from None
    rows = content if isinstance(content, list) else [content]
    if not all(isinstance(row, dict) for row in rows):
        raise Malformed("an answer that is no object")
    return rows
