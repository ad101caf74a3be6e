"""Watches of a service: how they begin, what was missed of them, and when they end.

Rows, number and version of an answer are of one moment. What takes long is done beside others: whether a new watch can
be answered at all in a child, and the JSON of many rows in a thread. A watch that is refused leaves no trace on disk
unless its rows are many: then it may leave a record, and that of its end.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from pyoxigraph import QuerySolutions

from tidegate.space.durable import DurableSpace, change_json
from tidegate.space.errors import Fault, SpaceError, malformed
from tidegate.space.formats import plain_type
from tidegate.space.lane import Lane
from tidegate.space.mask import mask_query
from tidegate.space.outline import outline
from tidegate.space.requests import JSON, Operation, Request, as_text, changes_topic, no_room
from tidegate.space.runner import Runner, too_large
from tidegate.space.settings import SpaceLimits
from tidegate.space.standing import Change, StandingQuery, watch_id
from tidegate.space.store import TripleStore, check_query
from tidegate.space.terms import Row, row_json
from tidegate.space.watchers import Watchers

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_T = TypeVar("_T")
MANY: Final = 1000  # rows whose JSON is made in a thread
HEAD: Final = 1024  # bytes of an answer beside its rows or changes
LEAST: Final = len('"":{"type":"uri","value":""},')  # bytes of a value, without its name
Answer = tuple[bytes, str, int]
"""Body, content type, and the version it is about."""


class Watches:
    def __init__(
        self,
        spaces: Mapping[str, DurableSpace],
        lanes: Mapping[Operation, Lane],
        runner: Runner,
        limits: SpaceLimits,
    ) -> None:
        self._spaces = spaces
        self._lanes = lanes
        self._runner = runner
        self._limits = limits
        known = ((name, watch) for name, space in spaces.items() for watch in space.engine.standing)
        self.watchers = Watchers(known, limits.lease)

    async def begin(self, space: DurableSpace, request: Request) -> Answer:
        text = _watch_text(request)
        async with self._lanes[Operation.WATCH].turn():
            is_new = watch_id(text) not in space.engine.standing
            if is_new:
                await self._try_out(space.engine.store, text, request)
            rows: list[Row] = []
            body: bytes | None = None

            def fit(standing: StandingQuery) -> None:
                nonlocal rows, body
                rows = self._rows(space, standing, request)
                if len(rows) <= MANY:
                    body = self._body(head(standing), standing.variables, rows, request)

            def head(standing: StandingQuery) -> dict[str, Any]:
                topic = changes_topic(request.space, standing.id)
                return {**_state(space, standing), "topic": topic, "variables": standing.variables}

            standing = space.watch(text, fit)
            version = space.engine.version
            self.watchers.note(request.space, standing.id, request.client)
            if body is None:
                body = await self._many_rows(space, standing, head(standing), rows, request, is_new)
        await space.commit()
        return body, JSON, version

    async def _many_rows(
        self,
        space: DurableSpace,
        standing: StandingQuery,
        head: dict[str, Any],
        rows: list[Row],
        request: Request,
        is_new: bool,
    ) -> bytes:
        try:
            return await asyncio.to_thread(self._body, head, standing.variables, rows, request)
        except SpaceError:
            if is_new:  # it was small enough a moment ago
                space.end_watch(standing.id)
                self.watchers.forget(request.space, standing.id)
            raise

    async def _try_out(self, store: TripleStore, text: str, request: Request) -> None:
        """Ask it once where it can be stopped, before it is asked where it cannot."""
        check_query(text)
        limits = self._limits
        found = outline(text)
        # One pattern gives its solutions one by one: if they are few, there is nothing to try out.
        everything = f"{found.prologue}SELECT * WHERE {found.group}"
        if found.is_one_pattern and _are_few(store, everything, limits.query_time):
            return

        def job(output: Any) -> None:
            began = time.monotonic()
            answer = store.ask(text)
            is_select = isinstance(answer, QuerySolutions)
            names = [each.value for each in answer.variables] if isinstance(answer, QuerySolutions) else []
            rows = store.rows(text, names, seconds=limits.query_time, limit=limits.watch_rows)
            seconds = time.monotonic() - began
            if seconds > limits.watch_time and not found.is_one_pattern:
                raise SpaceError(
                    Fault.TIMEOUT,
                    f"it takes {seconds:.2f} s to answer; a watch may take {limits.watch_time:g} s",
                    hint="watch something simpler, or ask for this now and then",
                )
            if is_select:
                self._body({}, names, rows, request)
            output.write(b"fits")

        await self._runner.run("", len(store), job, of=store)

    async def check(self, space: DurableSpace, request: Request) -> Answer:
        watch, number, life = _check_fields(request)
        async with self._lanes[Operation.CHECK].turn():
            standing = space.engine.standing.get(watch)
            if standing is None:
                raise SpaceError(
                    Fault.UNKNOWN_WATCH, f"there is no watch {watch!r}", hint="it has ended: watch again"
                )
            self.watchers.note(request.space, watch, request.client)
            is_same = life is None or life == space.life(standing)
            missed = standing.missed(number) if is_same else None
            head, version = _state(space, standing), space.engine.version
            body = None if missed is None else await self._missed(head, standing.variables, missed, request)
            if body is None:
                head, version = _state(space, standing), space.engine.version
                rows = self._rows(space, standing, request)
                body = await _beside(len(rows), lambda: self._body(head, standing.variables, rows, request))
        await space.commit()
        return body, JSON, version

    async def _missed(
        self, head: dict[str, Any], variables: list[str], missed: list[Change], request: Request
    ) -> bytes | None:
        """None if not even the first change fits."""
        count = sum(len(each.added) + len(each.removed) for each in missed)
        texts = await _beside(count, lambda: _as_many_as_fit(variables, missed, self._room(request)))
        return _with_list(head, "missed", texts) if texts or not missed else None

    def _room(self, request: Request) -> int:
        return self._limits.answer_bytes if request.room is None else request.room

    def _too_large(self, request: Request) -> SpaceError:
        return too_large(self._limits.answer_bytes) if request.room is None else no_room(request.room)

    def _rows(self, space: DurableSpace, standing: StandingQuery, request: Request) -> list[Row]:
        """No more than the way back can carry."""
        if not standing.is_incremental:
            return standing.rows()
        # Its answer is the store's at any time, which gives it row by row.
        bound = set(outline(standing.text).variables).intersection(standing.variables)
        least = 3 + sum(len(name) + LEAST for name in bound)
        most = min(self._limits.watch_rows, max(0, self._room(request)) // least)
        seconds = self._limits.query_time
        try:
            return space.engine.store.rows(standing.text, standing.variables, seconds=seconds, limit=most)
        except SpaceError as error:
            if error.fault is Fault.TOO_LARGE and most < self._limits.watch_rows:
                raise self._too_large(request) from None
            raise

    def _body(self, head: dict[str, Any], variables: list[str], rows: list[Row], request: Request) -> bytes:
        """In any thread; raises where the room is at its end."""
        left = self._room(request) - len(_json(head))
        texts = []
        for row in rows:
            text = _json(row_json(variables, row))
            left -= len(text.encode()) + 1
            if left < 0:
                raise self._too_large(request)
            texts.append(text)
        return _with_list(head, "rows", texts)

    def end_forgotten(self) -> int:
        """End watches that nobody asked for within the lease; how many."""
        forgotten = self.watchers.take_forgotten()
        for name, watch in forgotten:
            self._spaces[name].end_watch(watch)
        return len(forgotten)


async def _beside(count: int, work: Callable[[], _T]) -> _T:
    return work() if count <= MANY else await asyncio.to_thread(work)


def _are_few(store: TripleStore, text: str, seconds: float) -> bool:
    try:
        store.rows(text, [], seconds=seconds, limit=MANY)
    except SpaceError as error:
        if error.fault is not Fault.TOO_LARGE:
            raise
        return False
    return True


def _state(space: DurableSpace, standing: StandingQuery) -> dict[str, Any]:
    return {
        "watch": standing.id,
        "life": space.life(standing),
        "version": space.engine.version,
        "number": standing.number,
    }


def _with_list(head: dict[str, Any], name: str, texts: list[str]) -> bytes:
    """A JSON object whose last member is a list of what is JSON already."""
    first = _json(head)[:-1]
    return f'{first}{"," if head else ""}"{name}":[{",".join(texts)}]}}'.encode()


def _as_many_as_fit(variables: list[str], changes: list[Change], room: int) -> list[str]:
    """Changes in JSON, the oldest first."""
    left = room - HEAD
    found: list[str] = []
    for change in changes:
        text = _json(change_json(variables, change))
        left -= len(text.encode()) + 1
        if left < 0:
            break
        found.append(text)
    return found


def _check_fields(request: Request) -> tuple[str, int, object]:
    try:
        fields = json.loads(request.body)
        return str(fields["watch"]), int(fields["number"]), fields.get("life")
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise malformed('a check is JSON such as {"watch": "…", "number": 3}') from None


def _watch_text(request: Request) -> str:
    """SPARQL as it is; a mask such as {"p": "<http://e/p>"} as the query that it stands for."""
    text = as_text(request.body)
    return mask_query(text) if plain_type(request.content_type) == JSON else text
