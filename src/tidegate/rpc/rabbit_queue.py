"""The queue on RabbitMQ: durable queues, publisher confirms, acknowledgement by hand, dead letters.

A put is safe when RabbitMQ has confirmed it, and is mandatory: a queue that is not there is an answer, not a loss. An
inbox is one exclusive queue for a caller's life, not one a call (spec 4, e2). Replies are published without declaring
anything: the passive declaration of a missing queue would close the channel, and with it a back router (hazard 3).
Connections come back by themselves and declare again what was theirs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Collection, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustChannel, AbstractRobustConnection
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError, PublishError
from aiormq.exceptions import ChannelAccessRefused

from tidegate.rpc.errors import Impossible, Unavailable
from tidegate.rpc.options import Options
from tidegate.rpc.protocols import Delivery, Letter, Take

T = TypeVar("T")

log = logging.getLogger(__name__)

DEAD_TASKS: Final = "dead.tasks"
_RECONNECT: Final = 0.5
_LONGEST_WAIT: Final = 10.0
_LONGEST_EXPIRATION: Final = 2_000_000.0
"""Seconds; RabbitMQ takes 2^32 milliseconds at most."""
_DELIVERY_LIMIT: Final = 20
"""Times a quorum queue gives one task to consumers that die of it, before it goes to the dead letters."""


class RabbitConsumer:
    """Takes from several queues on a channel of its own; `prefetch` bounds it."""

    def __init__(self, channel: AbstractRobustChannel, queues: Sequence[str]) -> None:
        self._channel = channel
        self._queues = queues
        self._waiting: list[deque[AbstractIncomingMessage]] = [deque() for _ in queues]
        self._arrived: asyncio.Future[None] | None = None
        self._acks: list[AbstractIncomingMessage] = []
        self._acking: asyncio.Task[None] | None = None

    async def take(self, limit: int) -> list[Delivery]:
        while not any(self._waiting):
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        taken: list[Delivery] = []
        for queue, waiting in zip(self._queues, self._waiting, strict=True):
            while waiting and len(taken) < limit:
                message = waiting.popleft()
                taken.append(Delivery(queue, message.body, partial(self._ack, message)))
        return taken

    async def close(self) -> None:
        if self._acking is not None:
            await asyncio.wait([self._acking])
        await _quietly(self._channel.close())

    async def on_message(self, place: int, message: AbstractIncomingMessage) -> None:
        self._waiting[place].append(message)
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def _ack(self, message: AbstractIncomingMessage) -> None:
        self._acks.append(message)
        if self._acking is None:
            self._acking = asyncio.get_running_loop().create_task(self._send_acks())

    async def _send_acks(self) -> None:
        try:
            while self._acks:
                message = self._acks.pop(0)
                try:
                    await _reach(message.ack())
                except Exception:  # its channel is gone: RabbitMQ delivers it again
                    log.debug("not acknowledged", exc_info=True)
        finally:
            self._acking = None


class RabbitQueue:
    """See `protocols.TaskQueue`."""

    # A publish costs some hundred microseconds here and at who takes it: fewer and larger ones.
    sends_at_once = 1
    pause = 0.005

    def __init__(self, options: Options, name: str) -> None:
        self._options = options
        self._name = name
        self._connection: AbstractRobustConnection | None = None
        self._out: AbstractRobustChannel | None = None
        self._in: AbstractRobustChannel | None = None
        self._declared: set[str] = set()
        self._notes: aio_pika.abc.AbstractExchange | None = None

    async def open(self) -> None:
        self._connection = await _reach(
            aio_pika.connect_robust(
                self._options.amqp, reconnect_interval=_RECONNECT, timeout=_LONGEST_WAIT, heartbeat=10
            )
        )
        self._out = await self._channel(on_return_raises=True)
        self._in = await self._channel(publisher_confirms=False)
        self._notes = await _reach(
            self._out.declare_exchange(self._full("notes"), aio_pika.ExchangeType.DIRECT, durable=True)
        )

    async def close(self) -> None:
        if self._connection is not None:
            await _quietly(self._connection.close())

    async def put(self, queue: str, body: bytes, *, deadline: float | None) -> None:
        await self._declare(queue)
        seconds = None
        if deadline is not None:
            seconds = min(max(0.001, deadline - time.time()), _LONGEST_EXPIRATION)
        # RabbitMQ confirms what is to be on disk when it is, which takes it up to some hundred milliseconds. Requests
        # live no longer than the caller who made them and would send them again; tasks do.
        is_durable = not queue.startswith("routing.")
        if not await self._publish(self._full(queue), body, expiration=seconds, is_durable=is_durable):
            # Somebody deleted it: declare it again next time.
            self._declared.discard(queue)
            raise Unavailable(f"the queue {queue!r} is gone", hint="try again")

    async def consume(self, queues: Sequence[str], *, prefetch: int) -> RabbitConsumer:
        channel = await self._channel(publisher_confirms=False)
        # For each consumer of the channel: so much of every priority, and no more.
        await _reach(channel.set_qos(prefetch_count=min(prefetch, 65_535)))
        consumer = RabbitConsumer(channel, queues)
        for name in queues:
            await self._declare(name)
        for place, name in enumerate(queues):
            queue = await _reach(
                channel.declare_queue(self._full(name), durable=True, arguments=self._arguments(name))
            )
            await _reach(queue.consume(partial(consumer.on_message, place)))
        return consumer

    async def open_inbox(self, caller: str, take: Take) -> str:
        assert self._in is not None
        name = self._full(f"reply.{caller}")

        async def on_message(message: AbstractIncomingMessage) -> None:
            take(message.body)

        # Named by us, so that it has the same name after a reconnect, and replies under way find it.
        queue = await _reach(self._in.declare_queue(name, exclusive=True, auto_delete=True))
        await _reach(queue.consume(on_message, no_ack=True))
        return name

    async def reply(self, address: str, body: bytes, *, deadline: float) -> bool:
        return await self._publish(address, body, expiration=max(0.001, deadline - time.time()))

    async def announce(self, kind: str, body: bytes) -> None:
        assert self._notes is not None
        await _reach(self._notes.publish(aio_pika.Message(body), routing_key=kind, mandatory=False))

    async def listen(self, kind: str, take: Take) -> None:
        assert self._in is not None and self._notes is not None

        async def on_message(message: AbstractIncomingMessage) -> None:
            take(message.body)

        queue = await _reach(self._in.declare_queue(exclusive=True, auto_delete=True))
        await _reach(queue.bind(self._notes, kind))
        await _reach(queue.consume(on_message, no_ack=True))

    async def bury(self, queue: str, letter: Letter) -> None:
        await self._declare(f"dead.{queue}")
        if not await self._publish(
            self._full(f"dead.{queue}"), letter.body, message_id=letter.id, is_durable=True
        ):
            raise Unavailable("the queue of dead letters is gone", hint="try again")

    async def dead(self, queue: str) -> list[Letter]:
        return await self._search(queue, ())

    async def exhume(self, queue: str, letter_ids: Collection[str]) -> set[str]:
        wanted = set(letter_ids)
        return {letter.id for letter in await self._search(queue, wanted)} & wanted

    async def backlog(self, queue: str) -> int | None:
        channel = await self._channel(publisher_confirms=False)
        try:
            declared = await _reach(
                channel.declare_queue(self._full(queue), durable=True, arguments=self._arguments(queue))
            )
            return declared.declaration_result.message_count
        finally:
            await _quietly(channel.close())

    async def _search(self, queue: str, taken: Collection[str]) -> list[Letter]:
        """Look through the dead letters and leave them, but take out those with these ids."""
        name = f"dead.{queue}"
        channel = await self._channel(publisher_confirms=False)
        try:
            declared = await _reach(
                channel.declare_queue(self._full(name), durable=True, arguments=self._arguments(name))
            )
            letters = []
            while (message := await _reach(declared.get(fail=False))) is not None:
                letter = Letter(message.message_id or "", message.body)
                letters.append(letter)
                if letter.id in taken:
                    await _reach(message.ack())
            return letters
        finally:
            # What was got and not acknowledged goes back to its place.
            await _quietly(channel.close())

    async def _channel(self, **settings: Any) -> AbstractRobustChannel:
        assert self._connection is not None
        channel = self._connection.channel(**settings)
        await _reach(channel.initialize())
        return channel

    async def _declare(self, queue: str) -> None:
        if queue not in self._declared:
            assert self._out is not None
            if queue.startswith("tasks."):
                # Where RabbitMQ puts a task that killed all who took it; it would drop it if that were not there.
                await self._declare(DEAD_TASKS)
            await _reach(
                self._out.declare_queue(self._full(queue), durable=True, arguments=self._arguments(queue))
            )
            self._declared.add(queue)

    def _arguments(self, queue: str) -> dict[str, Any]:
        # Looking at dead letters gives all of them back, which quorum queues allow a number of times only.
        if queue.startswith(("routing.", "dead.")):
            return {"x-queue-type": "classic"}
        arguments: dict[str, Any] = {"x-queue-type": self._options.queue_type}
        if queue.startswith("tasks."):
            arguments["x-dead-letter-exchange"] = ""
            arguments["x-dead-letter-routing-key"] = self._full(DEAD_TASKS)
            if self._options.queue_type == "quorum":
                arguments["x-delivery-limit"] = _DELIVERY_LIMIT
        return arguments

    def _full(self, name: str) -> str:
        return f"tide.rpc.{self._options.namespace}.{name}"

    async def _publish(
        self,
        queue: str,
        body: bytes,
        *,
        expiration: float | None = None,
        message_id: str | None = None,
        is_durable: bool = False,
    ) -> bool:
        """Confirmed; False if there is no such queue."""
        assert self._out is not None
        message = aio_pika.Message(
            body,
            expiration=expiration,
            message_id=message_id,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT
            if is_durable
            else aio_pika.DeliveryMode.NOT_PERSISTENT,
        )
        try:
            await _reach(self._out.default_exchange.publish(message, queue, mandatory=True), PublishError)
        except PublishError:
            return False
        return True


async def _reach(work: Awaitable[T], *passed: type[Exception]) -> T:
    """RabbitMQ's faults as this room's error; those of `passed` as they are."""
    try:
        async with asyncio.timeout(_LONGEST_WAIT):
            return await work
    except passed:
        raise
    except ChannelAccessRefused as error:
        raise Impossible(f"RabbitMQ: {error}", hint="check what this user may do") from error
    except (AMQPError, OSError, TimeoutError, ChannelInvalidStateError) as error:
        raise Unavailable(f"RabbitMQ: {error or type(error).__name__}", hint="check that it runs") from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        # A connection that ends is sometimes told by no class of its own.
        raise Unavailable(f"RabbitMQ: {error or 'unknown'}", hint="check that it runs") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # A connection that ends cancels what waits for it; nobody cancelled us.
        raise Unavailable("RabbitMQ: the connection ended", hint="check that it runs") from None


async def _quietly(work: Awaitable[object]) -> None:
    """Closing what may be closed already."""
    try:
        await _reach(work)
    except Unavailable as error:
        log.debug("not closed in order", extra={"error": str(error)})
