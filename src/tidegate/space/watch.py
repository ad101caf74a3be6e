"""A standing query seen from a client: notifications as they come, and a check loop that finds what was lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidegate.client import ClientError, Message
from tidegate.client.repeating import Answered, Repeating
from tidegate.flow.timeout import UNKNOWN, Announcement, TimeoutPolicy, parse_announcement
from tidegate.space.durable import change_from_json
from tidegate.space.errors import Fault, SpaceError
from tidegate.space.requests import JSON, Operation, changes_topic
from tidegate.space.standing import Change
from tidegate.space.terms import Row, row_from_json

if TYPE_CHECKING:
    from tidegate.space.knowledge import Reply, Space


class Watch:
    """`rows` is the answer as far as it is known here, `version` and `number` say which. Iterates over changes.

    A change that was lost on the way is noticed by its number, by the next notification or by a check, and fetched;
    changes always come in order, each once. If the broker does not remember them any more, the difference between
    what is known and the whole answer comes as one change, and `resets` counts it. Changes wait in a queue of bounded
    length; if it is full, they are merged into the last one.
    """

    def __init__(
        self,
        space: Space,
        body: str,
        content_type: str | None,
        policy: TimeoutPolicy,
        *,
        patience: float,
        qos: int,
        random: Random,
        queue: int,
    ) -> None:
        self._space = space
        self._body = body
        self._content_type = content_type
        self._patience = patience
        self._qos = qos
        self._limit = queue
        self._repeating = Repeating(self._check, policy.loop(), random)
        self.id = ""
        self._life = ""
        self.variables: list[str] = []
        self.rows: Counter[Row] = Counter()
        self.version = 0
        self.number = 0
        self._changes: deque[Change] = deque()
        self._arrived = asyncio.Event()
        self._error: Exception | None = None
        self.load = UNKNOWN  # that of checks, as it was announced last
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self.notifications = 0
        self.lost = 0  # changes found by a check that no notification had brought
        self.resets = 0

    async def __aenter__(self) -> Self:
        await self._register()
        topic = changes_topic(self._space.name, self.id, self._space.prefix)
        client = self._space.client
        await self._stack.enter_async_context(client.listening(topic, self._on_message, qos=self._qos))
        self._tasks = [
            asyncio.create_task(client.wait_closed()),
            asyncio.create_task(self._repeating.run()),
        ]
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)
        self._repeating.nudge()  # what changed between the answer and the subscription is found by a check at once
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def __aiter__(self) -> Self:
        if not self.id:
            raise RuntimeError("a watch begins with `async with`: async with space.watch(…) as watch")
        return self

    async def __anext__(self) -> Change:
        """The next change; waits without limit, as a space may be quiet for days."""
        while not self._changes:
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        return self._changes.popleft()

    def statistics(self) -> dict[str, float]:
        """Counters since it began, and the policy's state: t_ast, t_bck and t_avg in seconds."""
        return {
            **self._repeating.statistics(),
            "notifications": self.notifications,
            "lost": self.lost,
            "resets": self.resets,
            "version": self.version,
            "number": self.number,
        }

    @property
    def checks(self) -> int:
        """Requests for what may have been missed, reactions to a gap among them."""
        return self._repeating.checks + self._repeating.reactions

    async def _register(self) -> None:
        reply = await self._space.request(Operation.WATCH, self._body, content_type=self._content_type)
        fields: dict[str, Any] = reply.json()
        is_first = not self.id
        self.id = fields["watch"]
        self.variables = fields["variables"]
        self._reset(fields, is_first=is_first)

    def _reset(self, fields: dict[str, Any], *, is_first: bool = False) -> None:
        """Take the whole answer; what differs from what was known is one change."""
        rows = Counter(row_from_json(self.variables, each) for each in fields["rows"])
        added, removed = rows - self.rows, self.rows - rows
        self.rows = rows
        self.version, self.number, self._life = fields["version"], fields["number"], fields["life"]
        if not is_first:
            self.resets += 1
            if added or removed:
                self._put(
                    Change(
                        version=self.version,
                        number=self.number,
                        added=list(added.elements()),
                        removed=list(removed.elements()),
                    )
                )

    def _put(self, change: Change) -> None:
        if len(self._changes) >= self._limit:
            last = self._changes.pop()
            added = Counter(last.added) + Counter(change.added)
            removed = Counter(last.removed) + Counter(change.removed)
            change = Change(
                version=change.version,
                number=change.number,
                added=list((added - removed).elements()),
                removed=list((removed - added).elements()),
            )
        self._changes.append(change)
        self._arrived.set()

    def _take(self, change: Change) -> None:
        self.rows.subtract(change.removed)
        self.rows.update(change.added)
        for row in change.removed:  # a look at all of them would make each change cost by the size of the answer
            if self.rows[row] <= 0:
                del self.rows[row]
        self.number, self.version = change.number, change.version
        self._put(change)

    def _on_message(self, message: Message) -> None:
        try:
            self._on_notification(message)
        except SpaceError as error:
            self._end(error)

    def _on_notification(self, message: Message) -> None:
        try:
            fields = message.json()
            if "ended" in fields:
                raise SpaceError(
                    Fault.UNKNOWN_WATCH, f"the watch ended: {fields['ended']}", hint="watch something simpler"
                )
            change = change_from_json(self.variables, fields)
        except (ValueError, KeyError, TypeError):
            return  # not from our broker; whatever it was, a check finds what is missing
        self.notifications += 1
        is_same = fields.get("life") == self._life
        if is_same and change.number == self.number + 1:
            self._take(change)
        elif not is_same or change.number > self.number:
            load = fields.get("load")
            self._repeating.nudge(self.of_checks(parse_announcement(load) if isinstance(load, str) else UNKNOWN))

    def of_checks(self, told: Announcement) -> Announcement:
        """A notification tells how many it reaches and what queries cost, but we react with a check."""
        known = self.load
        return replace(told, capacity=known.capacity, limit=known.limit, queueing=0.0) if known.capacity else told

    async def _check(self) -> Answered:
        body = json.dumps({"watch": self.id, "life": self._life, "number": self.number})
        try:
            reply = await self._space.request(
                Operation.CHECK, body, content_type=JSON, timeout=self._patience
            )
        except SpaceError as error:
            if error.fault is Fault.UNKNOWN_WATCH:
                return await self._begin_again()
            return _dropped(error)
        except ClientError:
            return Answered(is_dropped=True)
        self.load = reply.load
        return Answered(losses=self._on_reply(reply), load=reply.load)

    async def _begin_again(self) -> Answered:
        """The broker does not know the watch any more."""
        try:
            await self._register()
        except SpaceError as error:
            return _dropped(error)
        except ClientError:
            return Answered(is_dropped=True)
        return Answered()

    def _on_reply(self, reply: Reply) -> int:
        """Take what was missed; how much no notification had brought."""
        fields = reply.json()
        before = self.number
        if "rows" in fields:
            # Fewer changes than we know of: the broker lost its memory, and all that can be trusted is the answer.
            self._reset(fields)
        else:
            for each in fields["missed"]:
                change = change_from_json(self.variables, each)
                if change.number == self.number + 1:
                    self._take(change)
            if self.number < fields["number"]:
                self._repeating.nudge()  # there is more than one answer can carry
            else:
                self.version = max(self.version, fields["version"])
        losses = max(0, self.number - before)
        self.lost += losses
        return losses

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._end(error)

    def _end(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._arrived.set()


def _dropped(error: SpaceError) -> Answered:
    """A refusal for now is one more request to repeat; any other is raised."""
    if error.fault is not Fault.BUSY:
        raise error
    return Answered(is_dropped=True, load=error.load)
