"""A whole backbone in one process: routers, gateways and a caller, with topics that no other test uses."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import uvloop

from tidegate.rpc import (
    SHELF_LABEL,
    Backbone,
    BackRouter,
    Behaviour,
    DeviceType,
    Emulator,
    ForwardRouter,
    Options,
    Retry,
)
from tidegate.rpc.backends import make_store
from tidegate.rpc.schema import Topics

GATEWAY = "000000000000"


def run(work: Coroutine[Any, Any, None]) -> None:
    """With an end, whatever hangs."""

    async def limited() -> None:
        async with asyncio.timeout(60.0):
            await work

    uvloop.run(limited())


async def until(condition: Callable[[], object], what: str = "", timeout: float = 15.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.01)


async def until_length(get: Callable[[], Awaitable[list[Any]]], length: int) -> list[Any]:
    """What `get` gives once it has so many."""
    deadline = time.monotonic() + 15.0
    while len(found := await get()) != length:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.02)
    return found


def label(number: int) -> str:
    return f"{number:012x}"


def kind_for(options: Options, base: DeviceType = SHELF_LABEL) -> DeviceType:
    """The same type on topics of this test's namespace: tests share a broker."""
    root = f"/gw-{options.namespace}"
    topics = Topics(
        **{name: f"{root}/{{gateway}}/{name}" for name in ("action", "response", "status", "beacon")}
    )
    return replace(base, topics=topics)


@dataclass
class Parts:
    """What `whole` started."""

    options: Options
    kind: DeviceType
    backbone: Backbone
    forward: list[ForwardRouter]
    back: list[BackRouter]
    emulator: Emulator


@asynccontextmanager
async def whole(
    options: Options,
    *,
    base: DeviceType = SHELF_LABEL,
    gateways: tuple[str, ...] = (GATEWAY,),
    forward: int = 1,
    back: int = 1,
    behaviour: Behaviour | None = None,
    retry: Retry | None = None,
    routes: dict[str, str] | None = None,
    observer: Any = None,
    **caller: Any,
) -> AsyncIterator[Parts]:
    """Routers, gateways and a caller; without `routes`, every device is at the first gateway."""
    if routes is None:
        options = replace(options, default_gateway=gateways[0])
    kind = kind_for(options, base)
    async with AsyncExitStack() as stack:
        if routes:
            await set_routes(options, routes)
        emulator = await stack.enter_async_context(
            Emulator(options, gateways, kind, behaviour, observer=observer)
        )
        backs = [
            await stack.enter_async_context(BackRouter(options, [kind], observer=observer))
            for _ in range(back)
        ]
        forwards = [
            await stack.enter_async_context(ForwardRouter(options, [kind], observer=observer))
            for _ in range(forward)
        ]
        backbone = await stack.enter_async_context(
            Backbone(options, [kind], retry=retry, observer=observer, **caller)
        )
        yield Parts(options, kind, backbone, forwards, backs, emulator)


async def set_routes(options: Options, routes: dict[str, str]) -> None:
    store = make_store(options, "setup")
    await store.open()
    await store.set_routes(dict(routes))
    await store.close()
