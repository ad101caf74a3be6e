"""The route manager: hears advertisements and wills, decides with a rule, and keeps the routes everybody reads."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Self

from tidegate.client import Message
from tidegate.errors import TidegateError
from tidegate.rpc.backends import make_store
from tidegate.rpc.errors import RpcError, Unavailable
from tidegate.rpc.labels import SHELF_LABEL
from tidegate.rpc.options import Options
from tidegate.rpc.routes import RULES, RouteRule
from tidegate.rpc.schema import DeviceType, Types
from tidegate.rpc.telemetry import Beacon, Observer

log = logging.getLogger(__name__)

_LAST_WRITE = 2.0  # seconds for what is left when it is stopped
_WRITE_EVERY = 0.25  # changes gather this long: a gateway that dies moves thousands of devices


class RouteManager:
    """One for a namespace; a second takes over from the first. Routes outlive it, they are in the store."""

    def __init__(
        self,
        options: Options,
        types: Iterable[DeviceType] = (SHELF_LABEL,),
        *,
        rule: RouteRule | str = "aged",
        observer: Observer | None = None,
    ) -> None:
        if isinstance(rule, str):
            if rule not in RULES:
                raise RpcError(f"route rule {rule!r}", hint=f"use one of {', '.join(RULES)}")
            rule = RULES[rule]()
        self.options = options
        self.types = Types(tuple(types))
        self.rule: RouteRule = rule
        self.observer = observer
        self.counters: Counter[str] = Counter()
        self._store = make_store(options, "manager")
        self._client = options.client(f"rpc-{options.namespace}-manager", session_expiry_interval=0)
        self._changes: dict[str, str | None] = {}
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        await self._store.open()
        try:
            await self._client.connect()
            for topics, kind in self.types.topics:
                for template, callback in (
                    (topics.beacon, self._on_beacon),
                    (topics.status, self._on_status),
                ):
                    await self._client.subscribe(
                        template.format(gateway="+"), qos=1, callback=partial(callback, kind)
                    )
        except TidegateError as error:
            raise Unavailable(f"the MQTT broker: {error}", hint=getattr(error, "hint", "")) from error
        self._writer = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
            try:
                async with asyncio.timeout(_LAST_WRITE):
                    await self._flush()
            except (Unavailable, TimeoutError) as error:
                log.warning("the last routes could not be written", extra={"error": str(error)})
        await self._client.disconnect()
        await self._store.close()

    async def wait_closed(self) -> None:
        await self._client.wait_closed()

    def statistics(self) -> dict[str, int]:
        return dict(self.counters)

    def _on_beacon(self, kind: DeviceType, message: Message) -> None:
        gateway = kind.topics.gateway(kind.topics.beacon, message.topic)
        try:
            heard = [(str(device), float(rssi)) for device, rssi in message.json()]
        except (ValueError, TypeError):
            self.counters["malformed"] += 1
            return
        now = time.monotonic()
        for device, rssi in heard:
            self.counters["beacons"] += 1
            route = self.rule.heard(device, gateway, rssi, now)
            if route is not None:
                self.counters["changes"] += 1
                self._changes[device] = route
            if self.observer is not None:
                current = self.rule.gateway(device) or ""
                self.observer.on_beacon(
                    Beacon(time.time(), device, gateway, rssi, current, route is not None)
                )

    def _on_status(self, kind: DeviceType, message: Message) -> None:
        gateway = kind.topics.gateway(kind.topics.status, message.topic)
        try:
            state = json.loads(message.payload or b"{}").get("state")
        except (ValueError, AttributeError):
            self.counters["malformed"] += 1
            return
        if state == "lost":
            self.counters["gateways lost"] += 1
            self._change(self.rule.lost(gateway, time.monotonic()))

    def _change(self, changes: dict[str, str | None]) -> None:
        self.counters["changes"] += len(changes)
        self._changes.update(changes)

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(_WRITE_EVERY)
            self._change(self.rule.expire(time.monotonic()))
            try:
                await self._flush()
            except Unavailable as error:
                log.warning("routes could not be written", extra={"error": str(error)})

    async def _flush(self) -> None:
        changes, self._changes = self._changes, {}
        if not changes:
            return
        try:
            await self._store.set_routes(changes)
        except BaseException:
            # Also if we are stopped in the midst of it: what is not written must be written again.
            self._changes = changes | self._changes
            raise
