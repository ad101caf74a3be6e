"""The shared memory on Redis: return addresses with an end, taken once; leases with fencing tokens; routes in a hash.

One round trip for a whole batch of requests, and one for a batch of replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from tidegate.rpc.errors import RpcError, Unavailable
from tidegate.rpc.options import Options
from tidegate.rpc.protocols import Address, Entry

T = TypeVar("T")

_TIMEOUT = 5.0

# Sole use with a token: who holds it may take it again; every lease has a larger number than all before.
_LEASE = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return false end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local now = redis.call('TIME')
local token = math.max(tonumber(redis.call('GET', KEYS[2]) or '0') + 1, now[1] * 1000000 + now[2])
redis.call('SET', KEYS[2], string.format('%d', token))
return string.format('%d', token)
"""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisStore:
    """See `protocols.ReturnStore`. Needs Redis 6.2 or later, for GETDEL."""

    def __init__(self, options: Options) -> None:
        self._prefix = f"tide:rpc:{options.namespace}:"
        self._routes = f"{self._prefix}routes"
        self._default = options.default_gateway or None
        try:
            self._redis: Any = Redis.from_url(
                options.redis,
                decode_responses=True,
                socket_timeout=_TIMEOUT,
                socket_connect_timeout=_TIMEOUT,
                retry=Retry(NoBackoff(), 1),  # a connection that was idle while Redis restarted
                max_connections=16,
            )
        except ValueError as error:
            raise RpcError(f"Redis at {options.redis!r}: {error}", hint="use redis://host:port/0") from None

    async def open(self) -> None:
        await _reach(self._redis.ping())

    async def close(self) -> None:
        await self._redis.aclose()

    async def send_off(self, entries: Sequence[Entry], silent: Sequence[Entry]) -> list[str | None]:
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.hmget(self._routes, [each.device for each in (*entries, *silent)])
        for each in entries:
            pipeline.set(self._key(each.device, each.correlation), each.reply_to, px=_ms(each.seconds))
        for each in silent:
            value = f"{each.reply_to} {each.correlation}"
            pipeline.set(self._key(each.device, ""), value, px=_ms(each.seconds))
        gateways = (await _reach(pipeline.execute()))[0]
        return [gateway or self._default for gateway in gateways]

    async def take(self, keys: Sequence[tuple[str, str]]) -> list[Address | None]:
        pipeline = self._redis.pipeline(transaction=False)
        for device, correlation in keys:
            pipeline.getdel(self._key(device, correlation))
        kept = await _reach(pipeline.execute())
        addresses: list[Address | None] = []
        for (_, correlation), value in zip(keys, kept, strict=True):
            if value is None:
                addresses.append(None)
            elif correlation:
                addresses.append(Address(value, correlation))
            else:
                reply_to, _, stored = value.partition(" ")
                addresses.append(Address(reply_to, stored))
        return addresses

    async def lease(self, device: str, holder: str, seconds: float) -> int | None:
        keys = (f"{self._prefix}lease:{device}", f"{self._prefix}token")
        token = await _reach(self._redis.eval(_LEASE, 2, *keys, holder, _ms(seconds)))
        return int(token) if token else None

    async def release(self, device: str, holder: str) -> None:
        await _reach(self._redis.eval(_RELEASE, 1, f"{self._prefix}lease:{device}", holder))

    async def set_routes(self, routes: dict[str, str | None]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        found = {device: gateway for device, gateway in routes.items() if gateway is not None}
        gone = [device for device, gateway in routes.items() if gateway is None]
        if found:
            pipeline.hset(self._routes, mapping=found)
        if gone:
            pipeline.hdel(self._routes, *gone)
        await _reach(pipeline.execute())

    async def routes(self) -> dict[str, str]:
        return dict(await _reach(self._redis.hgetall(self._routes)))

    def _key(self, device: str, correlation: str) -> str:
        return f"{self._prefix}return:{device}:{correlation}"


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


async def _reach(work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await work
    except (RedisError, OSError, TimeoutError) as error:
        raise Unavailable(f"Redis: {error or type(error).__name__}", hint="check that it runs") from error
