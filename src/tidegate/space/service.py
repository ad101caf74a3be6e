"""Serves requests to named spaces: rights, lanes, shared answers, updates in order, notifications after the commit.

Nothing here knows MQTT or HTTP. `handle` takes a request and always gives a response; what went wrong is in it.
`handle_nowait` serves what waits for nothing but the disk without a task of its own: most updates. Notifications leave
through `notify`, in the order of versions, when the update they belong to is on disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, Final

from pyoxigraph import Triple

from tidegate.flow.timeout import UNKNOWN, Announcement
from tidegate.space.answers import Answers
from tidegate.space.durable import DurableSpace, change_json
from tidegate.space.engine import Outcome, Plan
from tidegate.space.errors import Fault, SpaceError, malformed
from tidegate.space.formats import plain_type, read_triples
from tidegate.space.lane import Lane
from tidegate.space.outline import outline
from tidegate.space.requests import JSON, Operation, Request, Response, changes_topic
from tidegate.space.rights import Access, SpaceRights
from tidegate.space.runner import Runner
from tidegate.space.settings import SpaceLimits
from tidegate.space.standing import Change, watch_id
from tidegate.space.store import check_query
from tidegate.space.terms import row_json
from tidegate.space.transfer import evaluate_update
from tidegate.space.trial import try_out
from tidegate.space.update import read_update
from tidegate.space.watchers import Watchers

log = logging.getLogger("tidegate.space")
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

LARGE: Final = 64 * 1024  # bytes of a request that is read in a thread
USE: Final = 0.6  # of the capacity that checks of watchers may take: the rest is for reactions and others
HEAD: Final = 1024  # bytes of the answer to a check beside the changes
FRESH: Final = 0.01  # seconds that an announced load is good for
UNCOMMITTED: Final = (
    4096  # updates that may wait for the disk without a task that whoever takes requests can count
)
Difference = tuple[list[Triple], list[Triple]]
"""What an update removes and adds."""
Notify = Callable[[str, str, bytes], None]
"""Space, watch and JSON of a notification; must not wait."""


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
        # Updates of one space wait for each other, and for those of no other; the first is for unknown ones.
        self._updates = {name: Lane("update", workers=1, capacity=4 * queue) for name in names}
        self.notify: Notify = lambda _space, _watch, _data: None
        self._runner = Runner(
            seconds=self.limits.query_time, max_bytes=self.limits.answer_bytes, workers=query_workers
        )
        self._answers = Answers(self._runner, self.lanes[Operation.QUERY])
        self.watchers = Watchers(
            ((name, watch) for name, space in self.spaces.items() for watch in space.engine.standing),
            self.limits.lease,
        )
        self._commits: dict[str, deque[Outcome]] = {name: deque() for name in names}
        self._announced: dict[tuple[Operation, str], tuple[float, Announcement]] = {}
        self._told: dict[int, tuple[float, Announcement]] = {}
        self._uncommitted = 0
        self.answered = 0
        self.notified = 0
        self.failed: dict[str, int] = {}

    @property
    def shared(self) -> int:
        """Answers that somebody else had asked for at the same version."""
        return self._answers.shared

    async def handle(self, request: Request) -> Response:
        """Whatever happens, the answer is a response: a request that meets a fault of ours ends nobody else's."""
        self.answered += 1
        try:
            space = self.admit(request)
            match request.operation:
                case Operation.QUERY:
                    text = _text(request.body)
                    body, content_type, version = await self._answers.ask(space, text, request.accept or "")
                case Operation.WATCH:
                    body, content_type, version = await self._watch(space, request)
                case Operation.CHECK:
                    body, content_type, version = await self._check(space, request)
                case _:
                    return await self._update(space, request)
            _check_room(request, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, only this request fails
            return self._failure(request, error)
        return Response(body=body, content_type=content_type, version=version, load=self.announce(request))

    def handle_nowait(self, request: Request, done: Callable[[Response], None]) -> bool:
        """Serve an update that evaluates nothing while nobody is before it; `done` gets the response when it is on
        disk. False: it is for `handle`, and nothing has happened.
        """
        lane = self._lane(request)
        is_small = request.operation.access is Access.WRITE and len(request.body) < LARGE
        if not is_small or self._uncommitted >= UNCOMMITTED or not lane.enter_nowait():
            return False
        began: float | None = time.perf_counter()
        try:
            space = self.admit(request)
            difference = self._difference_nowait(space, request)
            plan = None if difference is None else space.engine.plan(*difference)
            if plan is None or plan.risky:
                began = None
                return False
            outcome = self._carry_out(space, plan)
        except Exception as error:  # noqa: BLE001 - whatever it is, only this request fails
            self.answered += 1
            done(self._failure(request, error))
            return True
        finally:
            lane.leave(None if began is None else time.perf_counter() - began)
        self.answered += 1
        self._uncommitted += 1

        def committed(error: SpaceError | None) -> None:
            self._uncommitted -= 1
            done(self._failure(request, error) if error else self._updated(request, outcome))

        space.on_commit(committed)
        return True

    def admit(self, request: Request) -> DurableSpace:
        self.rights.check(request.who, request.space, request.operation.access)
        space = self.spaces.get(request.space)
        if space is None:
            raise SpaceError(
                Fault.UNKNOWN_SPACE,
                f"there is no space {request.space!r}",
                hint=f"there are {', '.join(sorted(self.spaces)) or 'none'}",
            )
        largest = {
            Operation.QUERY: self.limits.query_bytes,
            Operation.WATCH: self.limits.watch_bytes,
            Operation.CHECK: self.limits.watch_bytes,
        }.get(request.operation, self.limits.request_bytes)
        if len(request.body) > largest:
            raise SpaceError(Fault.TOO_LARGE, f"the request is larger than {largest} bytes", hint="split it")
        return space

    def _lane(self, request: Request) -> Lane:
        lane = self.lanes[request.operation]
        return self._updates.get(request.space, lane) if lane is self.lanes[Operation.UPDATE] else lane

    def _failure(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, SpaceError):
            log.error("request failed", exc_info=error, extra={"operation": request.operation})
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

    # Updates

    async def _update(self, space: DurableSpace, request: Request) -> Response:
        async with self._lane(request).turn():
            difference = None if len(request.body) >= LARGE else self._difference_nowait(space, request)
            if difference is None:
                difference = await self._difference(space, request)
            outcome = await self._apply(space, *difference)
        await space.commit()
        return self._updated(request, outcome)

    def _difference_nowait(self, space: DurableSpace, request: Request) -> Difference | None:
        """None if it takes more than a moment to know."""
        if request.operation is not Operation.UPDATE:
            triples = read_triples(request.body, request.content_type)
            return ([], triples) if request.operation is Operation.INSERT else (triples, [])
        operations = read_update(_text(request.body))
        if all(operation.is_data or operation.is_clear for operation in operations):
            return space.engine.rehearse(operations)
        return None

    async def _difference(self, space: DurableSpace, request: Request) -> Difference:
        if request.operation is not Operation.UPDATE:
            triples = await asyncio.to_thread(read_triples, request.body, request.content_type)
            return ([], triples) if request.operation is Operation.INSERT else (triples, [])
        text = _text(request.body)
        operations = await asyncio.to_thread(read_update, text)
        if all(operation.is_data or operation.is_clear for operation in operations):
            return space.engine.rehearse(operations)
        if any(max(len(each.remove), len(each.add)) > self.limits.query_bytes for each in operations):
            raise SpaceError(
                Fault.TOO_LARGE,
                f"an operation with a WHERE is larger than {self.limits.query_bytes} bytes",
                hint="split it, or write INSERT DATA",
            )
        return await evaluate_update(self._runner, space.engine, text, operations)

    async def _apply(self, space: DurableSpace, removed: list[Triple], added: list[Triple]) -> Outcome:
        """Watches that may take too long to follow it are tried out first; those that do are ended."""
        plan = space.engine.plan(removed, added)
        tried: set[str] = set()
        slow: dict[str, SpaceError] = {}
        while risky := [each for each in plan.risky if each.id not in tried]:
            names, failed = await try_out(self._runner, space.engine, plan, risky)
            tried |= names
            slow |= failed
            plan = space.engine.plan(removed, added)  # watches may have begun or ended meanwhile
        return self._carry_out(space, plan, slow)

    def _carry_out(
        self, space: DurableSpace, plan: Plan, ended: dict[str, SpaceError] | None = None
    ) -> Outcome:
        outcome = space.carry_out(plan, ended)
        if not outcome.is_empty:
            self._commits[space.engine.name].append(outcome)
        return outcome

    def _updated(self, request: Request, outcome: Outcome) -> Response:
        """The update is on disk: tell the watchers, then whoever sent it."""
        self._send_notifications(request.space, outcome.version)
        body = (
            f'{{"version": {outcome.version}, "added": {len(outcome.added)}, '
            f'"removed": {len(outcome.removed)}}}'
        )
        return Response(
            body=body.encode(), content_type=JSON, version=outcome.version, load=self.announce(request)
        )

    def _send_notifications(self, name: str, version: int) -> None:
        """Those of all updates up to this one: they are on disk, too, and order matters."""
        waiting = self._commits[name]
        while waiting and waiting[0].version <= version:
            outcome = waiting.popleft()
            for standing, change in outcome.changes:
                fields = change_json(standing.variables, change)
                fields["life"] = self.spaces[name].life(standing)
                fields["load"] = self._watch_load(name, standing.id).encode()
                self._notify(name, standing.id, fields)
            for standing, error in outcome.failed:
                self._notify(name, standing.id, {"version": outcome.version, "ended": str(error)})

    def _notify(self, name: str, watch: str, fields: dict[str, Any]) -> None:
        self.notified += 1
        self.notify(name, watch, _json(fields).encode())

    # Watches

    async def _watch(self, space: DurableSpace, request: Request) -> tuple[bytes, str, int]:
        text = _watch_text(request)
        async with self.lanes[Operation.WATCH].turn():
            is_new = watch_id(text) not in space.engine.standing
            # One pattern gives its rows one by one, and stops where there are too many.
            if is_new and not outline(text).is_one_pattern:
                await self._try_out(space, text)
            standing = space.watch(text)
            # Rows, number and version are of one moment: what changes while the disk is waited for is notified.
            version = space.engine.version
            fields = {
                "watch": standing.id,
                "life": space.life(standing),
                "topic": changes_topic(request.space, standing.id),
                "variables": standing.variables,
                "version": version,
                "number": standing.number,
                "rows": [row_json(standing.variables, row) for row in standing.rows()],
            }
            body = json.dumps(fields, ensure_ascii=False).encode()
            try:
                _check_room(request, body)
            except SpaceError:
                if is_new:
                    space.end_watch(standing.id)
                raise
        self.watchers.note(request.space, standing.id, request.client)
        await space.commit()
        return body, JSON, version

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
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            raise malformed('a check is JSON such as {"watch": "…", "number": 3}') from None
        async with self.lanes[Operation.CHECK].turn():
            standing = space.engine.standing.get(watch)
            if standing is None:
                raise SpaceError(
                    Fault.UNKNOWN_WATCH, f"there is no watch {watch!r}", hint="it has ended: watch again"
                )
            is_same = life is None or life == space.life(standing)
            missed = standing.missed(number) if is_same else None
            texts = None if missed is None else _as_many_as_fit(standing.variables, missed, request.room)
            body: dict[str, Any] = {
                "watch": watch,
                "life": space.life(standing),
                "version": space.engine.version,
                "number": standing.number,
            }
            if texts is not None:
                body["missed"] = texts
            else:
                body["rows"] = [row_json(standing.variables, row) for row in standing.rows()]
            version = space.engine.version
        await space.commit()
        self.watchers.note(request.space, watch, request.client)
        return json.dumps(body, ensure_ascii=False).encode(), JSON, version

    def end_forgotten(self) -> int:
        """End watches that nobody asked for within the lease; how many. To be called now and then."""
        forgotten = self.watchers.take_forgotten()
        for name, watch in forgotten:
            self.spaces[name].end_watch(watch)
        return len(forgotten)

    # Load

    def announce(self, request: Request, *, retry_after: float = 0.0) -> Announcement:
        """The load of the lane that the request uses; the pace is a fair share for all who watch this space."""
        key = (request.operation, request.space)
        now = time.monotonic()
        until, known = self._announced.get(key, (0.0, UNKNOWN))
        if now < until and retry_after == 0.0:
            return known
        lane = self._lane(request)
        watchers = self.watchers.of_space(request.space) if request.space in self.spaces else 0
        load = Announcement(
            processing=lane.processing,
            queueing=lane.queueing,
            limit=lane.limit,
            capacity=lane.rate,
            watchers=watchers,
            rate=USE * lane.rate / watchers if watchers else 0.0,
            retry_after=retry_after,
        )
        if retry_after == 0.0 and request.space in self.spaces:
            self._announced[key] = (now + FRESH, load)
        return load

    def _watch_load(self, name: str, watch: str) -> Announcement:
        watchers = self.watchers.of_watch(name, watch)
        if not watchers:
            return UNKNOWN
        now = time.monotonic()
        until, load = self._told.get(watchers, (0.0, UNKNOWN))
        if now >= until:
            lane = self.lanes[Operation.QUERY]
            load = Announcement(capacity=lane.rate, watchers=watchers, processing=lane.processing)
            if len(self._told) > 1000:
                self._told.clear()
            self._told[watchers] = (now + FRESH, load)
        return load

    async def close(self) -> None:
        for space in self.spaces.values():
            await space.close()
        self._runner.close()

    @property
    def has_late_threads(self) -> bool:
        """Threads that nobody can stop hold up the end of the process."""
        return self._runner.has_late_threads

    def statistics(self) -> dict[str, Any]:
        return {
            "answered": self.answered,
            "shared": self.shared,
            "notified": self.notified,
            "failed": dict(self.failed),
            "lanes": {
                **{lane.name: lane.statistics() for lane in self.lanes.values()},
                "update": _together([lane.statistics() for lane in self._updates.values()]),
            },
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


def _together(lanes: list[dict[str, float]]) -> dict[str, float]:
    """Counters of several lanes as if they were one; the time is that of the slowest."""
    names = lanes[0] if lanes else {}
    return {name: (max if name == "processing" else sum)(each[name] for each in lanes) for name in names}


def _check_room(request: Request, body: bytes) -> None:
    if request.room is not None and len(body) > request.room:
        raise SpaceError(
            Fault.TOO_LARGE,
            f"the answer has {len(body)} bytes, and the MQTT broker takes no such packet",
            hint="ask for less, ask over HTTP, or raise max_packet_size of the MQTT broker",
        )


def _as_many_as_fit(
    variables: list[str], changes: list[Change], room: int | None
) -> list[dict[str, Any]] | None:
    """Changes in JSON, the oldest first; None if there are some and not even the first fits."""
    left = inf if room is None else room - HEAD
    found: list[dict[str, Any]] = []
    for change in changes:
        fields = change_json(variables, change)
        if room is not None:
            left -= len(json.dumps(fields, ensure_ascii=False).encode()) + 2
        if left < 0:
            return found or None
        found.append(fields)
    return found


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
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise malformed('a mask is JSON such as {"s": null, "p": "<http://e/p>", "o": null}') from None
    if unknown:
        raise malformed(f"a mask has s, p and o, not {min(unknown)!r}")
    wanted = " ".join(f"?{name}" for name in terms if not mask.get(name)) or "*"
    return f"SELECT {wanted} WHERE {{ {terms['s']} {terms['p']} {terms['o']} }}"
