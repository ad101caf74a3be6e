"""One space: triples, a version that counts the updates, and the standing queries they touch. No network, no clock."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyoxigraph import QueryBoolean, QuerySolutions, QueryTriples, Triple

from tidegate.space.errors import Fault, SpaceError
from tidegate.space.pattern_index import PatternIndex
from tidegate.space.settings import SpaceLimits
from tidegate.space.standing import Change, StandingQuery, Touched, watch_id
from tidegate.space.store import Torn, TripleStore
from tidegate.space.terms import canonical_triples
from tidegate.space.update import Construct, Operation, read_update

log = logging.getLogger("tidegate.space.engine")
_ABSENT: Any = object()


@dataclass(slots=True)
class Plan:
    """An update that can be carried out: what changes, and which standing queries that touches.

    `risky` are those of them that may take too long to follow it: to be tried out where they can be stopped.
    """

    removed: list[Triple]
    added: list[Triple]
    touched: dict[StandingQuery, Touched]
    risky: list[StandingQuery]


@dataclass(slots=True)
class Outcome:
    """What an update did. `version` is unchanged if nothing was; `failed` are standing queries that had to end."""

    version: int
    removed: list[Triple] = field(default_factory=list)
    added: list[Triple] = field(default_factory=list)
    changes: list[tuple[StandingQuery, Change]] = field(default_factory=list)
    failed: list[tuple[StandingQuery, SpaceError]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.removed and not self.added


class SpaceEngine:
    """All changes go through `apply`; each that changes anything makes a version."""

    def __init__(self, name: str, limits: SpaceLimits | None = None) -> None:
        self.name = name
        self.limits = limits or SpaceLimits()
        self.store = TripleStore()
        self.version = 0
        self._is_changing = False
        self.standing: dict[str, StandingQuery] = {}
        self.lives = 0  # standing queries that ever began
        self._index: PatternIndex[tuple[str, int]] = PatternIndex()

    def ask(self, text: str) -> tuple[QuerySolutions | QueryBoolean | QueryTriples, int]:
        """Begin a query, in any thread; with the version that it is about. Raises as the store's `ask` does."""
        version = self.version
        if self._is_changing:
            raise Torn
        answer = self.store.ask(text)
        if self._is_changing or version != self.version:
            raise Torn
        return answer, version

    def insert(self, triples: Iterable[Triple]) -> Outcome:
        return self.apply((), triples)

    def remove(self, triples: Iterable[Triple]) -> Outcome:
        return self.apply(triples, ())

    def update(self, text: str) -> Outcome:
        """A SPARQL update, all or nothing; waits until it is evaluated."""
        return self.apply(*self.rehearse(read_update(text)))

    def rehearse(self, operations: list[Operation]) -> tuple[list[Triple], list[Triple]]:
        """What these would remove and add in all. Each sees what those before it did; in the end all is undone."""
        limits = self.limits

        def construct(query: str) -> list[Triple]:
            return self.store.triples(query, seconds=limits.query_time, limit=limits.answer_rows)

        if len(operations) == 1:
            return operations[0].evaluate(self.store, construct)
        if all(operation.is_data or operation.is_clear for operation in operations):
            return self._fold(operations, construct)
        gone: dict[Triple, None] = {}
        come: dict[Triple, None] = {}
        try:
            for operation in operations:
                out, into = self.store.difference(*operation.evaluate(self.store, construct))
                self.store.change(out, into)
                for each in out:
                    if come.pop(each, _ABSENT) is _ABSENT:
                        gone[each] = None
                for each in into:
                    if gone.pop(each, _ABSENT) is _ABSENT:
                        come[each] = None
        finally:
            self.store.change(come, gone)
        return list(gone), list(come)

    def _fold(
        self, operations: list[Operation], construct: Construct
    ) -> tuple[list[Triple], list[Triple]]:
        """The same for operations that need not see each other's work: the store stays as it is for those who read."""
        gone: dict[Triple, None] = {}
        come: dict[Triple, None] = {}
        is_cleared = False
        for operation in operations:
            if operation.is_clear:
                come.clear()
                if not is_cleared:  # else all is gone already
                    gone.update(dict.fromkeys(self.store))
                    is_cleared = True
                continue
            removed, added = operation.evaluate(self.store, construct)
            for each in canonical_triples(removed):
                gone[each] = None
                come.pop(each, None)
            come.update(dict.fromkeys(canonical_triples(added)))
        return list(gone), list(come)

    def apply(self, removed: Iterable[Triple], added: Iterable[Triple]) -> Outcome:
        """Remove, then add. Cost: by what changes and by the standing queries that it touches."""
        return self.carry_out(self.plan(removed, added))

    def plan(self, removed: Iterable[Triple], added: Iterable[Triple]) -> Plan:
        """To be carried out before anything else changes; raises if the space would grow too large."""
        return self.plan_difference(*self.store.difference(removed, added))

    def plan_difference(self, gone: list[Triple], come: list[Triple]) -> Plan:
        """The same of exactly what changes, as the store's `difference` gave it."""
        size = len(self.store) + len(come) - len(gone)
        if size > self.limits.triples and (gone or come):
            raise SpaceError(
                Fault.TOO_LARGE,
                f"space {self.name!r} may hold {self.limits.triples} triples",
                hint="remove some, or raise the limit",
            )
        touched = self._touched(gone, come)
        limit = self.limits.watch_time
        risky = [each for each, touch in touched.items() if each.worst(touch, size) > limit]
        # To look at what it takes showed that it is no concern of most joins.
        concerned = {each: touch for each, touch in touched.items() if touch.hits}
        return Plan(gone, come, concerned, risky)

    def carry_out(self, plan: Plan, ended: Mapping[str, SpaceError] | None = None) -> Outcome:
        """`ended` are standing queries that are not to follow it, with the reason."""
        gone, come = plan.removed, plan.added
        if not gone and not come:
            return Outcome(self.version)
        outcome = Outcome(self.version + 1, gone, come)
        left: dict[StandingQuery, Touched] = {}
        for standing, touch in plan.touched.items():
            try:
                if ended and standing.id in ended:
                    raise ended[standing.id]
                standing.before(touch)
            except Exception as error:  # noqa: BLE001 - the update stands whatever happens to a watch
                outcome.failed.append((standing, _reason(error)))
            else:
                left[standing] = touch
        self._is_changing = True
        self.store.change(gone, come)
        self.version = outcome.version
        self._is_changing = False
        for standing, touch in left.items():
            try:
                change = standing.after(touch, self.version)
            except Exception as error:  # noqa: BLE001
                outcome.failed.append((standing, _reason(error)))
            else:
                if change is not None:
                    outcome.changes.append((standing, change))
        for standing, _ in outcome.failed:
            self.end_watch(standing.id)
        return outcome

    def _touched(self, gone: list[Triple], come: list[Triple]) -> dict[StandingQuery, Touched]:
        found: dict[StandingQuery, Touched] = {}
        if not self.standing:
            return found
        for triples, is_added in ((gone, False), (come, True)):
            for triple in triples:
                for name, number in self._index.matching(triple):
                    touch = found.setdefault(self.standing[name], Touched())
                    (touch.added if is_added else touch.removed).append((triple, number))
        return found

    def watch(self, text: str) -> StandingQuery:
        """The standing query for this text, made if there is none yet."""
        known = self.standing.get(watch_id(text))
        if known is not None:
            return known
        if len(self.standing) >= self.limits.watches:
            raise SpaceError(
                Fault.BUSY,
                f"space {self.name!r} has {self.limits.watches} watches",
                hint="end one first",
                retry_after=self.limits.lease,
            )
        standing = StandingQuery(text, self.store, self.limits)
        standing.version = self.version
        self.lives += 1
        standing.life = self.lives
        self.standing[standing.id] = standing
        for mask, number in standing.masks:
            self._index.add(mask, (standing.id, number))
        return standing

    def end_watch(self, watch: str) -> bool:
        standing = self.standing.pop(watch, None)
        if standing is None:
            return False
        for mask, number in standing.masks:
            self._index.remove(mask, (standing.id, number))
        return True


def _reason(error: Exception) -> SpaceError:
    if isinstance(error, SpaceError):
        return error
    log.error("a watch cannot follow an update", exc_info=error)
    return SpaceError(Fault.INTERNAL, "the space broker cannot follow it", hint="its log knows more")
