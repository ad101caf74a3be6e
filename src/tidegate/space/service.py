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
from pathlib import Path
from typing import Any, Final

from pyoxigraph import Triple

from tidegate.flow.timeout import Announcement
from tidegate.space.answers import Answers
from tidegate.space.durable import DurableSpace, change_json
from tidegate.space.engine import Outcome, Plan
from tidegate.space.errors import Fault, SpaceError
from tidegate.space.formats import read_triples
from tidegate.space.lane import Lane
from tidegate.space.load import Load
from tidegate.space.requests import JSON, Operation, Request, Response, as_text, no_room
from tidegate.space.rights import Access, SpaceRights
from tidegate.space.runner import Runner
from tidegate.space.settings import SpaceLimits
from tidegate.space.transfer import evaluate_update
from tidegate.space.trial import try_out
from tidegate.space.update import read_update
from tidegate.space.watches import Watches

log = logging.getLogger("tidegate.space")
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

# What is less is done in the turn of the loop in which it came: at most a few milliseconds, whatever is in it.
LARGE: Final = 8 * 1024  # bytes of an update that is read in a thread
MANY: Final = 1000  # triples whose difference to what is there is taken in a thread
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
        self._watches = Watches(self.spaces, self.lanes, self._runner, self.limits)
        self.watchers = self._watches.watchers
        self._commits: dict[str, deque[Outcome]] = {name: deque() for name in names}
        self._load = Load(self.spaces, self.watchers, self.lanes[Operation.QUERY])
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
                    text = as_text(request.body)
                    body, content_type, version = await self._answers.ask(space, text, request.accept or "")
                case Operation.WATCH:
                    body, content_type, version = await self._watches.begin(space, request)
                case Operation.CHECK:
                    body, content_type, version = await self._watches.check(space, request)
                case _:
                    return await self._update(space, request)
            if request.room is not None and len(body) > request.room:
                raise no_room(request.room)
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
            is_quick = difference is not None and len(difference[0]) + len(difference[1]) <= MANY
            plan = space.engine.plan(*difference) if difference is not None and is_quick else None
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
        operations = read_update(as_text(request.body))
        if all(operation.is_data for operation in operations):
            return space.engine.rehearse(operations)
        return None

    async def _difference(self, space: DurableSpace, request: Request) -> Difference:
        if request.operation is not Operation.UPDATE:
            triples = await asyncio.to_thread(read_triples, request.body, request.content_type)
            return ([], triples) if request.operation is Operation.INSERT else (triples, [])
        text = as_text(request.body)
        operations = await asyncio.to_thread(read_update, text)
        if all(operation.is_data or operation.is_clear for operation in operations):
            engine = space.engine  # which is not changed, not even in between
            return await self._runner.beside(engine.store, lambda: engine.rehearse(operations))
        if any(max(len(each.removes), len(each.adds)) > self.limits.query_bytes for each in operations):
            raise SpaceError(
                Fault.TOO_LARGE,
                f"an operation with a WHERE is larger than {self.limits.query_bytes} bytes",
                hint="split it, or write INSERT DATA",
            )
        return await evaluate_update(self._runner, space.engine, text, operations)

    async def _apply(self, space: DurableSpace, removed: list[Triple], added: list[Triple]) -> Outcome:
        """Watches that may take too long to follow it are tried out first; those that do are ended."""
        store = space.engine.store
        if len(removed) + len(added) > MANY:
            # Whoever has the turn is the only one who changes this space.
            exact = await self._runner.beside(store, lambda: store.difference(removed, added))
        else:
            exact = store.difference(removed, added)
        plan = space.engine.plan_difference(*exact)
        tried: set[str] = set()
        slow: dict[str, SpaceError] = {}
        while risky := [each for each in plan.risky if each.id not in tried]:
            names, failed = await try_out(self._runner, space.engine, plan, risky)
            tried |= names
            slow |= failed
            plan = space.engine.plan_difference(*exact)  # watches may have begun or ended meanwhile
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
                fields["load"] = self._load.of_watch(name, standing.id).encode()
                self._notify(name, standing.id, fields)
            for standing, error in outcome.failed:
                log.info("a watch ended", extra={"space": name, "watch": standing.id, "reason": str(error)})
                self._notify(name, standing.id, {"version": outcome.version, "ended": str(error)})

    def _notify(self, name: str, watch: str, fields: dict[str, Any]) -> None:
        self.notified += 1
        self.notify(name, watch, _json(fields).encode())

    def end_forgotten(self) -> int:
        """End watches that nobody asked for within the lease; how many. To be called now and then."""
        return self._watches.end_forgotten()

    def announce(self, request: Request, *, retry_after: float = 0.0) -> Announcement:
        """The load of the lane that the request uses."""
        return self._load.announce(request, self._lane(request), retry_after=retry_after)

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
