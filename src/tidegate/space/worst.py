"""What following an update can take at worst, whatever it took so far.

A standing query can be quick because one of its patterns has no match, and be a cross product of the whole store with
the next triple; what it took before says nothing of that. So the solutions that it may go through are bounded: each
pattern multiplies them by its matches at most. Joins are mostly far below that, since what one pattern gives leaves the
next one little to match; so a few steps of the join itself are walked first, and only what is left is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from math import inf
from typing import Final, Protocol

from pyoxigraph import Triple

from tidegate.space.outline import Outline
from tidegate.space.pattern_index import Mask
from tidegate.space.store import TripleStore
from tidegate.space.terms import Term
from tidegate.space.trust import MULTIPLYING

STEPS: Final = 64  # solutions of a step that are walked, and matches of a pattern that are counted
# Solutions a second times characters of the query, which stand for what it computes with each: 10 million of a bare
# cross product, 2.5 million of one with a filter that puts strings together.
SPEED: Final = 2.5e8
Bound = dict[str, Term]


class Pattern(Protocol):
    mask: Mask
    names: tuple[str | None, str | None, str | None]

    def bind(self, triple: Triple) -> Bound | None: ...


def seconds(solutions: float, text: str) -> float:
    return solutions * len(text) / SPEED


def of_all(store: TripleStore, found: Outline, patterns: Sequence[Pattern], added: int) -> float:
    """Solutions of the whole query after an update that adds so many triples."""
    if found.is_wild or found.mentions(MULTIPLYING):
        return inf
    solutions = 1.0
    last = len(patterns) - len(found.predicates)  # from here on they are of paths, which may go on and on
    for number, pattern in enumerate(patterns):
        # An optional one that matches nothing takes nothing away.
        count = max(1, _count(store, pattern.mask) + added)
        solutions *= count if number < last else count * count
    return solutions


def of_hit(
    store: TripleStore,
    patterns: Sequence[Pattern],
    number: int,
    bound: Bound,
    added: Sequence[tuple[Triple, int]],
) -> float:
    """Solutions of a join in which pattern `number` is a changed triple; `added` are all triples that come."""
    left = [each for each in range(len(patterns)) if each != number]
    rows, solutions = [bound], 1.0
    while left:
        here = max(left, key=lambda each: _known(patterns[each], rows[0]))
        come = [triple for triple, of in added if of == here]
        following = _step(store, patterns[here], rows, come) if len(come) <= STEPS else None
        if following is None:
            rest = float(len(rows))
            for each in left:
                rest *= _count(store, patterns[each].mask) + len(added)
            return solutions + rest
        if not following:
            return solutions
        left.remove(here)
        rows = following
        solutions += len(rows)
    return solutions


def _known(pattern: Pattern, bound: Bound) -> int:
    """How many positions of the pattern have a value."""
    return sum(name is None or name in bound for name in pattern.names)


def _step(
    store: TripleStore, pattern: Pattern, rows: list[Bound], come: Iterable[Triple]
) -> list[Bound] | None:
    """These solutions joined with one more pattern; None if there are more than a few."""
    following: list[Bound] = []
    for row in rows:
        terms = [
            term if name is None else row.get(name)
            for term, name in zip(pattern.mask, pattern.names, strict=True)
        ]
        room = STEPS + 1 - len(following)
        for triple in [*islice(store.matching(*terms), room), *come]:
            bound = pattern.bind(triple)
            if bound is not None and all(row.get(name, term) == term for name, term in bound.items()):
                following.append({**row, **bound})
        if len(following) > STEPS:
            return None
    return following


def _count(store: TripleStore, mask: Mask) -> int:
    """Triples that match: exactly if they are few, otherwise no more than all."""
    found = sum(1 for _ in islice(store.matching(*mask), STEPS + 1))
    return found if found <= STEPS else len(store)
