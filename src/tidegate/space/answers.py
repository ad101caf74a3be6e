"""Answers to queries: identical ones are evaluated once (Table I of the paper), whether they come together or later.

Those that come while one is being evaluated share its answer; later ones get it from a cache until the version
changes. What was read is on disk before anybody hears of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import Any, Final, TypeAlias

from pyoxigraph import QueryTriples

from tidegate.space.durable import DurableSpace
from tidegate.space.errors import malformed
from tidegate.space.formats import GRAPHS, RESULTS, negotiate, write_answer
from tidegate.space.lane import Lane
from tidegate.space.outline import outline
from tidegate.space.runner import Runner
from tidegate.space.store import check_query

CACHE_BYTES: Final = 64 * 1024 * 1024
CACHED: Final = 4096
LARGE: Final = 16 * 1024  # characters of a query that is read in a thread
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
        self._cache: OrderedDict[Key, tuple[int, bytes, str]] = OrderedDict()
        self._cache_bytes = 0
        self.shared = 0  # answers that somebody else had asked for at the same version

    async def ask(self, space: DurableSpace, text: str, accept: str) -> Answer:
        """Body, content type and the version it is about; raises `SpaceError`."""
        key, version = (space.engine.name, _digest(text, accept)), space.engine.version
        cached = self._cache.get(key)
        if cached is not None and cached[0] == version:
            self._cache.move_to_end(key)
            self.shared += 1
            return cached[1], cached[2], version
        task = self._asking.get((key, version))
        if task is None:
            work = self._evaluate(space, text, accept, key, version)
            task = self._asking[key, version] = asyncio.create_task(work)
            task.add_done_callback(lambda done: self._on_asked((key, version), done))
        else:
            self.shared += 1
        # Whoever asked first may give up; the others still want to know.
        return await asyncio.shield(task)

    def _on_asked(self, key: tuple[Key, int], done: asyncio.Task[Answer]) -> None:
        self._asking.pop(key, None)
        if not done.cancelled():
            done.exception()  # everybody may have given up, and then nobody looks

    async def _evaluate(self, space: DurableSpace, text: str, accept: str, key: Key, version: int) -> Answer:
        form = _form(text) if len(text) < LARGE else await asyncio.to_thread(_form, text)
        offered = list(GRAPHS if form in ("CONSTRUCT", "DESCRIBE") else RESULTS)
        content_type = negotiate(accept, offered)
        store = space.engine.store

        def job(output: Any) -> None:
            answer = store.ask(text)
            known = GRAPHS if isinstance(answer, QueryTriples) else RESULTS
            if content_type not in known:
                raise malformed("the query is not of the form it seems to be", "write it more plainly")
            write_answer(answer, content_type, output)

        async with self._lane.turn():
            seen = space.engine.version
            body = await self._runner.run(text, len(store), job)
        await space.commit()
        if seen == version:
            self._keep(key, (version, body, content_type))
        return body, content_type, seen

    def _keep(self, key: Key, value: tuple[int, bytes, str]) -> None:
        old = self._cache.pop(key, None)
        if old is not None:
            self._cache_bytes -= len(old[1])
        self._cache[key] = value
        self._cache_bytes += len(value[1])
        while self._cache_bytes > CACHE_BYTES or len(self._cache) > CACHED:
            _, (_, body, _) = self._cache.popitem(last=False)
            self._cache_bytes -= len(body)


def _form(text: str) -> str:
    """SELECT, ASK, CONSTRUCT or DESCRIBE; raises for what a space does not offer."""
    check_query(text)
    return outline(text).form


def _digest(text: str, accept: str) -> bytes:
    return hashlib.sha256(f"{accept}\n{text}".encode()).digest()
