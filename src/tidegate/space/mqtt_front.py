"""A space service over MQTT 5: request and response, and notifications as messages of their own.

Requests are messages to `tide/space/<space>/<operation>` with a Response Topic. The answer has the version of the
space and the broker's load as User Properties; what went wrong is in `fault` and `hint`. It is an ordinary client:
any MQTT 5 broker will do, and that broker's rights decide who may ask for what. It takes the requests of its own spaces
alone, so that several space brokers can share an MQTT broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from tidegate.client import Acknowledgement, Client, ClientError, Message
from tidegate.client.fields import MessageFields
from tidegate.errors import TidegateError
from tidegate.flow.timeout import NAME
from tidegate.mqtt.errors import TopicNameInvalid
from tidegate.mqtt.topics import matches, validate_topic_name
from tidegate.space.errors import Fault, SpaceError
from tidegate.space.requests import ACCEPT, PREFIX, Operation, Request, Response, changes_topic
from tidegate.space.rights import MQTT, Access
from tidegate.space.service import SpaceService

log = logging.getLogger("tidegate.space.mqtt")

OPERATIONS: Final = frozenset(Operation)
A_TURN: Final = 32  # messages after which others have their turn
HEAD: Final = 2048  # bytes of an answer's packet that are neither its body nor what the request gave
OPEN: Final = 8192  # requests that are served, wait, or have an answer to be sent
PROBE: Final = 1.0  # seconds within which another broker of a space would have answered


class MqttFront:
    """Serves while `run` runs. Notifications that the network does not take are dropped: watchers notice and ask.

    Lanes bound what waits to be served, and refuse the rest at once; `OPEN` bounds what is served or waits to be
    sent: beyond it no message is taken, so that in the end the MQTT broker waits.
    """

    def __init__(
        self,
        service: SpaceService,
        client: Client,
        *,
        prefix: str = PREFIX,
        qos: int = 1,
        reply: Sequence[str] = ("#",),
    ) -> None:
        """`reply` are filters for the topics that answers may go to."""
        self._service = service
        self._client = client
        self._prefix = prefix
        self._qos = qos
        self._reply = tuple(reply)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_free = asyncio.Event()
        self._starting = 0  # tasks with an update that are not in its lane yet: nothing may overtake them
        self.dropped = 0
        self.unsent = 0  # answers that did not reach the MQTT broker
        self.ignored = 0

    async def check_free(self) -> None:
        """Raises `SpaceError` if somebody else answers for a space: half of the updates would go to each."""
        names = list(self._service.spaces)
        for name, is_taken in zip(names, await asyncio.gather(*map(self._is_taken, names)), strict=True):
            if is_taken:
                raise SpaceError(
                    Fault.INTERNAL,
                    f"space {name!r} is served by somebody else at {self._client.endpoint}",
                    hint="stop that one, or give this space another name with --space",
                )

    async def _is_taken(self, name: str) -> bool:
        """Any answer is one, a refusal too. Who died is not waited for longer than a moment."""
        topic = f"{self._prefix}/{name}/{Operation.QUERY}"
        try:
            await self._client.request(topic, b"ASK {}", timeout=PROBE)
        except ClientError:
            return False  # nobody is there, or we may not ask
        return True

    async def start(self) -> None:
        topics = [f"{self._prefix}/{name}/{each}" for name in self._service.spaces for each in Operation]
        # What is retained was sent once, and must not be done again at every start.
        await self._client.subscribe(*topics, qos=1, retain_handling=2)
        self._service.notify = self._notify

    async def run(self) -> None:
        """Until the client is disconnected; raises what ended the connection for good."""
        taken = 0
        try:
            async for message in self._client.messages:
                self._begin(message)
                taken += 1
                if taken % A_TURN == 0:
                    await asyncio.sleep(0)
                while len(self._tasks) >= OPEN:
                    self._is_free.clear()
                    await self._is_free.wait()
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            left = list(self._tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _begin(self, message: Message) -> None:
        request = self._read(message)
        if request is None:
            self.ignored += 1
            reason = "no response topic" if message.response_topic is None else "it may not be answered"
            log.debug("a request was ignored", extra={"topic": message.topic, "reason": reason})
            return
        if self._starting == 0 and self._service.handle_nowait(
            request, lambda response: self._respond(message, response)
        ):
            return
        is_writing = request.operation.access is Access.WRITE
        self._starting += is_writing
        self._start(self._answer(message, request, is_writing))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_ended)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._is_free.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("an answer failed", exc_info=task.exception())

    async def _answer(self, message: Message, request: Request, is_writing: bool) -> None:
        self._starting -= is_writing  # from here to its lane nothing waits
        self._respond(message, await self._service.handle(request))

    def _respond(self, message: Message, response: Response) -> None:
        fields: MessageFields = {
            "content_type": response.content_type,
            "user_properties": response_properties(response),
        }
        if message.correlation_data is not None:
            fields["correlation_data"] = message.correlation_data
        topic, qos = message.response_topic or "", min(message.qos, 1)
        try:
            sent = self._client.publish_nowait(topic, response.body, qos=qos, **fields)
        except ClientError:
            self._start(self._send(topic, response.body, qos, fields))
        except TidegateError:
            self.unsent += 1  # no packet can carry it
        else:
            sent.add_done_callback(self._on_sent)

    async def _send(self, topic: str, body: bytes, qos: int, fields: MessageFields) -> None:
        """When there is room again."""
        try:
            await self._client.publish(topic, body, qos=qos, **fields)
        except TidegateError:
            # Nobody can be told; the client asks again when its patience ends.
            self.unsent += 1

    def _on_sent(self, future: asyncio.Future[Acknowledgement]) -> None:
        if future.cancelled() or future.exception() is not None:
            self.unsent += 1

    def _read(self, message: Message) -> Request | None:
        levels = message.topic.removeprefix(f"{self._prefix}/").split("/")
        response_topic = message.response_topic
        if (
            message.retain
            or response_topic is None
            or not self._may_answer_to(response_topic)
            or len(levels) != 2
            or levels[1] not in OPERATIONS
        ):
            return None
        properties = dict(message.user_properties)
        return Request(
            space=levels[0],
            operation=Operation(levels[1]),
            body=message.payload,
            content_type=message.content_type,
            accept=properties.get(ACCEPT),
            who=MQTT,
            client=response_topic,
            room=self._room(message, response_topic),
        )

    def _may_answer_to(self, topic: str) -> bool:
        """An answer must not become a request, or a notification that nobody sent."""
        is_own = topic.startswith((f"{self._prefix}/", "$"))
        return _is_topic(topic) and not is_own and any(matches(each, topic) for each in self._reply)

    def _room(self, message: Message, response_topic: str) -> int | None:
        """What the MQTT broker takes in one packet, without what goes with every answer."""
        largest = self._client.limits.maximum_packet_size
        if largest is None:
            return None
        return largest - HEAD - len(response_topic.encode()) - len(message.correlation_data or b"")

    def _notify(self, space: str, watch: str, data: bytes) -> None:
        if not self._service.rights.may(MQTT, space, Access.READ):
            return  # somebody watches over HTTP, and what they see is not for everybody here
        topic = changes_topic(space, watch, self._prefix)
        try:
            future = self._client.publish_nowait(topic, data, qos=self._qos, content_type="application/json")
        except TidegateError:
            self.dropped += 1
            return
        future.add_done_callback(self._on_published)

    def _on_published(self, future: asyncio.Future[Acknowledgement]) -> None:
        if future.cancelled() or future.exception() is not None:
            self.dropped += 1


def _is_topic(topic: str) -> bool:
    try:
        validate_topic_name(topic)
    except TopicNameInvalid:
        return False
    return True


def response_properties(response: Response) -> tuple[tuple[str, str], ...]:
    pairs = [("version", str(response.version))]
    load = response.load.encode()
    if load:
        pairs.append((NAME, load))
    if response.error is not None:
        pairs.append(("fault", response.error.fault.value))
        if response.error.hint:
            pairs.append(("hint", response.error.hint))
    return tuple(pairs)
