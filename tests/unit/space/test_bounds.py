"""No text is so deep or so long that a parser ends the process or holds up everybody."""

import time
from collections.abc import Callable

import pytest
from pyoxigraph import Literal, NamedNode, Triple

from tidegate.space import Fault, SpaceEngine, SpaceError
from tidegate.space.bounds import DEPTH, OPERATORS, UNREAD
from tidegate.space.formats import RESULTS, negotiate, read_triples
from tidegate.space.outline import outline
from tidegate.space.store import check_query
from tidegate.space.tokens import Token, Unreadable, tokenize
from tidegate.space.update import read_update

RDF = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="urn:e:">'
XML = "application/rdf+xml"


def xml(body: str, before: str = "") -> bytes:
    return f'{before}{RDF}<rdf:Description rdf:about="urn:a">{body}</rdf:Description></rdf:RDF>'.encode()


def terms(depth: int, comment: str = "") -> bytes:
    opening = f"<<( <urn:a> <urn:p> {comment}"
    return f"<urn:a> <urn:p> {opening * depth} 1 {')>>' * depth} .".encode()


@pytest.mark.parametrize("kind", ["text/turtle", "application/n-triples"])
@pytest.mark.parametrize("comment", ["", "# )>>\n"])
def test_triple_terms_must_not_be_deep(kind: str, comment: str) -> None:
    deep = terms(20_000, comment).replace(b" 1 ", b" <urn:b> ")
    with pytest.raises(SpaceError) as caught:
        read_triples(deep, kind)
    assert caught.value.fault is Fault.MALFORMED
    assert len(read_triples(terms(DEPTH).replace(b" 1 ", b" <urn:b> "), kind)) == 1


@pytest.mark.parametrize("text", ['"<<"', "'''<<'''", '"""<<"""', "<urn:%3C%3C>", "'\\'<<'", "1 . # <<\n"])
def test_what_only_looks_like_a_triple_term_may_come_often(text: str) -> None:
    line = f"<urn:a> <urn:p> {text} .\n" if "#" not in text else f"<urn:a> <urn:p> {text}"
    assert read_triples((line * 200).encode(), "text/turtle")


def test_lists_and_blank_nodes_may_be_deep() -> None:
    deep = b"<urn:a> <urn:p> " + b"[ <urn:p> " * 1000 + b"1" + b"]" * 1000 + b" ."
    assert len(read_triples(deep, "text/turtle")) == 1001


def test_an_update_cannot_put_terms_into_terms_for_ever() -> None:
    engine = SpaceEngine("s")
    engine.insert(read_triples(terms(DEPTH), "text/turtle"))
    with pytest.raises(SpaceError) as caught:
        engine.update("INSERT { ?s ?p ?t } WHERE { ?s ?p ?o BIND(TRIPLE(?s, ?p, ?o) AS ?t) }")
    assert caught.value.fault is Fault.MALFORMED
    many = [Triple(NamedNode("urn:a"), NamedNode("urn:n"), Literal(number)) for number in range(50)]
    [deep] = read_triples(terms(DEPTH), "text/turtle")
    with pytest.raises(SpaceError):
        engine.insert([*many, Triple(NamedNode("urn:a"), NamedNode("urn:p"), deep)])
    assert len(engine.store) == 1


def test_xml_has_no_entities_of_its_own() -> None:
    laughs = "".join(f'<!ENTITY a{number + 1} "&a{number};&a{number};">' for number in range(34))
    for before in (f'<!DOCTYPE x [<!ENTITY a0 "ha">{laughs}]>', f'<!docType x [<!ENTITY a0 "ha">{laughs}]>'):
        with pytest.raises(SpaceError) as caught:
            read_triples(xml("<e:p>&a34;</e:p>", before), XML)
        assert caught.value.fault is Fault.MALFORMED
    wide = xml("<e:p>&a34;</e:p>", f'<!DOCTYPE x [<!ENTITY a0 "ha">{laughs}]>').decode().encode("utf-16")
    with pytest.raises(SpaceError):
        read_triples(wide, XML)
    [found] = read_triples(xml("<e:p>&lt;!DOCTYPE&gt; &amp; so on</e:p>"), XML)
    assert found.object == Literal("<!DOCTYPE> & so on")


def test_xml_must_not_be_deep() -> None:
    def nested(depth: int, inside: str = "") -> bytes:
        return xml(f"<e:p><rdf:Description>{inside}" * depth + "</rdf:Description></e:p>" * depth)

    assert len(read_triples(nested(40), XML)) == 40
    for inside in ("", "<!-- </x></x></x> -->", "<e:q rdf:resource='urn:/>'/>"):
        with pytest.raises(SpaceError) as caught:
            read_triples(nested(10_000, inside), XML)
        assert "deep" in str(caught.value)
    flat = xml("<e:p rdf:resource='urn:b'/><e:q e:r='>'></e:q><!-- <a> --><e:p>x</e:p>" * 200)
    assert len(read_triples(flat, XML)) > 200


