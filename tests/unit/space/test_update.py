"""SPARQL updates: the same as the store's own, in one version, or not at all."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode, Store, Triple

from tidegate.space import Fault, SpaceEngine, SpaceError, SpaceLimits
from tidegate.space.store import Torn, TripleStore
from tidegate.space.terms import canonical_triples
from tidegate.space.update import read_update

PROLOGUE = "PREFIX e: <http://e/>\n"
OPERATIONS = [
    'INSERT DATA { e:a e:p 1 , 2 ; e:q "x"@en . e:b e:p "01"^^<http://www.w3.org/2001/XMLSchema#integer> }',
    "DELETE DATA { e:a e:p 1 }",
    "DELETE DATA { e:b e:p 1 . e:c e:p e:a }",
    "INSERT { ?s e:seen ?o } WHERE { ?s e:p ?o }",
    "DELETE { ?s e:p ?o } INSERT { ?s e:q ?o } WHERE { ?s e:p ?o FILTER (?o > 1) }",
    "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o . ?s e:seen 1 }",
    "DELETE WHERE { ?s e:q ?o }",
    "INSERT DATA { e:c e:p e:a . e:a e:knows e:c }",
    "CLEAR DEFAULT",
    "DELETE { ?a e:knows ?b } INSERT { ?b e:knows ?a . ?a e:p 3 } WHERE { ?a e:knows ?b }",
]


@given(st.lists(st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=3), max_size=5))
@settings(max_examples=80, deadline=None)
def test_an_update_does_what_the_stores_own_does(updates: list[list[str]]) -> None:
    engine, store = SpaceEngine("s"), Store()
    watch = engine.watch("SELECT * WHERE { ?s ?p ?o }")
    for operations in updates:
        text = PROLOGUE + " ;\n".join(operations)
        before = engine.version
        outcome = engine.update(text)
        store.update(text)
        assert {str(each) for each in engine.store} == {str(each.triple) for each in store}
        assert engine.version == before + (not outcome.is_empty)
    missed = watch.missed(0)
    assert missed is not None
    assert len(missed) == engine.version


def test_blank_nodes_are_fresh_in_each_update() -> None:
    engine = SpaceEngine("s")
    for _ in range(2):
        engine.update("INSERT DATA { _:x <http://e/p> 1 }")
    assert len(engine.store) == 2


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("INSERT DATA { <a b> <http://e/p> 1 }", Fault.MALFORMED),
        ("INSERT DATA { <http://e/a> <http://e/p> }", Fault.MALFORMED),
        ("INSERT DATA", Fault.MALFORMED),
        ("FROBNICATE { }", Fault.UNSUPPORTED),
        ("SELECT * WHERE { ?s ?p ?o }", Fault.UNSUPPORTED),
        ("LOAD <http://127.0.0.1/>", Fault.UNSUPPORTED),
        ("CLEAR GRAPH <http://e/g>", Fault.UNSUPPORTED),
        ("INSERT DATA { GRAPH <http://e/g> { <http://e/a> <http://e/p> 1 } }", Fault.UNSUPPORTED),
        ("WITH <http://e/g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }", Fault.UNSUPPORTED),
        ("DELETE { ?s ?p ?o } USING <http://e/g> WHERE { ?s ?p ?o }", Fault.UNSUPPORTED),
        ("INSERT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }", Fault.UNSUPPORTED),
        ("INSERT DATA { <http://e/b> <http://e/p> 1 } ; DELETE DATA { nonsense }", Fault.MALFORMED),
        ("\x00", Fault.MALFORMED),
        (
            "INSERT DATA { " + "[ <http://e/p> " * 5000 + "1" + " ]" * 5000 + " <http://e/p> 1 }",
            Fault.UNSUPPORTED,
        ),
        ("DELETE WHERE " + "{" * 50_000, Fault.UNSUPPORTED),
    ],
)
def test_what_is_no_update_leaves_everything_as_it_was(text: str, fault: Fault) -> None:
    engine = SpaceEngine("s")
    engine.update("INSERT DATA { <http://e/a> <http://e/p> 1 }")
    before = [str(each) for each in engine.store]
    with pytest.raises(SpaceError) as caught:
        engine.update(text)
    assert caught.value.fault is fault
    assert "\n" not in str(caught.value)
    assert [str(each) for each in engine.store] == before
    assert engine.version == 1


def test_a_space_has_a_largest_size() -> None:
    engine = SpaceEngine("s", SpaceLimits(triples=2))
    engine.update("INSERT DATA { <http://e/a> <http://e/p> 1 , 2 }")
    with pytest.raises(SpaceError) as caught:
        engine.update("INSERT DATA { <http://e/a> <http://e/p> 3 }")
    assert caught.value.fault is Fault.TOO_LARGE
    assert len(engine.store) == 2
    engine.update("DELETE DATA { <http://e/a> <http://e/p> 1 } ; INSERT DATA { <http://e/a> <http://e/p> 3 }")
    assert len(engine.store) == 2


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA { <urn:a> <urn:p> 1 }",
        "INSERT DATA { <urn:a> <urn:p> 1 . }",
        "PREFIX e: <urn:e:> INSERT DATA { e:a a e:B ; e:p 1.5, true, 'x'@en, \"y\"^^e:t . e:b e:q e:c }",
        "BASE <http://e/> INSERT DATA { <a> <p> <b> }",
        "INSERT DATA { <urn:a> <urn:p> \"\"\"two\nlines\"\"\" }",
        "INSERT DATA { <urn:a> <urn:p> 'it is } not the end' }",
        "DELETE DATA { <urn:a> <urn:p> 1e3 }",
        "INSERT DATA { }",
    ],
)
def test_data_read_as_turtle_is_what_the_stores_parser_reads(text: str) -> None:
    [operation] = read_update(text)
    assert operation.turtle
    store = TripleStore()

    def construct(query: str) -> list[Triple]:
        return store.triples(query, seconds=1.0, limit=100)

    quick = operation.evaluate(store, construct)
    plain = replace(operation, turtle="").evaluate(store, construct)
    assert [set(canonical_triples(each)) for each in quick] == [set(canonical_triples(each)) for each in plain]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA { ?s <urn:p> 1 }",
        "INSERT DATA { <urn:a> <urn:p> 1 . @prefix e: <urn:e:> . }",
        "INSERT DATA { PREFIX e: <urn:e:> e:a e:p 1 }",
        "INSERT DATA { <urn:a> <urn:p> }",
        "INSERT DATA { nonsense }",
        "INSERT DATA { <a> <p> <b> }",
        "INSERT DATA { 'x' <urn:p> 1 }",
    ],
)
def test_what_is_only_turtle_or_neither_is_refused(text: str) -> None:
    engine = SpaceEngine("s")
    with pytest.raises(SpaceError):
        engine.update(text)
    assert len(engine.store) == 0


def test_blank_nodes_of_data_are_new_each_time() -> None:
    engine = SpaceEngine("s")
    engine.update("INSERT DATA { _:x <urn:p> 1 . _:x <urn:q> 2 }")
    engine.update("INSERT DATA { _:x <urn:p> 1 }")
    engine.update("INSERT DATA { [] <urn:p> 1 }")
    assert len(engine.store) == 4
    assert len({each.subject for each in engine.store}) == 3


@pytest.mark.parametrize("word", ["RAND", "NOW", "UUID", "STRUUID", "BNODE"])
def test_what_is_removed_and_what_is_added_are_of_one_mind(word: str) -> None:
    engine = SpaceEngine("s")
    where = f"WHERE {{ ?s <urn:p> ?o BIND ({word}() AS ?x) }}"
    with pytest.raises(SpaceError) as caught:
        engine.update(f"DELETE {{ ?s <urn:p> ?o }} INSERT {{ ?s <urn:p> ?x }} {where}")
    assert caught.value.fault is Fault.UNSUPPORTED
    engine.update(f"INSERT {{ ?s <urn:q> ?x }} {where}")


def test_data_are_put_together_without_a_change_of_the_store() -> None:
    engine = SpaceEngine("s")
    engine.update("INSERT DATA { <urn:a> <urn:p> 1 }")
    operations = read_update(
        "DELETE DATA { <urn:a> <urn:p> 1 } ; INSERT DATA { <urn:b> <urn:p> 2 } ;"
        ' DELETE DATA { <urn:b> <urn:p> "02"^^<http://www.w3.org/2001/XMLSchema#integer> } ;'
        " CLEAR ALL ; INSERT DATA { <urn:c> <urn:p> 3 }"
    )
    engine.store.change = None  # type: ignore[assignment,method-assign]  # whoever changes it fails
    gone, come = engine.rehearse(operations)
    assert {str(each.subject) for each in gone} == {"<urn:a>", "<urn:b>"}
    assert [str(each.subject) for each in come] == ["<urn:c>"]


def test_a_query_that_begins_amid_a_change_is_noticed() -> None:
    store = TripleStore()

    def removed() -> Iterator[Triple]:
        yield from ()

    def added() -> Iterator[Triple]:
        with pytest.raises(Torn):
            store.ask("ASK { ?s ?p ?o }")
        yield Triple(NamedNode("urn:a"), NamedNode("urn:p"), NamedNode("urn:b"))

    store.change(removed(), added())
    assert bool(store.ask("ASK { ?s ?p ?o }"))


INTEGER = NamedNode("http://www.w3.org/2001/XMLSchema#integer")


def quoted(subject: str, number: str) -> Triple:
    inner = Triple(NamedNode("urn:a"), NamedNode("urn:p"), Literal(number, datatype=INTEGER))
    return Triple(NamedNode(subject), NamedNode("urn:says"), inner)


@pytest.mark.parametrize("extra", [0, 50])
def test_a_value_in_a_triple_term_has_one_spelling(extra: int) -> None:
    engine = SpaceEngine("s")
    watch = engine.watch("SELECT ?s ?o { ?s <urn:says> ?o }")
    more = [Triple(NamedNode("urn:c"), NamedNode("urn:p"), Literal(number)) for number in range(extra)]
    outcome = engine.insert([quoted("urn:x", "1"), quoted("urn:x", "01"), quoted("urn:y", "1"), *more])
    assert len(outcome.added) == len(engine.store) == len(list(engine.store)) == 2 + extra
    outcome = engine.remove([quoted("urn:x", "001"), quoted("urn:x", "01"), *more])
    assert len(outcome.removed) == 1 + extra
    assert [str(each) for each in engine.store] == [str(quoted("urn:y", "1"))]
    assert len(engine.store) == 1
    assert [(len(each.added), len(each.removed)) for each in watch.missed(0) or []] == [(2, 0), (0, 1)]


def test_a_store_is_emptied_only_if_every_triple_is_named() -> None:
    store = TripleStore()
    triples = [Triple(NamedNode("urn:a"), NamedNode("urn:p"), Literal(number)) for number in range(3)]
    store.change([], triples)
    store.change([triples[0], triples[0], triples[0]], [])  # as many as there are, but not all of them
    assert set(store) == set(triples[1:])


def test_operations_share_their_prefixes() -> None:
    prefixes = "".join(f"PREFIX p{number}: <urn:{number}:> " for number in range(2000))
    found = read_update(prefixes + "INSERT DATA { p7:a p7:b 1 };" * 200 + "DELETE WHERE { p7:a ?p ?o }")
    assert len(found) == 201
    assert all(each.prologue is found[0].prologue for each in found)
    assert max(len(each.turtle) + len(each.data) + len(each.remove) for each in found) < 100
    engine = SpaceEngine("s")
    engine.update(f"{prefixes} INSERT DATA {{ p7:a p7:b 1, 2 }}")
    change = "DELETE { p7:a ?p 1 } INSERT { p7:c ?p 3 } WHERE { p7:a ?p 1 }"
    engine.update(f"{prefixes} {change}; DELETE WHERE {{ ?s ?p 2 }}")
    assert [str(each.subject) for each in engine.store] == ["<urn:7:c>"]


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"PREFIX p{number}: <urn:{number}:> " for number in range(2000)) + "INSERT DATA {};" * 1000,
        "".join(f"PREFIX p{number}: <urn:{number}:> INSERT DATA {{}};" for number in range(3000)),
        "CLEAR ALL;" * 100_001,
    ],
)
def test_what_would_take_the_square_of_its_length_is_refused(text: str) -> None:
    with pytest.raises(SpaceError) as caught:
        read_update(text)
    assert caught.value.fault is Fault.TOO_LARGE


def test_to_clear_again_and_again_is_to_clear_once() -> None:
    engine = SpaceEngine("s")
    engine.update("INSERT DATA { " + " ".join(f"<urn:s{n}> <urn:p> {n} ." for n in range(5000)) + " }")
    first, last = "INSERT DATA { <urn:s1> <urn:p> 1 };", "INSERT DATA { <urn:s2> <urn:p> 2, 3 }"
    operations = read_update(first + "CLEAR ALL;" * 2000 + last)
    began = time.monotonic()
    outcome = engine.apply(*engine.rehearse(operations))
    assert time.monotonic() - began < 2.0  # one after the other they took half a minute
    assert (len(outcome.removed), len(outcome.added), len(engine.store)) == (4999, 1, 2)
