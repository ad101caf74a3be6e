"""Lets standing queries follow an update where they can be stopped, before they follow it where they cannot.

A child does it on its own copy of the store and notes in shared memory who is at work and what each took; if it has to
be killed, that tells who it was.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import mmap
from typing import BinaryIO, Final

from tidegate.space.engine import Plan, SpaceEngine
from tidegate.space.errors import Fault, SpaceError
from tidegate.space.runner import Runner
from tidegate.space.standing import StandingQuery
from tidegate.space.store import too_slow

_NOTE: Final = struct.Struct("<dd")  # when it began, 0 if it is not at work; seconds it took so far
GRACE: Final = 1.0  # seconds beyond what the queries may take: to fork, and to change the store


async def try_out(
    runner: Runner, engine: SpaceEngine, plan: Plan, queries: list[StandingQuery]
) -> tuple[set[str], dict[str, SpaceError]]:
    """Who was tried, and who takes too long to follow the update: a few of the queries, the first at least.

    Raises `SpaceError` if nothing can be tried out now.
    """
    limits = engine.limits
    queries = queries[: max(1, int(limits.query_time / limits.watch_time))]
    notes = _Notes(len(queries))

    def job(_output: BinaryIO) -> None:
        for number, each in enumerate(queries):
            with notes.at_work(number):
                each.before(plan.touched[each])
        engine.store.change(plan.removed, plan.added)
        for number, each in enumerate(queries):
            with notes.at_work(number):
                each.after(plan.touched[each], engine.version + 1)

    try:
        seconds = GRACE + len(queries) * limits.watch_time
        await runner.run("", len(engine.store), job, of=engine.store, seconds=seconds, is_writing=True)
        is_done = True
    except SpaceError as error:
        if error.fault is Fault.BUSY:
            raise  # none of them had a chance: the update has to come again
        is_done = False
    slow = {each.id: too_slow(limits.watch_time) for each in notes.slow(queries, limits.watch_time)}
    if is_done or slow:
        return {each.id for each in queries} if is_done else set(slow), slow
    # The child came to nothing, and it was none of them: there is no memory for it, say.
    failed = SpaceError(Fault.INTERNAL, "the space broker cannot try it out", hint="watch something simpler")
    return {queries[0].id}, {queries[0].id: failed}


class _Notes:
    def __init__(self, count: int) -> None:
        self._shared = mmap(-1, max(1, count) * _NOTE.size)

    @contextmanager
    def at_work(self, number: int) -> Iterator[None]:
        """In the child. What a query refuses to do here it refuses there as well, and quickly."""
        began = time.monotonic()
        _, so_far = _NOTE.unpack_from(self._shared, number * _NOTE.size)
        _NOTE.pack_into(self._shared, number * _NOTE.size, began, so_far)
        try:
            yield
        except SpaceError:
            pass
        _NOTE.pack_into(self._shared, number * _NOTE.size, 0.0, so_far + time.monotonic() - began)

    def slow(self, queries: list[StandingQuery], limit: float) -> list[StandingQuery]:
        notes = [_NOTE.unpack_from(self._shared, number * _NOTE.size) for number in range(len(queries))]
        return [each for each, (began, took) in zip(queries, notes, strict=True) if began or took > limit]