@pytest.mark.parametrize(
    ("begin", "part", "end"),
    [
        ("ASK { FILTER(1", "+1", ") }"),
        ("ASK { FILTER(1", " -1", ") }"),
        ("ASK { FILTER(1", "*1", ") }"),
        ("ASK { FILTER(1", "||1", ") }"),
        ("ASK { FILTER(1", "&&1", ") }"),
        ("ASK { {}", "UNION{}", " }"),
        ("ASK { ", "MINUS{}", " }"),
        ("ASK { ", "OPTIONAL{}", " }"),
        ("ASK { ", "LATERAL{}", " }"),
        ("ASK { ", "VALUES ?x {1}", " }"),
        ("ASK { ?s <urn:p>", "/<urn:p>", " ?o }"),
        ("ASK { ", "?s <urn:p>+ ?o . ", " }"),
        ("ASK { ?a\u203f ?b ?c FILTER(1", "+1", ") }"),
        ("ASK { FILTER(1<2#>'''\n", "+1", ") #''')\n}"),
    ],
)
def test_operators_are_counted(begin: str, part: str, end: str) -> None:
    long = begin + part * 8000 + end
    for refused in (
        lambda: check_query(long),
        lambda: SpaceEngine("s").watch(long),
    ):
        with pytest.raises(SpaceError) as caught:
            refused()
        assert f"more than {OPERATORS} operators" in str(caught.value)
    read_wrong_update(f"INSERT {{ ?s ?p ?o }} WHERE {long.removeprefix('ASK')}")
    check_query(begin + part * (OPERATORS // 2) + end)


def test_numbers_with_a_sign_are_no_operators_in_data() -> None:
    many = "-1 " * 5000
    check_query(f"ASK {{ VALUES ?x {{ {many} }} }}")
    check_query(f"ASK {{ VALUES (?x ?y) {{ {'(-1 -2)' * 5000} }} }}")
    assert len(read_update(f"INSERT DATA {{ <urn:a> <urn:p> ({many}) }}")) == 1
    lists = "(<urn:a#b> <urn:c#d>) <urn:x/y-z> 1 . " * 500
    assert len(read_update(f"INSERT DATA {{ {lists} }}")) == 1


def test_closing_brackets_cannot_hide_in_what_is_not_read() -> None:
    with pytest.raises(SpaceError) as caught:
        check_query("ASK { ?a\u203f ?b ?c FILTER(" + "abs( # )\n" * 1000 + "1" + ")" * 1000 + ") }")
    assert f"more than {UNREAD} brackets" in str(caught.value)


def read_tokens(text: str) -> list[Token] | None:
    try:
        return tokenize(text)
    except Unreadable:
        return None


def read_wrong(data: str, kind: str) -> None:
    with pytest.raises(SpaceError):
        read_triples(data.encode(), kind)


def read_wrong_update(text: str) -> None:
    with pytest.raises(SpaceError):
        read_update(text)


N = 200_000


@pytest.mark.parametrize(
    "work",
    [
        lambda: read_tokens("a." * N),
        lambda: read_tokens("a-" * N),
        lambda: read_tokens("a.:" + "." * N),
        lambda: read_tokens("'''" + "\\'" * N),
        lambda: read_tokens('"""' + '\\"' * N),
        lambda: read_tokens("_:a" + "." * N),
        lambda: read_tokens("<a" * N),
        lambda: read_wrong('"' + '\\"' * N, "application/ld+json"),
        lambda: read_wrong("<<" + '"' + '\\"' * N, "text/turtle"),
        lambda: read_wrong("<<" + "'''" + "\\'" * N, "text/turtle"),
        lambda: read_wrong("<x '" * N, XML),
        lambda: read_wrong("<!--" * N, XML),
        lambda: read_wrong_update("INSERT DATA { }" + " " * N + "x"),
        lambda: read_wrong_update("INSERT DATA { " + '"' * (N + 1) + "}"),
    ],
)
def test_reading_takes_time_in_proportion(work: Callable[[], object]) -> None:
    began = time.process_time()
    work()
    assert time.process_time() - began < 5.0


def test_runs_without_a_colon_are_cut_as_before() -> None:
    found = tokenize("a.b-1.:c a.b:d-e. x-1e+5.y _a.b a.5")
    assert [(each.kind, each.text) for each in found] == [
        *[("word", "a"), ("op", "."), ("word", "b"), ("number", "-1"), ("op", "."), ("name", ":c")],
        *[("name", "a.b:d-e"), ("op", "."), ("word", "x"), ("number", "-1e+5"), ("op", "."), ("word", "y")],
        *[("word", "_a"), ("op", "."), ("word", "b"), ("word", "a"), ("number", ".5")],
    ]


def test_a_long_accept_is_not_read() -> None:
    with pytest.raises(SpaceError) as caught:
        negotiate("a/b;q=0.1," * 6000 + "text/csv", list(RESULTS))
    assert caught.value.fault is Fault.CONTENT_TYPE


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?s\u203f { ?s\u203f ?p ?o FILTER(NOW() > ?o) }",
        "SELECT ?s\u203f { ?s\u203f ?p ?o } LIMIT 3",
        "SELECT ?s { ?s ?p ?o } LIMIT3",
        "SELECT ?s { ?s ?p ?o FILTERRAND() }",
        "SELECT ?s { ?s ?p ?o FILTER(1<2#>'''\n && RAND() > 0.5) #''')\n}",
        "SELECT ?s FROMNAMED <urn:g> { ?s ?p ?o }",
    ],
)
def test_what_cannot_be_watched_does_not_hide(text: str) -> None:
    SpaceEngine("s").store.ask(text)  # the store reads it
    with pytest.raises(SpaceError) as caught:
        SpaceEngine("s").watch(text)
    assert caught.value.fault is Fault.UNSUPPORTED


@pytest.mark.parametrize("text", ["?s e:p +1", "?s e:p+1", "?s a +1", "?s e:p +.5"])
def test_a_sign_after_a_predicate_may_make_it_a_path(text: str) -> None:
    assert outline(f"PREFIX e: <http://e/> SELECT * {{ {text} }}").is_wild
