"""Replies on their way to callers: gathered for each caller, so that many leave in one message."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidegate.rpc.bundler import Bundler
from tidegate.rpc.deadline import GRACE
from tidegate.rpc.errors import Unavailable
from tidegate.rpc.messages import Reply, encode_replies
from tidegate.rpc.protocols import TaskQueue

_BUNDLE = 128
_TRIES = 25
_PAUSE = 0.2  # seconds between two tries: 5 s in all, as long as a broker or RabbitMQ takes to be back


class _Item(NamedTuple):
    reply: Reply
    done: Callable[[], None] | None


class Returning:
    """`add` a reply with what to do when it is delivered, or cannot be (there is nobody, and that is counted)."""

    def __init__(self, queue: TaskQueue, counters: Counter[str]) -> None:
        self._queue = queue
        self._counters = counters
        self._bundlers: dict[str, Bundler[_Item]] = {}

    def add(self, address: str, reply: Reply, done: Callable[[], None] | None = None) -> None:
        bundler = self._bundlers.get(address)
        if bundler is None:
            if len(self._bundlers) >= 1000:
                # Callers come and go; those with nothing under way are forgotten.
                self._bundlers = {name: each for name, each in self._bundlers.items() if not each.is_idle}
            bundler = self._bundlers[address] = Bundler(
                partial(self._send, address),
                limit=_BUNDLE,
                at_once=self._queue.sends_at_once,
                pause=self._queue.pause,
            )
        bundler.add(_Item(reply, done))

    async def drain(self) -> None:
        for bundler in list(self._bundlers.values()):
            await bundler.drain()

    async def close(self) -> None:
        """Replies that are under way get a moment."""
        try:
            async with asyncio.timeout(2.0):
                await self.drain()
        except TimeoutError:
            self._counters["replies dropped at the end"] += sum(map(len, self._bundlers.values()))
        for bundler in self._bundlers.values():
            await bundler.close()

    async def _send(self, address: str, items: list[_Item]) -> None:
        body = encode_replies(item.reply for item in items)
        outcome = "replies undelivered"
        for _ in range(_TRIES):
            try:
                is_there = await self._queue.reply(address, body, deadline=time.time() + GRACE)
                outcome = "replies" if is_there else "replies to nobody"
                break
            except Unavailable:
                await asyncio.sleep(_PAUSE)
        self._counters[outcome] += len(items)
        for item in items:
            if item.done is not None:
                item.done()
