"""RDF terms as the store keeps them, and as they are written."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from pyoxigraph import BaseDirection, BlankNode, DefaultGraph, Literal, NamedNode, Quad, Store, Triple

from tidegate.space.bounds import DEPTH, too_deep

Term: TypeAlias = NamedNode | BlankNode | Literal | Triple
Row: TypeAlias = tuple[Term | None, ...]
"""One answer, in the order of the query's variables; None where a variable is not bound."""

DEFAULT: Final = DefaultGraph()
MANY: Final = 32  # triples from which a store is worth making
_STRING: Final = "http://www.w3.org/2001/XMLSchema#string"
_PROBE: Final = NamedNode("urn:tidegate:probe")


def canonical(term: Term) -> Term:
    """The term as the store gives it back: it keeps values, so that "01" is stored as the integer 1."""
    if isinstance(term, Triple):
        _check_depth(term)
        return _canonical(term)
    if isinstance(term, Literal) and (term.language is not None or term.datatype.value != _STRING):
        return _canonical(term)
    return term


def _check_depth(term: Triple) -> None:
    """Updates can put terms into terms again and again, and whatever walks through one calls itself for each."""
    depth, inner = 0, term.object
    while isinstance(inner, Triple):
        depth, inner = depth + 1, inner.object
        if depth >= DEPTH:
            raise too_deep()


@lru_cache(maxsize=65_536)
def _canonical(term: Literal | Triple) -> Term:
    store = Store()  # a fresh one: a store remembers what was removed from it for a while
    store.add(Quad(_PROBE, _PROBE, term))
    [stored] = store.quads_for_pattern(None, None, None)
    return stored.object


def canonical_triples(triples: Iterable[Triple]) -> list[Triple]:
    """The same for many, each once; a store for all of them, if there are many."""
    found = list(dict.fromkeys(triples))
    if len(found) > MANY:
        for each in found:
            if isinstance(each.object, Triple):
                _check_depth(each.object)
        store = Store()
        store.extend(map(quad, found))
        return [each.triple for each in store]
    return list(dict.fromkeys(Triple(each.subject, each.predicate, canonical(each.object)) for each in found))


def quad(triple: Triple) -> Quad:
    return Quad(triple.subject, triple.predicate, triple.object, DEFAULT)


def to_ntriples(triples: list[Triple]) -> str:
    return "".join(f"{triple} .\n" for triple in triples)


def term_json(term: Term) -> dict[str, Any]:
    """A term as SPARQL Query Results JSON has it: that of 1.1, and of 1.2 where there is a base direction."""
    if isinstance(term, NamedNode):
        return {"type": "uri", "value": term.value}
    if isinstance(term, BlankNode):
        return {"type": "bnode", "value": term.value}
    if isinstance(term, Literal):
        fields: dict[str, Any] = {"type": "literal", "value": term.value}
        if term.language is not None:
            fields["xml:lang"] = term.language
            if term.direction is not None:
                fields["its:dir"] = term.direction.value
        elif term.datatype.value != _STRING:
            fields["datatype"] = term.datatype.value
        return fields
    parts = {"subject": term.subject, "predicate": term.predicate, "object": term.object}
    return {"type": "triple", "value": {name: term_json(part) for name, part in parts.items()}}


def term_from_json(fields: dict[str, Any]) -> Term:
    """The reverse; raises KeyError, TypeError or ValueError for what is none."""
    kind, value = fields["type"], fields["value"]
    if kind == "uri":
        return NamedNode(value)
    if kind == "bnode":
        return BlankNode(value)
    if kind == "triple":
        subject, predicate, obj = (term_from_json(value[name]) for name in ("subject", "predicate", "object"))
        return Triple(subject, predicate, obj)  # type: ignore[arg-type]
    if "xml:lang" in fields:
        direction = BaseDirection(fields["its:dir"]) if "its:dir" in fields else None
        return Literal(value, language=fields["xml:lang"], direction=direction)
    datatype = fields.get("datatype")
    return Literal(value, datatype=NamedNode(datatype)) if datatype else Literal(value)


def row_json(variables: list[str], row: Row) -> dict[str, Any]:
    return {name: term_json(term) for name, term in zip(variables, row, strict=True) if term is not None}


def row_from_json(variables: list[str], fields: dict[str, Any]) -> Row:
    return tuple(term_from_json(fields[name]) if name in fields else None for name in variables)
