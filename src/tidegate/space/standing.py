"""Standing queries: their answer is kept, and what an update adds to it or takes from it is told.

Theory of operation. A plain query (patterns and filters only) is a join. A solution is lost if and only if it uses a
removed triple, and new if and only if it uses an added one. So for each changed triple and each pattern it matches,
the pattern's variables are bound to the triple and the rest is asked of the store: before the change for what is
lost, after it for what is new. Without dropped variables that is all, and nothing is remembered. With DISTINCT, or if
variables are dropped, rows are counted. Any other query is asked again, but only when a changed triple matches one of
its patterns; see `outline`.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, deque
from dataclasses import dataclass, field

from pyoxigraph import QueryBoolean, QuerySolutions, Triple, Variable

from tidegate.space import worst
from tidegate.space.cost import Cost
from tidegate.space.errors import unsupported
from tidegate.space.outline import Slot, outline
from tidegate.space.pattern_index import Mask
from tidegate.space.settings import SpaceLimits
from tidegate.space.store import TripleStore, check_query, too_many, too_slow
from tidegate.space.terms import Row, Term, canonical
from tidegate.space.tokens import UNSTABLE

MANY_HITS = 64  # changed triples from which asking twice is cheaper than asking for each
_UNKNOWN_DEGREE = 8  # of a query that could not be read
_DUMMY = "<urn:tidegate:any>"


@dataclass(slots=True, kw_only=True)
class Change:
    """What one update did to one answer. `number` counts the changes of this query, `version` those of the space."""

    version: int
    number: int
    added: list[Row]
    removed: list[Row]


@dataclass(slots=True)
class _Pattern:
    """`names` are the variables by position, None for a constant."""

    mask: Mask
    names: tuple[str | None, str | None, str | None]
    is_void: bool = False  # no triple matches it

    def bind(self, triple: Triple) -> dict[str, Term] | None:
        """The variables as this triple has them; None if one occurs twice with different values."""
        bound: dict[str, Term] = {}
        terms = (triple.subject, triple.predicate, triple.object)
        for name, term in zip(self.names, terms, strict=True):
            if name is not None and bound.setdefault(name, term) != term:
                return None
        return bound


Hits = list[tuple[Triple, int]]
"""Changed triples with the number of the pattern that each matches; -1 where that does not matter."""


@dataclass(slots=True)
class Touched:
    """One update as far as it concerns one query."""

    removed: Hits = field(default_factory=list)
    added: Hits = field(default_factory=list)
    lost: set[Row] = field(default_factory=set)
    before: set[Row] | None = None
    seconds: float = 0.0  # that it took so far
    is_sifted: bool = False  # what cannot match is out

    @property
    def hits(self) -> int:
        return len(self.removed) + len(self.added)


class StandingQuery:
    """One query over one store. `number` is that of its last change, `version` the space's at that time.

    `life` tells it from one of the same text that ended before: their numbers have nothing to do with each other.
    """

    def __init__(self, text: str, store: TripleStore, limits: SpaceLimits) -> None:
        check_query(text)
        self.id = watch_id(text)
        self.text = text
        self._store = store
        self._limits = limits
        self._outline = outline(text)
        self.variables = self._variables()
        self.number = 0
        self.version = 0
        self.life = 0
        self.history: deque[Change] = deque()
        self._history_rows = 0
        self._asked = 0  # questions to the store for the update at hand
        self._patterns = self._read_patterns()
        plain = self._outline.is_plain and not self._outline.is_wild
        self.is_incremental = plain and self._outline.form == "SELECT"
        wanted = set(self._outline.variables)
        drops = self._outline.is_distinct or not wanted <= set(self.variables)
        place = {name: number for number, name in enumerate(self._outline.variables)}
        self._places = [place.get(name) for name in self.variables]
        self._everything = f"{self._outline.prologue}SELECT * WHERE {self._outline.group}"
        self._is_direct = self._outline.is_one_pattern
        self._counts: Counter[Row] | None = None
        began = time.monotonic()
        if self.is_incremental and drops:
            self._counts = Counter(self._project(each) for each in self._solutions(None))
        elif not self.is_incremental:
            self._counts = Counter(self._ask())
        self._size = len(self._ask()) if self._counts is None else self._counts.total()
        degree = self._degree()
        self._whole = Cost(degree, len(store), time.monotonic() - began)
        self._single = Cost(degree, len(store), self._whole.seconds)  # no more than all, until one was measured

    def _degree(self) -> int:
        """The work may grow with this power of the store's size."""
        found = self._outline
        return _UNKNOWN_DEGREE if found.is_wild else max(1, len(found.patterns) + 2 * len(found.predicates))

    def worst(self, touched: Touched, size: int) -> float:
        """Seconds, rather too many, to follow an update after which the store has `size` triples."""
        if self._is_direct:
            return 0.0
        limit, expected = self._limits.watch_time, self._expected(touched, size)
        if expected > limit:
            return expected
        if not self.is_incremental or touched.hits > MANY_HITS:
            solutions = worst.of_all(self._store, self._outline, self._patterns, len(touched.added))
            return max(expected, worst.seconds(solutions, self.text))
        self._sift(touched)
        added = touched.added
        solutions = 0.0
        for triple, number in (*touched.removed, *added):
            bound = self._patterns[number].bind(triple)
            if bound is not None:
                solutions += worst.of_hit(self._store, self._patterns, number, bound, added)
            if worst.seconds(solutions, self.text) > limit:
                break
        return max(expected, worst.seconds(solutions, self.text))

    def _sift(self, touched: Touched) -> None:
        """Most joins that mention a predicate are out by a look at each of their other patterns."""
        touched.removed = [hit for hit in touched.removed if self._can_match(*hit)]
        # Triples that come for several patterns may match each other, and are looked at when they are there.
        if len({number for _, number in touched.added}) <= 1:
            touched.added = [hit for hit in touched.added if self._can_match(*hit)]
            touched.is_sifted = True

    def _can_match(self, triple: Triple, number: int) -> bool:
        bound = self._patterns[number].bind(triple)
        return bound is not None and self._may_match(bound, number)

    def _expected(self, touched: Touched, size: int) -> float:
        """By what it took so far."""
        if not self.is_incremental:
            return self._whole.at(size)
        hits = touched.hits * self._single.at(size)
        return min(hits, 2.0 * self._whole.at(size)) if touched.hits > MANY_HITS else hits

    def _variables(self) -> list[str]:
        answer = self._store.ask(self.text)
        if isinstance(answer, QueryBoolean):
            names: list[str] = []
        elif isinstance(answer, QuerySolutions):
            names = [variable.value for variable in answer.variables]
        else:
            raise unsupported("a watch is a SELECT or an ASK", "write SELECT with the same WHERE")
        if self._outline.mentions(("LIMIT", "OFFSET")):
            raise unsupported("a watch has no LIMIT or OFFSET", "leave it out: changes come as they happen")
        for word in self._outline.mentions(UNSTABLE):
            raise unsupported(f"{word} changes without an update", "leave it out of what is watched")
        return names

    def _read_patterns(self) -> list[_Pattern]:
        """Terms are read by the store's own parser, as part of a CONSTRUCT."""
        found = [self._pattern(*slots) for slots in self._outline.patterns]
        for slot in self._outline.predicates:
            found.append(self._pattern(None, slot, None))
        return found

    def _pattern(self, subject: Slot | None, predicate: Slot | None, obj: Slot | None) -> _Pattern:
        slots = (subject, predicate, obj)
        is_open = [slot is None or slot[0].kind in ("var", "blank") for slot in slots]
        text = " ".join(
            _DUMMY if is_any or slot is None else " ".join(token.text for token in slot)
            for slot, is_any in zip(slots, is_open, strict=True)
        ).replace(" ^^ ", "^^")
        if not is_open[0] and subject is not None and subject[0].kind in ("string", "number", "word"):
            return _Pattern((None, None, None), (None, None, None), is_void=True)  # no subject is a literal
        construct = f"{self._outline.prologue}CONSTRUCT {{ {text} }} WHERE {{}}"
        [triple] = self._store.triples(construct, seconds=1.0, limit=1)
        terms = (triple.subject, triple.predicate, canonical(triple.object))
        names = [slot[0].text[1:] if slot is not None and slot[0].kind == "var" else None for slot in slots]
        mask = tuple(None if is_any else term for term, is_any in zip(terms, is_open, strict=True))
        return _Pattern(mask, (names[0], names[1], names[2]))  # type: ignore[arg-type]

    @property
    def masks(self) -> list[tuple[Mask, int]]:
        """What to file this query under; everything if nothing is known."""
        if self._outline.is_wild or not self._patterns:
            return [((None, None, None), -1)]
        return [(each.mask, number) for number, each in enumerate(self._patterns) if not each.is_void]

    def rows(self) -> list[Row]:
        """The whole answer now, each row as often as it occurs."""
        return list(self._counts.elements()) if self._counts is not None and not self._is_set else self._ask()

    @property
    def _is_set(self) -> bool:
        return self._outline.is_distinct

    def _ask(self) -> list[Row]:
        limits = self._limits
        return self._store.rows(self.text, self.variables, seconds=limits.query_time, limit=limits.watch_rows)

    def _solutions(self, bound: dict[str, Term] | None, seconds: float | None = None) -> list[Row]:
        """Complete solutions, in the order of the patterns' variables."""
        limits = self._limits
        given = {Variable(name): term for name, term in bound.items()} if bound else None
        return self._store.rows(
            self._everything,
            self._outline.variables,
            given,
            seconds=limits.query_time if seconds is None else seconds,
            limit=limits.watch_rows,
        )

    def _project(self, solution: Row) -> Row:
        return tuple(None if place is None else solution[place] for place in self._places)

    def _using(self, hits: Hits, seconds: float, *, is_sifted: bool = False) -> set[Row]:
        """Complete solutions that use one of these triples, each once; `seconds` are for all of them."""
        found: set[Row] = set()
        deadline = 0.0 if self._is_direct else time.monotonic() + seconds
        for triple, number in hits:
            bound = self._patterns[number].bind(triple)
            if bound is None:
                continue
            if self._is_direct:
                found.add(tuple(bound[name] for name in self._outline.variables))
            elif is_sifted or self._may_match(bound, number):
                left = deadline - time.monotonic()
                if left <= 0.0:
                    raise too_slow(self._limits.watch_time)
                self._asked += 1
                found.update(self._solutions(bound, left))
        return found

    def _may_match(self, bound: dict[str, Term], number: int) -> bool:
        """Whether each other pattern has a triple at all, for a fraction of what asking costs."""
        for other, pattern in enumerate(self._patterns):
            if other == number:
                continue
            terms = [
                term if name is None else bound.get(name)
                for term, name in zip(pattern.mask, pattern.names, strict=True)
            ]
            if terms.count(None) <= 1 and not self._store.has_any(*terms):
                return False
        return True

    def before(self, touched: Touched) -> None:
        """To be called while the store is as it was."""
        if not self.is_incremental:
            return
        limit = self._limits.watch_time
        if self._is_direct:
            touched.lost = self._using(touched.removed, limit)
            return
        began = time.monotonic()
        self._asked = 0
        if self._is_whole_cheaper(touched):
            touched.before = set(self._solutions(None, limit))
        else:
            touched.lost = self._using(touched.removed, limit, is_sifted=touched.is_sifted)
        touched.seconds = time.monotonic() - began

    def _is_whole_cheaper(self, touched: Touched) -> bool:
        size, hits = len(self._store), touched.hits
        return hits > MANY_HITS and 2.0 * self._whole.at(size) < hits * self._single.at(size)

    def after(self, touched: Touched, version: int) -> Change | None:
        """To be called when the store has changed; None if the answer is the same."""
        if self._is_direct:
            added, removed = self._net(self._using(touched.added, self._limits.watch_time), touched.lost)
        else:
            began = time.monotonic()
            added, removed = self._follow(touched, self._limits.watch_time - touched.seconds)
            touched.seconds += time.monotonic() - began
            self._learn(touched)
        if self._size > self._limits.watch_rows:
            raise too_many(self._limits.watch_rows)
        if not added and not removed:
            return None
        self.number += 1
        self.version = version
        change = Change(version=version, number=self.number, added=added, removed=removed)
        self._remember(change)
        return change

    def _follow(self, touched: Touched, seconds: float) -> tuple[list[Row], list[Row]]:
        if not self.is_incremental:
            return self._renew(seconds)
        # Solutions of a plain query are a set: no two have the same values.
        if touched.before is None:
            gained = self._using(touched.added, seconds, is_sifted=touched.is_sifted)
            return self._net(gained, touched.lost)
        now = set(self._solutions(None, seconds))
        return self._net(now - touched.before, touched.before - now)

    def _learn(self, touched: Touched) -> None:
        """What it took is what it will take, until the store has grown."""
        size = len(self._store)
        if not self.is_incremental:
            self._whole.learn(size, touched.seconds)
        elif touched.before is not None:
            self._whole.learn(size, touched.seconds / 2.0)
        elif self._asked:  # what was out without asking says nothing of what asking takes
            self._single.learn(size, touched.seconds / self._asked)

    def _renew(self, seconds: float) -> tuple[list[Row], list[Row]]:
        assert self._counts is not None
        limit = self._limits.watch_rows
        fresh = Counter(self._store.rows(self.text, self.variables, seconds=seconds, limit=limit))
        added, removed = fresh - self._counts, self._counts - fresh
        self._counts = fresh
        self._size = fresh.total()
        return list(added.elements()), list(removed.elements())

    def _net(self, gained: set[Row], lost: set[Row]) -> tuple[list[Row], list[Row]]:
        counts = self._counts
        self._size += len(gained) - len(lost)  # solutions, also where several make one row
        if counts is None:
            return [self._project(each) for each in gained], [self._project(each) for each in lost]
        plus = Counter(self._project(each) for each in gained)
        minus = Counter(self._project(each) for each in lost)
        plus, minus = plus - minus, minus - plus
        added, removed = list(plus.elements()), list(minus.elements())
        if self._is_set:
            added = [row for row in plus if counts[row] == 0]
            removed = [row for row in minus if counts[row] == minus[row]]
        counts.update(plus)
        counts.subtract(minus)
        for row in minus:
            if counts[row] <= 0:
                del counts[row]
        return added, removed

    def _remember(self, change: Change) -> None:
        self.history.append(change)
        self._history_rows += len(change.added) + len(change.removed)
        limits = self._limits
        while len(self.history) > limits.history or (
            self._history_rows > limits.history_rows and len(self.history) > 1
        ):
            oldest = self.history.popleft()
            self._history_rows -= len(oldest.added) + len(oldest.removed)

    def restore(self, life: int, number: int, version: int, changes: list[Change]) -> None:
        """Go on where a snapshot left off."""
        self.life, self.number, self.version = life, number, version
        for change in changes:
            self._remember(change)

    def missed(self, number: int) -> list[Change] | None:
        """Changes after `number`, in order; None if they are not all remembered."""
        if number == self.number:
            return []
        if number > self.number or not self.history or self.history[0].number > number + 1:
            return None
        return [change for change in self.history if change.number > number]


def watch_id(text: str) -> str:
    """The same for everybody who watches the same query: they share its work and its notifications."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
