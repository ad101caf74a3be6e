"""Replies on their way to callers: gathered for each caller, so that many leave in one message."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidegate.rpc.bundler import Bundler
from tidegate.rpc.deadline import GRACE
from tidegate.rpc.errors import Impossible, Unavailable
from tidegate.rpc.messages import MAX_BUNDLE_BYTES, Reply, encode_replies, reply_size
from tidegate.rpc.protocols import TaskQueue

log = logging.getLogger(__name__)

_BUNDLE = 128
_TRIES = 25
_PAUSE = 0.2  # seconds between two tries: 5 s in all, as long as a broker or RabbitMQ takes to be back


class _Item(NamedTuple):
    reply: Reply
    done: Callable[[], None] | None


def _size(item: _Item) -> int:
    return reply_size(item.reply)


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
                size=_size,
                max_size=MAX_BUNDLE_BYTES,
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
        try:
            outcome = await self._deliver(address, encode_replies(item.reply for item in items))
        except Exception:  # whatever it is: what waits for these to be done must not wait for ever
            log.exception("replies could not be sent")
            outcome = "replies undelivered"
        self._counters[outcome] += len(items)
        for item in items:
            if item.done is not None:
                item.done()

    async def _deliver(self, address: str, body: bytes) -> str:
        """What became of them, as it is counted."""
        for _ in range(_TRIES):
            try:
                is_there = await self._queue.reply(address, body, deadline=time.time() + GRACE)
                return "replies" if is_there else "replies to nobody"
            except Impossible as error:
                log.warning("replies that nobody can be sent", extra={"error": str(error)})
                break
            except Unavailable:
                await asyncio.sleep(_PAUSE)
        return "replies undelivered"
