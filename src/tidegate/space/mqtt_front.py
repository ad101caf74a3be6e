"""A space service over MQTT 5: request and response, and notifications as messages of their own.

Requests are messages to `tide/space/<space>/<operation>` with a Response Topic. The answer has the version of the
space and the broker's load as User Properties; what went wrong is in `fault` and `hint`. It is an ordinary client:
any MQTT 5 broker will do, and that broker's rights decide who may ask for what.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidegate.client import Acknowledgement, Client, ClientError, Message
from tidegate.flow.timeout import NAME
from tidegate.space.requests import PREFIX, Operation, Request, Response, changes_topic
from tidegate.space.rights import MQTT
from tidegate.space.service import SpaceService

log = logging.getLogger("tidegate.space.mqtt")

ACCEPT: Final = "accept"
"""User Property of a request: the content types its sender understands, as in HTTP."""


class MqttFront:
    """Serves while `run` runs. Notifications that the network does not take are dropped: watchers notice and ask."""

    def __init__(self, service: SpaceService, client: Client, *, prefix: str = PREFIX, qos: int = 1) -> None:
        self._service = service
        self._client = client
        self._prefix = prefix
        self._qos = qos
        self.dropped = 0
        self.ignored = 0

    async def start(self) -> None:
        await self._client.subscribe(*(f"{self._prefix}/+/{operation}" for operation in Operation), qos=1)
        self._service.notify = self._notify

    async def run(self) -> None:
        """Until the client is disconnected; raises what ended the connection for good."""
        async with asyncio.TaskGroup() as tasks:
            async for message in self._client.messages:
                # The lanes bound how many wait: those over it are refused at once.
                tasks.create_task(self._answer(message))

    async def _answer(self, message: Message) -> None:
        request = self._read(message)
        if request is None:
            self.ignored += 1
            return
        response = await self._service.handle(request)
        try:
            await self._client.respond(
                message,
                response.body,
                qos=min(message.qos, 1),
                content_type=response.content_type,
                user_properties=response_properties(response),
            )
        except ClientError as error:
            # Nobody can be told; the client asks again when its patience ends.
            log.debug("answer not sent", extra={"error": str(error)})

    def _read(self, message: Message) -> Request | None:
        levels = message.topic.removeprefix(f"{self._prefix}/").split("/")
        response_topic = message.response_topic
        # An answer must not become a request, or a notification that nobody sent.
        if (
            response_topic is None
            or response_topic.startswith((f"{self._prefix}/", "$"))
            or len(levels) != 2
            or levels[1] not in list(Operation)
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
        )

    def _notify(self, space: str, watch: str, data: bytes) -> None:
        topic = changes_topic(space, watch, self._prefix)
        try:
            future = self._client.publish_nowait(topic, data, qos=self._qos, content_type="application/json")
        except ClientError:
            self.dropped += 1
            return
        future.add_done_callback(self._on_published)

    def _on_published(self, future: asyncio.Future[Acknowledgement]) -> None:
        if future.cancelled() or future.exception() is not None:
            self.dropped += 1


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
