"""Serves requests to named spaces: rights, lanes, shared answers, updates in order, notifications after the commit.

Nothing here knows MQTT or HTTP. `handle` takes a request and always gives a response; what went wrong is in it.
Notifications leave through `notify`, in the order of versions, when the update they belong to is on disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyoxigraph import QueryTriples, Triple

from tidegate.flow.timeout import UNKNOWN, Announcement
from tidegate.space.durable import DurableSpace, change_json
from tidegate.space.engine import Outcome
from tidegate.space.errors import Fault, SpaceError, malformed
from tidegate.space.formats import GRAPHS, RESULTS, negotiate, plain_type, read_triples, write_answer
from tidegate.space.lane import Lane
from tidegate.space.outline import outline
from tidegate.space.requests import JSON, Operation, Request, Response, changes_topic
from tidegate.space.rights import SpaceRights
from tidegate.space.runner import Runner
from tidegate.space.settings import SpaceLimits
from tidegate.space.standing import watch_id
from tidegate.space.store import check_query
from tidegate.space.terms import row_json
from tidegate.space.transfer import evaluate_update
from tidegate.space.update import read_update

log = logging.getLogger("tidegate.space")

LARGE: Final = 64 * 1024  # bytes of RDF that are read in a thread
CACHE_BYTES: Final = 64 * 1024 * 1024
USE: Final = 0.6  # of the capacity that checks of watchers may take: the rest is for reactions and others
Notify = Callable[[str, str, bytes], None]
"""Space, watch and JSON of a notification; must not wait."""


@dataclass(slots=True)
class _Watchers:
    """Who asked for a watch, and when last."""

    seen: dict[str, float] = field(default_factory=dict)

    def count(self, now: float, lease: float) -> int:
        for client in [client for client, then in self.seen.items() if now - then > lease]:
            del self.seen[client]
        return len(self.seen)


class SpaceService:
    """`data` None keeps everything in memory. Lanes: queries, updates and watches do not wait for each other."""

    def __init__(
        self,
        names: list[str],
        *,
        limits: SpaceLimits | None = None,
        rights: SpaceRights | None = None,
        data: Path | None = None,
        sync: bool = True,
        query_workers: int = 4,
        queue: int = 256,
    ) -> None:
        self.limits = limits or SpaceLimits()
        if len(names) > self.limits.spaces:
            raise SpaceError(Fault.TOO_LARGE, f"more than {self.limits.spaces} spaces", hint="name fewer")
        self.rights = rights or SpaceRights()
        self.spaces = {
            name: DurableSpace(name, self.limits, None if data is None else data / name, sync=sync)
            for name in names
        }
        self.lanes = {
            Operation.QUERY: Lane("query", workers=query_workers, capacity=queue),
            Operation.UPDATE: Lane("update", workers=1, capacity=4 * queue),
            Operation.WATCH: Lane("watch", workers=1, capacity=queue),
            Operation.CHECK: Lane("check", workers=1, capacity=queue),
        }
        self.lanes[Operation.INSERT] = self.lanes[Operation.REMOVE] = self.lanes[Operation.UPDATE]
        self.notify: Notify = lambda _space, _watch, _data: None
        self._runner = Runner(seconds=self.limits.query_time, max_bytes=self.limits.answer_bytes)
        self._asking: dict[tuple[str, str, str, int], asyncio.Future[tuple[bytes, str]]] = {}
        self._cache: OrderedDict[tuple[str, str, str], tuple[int, bytes, str]] = OrderedDict()
        self._cache_bytes = 0
        now = time.monotonic()
        self._watchers: dict[tuple[str, str], _Watchers] = {
            (name, watch): _Watchers({"": now})
            for name, space in self.spaces.items()
            for watch in space.engine.standing
        }
        self._counted: dict[str, tuple[float, int]] = {}
        self._commits: dict[str, list[Outcome]] = {name: [] for name in names}
        self.answered = 0
        self.shared = 0  # answers that somebody else had asked for at the same version
        self.notified = 0
        self.failed: dict[str, int] = {}

    async def handle(self, request: Request) -> Response:
        """Whatever happens, the answer is a response: a request that meets a fault of ours ends nobody else's."""
        self.answered += 1
        try:
            return await self._serve(request)
        except Exception as unexpected:
            error = unexpected
            if not isinstance(error, SpaceError):
                log.exception("request failed", extra={"operation": request.operation})
                error = SpaceError(Fault.INTERNAL, "the space broker failed", hint="its log knows more")
            self.failed[error.fault] = self.failed.get(error.fault, 0) + 1
            space = self.spaces.get(request.space)
            return Response(
                body=str(error).encode(),
                content_type="text/plain; charset=utf-8",
                version=0 if space is None else space.engine.version,
                load=self.announce(request, retry_after=error.retry_after),
                error=error,
            )

    async def _serve(self, request: Request) -> Response:
        self.rights.check(request.who, request.space, request.operation.access)
        space = self.spaces.get(request.space)
        if space is None:
            raise SpaceError(
                Fault.UNKNOWN_SPACE,
                f"there is no space {request.space!r}",
                hint=f"there are {', '.join(sorted(self.spaces)) or 'none'}",
            )
        if len(request.body) > self.limits.request_bytes:
            raise SpaceError(
                Fault.TOO_LARGE,
                f"the request is larger than {self.limits.request_bytes} bytes",
                hint="split it",
            )
        match request.operation:
            case Operation.QUERY:
                body, content_type, version = await self._query(space, request)
            case Operation.WATCH:
                body, content_type, version = await self._watch(space, request)
            case Operation.CHECK:
                body, content_type, version = await self._check(space, request)
            case _:
                body, content_type, version = await self._update(space, request)
        return Response(body=body, content_type=content_type, version=version, load=self.announce(request))

    # Queries

    async def _query(self, space: DurableSpace, request: Request) -> tuple[bytes, str, int]:
        text = _text(request.body)
        check_query(text)
        accept = request.accept or ""
        cached = self._cache.get((request.space, text, accept))
        version = space.engine.version
        if cached is not None and cached[0] == version:
            self._cache.move_to_end((request.space, text, accept))
            self.shared += 1
            return cached[1], cached[2], version
        key = (request.space, text, accept, version)
        asking = self._asking.get(key)
        if asking is not None:
            self.shared += 1
            body, content_type = await asyncio.shield(asking)
            return body, content_type, version
        task = asyncio.ensure_future(self._ask(space, text, accept, version))
        self._asking[key] = task
        task.add_done_callback(lambda done: self._on_asked(key, done))
        # Whoever asked first may give up; the others still want to know.
        body, content_type = await asyncio.shield(task)
        return body, content_type, version

    def _on_asked(self, key: tuple[str, str, str, int], done: asyncio.Future[tuple[bytes, str]]) -> None:
        self._asking.pop(key, None)
        if not done.cancelled():
            done.exception()  # everybody may have given up, and then nobody looks

    async def _ask(self, space: DurableSpace, text: str, accept: str, version: int) -> tuple[bytes, str]:
        form = outline(text).form
        offered = list(GRAPHS if form in ("CONSTRUCT", "DESCRIBE") else RESULTS)
        content_type = negotiate(accept, offered)
        store = space.engine.store

        def job(output: Any) -> None:
            answer = store.ask(text)
            known = GRAPHS if isinstance(answer, QueryTriples) else RESULTS
            if content_type not in known:
                raise malformed("the query is not of the form it seems to be", "write it more plainly")
            write_answer(answer, content_type, output)

        async with self.lanes[Operation.QUERY].turn():
            seen = space.engine.version
            body = await self._runner.run(text, len(store), job)
            await space.commit()  # what was read is on disk before anybody hears of it
        if seen == version:
            self._keep((space.engine.name, text, accept), (version, body, content_type))
        return body, content_type

    def _keep(self, key: tuple[str, str, str], value: tuple[int, bytes, str]) -> None:
        old = self._cache.pop(key, None)
        if old is not None:
            self._cache_bytes -= len(old[1])
        self._cache[key] = value
        self._cache_bytes += len(value[1])
        while self._cache_bytes > CACHE_BYTES or len(self._cache) > 4096:
            _, (_, body, _) = self._cache.popitem(last=False)
            self._cache_bytes -= len(body)

    # Updates

    async def _update(self, space: DurableSpace, request: Request) -> tuple[bytes, str, int]:
        async with self.lanes[Operation.UPDATE].turn():
            removed, added = await self._difference(space, request)
            outcome = space.apply(removed, added)
            if not outcome.is_empty:
                self._commits[request.space].append(outcome)
        await space.commit()
        self._send_notifications(request.space, outcome.version)
        body = {"version": outcome.version, "added": len(outcome.added), "removed": len(outcome.removed)}
        return json.dumps(body).encode(), JSON, outcome.version

    async def _difference(self, space: DurableSpace, request: Request) -> tuple[list[Triple], list[Triple]]:
        if request.operation in (Operation.INSERT, Operation.REMOVE):
            if len(request.body) < LARGE:
                triples = read_triples(request.body, request.content_type)
            else:
                triples = await asyncio.to_thread(read_triples, request.body, request.content_type)
            return ([], triples) if request.operation is Operation.INSERT else (triples, [])
        text = _text(request.body)
        operations = read_update(text)
        if all(operation.is_data or operation.is_clear for operation in operations):
            return space.engine.rehearse(operations)
        return await evaluate_update(self._runner, space.engine, text, operations)

    def _send_notifications(self, name: str, version: int) -> None:
        """Those of all updates up to this one: they are on disk, too, and order matters."""
        waiting = self._commits[name]
        while waiting and waiting[0].version <= version:
            outcome = waiting.pop(0)
            for standing, change in outcome.changes:
                fields = change_json(standing.variables, change)
                fields["life"] = self.spaces[name].life(standing)
                fields["load"] = self._watch_load(name, standing.id).encode()
                self._notify(name, standing.id, fields)
            for standing, error in outcome.failed:
                self._notify(name, standing.id, {"version": outcome.version, "ended": str(error)})

    def _notify(self, name: str, watch: str, fields: dict[str, Any]) -> None:
        self.notified += 1
        self.notify(name, watch, json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode())

    # Watches

    async def _watch(self, space: DurableSpace, request: Request) -> tuple[bytes, str, int]:
        text = _watch_text(request)
        async with self.lanes[Operation.WATCH].turn():
            if watch_id(text) not in space.engine.standing:
                await self._try_out(space, text)
            standing = space.watch(text)
            rows = [row_json(standing.variables, row) for row in standing.rows()]
        version = space.engine.version
        await space.commit()
        self._seen(request, standing.id)
        body = {
            "watch": standing.id,
            "life": space.life(standing),
            "topic": changes_topic(request.space, standing.id),
            "variables": standing.variables,
            "version": version,
            "number": standing.number,
            "rows": rows,
        }
        return json.dumps(body, ensure_ascii=False).encode(), JSON, version

    async def _try_out(self, space: DurableSpace, text: str) -> None:
        """Ask it once where it can be stopped, before it is asked where it cannot."""
        check_query(text)
        store, limits = space.engine.store, self.limits

        def job(output: Any) -> None:
            began = time.monotonic()
            rows = store.rows(text, [], seconds=limits.query_time, limit=limits.watch_rows)
            seconds = time.monotonic() - began
            if seconds > limits.watch_time:
                raise SpaceError(
                    Fault.TIMEOUT,
                    f"it takes {seconds:.2f} s to answer; a watch may take {limits.watch_time:g} s",
                    hint="watch something simpler, or ask for this now and then",
                )
            output.write(str(len(rows)).encode())

        await self._runner.run(f"watch {text}", len(store), job)

    async def _check(self, space: DurableSpace, request: Request) -> tuple[bytes, str, int]:
        try:
            fields = json.loads(request.body)
            watch, number = str(fields["watch"]), int(fields["number"])
            life = fields.get("life")
        except (ValueError, TypeError, KeyError, RecursionError):
            raise malformed('a check is JSON such as {"watch": "…", "number": 3}') from None
        async with self.lanes[Operation.CHECK].turn():
            standing = space.engine.standing.get(watch)
            if standing is None:
                raise SpaceError(
                    Fault.UNKNOWN_WATCH, f"there is no watch {watch!r}", hint="it has ended: watch again"
                )
            await space.commit()
            # Only what was notified counts: what is not on disk yet comes by itself.
            is_same = life is None or life == space.life(standing)
            missed = standing.missed(number) if is_same else None
            body: dict[str, Any] = {
                "watch": watch,
                "life": space.life(standing),
                "version": space.engine.version,
                "number": standing.number,
            }
            if missed is not None:
                body["missed"] = [change_json(standing.variables, change) for change in missed]
            else:
                body["rows"] = [row_json(standing.variables, row) for row in standing.rows()]
        self._seen(request, watch)
        return json.dumps(body, ensure_ascii=False).encode(), JSON, space.engine.version

    def _seen(self, request: Request, watch: str) -> None:
        watchers = self._watchers.setdefault((request.space, watch), _Watchers())
        watchers.seen.pop("", None)
        if request.client not in watchers.seen:
            self._counted.pop(request.space, None)
        watchers.seen[request.client] = time.monotonic()

    def end_forgotten(self) -> int:
        """End watches that nobody asked for within the lease; how many. To be called now and then."""
        now, ended = time.monotonic(), 0
        for (name, watch), watchers in list(self._watchers.items()):
            if watchers.count(now, self.limits.lease) == 0:
                self.spaces[name].end_watch(watch)
                del self._watchers[name, watch]
                ended += 1
        return ended

    # Load

    def announce(self, request: Request, *, retry_after: float = 0.0) -> Announcement:
        """The load of the lane that the request uses; the pace is a fair share for all who watch this space."""
        lane = self.lanes[request.operation]
        watchers = self._count_watchers(request.space)
        return Announcement(
            processing=lane.processing,
            queueing=lane.queueing,
            limit=lane.limit,
            capacity=lane.rate,
            watchers=watchers,
            rate=USE * lane.rate / watchers if watchers else 0.0,
            retry_after=retry_after,
        )

    def _count_watchers(self, name: str) -> int:
        """Clients that watch anything here; counted once a second, since every answer tells it."""
        now = time.monotonic()
        then, count = self._counted.get(name, (-1.0, 0))
        if now - then > 1.0:
            count = len(
                {
                    client
                    for (space, _), each in self._watchers.items()
                    if space == name
                    for client in each.seen
                }
            )
            self._counted[name] = (now, count)
        return count

    def _watch_load(self, name: str, watch: str) -> Announcement:
        watchers = self._watchers.get((name, watch))
        lane = self.lanes[Operation.QUERY]
        if watchers is None:
            return UNKNOWN
        return Announcement(capacity=lane.rate, watchers=len(watchers.seen), processing=lane.processing)

    async def close(self) -> None:
        for space in self.spaces.values():
            await space.close()

    def statistics(self) -> dict[str, Any]:
        return {
            "answered": self.answered,
            "shared": self.shared,
            "notified": self.notified,
            "failed": dict(self.failed),
            "lanes": {lane.name: lane.statistics() for lane in self.lanes.values()},
            "runner": self._runner.statistics(),
            "spaces": {
                name: {
                    "version": space.engine.version,
                    "triples": len(space.engine.store),
                    "watches": len(space.engine.standing),
                }
                for name, space in self.spaces.items()
            },
        }


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise malformed("the request is not UTF-8") from None


def _watch_text(request: Request) -> str:
    """SPARQL as it is; a mask such as {"p": "<http://e/p>"} as the query that it stands for."""
    text = _text(request.body)
    if plain_type(request.content_type) != JSON:
        return text
    try:
        mask = json.loads(text)
        unknown = set(mask) - {"s", "p", "o"}
        terms = {name: str(mask.get(name) or f"?{name}") for name in ("s", "p", "o")}
    except (ValueError, TypeError, RecursionError):
        raise malformed('a mask is JSON such as {"s": null, "p": "<http://e/p>", "o": null}') from None
    if unknown:
        raise malformed(f"a mask has s, p and o, not {min(unknown)!r}")
    wanted = " ".join(f"?{name}" for name in terms if not mask.get(name)) or "*"
    return f"SELECT {wanted} WHERE {{ {terms['s']} {terms['p']} {terms['o']} }}"
