"""The queue on MQTT alone: a queue is a shared subscription at QoS 1, an inbox a topic, a dead letter is retained.

What the broker promises is what the queue promises: PUBACK means that it is safe (on disk, if the broker has a data
folder), and an unacknowledged message goes to another member or comes again. Consumers have connections of their own,
because acknowledgements leave in order: a task that takes minutes must not hold back replies.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from tidegate.client import Client, Message
from tidegate.errors import TidegateError
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.errors import PacketTooLarge
from tidegate.rpc.deadline import message_expiry
from tidegate.rpc.errors import Impossible, Unavailable
from tidegate.rpc.options import Options, new_name
from tidegate.rpc.protocols import Delivery, Letter, Take

T = TypeVar("T")

_LONGEST_WAIT = 10.0
_FINAL = (ReasonCode.NOT_AUTHORIZED, ReasonCode.PACKET_TOO_LARGE, ReasonCode.TOPIC_NAME_INVALID)


class MqttConsumer:
    """One member of the groups of some queues. Bounded by `prefetch`, its Receive Maximum: the broker has the rest."""

    def __init__(self, client: Client, queues: Sequence[str]) -> None:
        self._client = client
        self._queues = queues
        self._waiting: list[deque[Message]] = [deque() for _ in queues]
        self._arrived: asyncio.Future[None] | None = None

    async def start(self, filters: Sequence[str]) -> None:
        await self._client.connect()
        for place, topic_filter in enumerate(filters):
            await self._client.subscribe(topic_filter, qos=1, callback=partial(self._on_message, place))

    async def take(self, limit: int) -> list[Delivery]:
        while not any(self._waiting):
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        taken: list[Delivery] = []
        for queue, waiting in zip(self._queues, self._waiting, strict=True):
            while waiting and len(taken) < limit:
                message = waiting.popleft()
                taken.append(Delivery(queue, message.payload, message.ack))
        return taken

    async def close(self) -> None:
        # The session ends here and now: what we have goes to others at once.
        await self._client.disconnect(session_expiry_interval=0)

    def _on_message(self, place: int, message: Message) -> None:
        self._waiting[place].append(message)
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)


class MqttQueue:
    """See `protocols.TaskQueue`."""

    sends_at_once = 2
    pause = 0.0

    def __init__(self, options: Options, name: str) -> None:
        self._options = options
        self._root = options.root
        self._name = name
        self._client = options.client(f"rpc-{options.namespace}-{name}")

    async def open(self) -> None:
        await _reach(self._client.connect())

    async def close(self) -> None:
        await self._client.disconnect(session_expiry_interval=0)

    async def put(self, queue: str, body: bytes, *, deadline: float | None) -> None:
        if not await self._send(f"{self._root}/queue/{queue}", body, deadline):
            raise Unavailable(
                f"nobody serves the queue {queue!r}", hint="start a worker or router for it, then try again"
            )

    async def consume(self, queues: Sequence[str], *, prefetch: int) -> MqttConsumer:
        client = self._options.client(
            f"rpc-{self._options.namespace}-{new_name('take')}",
            manual_ack=True,
            receive_maximum=min(prefetch, 65_535),
            receive_queue_size=max(prefetch, 1000),
        )
        consumer = MqttConsumer(client, queues)
        group = f"rpc-{self._options.namespace}"
        await _reach(consumer.start([f"$share/{group}/{self._root}/queue/{queue}" for queue in queues]))
        return consumer

    async def open_inbox(self, caller: str, take: Take) -> str:
        await self._subscribe(f"{self._root}/reply/{caller}", 1, lambda message: take(message.payload))
        return caller

    async def reply(self, address: str, body: bytes, *, deadline: float) -> bool:
        if "/" in address or "+" in address or "#" in address or not address:
            return False
        return await self._send(f"{self._root}/reply/{address}", body, deadline)

    async def announce(self, kind: str, body: bytes) -> None:
        await _reach(self._client.publish(f"{self._root}/note/{kind}", body))

    async def listen(self, kind: str, take: Take) -> None:
        await self._subscribe(f"{self._root}/note/{kind}", 0, lambda message: take(message.payload))

    async def bury(self, queue: str, letter: Letter) -> None:
        topic = f"{self._root}/dead/{queue}/{letter.id}"
        await _reach(self._client.publish(topic, letter.body, qos=1, retain=True))

    async def dead(self, queue: str) -> list[Letter]:
        root = f"{self._root}/dead/{queue}/"
        messages = await _reach(self._retained(root))
        return [Letter(message.topic.removeprefix(root), message.payload) for message in messages]

    async def exhume(self, queue: str, letter_ids: Collection[str]) -> set[str]:
        found = {letter.id for letter in await self.dead(queue)} & set(letter_ids)
        for letter_id in found:
            topic = f"{self._root}/dead/{queue}/{letter_id}"
            await _reach(self._client.publish(topic, b"", qos=1, retain=True))
        return found

    async def backlog(self, queue: str) -> int | None:
        return None  # MQTT has no question for it; routers report how long what they got has waited

    async def _retained(self, root: str) -> list[Message]:
        """Retained messages below `root`, which ends with a slash; they come before what is published afterwards."""
        end = f"{root}end-{secrets.token_hex(4)}"
        found: list[Message] = []
        async with asyncio.timeout(_LONGEST_WAIT):
            async with self._client.subscribed(f"{root}+", qos=1) as messages:
                await self._client.publish(end, b"", qos=1)
                async for message in messages:
                    if message.topic == end:
                        break
                    if message.retain:
                        found.append(message)
        return found

    async def _subscribe(self, topic: str, qos: int, callback: Callable[[Message], None]) -> None:
        await _reach(self._client.subscribe(topic, qos=qos, callback=callback))

    async def _send(self, topic: str, body: bytes, deadline: float | None) -> bool:
        """Publish at QoS 1; False if the broker knows of nobody there."""
        left = None if deadline is None else deadline - time.time()
        answer = await _reach(
            self._client.publish(
                topic,
                body,
                qos=1,
                message_expiry_interval=None if left is None else message_expiry(left, 0.0),
                timeout=_LONGEST_WAIT if left is None else min(_LONGEST_WAIT, max(0.1, left)),
            )
        )
        return answer.reason_code != ReasonCode.NO_MATCHING_SUBSCRIBERS


async def _reach(work: Awaitable[T]) -> T:
    """The broker's faults as this room's error."""
    try:
        return await work
    except TimeoutError as error:
        raise Unavailable(
            f"the MQTT broker: {error or 'no answer in time'}", hint="check that it runs"
        ) from error
    except TidegateError as error:
        is_final = isinstance(error, PacketTooLarge) or getattr(error, "reason_code", None) in _FINAL
        kind = Impossible if is_final else Unavailable
        raise kind(f"the MQTT broker: {error}", hint=getattr(error, "hint", "")) from error
