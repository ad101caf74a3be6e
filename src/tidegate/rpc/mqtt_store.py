"""The shared memory on MQTT alone.

Return addresses are in the correlations themselves, signed, so nothing is stored for devices that echo them. Those that
cannot are rare and slow: their addresses and leases are with a keeper, a small service asked by request and response.
Routes are retained messages: devices are spread over 256 of them by a checksum, so that a change rewrites some hundred
entries and not all, and every router has them all in memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from tidegate.client import Client, Message
from tidegate.errors import TidegateError
from tidegate.rpc.correlation import Signer
from tidegate.rpc.errors import Unavailable
from tidegate.rpc.memory import Memory
from tidegate.rpc.options import Options
from tidegate.rpc.protocols import Address, Entry

log = logging.getLogger(__name__)

SHARDS = 256
_KEEPER_TIMEOUT = 5.0


def shard(device: str) -> str:
    return f"{crc32(device.encode()) % SHARDS:02x}"


class MqttStore:
    """See `protocols.ReturnStore`."""

    def __init__(self, options: Options, name: str) -> None:
        self._options = options
        self._signer = Signer(options.secret)
        self._client = options.client(f"rpc-{options.namespace}-{name}-memory")
        self._routes: dict[str, str] = {}
        self._shards: dict[str, dict[str, str]] = {}
        self._hello = f"hello-{secrets.token_hex(4)}"
        self._is_current = asyncio.Event()
        self._is_writer = False  # there is one, the route manager
        self.forged = 0
        """Correlations that nobody signed."""

    async def open(self) -> None:
        try:
            await self._client.connect()
            # What is retained comes before what is published afterwards: after this, the routes are known.
            await self._client.subscribe(f"{self._options.root}/routes/+", qos=1, callback=self._on_routes)
            await self._client.publish(f"{self._options.root}/routes/{self._hello}", b"", qos=1)
            async with asyncio.timeout(_KEEPER_TIMEOUT):
                await self._is_current.wait()
        except (TidegateError, TimeoutError) as error:
            raise Unavailable(f"the MQTT broker: {error}", hint=getattr(error, "hint", "")) from error

    async def close(self) -> None:
        await self._client.disconnect(session_expiry_interval=0)

    async def send_off(self, entries: Sequence[Entry], silent: Sequence[Entry]) -> list[str | None]:
        if silent:
            rows = [(each.device, f"{each.reply_to} {each.correlation}", each.seconds) for each in silent]
            await self._ask("put", rows)
        default = self._options.default_gateway or None
        return [self._routes.get(each.device, default) for each in (*entries, *silent)]

    async def take(self, keys: Sequence[tuple[str, str]]) -> list[Address | None]:
        unknown = [device for device, correlation in keys if not correlation]
        kept = iter(await self._ask("take", unknown) if unknown else ())
        return [self._address(correlation) if correlation else _split(next(kept)) for _, correlation in keys]

    async def lease(self, device: str, holder: str, seconds: float) -> int | None:
        token = await self._ask("lease", (device, holder, seconds))
        return token if isinstance(token, int) else None

    async def release(self, device: str, holder: str) -> None:
        await self._ask("release", (device, holder))

    async def set_routes(self, routes: dict[str, str | None]) -> None:
        self._is_writer = True
        changed = set()
        for device, gateway in routes.items():
            name = shard(device)
            changed.add(name)
            known = self._shards.setdefault(name, {})
            if gateway is None:
                known.pop(device, None)
                self._routes.pop(device, None)
            else:
                known[device] = self._routes[device] = gateway
        try:
            await asyncio.gather(*map(self._write, sorted(changed)))
        except TidegateError as error:
            raise Unavailable(f"the MQTT broker: {error}") from error

    async def routes(self) -> dict[str, str]:
        return dict(self._routes)

    async def _write(self, name: str) -> None:
        body = json.dumps(self._shards[name], separators=(",", ":"))
        await self._client.publish(f"{self._options.root}/routes/{name}", body, qos=1, retain=True)

    def _address(self, correlation: str) -> Address | None:
        caller = self._signer.caller(correlation)
        if caller is None:
            self.forged += 1
            return None
        return Address(caller, correlation)

    def _on_routes(self, message: Message) -> None:
        name = message.topic.rpartition("/")[2]
        if name == self._hello:
            self._is_current.set()
        if len(name) != 2 or self._is_writer:
            return  # what we wrote comes back to us, and may be older than what we know
        try:
            content = json.loads(message.payload)
            fresh = {str(device): str(gateway) for device, gateway in content.items()}
        except (ValueError, AttributeError):
            log.warning("routes that are no JSON object", extra={"topic": message.topic})
            return
        for device in self._shards.get(name, {}):
            self._routes.pop(device, None)
        self._shards[name] = fresh
        self._routes.update(fresh)

    async def _ask(self, what: str, content: Any) -> Any:
        try:
            answer = await self._client.request(
                f"{self._options.root}/keeper", json.dumps([what, content]), timeout=_KEEPER_TIMEOUT
            )
            return answer.json()
        except (TidegateError, ValueError) as error:
            raise Unavailable(
                f"the keeper of return addresses does not answer: {error}",
                hint="start one: tidegate rpc keeper",
            ) from error


def _split(kept: Any) -> Address | None:
    if not isinstance(kept, str):
        return None
    reply_to, _, correlation = kept.partition(" ")
    return Address(reply_to, correlation)


class Keeper:
    """Serves a `Memory` to all `MqttStore`s of a namespace. There is one; its death loses what was open, not more:
    callers time out and come again, and tokens of its successor are larger."""

    def __init__(self, options: Options, memory: Memory | None = None) -> None:
        self._options = options
        self._memory = memory or Memory()
        # The same name for each: a second keeper takes over from the first.
        self._client: Client = options.client(f"rpc-{options.namespace}-keeper", session_expiry_interval=0)
        self.answered = 0
        self.refused = 0

    async def open(self) -> None:
        await self._client.connect()
        await self._client.subscribe(f"{self._options.root}/keeper", qos=1, callback=self._on_request)

    async def close(self) -> None:
        await self._client.disconnect()

    async def wait_closed(self) -> None:
        await self._client.wait_closed()

    async def _on_request(self, message: Message) -> None:
        try:
            what, content = message.json()
            answer = self._answer(what, content, time.time())
        except (ValueError, TypeError, KeyError):
            self.refused += 1
            return
        self.answered += 1
        if message.response_topic:
            await self._client.respond(message, json.dumps(answer))

    def _answer(self, what: str, content: Any, now: float) -> Any:
        memory = self._memory
        if what == "put":
            for device, value, seconds in content:
                memory.put(str(device), str(value), now, float(seconds))
            return len(content)
        if what == "take":
            return [memory.take(str(device), now) for device in content]
        if what == "lease":
            device, holder, seconds = content
            return memory.lease(str(device), str(holder), now, float(seconds))
        if what == "release":
            device, holder = content
            memory.release(str(device), str(holder))
            return True
        raise ValueError(what)

    def statistics(self) -> dict[str, int]:
        return {
            "answered": self.answered,
            "refused": self.refused,
            "kept": len(self._memory),
            "forgotten": self._memory.forgotten,
        }
