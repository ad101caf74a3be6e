"""Standing queries: every sequence of changes, replayed, gives exactly the store's answer."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode, Store, Triple

from tidegate.space import Fault, SpaceEngine, SpaceError, SpaceLimits
from tidegate.space.terms import quad
from tidegate.space.update import read_update

P = "http://e/"
QUERIES = [
    "SELECT * WHERE { ?s ?p ?o }",
    "SELECT ?s WHERE { ?s <http://e/p0> ?o }",
    "SELECT DISTINCT ?s WHERE { ?s <http://e/p0> ?o }",
    "PREFIX e: <http://e/> SELECT ?o WHERE { e:n0 e:p1 ?o }",
    "PREFIX e: <http://e/> SELECT ?a ?b WHERE { ?a e:p0 ?x . ?x e:p1 ?b }",
    "PREFIX e: <http://e/> SELECT * WHERE { ?a e:p0 ?b ; e:p1 ?c . ?c ?d ?a }",
    "PREFIX e: <http://e/> SELECT DISTINCT ?b WHERE { ?a e:p0 ?x . ?x ?q ?b }",
    "PREFIX e: <http://e/> SELECT ?a ?v WHERE { ?a e:value ?v FILTER (?v > 2) }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:p0 ?b . ?a e:value 2 }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:p0 ?a }",
    "PREFIX e: <http://e/> SELECT ?a ?b WHERE { ?a e:p0 ?b OPTIONAL { ?b e:value ?v } }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { { ?a e:p0 e:n0 } UNION { ?a e:p1 e:n1 } }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:p0 ?b FILTER NOT EXISTS { ?b e:p1 ?c } }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:p0 ?b MINUS { ?a e:p1 ?b } }",
    "PREFIX e: <http://e/> SELECT ?a (COUNT(?b) AS ?n) WHERE { ?a e:p0 ?b } GROUP BY ?a",
    "PREFIX e: <http://e/> SELECT ?a ?b WHERE { ?a e:p0/e:p1 ?b }",
    "PREFIX e: <http://e/> SELECT ?a ?b WHERE { ?a e:p0+ ?b }",
    "PREFIX e: <http://e/> SELECT ?a ?b WHERE { ?a e:p0* ?b }",
    "PREFIX e: <http://e/> SELECT ?a ?b WHERE { ?a !(e:p0) ?b }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:p0 [ e:p1 ?c ] }",
    (
        "PREFIX e: <http://e/>\nSELECT ?a ?m WHERE { ?a e:p0 ?b { SELECT ?b (MAX(?v) AS ?m)"
        " { ?b e:value ?v } GROUP BY ?b } }"
    ),
    "PREFIX e: <http://e/> SELECT ?a ?w WHERE { ?a e:value ?v BIND (?v + 1 AS ?w) }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:p0 ?b VALUES ?b { e:n0 e:n2 } }",
    "PREFIX e: <http://e/> ASK { e:n0 e:p0 e:n1 . e:n1 e:p1 ?x }",
    "PREFIX e: <http://e/> SELECT ?a ?v WHERE { ?a e:value ?v } ORDER BY ?v",
    'PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:name "x"@en }',
    "PREFIX e: <http://e/> SELECT ?a (AVG(?v) AS ?m) (SUM(?v) AS ?n) WHERE { ?a e:value ?v } GROUP BY ?a",
    "PREFIX e: <http://e/> SELECT (COUNT(*) AS ?n) (COUNT(DISTINCT ?o) AS ?m) WHERE { ?s ?p ?o }",
    "PREFIX e: <http://e/> SELECT ?p (MIN(?o) AS ?m) WHERE { ?s e:p0 ?s ; ?p ?o } GROUP BY ?p",
    "PREFIX e: <http://e/> SELECT ?a ?b WHERE { ?a (e:p0|^e:p1)/e:p0? ?b }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:p0/e:value +2 }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:value +2 }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:value 2.50 }",
    "PREFIX e: <http://e/> SELECT ?a ?v WHERE { ?a e:value ?v . ?b e:value ?v . ?a e:p0 ?b }",
    "PREFIX e: <http://e/> SELECT ?a ?t WHERE { ?a e:says ?t }",
    "PREFIX e: <http://e/> SELECT ?a ?b ?t WHERE { ?a e:says ?t . ?b e:says ?t . ?a e:p0 ?b }",
    "PREFIX e: <http://e/> SELECT ?a ?v WHERE { ?a e:says <<( ?b e:value ?v )>> }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:says <<( e:n0 e:value 02 )>> }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:says ?t FILTER (isTRIPLE(?t) && OBJECT(?t) = 2) }",
    "PREFIX e: <http://e/> SELECT ?a ?b WHERE { ?a e:p0 ?b FILTER isBLANK(?b) }",
    "PREFIX e: <http://e/> SELECT ?a WHERE { ?a e:p0 _:x . _:x e:p1 ?b }",
]

DECIMAL = NamedNode("http://www.w3.org/2001/XMLSchema#decimal")
nodes = st.sampled_from(
    [*(NamedNode(f"{P}n{number}") for number in range(4)), BlankNode("b0"), BlankNode("b1")]
)
links = st.builds(Triple, nodes, st.sampled_from([NamedNode(f"{P}p{number}") for number in range(2)]), nodes)
values = st.builds(
    lambda node, value: Triple(node, NamedNode(f"{P}value"), value),
    nodes,
    # Sums of these are exact in every order.
    st.sampled_from(
        [
            *(Literal(2), Literal(3), Literal("02", datatype=Literal(2).datatype), Literal(5)),
            *(Literal("2.5", datatype=DECIMAL), Literal("2.50", datatype=DECIMAL), Literal(0.5), Literal(2.0)),
        ]
    ),
)
names = st.builds(
    lambda node, value: Triple(node, NamedNode(f"{P}name"), value),
    nodes,
    st.sampled_from([Literal("x", language="en"), Literal("x", language="EN"), Literal("x")]),
)
sayings = st.builds(
    lambda node, said: Triple(node, NamedNode(f"{P}says"), said), nodes, st.one_of(links, values, names)
)
deeper = st.builds(lambda node, said: Triple(node, NamedNode(f"{P}says"), said), nodes, sayings)
triples = st.one_of(links, links, values, names, sayings, deeper)
changes = st.tuples(st.lists(triples, max_size=4), st.lists(triples, max_size=4))


def answer(store: Store, text: str, variables: list[str]) -> Counter[tuple[object, ...]]:
    found = store.query(text)
    if not variables:
        return Counter([()] if bool(found) else [])
    return Counter(tuple(solution[name] for name in variables) for solution in found)


@given(st.lists(changes, max_size=12), st.sets(st.sampled_from(QUERIES), min_size=1, max_size=6))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_changes_replayed_give_the_stores_answer(
    sequence: list[tuple[list[Triple], list[Triple]]], texts: set[str]
) -> None:
    engine = SpaceEngine("s")
    watches = {text: engine.watch(text) for text in sorted(texts)}
    replayed = {text: Counter(watch.rows()) for text, watch in watches.items()}
    numbers = dict.fromkeys(texts, 0)
    by_hand = Store()
    for removed, added in sequence:
        outcome = engine.apply(removed, added)
        for each in removed:
            by_hand.remove(quad(each))
        for each in added:
            by_hand.add(quad(each))
        assert not outcome.failed
        for watch, change in outcome.changes:
            seen = replayed[watch.text]
            assert change.version == outcome.version == engine.version
            assert change.number == numbers[watch.text] + 1
            numbers[watch.text] = change.number
            removed_rows = Counter(change.removed)
            assert removed_rows <= seen
            seen.subtract(removed_rows)
            seen.update(change.added)
        for text, watch in watches.items():
            seen = +replayed[text]
            assert seen == answer(by_hand, text, watch.variables), text
            assert seen == Counter(watch.rows()), text
    for text, watch in watches.items():
        missed = watch.missed(0)
        assert missed is not None
        assert [change.number for change in missed] == list(range(1, numbers[text] + 1))


@pytest.mark.parametrize("text", QUERIES)
def test_which_queries_are_kept_up_to_date_from_changes_alone(text: str) -> None:
    plain = not any(
        word in text
        for word in ("OPTIONAL", "UNION", "EXISTS", "MINUS", "COUNT", "/e:", "p0+", "p0*", "!", "[", "BIND")
    ) and not any(word in text for word in ("VALUES", "ASK", "MAX", "MIN", "AVG", "^", "+2", "<<(", "_:"))
    assert SpaceEngine("s").watch(text).is_incremental == plain


def test_an_update_touches_only_the_queries_it_can_matter_to() -> None:
    engine = SpaceEngine("s")
    for number in range(50):
        engine.watch(f"SELECT ?o WHERE {{ <{P}n{number}> <{P}p> ?o }}")
    outcome = engine.insert([Triple(NamedNode(f"{P}n7"), NamedNode(f"{P}p"), Literal("x"))])
    assert len(outcome.changes) == 1
    assert outcome.changes[0][1].added == [(Literal("x"),)]


def test_watching_the_same_text_is_one_standing_query() -> None:
    engine = SpaceEngine("s")
    text = "SELECT ?o WHERE { ?s ?p ?o }"
    assert engine.watch(text) is engine.watch(text)
    assert engine.end_watch(engine.watch(text).id)
    assert not engine.end_watch("nobody")
    assert engine.insert([Triple(NamedNode(P), NamedNode(P), Literal(1))]).changes == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("SELECT", Fault.MALFORMED),
        ("CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }", Fault.UNSUPPORTED),
        ("SELECT ?s WHERE { ?s ?p ?o } LIMIT 3", Fault.UNSUPPORTED),
        ("SELECT ?s WHERE { ?s ?p ?o FILTER (RAND() > 0.5) }", Fault.UNSUPPORTED),
        ("SELECT ?s WHERE { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }", Fault.UNSUPPORTED),
        ("SELECT ?s WHERE { GRAPH ?g { ?s ?p ?o } }", Fault.UNSUPPORTED),
    ],
)
def test_what_cannot_be_watched_is_refused(text: str, fault: Fault) -> None:
    with pytest.raises(SpaceError) as caught:
        SpaceEngine("s").watch(text)
    assert caught.value.fault is fault


def test_a_watch_whose_answer_grows_too_large_ends_and_the_update_stands() -> None:
    engine = SpaceEngine("s", SpaceLimits(watch_rows=10))
    watch = engine.watch(f"SELECT ?a ?b WHERE {{ ?a <{P}p> ?x . ?b <{P}p> ?y }}")
    outcome = engine.insert([Triple(NamedNode(f"{P}n{i}"), NamedNode(f"{P}p"), Literal(1)) for i in range(9)])
    assert [standing for standing, _ in outcome.failed] == [watch]
    assert outcome.failed[0][1].fault is Fault.TOO_LARGE
    assert engine.standing == {}
    assert len(engine.store) == 9


def test_what_is_forgotten_is_said() -> None:
    engine = SpaceEngine("s", SpaceLimits(history=3))
    watch = engine.watch("SELECT ?o WHERE { ?s ?p ?o }")
    for number in range(5):
        engine.insert([Triple(NamedNode(P), NamedNode(P), Literal(number))])
    assert watch.missed(1) is None
    assert [change.version for change in watch.missed(3) or []] == [4, 5]
    assert watch.missed(5) == []
    assert watch.missed(9) is None


def numbers(predicate: str, count: int) -> list[Triple]:
    link = NamedNode(f"{P}{predicate}")
    return [Triple(NamedNode(f"{P}{predicate}{i}"), link, Literal(i)) for i in range(count)]


def test_work_that_gives_one_row_in_the_end_is_timed_as_well() -> None:
    store = SpaceEngine("s").store
    store.change([], numbers("p", 1000))
    for text in (
        "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f }",
        "SELECT ?a { ?a ?b ?c . ?d ?e ?f FILTER (?c + ?f < 0) }",
        "ASK { ?a ?b ?c . ?d ?e ?f FILTER (?c + ?f < 0) }",
    ):
        with pytest.raises(SpaceError) as caught:
            store.rows(text, [], seconds=0.001, limit=10)
        assert caught.value.fault is Fault.TIMEOUT


def test_the_time_to_follow_an_update_is_for_all_its_triples() -> None:
    engine = SpaceEngine("s", SpaceLimits(watch_time=0.02))
    engine.insert(numbers("p", 5000))
    watch = engine.watch(f"SELECT * {{ ?a <{P}p> ?b . ?c <{P}q> ?d FILTER (?b + ?d < 0) }}")
    outcome = engine.insert(numbers("q", 60))
    assert [(standing, error.fault) for standing, error in outcome.failed] == [(watch, Fault.TIMEOUT)]


def test_what_may_take_too_long_is_known_before() -> None:
    engine = SpaceEngine("s")
    engine.insert(numbers("p", 10))
    cross = engine.watch("SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }")
    engine.watch(f"SELECT * {{ ?a <{P}q> ?b }}")
    assert engine.plan([], numbers("q", 2)).risky == []
    assert engine.plan([], numbers("q", 1000)).risky == [cross]


GO = "<urn:go> <urn:go> <urn:go>"
FILTER = "FILTER(STR(?a) = CONCAT(STR(?d), STR(?g)))"


@pytest.mark.parametrize(
    ("text", "data", "triple"),
    [
        # Quick as long as one pattern has no match.
        (f"SELECT (COUNT(*) AS ?n) {{ {GO} . ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }}", "", GO),
        (f"SELECT ?a ?d ?g {{ {GO} . ?a ?b ?c . ?d ?e ?f . ?g ?h ?i {FILTER} }}", "", GO),
        (f"ASK {{ {GO} . ?a ?b ?c . ?d ?e ?f . ?g ?h ?i FILTER NOT EXISTS {{ ?a ?e ?i }} }}", "", GO),
        # The same with a match that leads nowhere.
        (
            f"SELECT ?a ?d ?g {{ <urn:go> <urn:to> ?x . ?a <{P}is> ?x . ?d <{P}is> ?x . ?g <{P}is> ?x {FILTER} }}",
            "<urn:go> <urn:to> <urn:nowhere>",
            f"<urn:go> <urn:to> <{P}it>",
        ),
        (f"SELECT (COUNT(*) AS ?n) {{ <urn:go> (<urn:go>/<{P}p>)+ ?x . ?a ?b ?c }}", "", GO),
    ],
)  # fmt: skip
def test_what_was_quick_only_because_something_was_missing_is_tried_out(text: str, data: str, triple: str) -> None:
    engine = SpaceEngine("s")
    link, it = NamedNode(f"{P}is"), NamedNode(f"{P}it")
    engine.insert([Triple(each.subject, link, it) for each in numbers("s", 300)])
    engine.insert(numbers("p", 300))
    engine.update(f"INSERT DATA {{ {data} }}")
    watch = engine.watch(text)
    removed, added = engine.rehearse(read_update(f"INSERT DATA {{ {triple} }}"))
    assert engine.plan(removed, added).risky == [watch]


def test_joins_in_a_large_space_are_followed_at_once() -> None:
    engine = SpaceEngine("s")
    rooms = [(NamedNode(f"{P}s{n}"), NamedNode(f"{P}r{n % 50}")) for n in range(5000)]
    engine.insert([Triple(sensor, NamedNode(f"{P}room"), room) for sensor, room in rooms])
    engine.insert([Triple(room, NamedNode(f"{P}label"), Literal("a room")) for _, room in rooms[:50]])
    engine.insert([Triple(sensor, NamedNode(f"{P}max"), Literal(7)) for sensor, _ in rooms])
    watch = engine.watch(
        f"SELECT ?s ?v {{ ?s <{P}level> ?v . ?s <{P}room> ?r . ?r <{P}label> ?l . ?s <{P}max> ?m FILTER (?v > ?m) }}"
    )
    for number, level in ((3, 9), (4, 5)):
        reading = Triple(NamedNode(f"{P}s{number}"), NamedNode(f"{P}level"), Literal(level))
        plan = engine.plan([], [reading])
        assert (plan.risky, list(plan.touched)) == ([], [watch])
        engine.carry_out(plan)
    assert [row[0] for row in watch.rows()] == [NamedNode(f"{P}s3")]
    # A sensor without a room is no concern of it.
    strange = Triple(NamedNode(f"{P}strange"), NamedNode(f"{P}level"), Literal(9))
    assert engine.plan([], [strange]).touched == {}


def test_triples_that_come_together_find_each_other() -> None:
    engine = SpaceEngine("s")
    watch = engine.watch(f"SELECT * {{ ?a <{P}p> ?b . ?b <{P}p> ?c . ?c <{P}p> ?d }}")
    chain = [NamedNode(f"{P}{name}") for name in "abcd"]
    engine.insert([Triple(a, NamedNode(f"{P}p"), b) for a, b in pairwise(chain)])
    assert watch.rows() == [tuple(chain)]


def test_an_update_stands_whatever_a_watch_meets() -> None:
    engine = SpaceEngine("s")
    watch = engine.watch("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }")
    watch.history = ()  # type: ignore[assignment]  # so that it cannot remember a change
    outcome = engine.insert(numbers("p", 1))
    assert [error.fault for _, error in outcome.failed] == [Fault.INTERNAL]
    assert (engine.version, engine.standing) == (1, {})


@pytest.mark.parametrize("text", ['SELECT ?p WHERE { "x" ?p ?o }', "SELECT * { 5 ?p ?x . ?x <urn:is> ?y }"])
def test_what_has_a_literal_as_subject_matches_nothing(text: str) -> None:
    engine = SpaceEngine("s")
    watch = engine.watch(text)
    outcome = engine.insert(
        [
            Triple(NamedNode("urn:q"), NamedNode("urn:is"), Literal("x")),
            Triple(NamedNode("urn:q"), NamedNode("urn:is"), Literal(5)),
        ]
    )
    assert (outcome.failed, watch.rows(), list(engine.standing)) == ([], [], [watch.id])
