"""One set of triples, and questions to it that stop when their time or their room is up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice

from pyoxigraph import (
    BlankNode,
    NamedNode,
    QueryBoolean,
    QuerySolutions,
    QueryTriples,
    RdfFormat,
    Store,
    Triple,
    Variable,
    parse,
)

from tidegate.space.advice import QUERY, advice
from tidegate.space.bounds import check_brackets, check_brackets_of, check_operators, check_operators_of
from tidegate.space.errors import Fault, SpaceError, malformed, unsupported
from tidegate.space.reach import has_service
from tidegate.space.terms import DEFAULT, Row, Term, canonical_triples, quad
from tidegate.space.tokens import Token, Unreadable, is_ambiguous, mentioned, tokenize

_STEP = 256  # answers between two looks at the clock
# SERVICE and LOAD would make the broker fetch whatever a client names; a space is one graph.
_REFUSED = {
    "SERVICE": "ask the other endpoint yourself",
    "GRAPH": "a space is one graph: use a space for each",
    "FROM": "a space is one graph: use a space for each",
}


def check_query(text: str) -> None:
    """Raise for what a space does not offer; to be asked before the text meets the store's parser."""
    try:
        tokens = tokenize(text)
    except Unreadable:
        tokens = None
    if tokens is not None and not is_ambiguous(tokens):
        check_operators(tokens)
    check_offered(text, tokens)


def check_offered(text: str, tokens: list[Token] | None) -> None:
    """The same, but for operators that can be told from data; no tokens if it cannot be cut into them."""
    if tokens is None or is_ambiguous(tokens):
        # Not ours to judge, but what could reach out must not slip through.
        capitals = text.upper()
        found = {word for word in _REFUSED if word in capitals}
        check_brackets_of(text)
        check_operators_of(text)
    else:
        found = mentioned(tokens, _REFUSED)
        check_brackets(each.text for each in tokens if each.kind == "op")
    if has_service(text):
        found.add("SERVICE")
    for word, hint in _REFUSED.items():
        if word in found:
            raise unsupported(f"{word} is not offered", hint)


class Torn(Exception):
    """A query began in the midst of a change: it may have seen one half of it."""


class TripleStore:
    """Triples in memory. Reading may happen in any thread, changing in one."""

    def __init__(self) -> None:
        self._store = Store()
        self._size = 0  # the store would count its triples one by one
        self._changes = 0  # odd in the midst of a change

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Triple]:
        return (each.triple for each in self._store)

    def __contains__(self, triple: Triple) -> bool:
        return quad(triple) in self._store

    def has_any(self, subject: Term | None, predicate: Term | None, obj: Term | None) -> bool:
        """Whether there is a triple with these terms, None standing for any."""
        return next(self.matching(subject, predicate, obj), None) is not None

    def matching(self, subject: Term | None, predicate: Term | None, obj: Term | None) -> Iterator[Triple]:
        """The triples with these terms, None standing for any."""
        if not isinstance(subject, NamedNode | BlankNode | None) or not isinstance(predicate, NamedNode | None):
            return iter(())  # no triple has such a subject or predicate
        return (each.triple for each in self._store.quads_for_pattern(subject, predicate, obj, DEFAULT))

    def difference(
        self, removed: Iterable[Triple], added: Iterable[Triple]
    ) -> tuple[list[Triple], list[Triple]]:
        """What removing the first and then adding the second would change."""
        store = self._store
        wanted = dict.fromkeys(canonical_triples(added))
        gone = dict.fromkeys(canonical_triples(removed))
        return (
            [each for each in gone if each not in wanted and quad(each) in store],
            [each for each in wanted if quad(each) not in store],
        )

    def change(self, removed: Iterable[Triple], added: Iterable[Triple]) -> None:
        """Exactly what `difference` gave, or the reverse of it."""
        gone = list(removed)
        self._changes += 1
        # To clear is much quicker, but only right if every triple is named: so they are counted for it.
        if gone and len(gone) == self._size and len(set(gone)) == len(self._store):
            self._store.clear()
        else:
            for each in gone:
                self._store.remove(quad(each))
        quads = [quad(each) for each in added]
        self._store.extend(quads)
        self._size += len(quads) - len(gone)
        self._changes += 1

    def bulk_load(self, data: bytes) -> None:
        """N-Triples, quickly and without a difference: for a store that is empty."""
        # The store's own loader would give blank nodes new labels, and records tell of them by the old ones.
        self._store.bulk_extend(parse(data, RdfFormat.N_TRIPLES))
        self._size = len(self._store)

    def dump(self) -> bytes:
        return self._store.dump(format=RdfFormat.N_TRIPLES, from_graph=DEFAULT) or b""

    def ask(
        self, text: str, substitutions: dict[Variable, Term] | None = None
    ) -> QuerySolutions | QueryBoolean | QueryTriples:
        """Begin a query; raises `SpaceError` for one that makes no sense, `Torn` amid a change by another thread."""
        seen = self._changes
        try:
            answer = self._store.query(text, substitutions=substitutions)
        except SyntaxError as error:
            raise malformed(f"not SPARQL: {first_line(error)}", advice(text, QUERY)) from None
        except (ValueError, RuntimeError, OSError) as error:
            raise malformed(f"the query cannot be answered: {first_line(error)}") from None
        if seen % 2 or seen != self._changes:
            raise Torn
        return answer

    def rows(
        self,
        text: str,
        variables: list[str],
        substitutions: dict[Variable, Term] | None = None,
        *,
        seconds: float,
        limit: int,
    ) -> list[Row]:
        """All answers of a SELECT, or one empty row for an ASK that is true."""
        deadline = time.monotonic() + seconds
        answer = self.ask(text, substitutions)
        if isinstance(answer, QueryBoolean):
            _check_time(deadline, seconds)
            return [()] if answer else []
        if isinstance(answer, QueryTriples):
            raise unsupported("only SELECT and ASK have rows")
        found: list[Row] = []
        while chunk := list(islice(answer, _STEP)):
            found += [tuple(solution[name] for name in variables) for solution in chunk]
            if len(found) > limit:
                raise too_many(limit)
            _check_time(deadline, seconds)
        _check_time(deadline, seconds)  # there may have been much work for nothing
        return found

    def triples(self, text: str, *, seconds: float, limit: int) -> list[Triple]:
        """All answers of a CONSTRUCT."""
        deadline = time.monotonic() + seconds
        answer = self.ask(text)
        if not isinstance(answer, QueryTriples):
            raise unsupported("only CONSTRUCT has triples")
        found: list[Triple] = []
        while chunk := list(islice(answer, _STEP)):
            found += chunk
            if len(found) > limit:
                raise too_many(limit)
            _check_time(deadline, seconds)
        _check_time(deadline, seconds)
        return found


def _check_time(deadline: float, seconds: float) -> None:
    if time.monotonic() > deadline:
        raise too_slow(seconds)


def first_line(error: BaseException) -> str:
    """The parser's message without its list of everything it would have liked."""
    text = str(error).split(": expected", 1)[0]
    return " ".join(text.split())[:300]


def too_many(limit: int) -> SpaceError:
    return SpaceError(
        Fault.TOO_LARGE, f"the answer has more than {limit} rows", hint="ask for less"
    )


def too_slow(seconds: float) -> SpaceError:
    return SpaceError(
        Fault.TIMEOUT,
        f"the query took more than {seconds:g} s",
        hint="ask for less, or for something simpler",
    )
