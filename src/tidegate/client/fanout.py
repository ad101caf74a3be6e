"""Several takers of what one filter matches: one subscription, which begins with the first and ends with the last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tidegate.client.message import Message

Taker: TypeAlias = Callable[[Message], None]
Subscribe: TypeAlias = Callable[[str, int, Taker], Awaitable[object]]
Unsubscribe: TypeAlias = Callable[[str], Awaitable[None]]


class FanOut:
    """Of one client; `subscribe` gets filter, QoS and who takes the messages."""

    def __init__(self, subscribe: Subscribe, unsubscribe: Unsubscribe) -> None:
        self._subscribe = subscribe
        self._unsubscribe = unsubscribe
        self._takers: dict[str, dict[object, Taker]] = {}
        self._qos: dict[str, int] = {}
        self._changing = asyncio.Lock()

    async def add(self, topic_filter: str, qos: int, taker: Taker) -> object:
        """What to give to `remove`."""
        key = object()
        async with self._changing:
            takers = self._takers.setdefault(topic_filter, {})
            takers[key] = taker
            if qos > self._qos.get(topic_filter, -1):
                try:
                    await self._subscribe(topic_filter, qos, lambda message: _give(takers, message))
                except BaseException:
                    self._drop(topic_filter, key)
                    raise
                self._qos[topic_filter] = qos
        return key

    async def remove(self, topic_filter: str, key: object) -> None:
        async with self._changing:
            if self._drop(topic_filter, key):
                await self._unsubscribe(topic_filter)

    def _drop(self, topic_filter: str, key: object) -> bool:
        """Whether it was the last."""
        takers = self._takers[topic_filter]
        takers.pop(key, None)
        if takers:
            return False
        del self._takers[topic_filter]
        self._qos.pop(topic_filter, None)
        return True


def _give(takers: dict[object, Taker], message: Message) -> None:
    for taker in list(takers.values()):
        taker(message)
