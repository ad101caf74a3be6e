"""A space service with its fronts, in this process, on free ports."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop

from tidegate.broker import Broker
from tidegate.client import Client
from tidegate.space.http_front import HttpFront
from tidegate.space.knowledge import Space
from tidegate.space.mqtt_front import MqttFront
from tidegate.space.service import SpaceService

LIMIT = 60.0


@dataclass
class Rig:
    """Everything that runs."""

    service: SpaceService
    stack: AsyncExitStack
    port: int = 0
    http_port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    async def space(self, name: str = "home", **options: Any) -> Space:
        client = await self.stack.enter_async_context(Client(f"mqtt://127.0.0.1:{self.port}", **options))
        return Space(client, name)


@pytest.fixture
def run_rig() -> Callable[..., None]:
    """Runs a test's coroutine with a rig: `run_rig(body, **options of SpaceService)`."""

    def run(body: Callable[[Rig], Coroutine[Any, Any, None]], *, http: bool = False, **options: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
                service = SpaceService(["home", "lab"], **options)
                stack.push_async_callback(service.close)
                rig = Rig(service, stack)
                broker = await stack.enter_async_context(Broker(port=0))
                rig.port = broker.port
                if http:
                    front = await stack.enter_async_context(HttpFront(service))
                    rig.http_port = front.port
                client = await stack.enter_async_context(Client(f"mqtt://127.0.0.1:{rig.port}"))
                mqtt = MqttFront(service, client)
                await mqtt.start()
                task = asyncio.create_task(mqtt.run())
                try:
                    await body(rig)
                finally:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

        uvloop.run(main())

    return run
