"""The route manager: hears advertisements and wills, decides with a rule, and keeps the routes everybody reads."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from math import isfinite

from tidegate.client import Message
from tidegate.errors import TidegateError
from tidegate.rpc.backends import make_store
from tidegate.rpc.errors import Refusal, RpcError, Unavailable
from tidegate.rpc.labels import SHELF_LABEL
from tidegate.rpc.messages import is_text
from tidegate.rpc.opened import Opened
from tidegate.rpc.options import Options
from tidegate.rpc.routes import RULES, RouteRule
from tidegate.rpc.schema import DeviceType, Types
from tidegate.rpc.telemetry import Beacon, Observer

log = logging.getLogger(__name__)

_LAST_WRITE = 2.0  # seconds for what is left when it is stopped
_WEAKEST = -200.0  # dBm
_LONG_AGO = 86_400.0  # what is stored says nothing about when it was heard
_WRITE_EVERY = 0.25  # changes gather this long: a gateway that dies moves thousands of devices


class RouteManager(Opened):
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

    async def open(self) -> None:
        await self._store.open()
        # Known before the wills come: devices of a gateway that was lost meanwhile must leave it.
        for device, gateway in (await self._store.routes()).items():
            self.rule.heard(device, gateway, _WEAKEST, time.monotonic() - _LONG_AGO)
        try:
            await self._client.connect()
            for beacon, kinds in self.types.by_topic("beacon").items():
                on_beacon = partial(self._on_beacon, kinds[0])
                await self._client.subscribe(beacon.format(gateway="+"), qos=1, callback=on_beacon)
            for status, kinds in self.types.by_topic("status").items():
                on_status = partial(self._on_status, kinds[0])
                await self._client.subscribe(status.format(gateway="+"), qos=1, callback=on_status)
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
        """Until the connection or the writer ends."""
        assert self._writer is not None
        closing = asyncio.ensure_future(self._client.wait_closed())
        try:
            await asyncio.wait([closing, self._writer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
        for each in (closing, self._writer):
            if each.done() and not each.cancelled():
                each.result()

    def statistics(self) -> dict[str, int]:
        return dict(self.counters)

    def _on_beacon(self, kind: DeviceType, message: Message) -> None:
        beacon = kind.topics.beacon
        gateway = kind.topics.gateway(beacon, message.topic)
        try:
            heard = [(str(device), float(rssi)) for device, rssi in message.json()]
        except (ValueError, TypeError, OverflowError, RecursionError):
            self.counters["malformed"] += 1
            return
        now = time.monotonic()
        for device, rssi in heard:
            if not isfinite(rssi) or not self._is_known(device, beacon):
                self.counters["beacons of strangers"] += 1
                continue
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

    def _is_known(self, device: str, beacon: str) -> bool:
        """Whether it is a device of a type that is heard there: others would fill the routes."""
        try:
            return is_text(device) and self.types.of(device).topics.beacon == beacon
        except Refusal:
            return False

    def _on_status(self, kind: DeviceType, message: Message) -> None:
        gateway = kind.topics.gateway(kind.topics.status, message.topic)
        try:
            state = json.loads(message.payload or b"{}").get("state")
        except (ValueError, AttributeError, RecursionError):
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
            try:
                self._change(self.rule.expire(time.monotonic()))
                await self._flush()
            except Unavailable as error:
                log.warning("routes could not be written", extra={"error": str(error)})
            except Exception:  # without a writer routes would stay as they are, and nobody would know
                log.exception("routes could not be written")

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
