"""Answers to queries: identical ones are evaluated once (Table I of the paper), whether they come together or later.

Those that come while one is being evaluated share its answer; later ones get it from a cache until the version
changes. What was read is on disk before anybody hears of it. A query that gives something else each time it is asked
(NOW, RAND, UUID) is asked each time.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections import OrderedDict
from typing import Any, Final, TypeAlias

from pyoxigraph import QueryTriples

from tidegate.space.durable import DurableSpace
from tidegate.space.errors import malformed
from tidegate.space.formats import GRAPHS, RESULTS, negotiate, write_answer
from tidegate.space.lane import Lane
from tidegate.space.outline import Outline, outline
from tidegate.space.runner import Runner
from tidegate.space.store import check_query
from tidegate.space.tokens import UNSTABLE
from tidegate.space.trust import is_bounded

CACHE_BYTES: Final = 64 * 1024 * 1024
CACHED: Final = 4096
LARGE: Final = 16 * 1024  # characters of a query that is read in a thread
_VERSION: Final = struct.Struct("<Q")  # after the body, in what a job answers
Key: TypeAlias = tuple[str, bytes]
"""Space, and digest of a query with what its sender accepts: texts may be long."""
Answer: TypeAlias = tuple[bytes, str, int]
"""Body, content type, and the version it is about."""


class Answers:
    """Of all spaces of a service; the oldest leave the cache when it is full."""

    def __init__(self, runner: Runner, lane: Lane) -> None:
        self._runner = runner
        self._lane = lane
        self._asking: dict[tuple[Key, int], asyncio.Task[Answer]] = {}
        self._cache: OrderedDict[Key, Answer] = OrderedDict()
        self._cache_bytes = 0
        self.shared = 0  # answers that somebody else had asked for at the same version

    async def ask(self, space: DurableSpace, text: str, accept: str) -> Answer:
        """Body, content type and the version it is about; raises `SpaceError`."""
        if _may_be_unstable(text):
            found = await _read(text)
            # The store's parser needs no space before a function: BYRAND() is one, too.
            if found.is_wild or any(word.endswith(UNSTABLE) for word in found.words):
                return await self._evaluate(space, text, accept)
        key, version = (space.engine.name, _digest(text, accept)), space.engine.version
        cached = self._cache.get(key)
        if cached is not None and cached[2] == version:
            self._cache.move_to_end(key)
            self.shared += 1
            return cached
        task = self._asking.get((key, version))
        if task is None:
            work = self._evaluate(space, text, accept)
            task = self._asking[key, version] = asyncio.create_task(work)
            task.add_done_callback(lambda done: self._on_asked((key, version), done))
        else:
            self.shared += 1
        # Whoever asked first may give up; the others still want to know.
        return await asyncio.shield(task)

    def _on_asked(self, key: tuple[Key, int], done: asyncio.Task[Answer]) -> None:
        self._asking.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return  # everybody may have given up, and then nobody else looks
        self._keep(key[0], done.result())

    async def _evaluate(self, space: DurableSpace, text: str, accept: str) -> Answer:
        found = await _read(text)
        offered = list(GRAPHS if found.form in ("CONSTRUCT", "DESCRIBE") else RESULTS)
        content_type = negotiate(accept, offered)
        engine, store = space.engine, space.engine.store

        def job(output: Any) -> None:
            answer, version = engine.ask(text)
            known = GRAPHS if isinstance(answer, QueryTriples) else RESULTS
            if content_type not in known:
                raise malformed("the query is not of the form it seems to be", "write it more plainly")
            write_answer(answer, content_type, output)
            output.write(_VERSION.pack(version))

        async with self._lane.turn():
            name = text if is_bounded(found, len(store)) else ""
            answer = await self._runner.run(name, len(store), job, of=store)
        await space.commit()
        body, version = answer[: -_VERSION.size], answer[-_VERSION.size :]
        return body, content_type, _VERSION.unpack(version)[0]

    def _keep(self, key: Key, value: Answer) -> None:
        old = self._cache.pop(key, None)
        if old is not None:
            self._cache_bytes -= len(old[0])
            if old[2] > value[2]:
                value = old
        self._cache[key] = value
        self._cache_bytes += len(value[0])
        while self._cache_bytes > CACHE_BYTES or len(self._cache) > CACHED:
            _, (body, _, _) = self._cache.popitem(last=False)
            self._cache_bytes -= len(body)


async def _read(text: str) -> Outline:
    return _outline(text) if len(text) < LARGE else await asyncio.to_thread(_outline, text)


def _outline(text: str) -> Outline:
    """Raises for what a space does not offer."""
    check_query(text)
    return outline(text)


def _may_be_unstable(text: str) -> bool:
    """Quick, and rather too often: most texts are asked for again and again."""
    capitals = text.upper()
    return any(word in capitals for word in UNSTABLE)


def _digest(text: str, accept: str) -> bytes:
    """`accept` may be any bytes: in headers of HTTP, those that are no UTF-8 are surrogates."""
    return hashlib.sha256(f"{accept}\n{text}".encode(errors="surrogateescape")).digest()
