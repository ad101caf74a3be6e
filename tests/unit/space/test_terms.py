"""Terms in JSON: those of masks, and those of rows."""

import json

import pytest
from pyoxigraph import BaseDirection, BlankNode, Literal, NamedNode, Triple

from tidegate.space import Fault, SpaceError
from tidegate.space.mask import mask_query
from tidegate.space.terms import Term, term_from_json, term_json

A = NamedNode("urn:a")


@pytest.mark.parametrize(
    ("mask", "query"),
    [
        ("{}", "SELECT ?s ?p ?o WHERE { ?s ?p ?o }"),
        ('{"s": null, "p": "a", "o": null}', "SELECT ?s ?o WHERE { ?s a ?o }"),
        ('{"o": 0}', "SELECT ?s ?p WHERE { ?s ?p 0 }"),
        ('{"o": -1.5}', "SELECT ?s ?p WHERE { ?s ?p -1.5 }"),
        ('{"o": false}', "SELECT ?s ?p WHERE { ?s ?p false }"),
        ('{"s": "<urn:a>", "p": "<urn:p>", "o": true}', "SELECT * WHERE { <urn:a> <urn:p> true }"),
    ],
)
def test_only_null_stands_for_any_term(mask: str, query: str) -> None:
    assert mask_query(mask) == query


@pytest.mark.parametrize("value", ['""', "{}", "[]", '{"value": 1}', '["<urn:a>"]', "1e999", "NaN"])
@pytest.mark.parametrize("name", ["s", "p", "o"])
def test_what_is_no_term_is_not_taken_for_any(name: str, value: str) -> None:
    with pytest.raises(SpaceError, match=f"{name} of the mask is") as caught:
        mask_query(f'{{"{name}": {value}}}')
    assert caught.value.fault is Fault.MALFORMED
    assert "as in SPARQL" in caught.value.hint


@pytest.mark.parametrize(
    "term",
    [
        A,
        BlankNode("b"),
        Literal("x"),
        Literal("1", datatype=NamedNode("urn:t")),
        Literal("x", language="en"),
        Literal("x", language="en", direction=BaseDirection.LTR),
        Literal("x", language="en", direction=BaseDirection.RTL),
        Triple(A, A, Literal("x", language="en", direction=BaseDirection.RTL)),
    ],
)
def test_json_keeps_all_of_a_term(term: Term) -> None:
    assert term_from_json(json.loads(json.dumps(term_json(term)))) == term


@pytest.mark.parametrize("direction", ["up", "", 1, None])
def test_a_direction_that_is_none_is_an_error(direction: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        term_from_json({"type": "literal", "value": "x", "xml:lang": "en", "its:dir": direction})
