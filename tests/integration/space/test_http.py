"""The SPARQL 1.1 Protocol, with other projects' clients."""

import asyncio
import json
import logging
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from pyoxigraph import BaseDirection, Literal
from rdflib import Graph, URIRef
from rdflib import Literal as RdflibLiteral
from rdflib.plugins.stores.sparqlstore import SPARQLUpdateStore
from SPARQLWrapper import JSON, POST, TURTLE, SPARQLWrapper

from tidegate.space import SpaceLimits
from tidegate.space.rights import Access, SpaceRights, digest_of
from tidegate.space.terms import term_json

from .conftest import Rig

# rdflib warns of its own future when it reads JSON-LD.
pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph:DeprecationWarning")

RunRig = Callable[..., None]
EVERY = "SELECT ?s ?o WHERE { ?s <urn:p> ?o } ORDER BY ?o"
FORM = "application/x-www-form-urlencoded"


def call(
    url: str, data: bytes | None = None, method: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_sparqlwrapper_asks_and_updates(run_rig: RunRig) -> None:
    def work(url: str) -> None:
        wrapper = SPARQLWrapper(f"{url}/home/sparql")
        wrapper.setMethod(POST)
        wrapper.setQuery("INSERT DATA { <urn:a> <urn:p> 1, 2 }")
        wrapper.query()
        for method in ("GET", POST):
            wrapper.setMethod(method)
            wrapper.setReturnFormat(JSON)
            wrapper.setQuery(EVERY)
            found: Any = wrapper.queryAndConvert()
            assert [row["o"]["value"] for row in found["results"]["bindings"]] == ["1", "2"]
        wrapper.setReturnFormat(TURTLE)
        wrapper.setQuery("CONSTRUCT WHERE { ?s ?p ?o }")
        turtle = wrapper.query().convert()
        assert len(Graph().parse(data=turtle, format="turtle")) == 2

    async def body(rig: Rig) -> None:
        await asyncio.to_thread(work, rig.url)

    run_rig(body, http=True)


def test_rdflib_uses_a_space_as_its_store(run_rig: RunRig) -> None:
    def work(url: str) -> None:
        store = SPARQLUpdateStore(f"{url}/home/sparql", f"{url}/home/sparql", context_aware=False)
        graph = Graph(store)
        subject, predicate = URIRef("urn:a"), URIRef("urn:p")
        graph.add((subject, predicate, RdflibLiteral("x")))
        graph.add((subject, predicate, RdflibLiteral("y")))
        assert {str(each) for each in graph.objects(subject, predicate)} == {"x", "y"}
        graph.remove((subject, predicate, RdflibLiteral("x")))
        assert len(list(graph.query("SELECT * WHERE { ?s ?p ?o }"))) == 1

    async def body(rig: Rig) -> None:
        await asyncio.to_thread(work, rig.url)

    run_rig(body, http=True)


def test_the_five_ways_to_ask_and_the_content_types(run_rig: RunRig) -> None:
    def work(url: str) -> None:
        sparql = f"{url}/home/sparql"
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        update = urllib.parse.urlencode({"update": "INSERT DATA { <urn:a> <urn:p> 1 }"}).encode()
        assert call(sparql, update, **form)[0] == 200
        direct = b"INSERT DATA { <urn:a> <urn:p> 2 }"
        assert call(sparql, direct, Content_Type="application/sparql-update")[0] == 200
        query = urllib.parse.urlencode({"query": EVERY})
        answers = [
            call(f"{sparql}?{query}", Accept="text/csv"),
            call(sparql, query.encode(), Accept="text/csv", **form),
            call(sparql, EVERY.encode(), Accept="text/csv", Content_Type="application/sparql-query"),
        ]
        for status, headers, data in answers:
            assert (status, data.split()) == (200, [b"s,o", b"urn:a,1", b"urn:a,2"])
            assert headers["Tide-Version"] == "2"
            assert "proc=" in headers["Tide-Load"]
        for accept, kind in (
            ("application/sparql-results+xml, */*;q=0.1", "application/sparql-results+xml"),
            ("text/html, application/json;q=0.5", "application/json"),
            ("*/*", "application/sparql-results+json"),
        ):
            assert call(f"{sparql}?{query}", Accept=accept)[1]["Content-Type"] == kind
        whole = f"{sparql}?" + urllib.parse.urlencode({"query": "CONSTRUCT WHERE { ?s ?p ?o }"})
        for kind in ("text/turtle", "application/n-triples", "application/ld+json", "application/rdf+xml"):
            status, headers, data = call(whole, Accept=kind)
            assert (status, headers["Content-Type"]) == (200, kind)
            assert len(Graph().parse(data=data, format=kind)) == 2

    async def body(rig: Rig) -> None:
        await asyncio.to_thread(work, rig.url)

    run_rig(body, http=True)


def test_rdf_goes_in_and_out_in_every_format(run_rig: RunRig) -> None:
    def work(url: str) -> None:
        data = f"{url}/home/data"
        graph = Graph().parse(data="<urn:a> <urn:p> 'x'@en, 5, <urn:b> .", format="turtle")
        for name in ("turtle", "nt", "json-ld", "xml"):
            kinds = {"turtle": "text/turtle", "nt": "application/n-triples", "xml": "application/rdf+xml"}
            kind = kinds.get(name, "application/ld+json")
            status, _, answer = call(data, graph.serialize(format=name).encode(), Content_Type=kind)
            assert status == 200
            assert json.loads(answer)["added"] == (3 if name == "turtle" else 0)
        assert set(Graph().parse(data=call(data)[2], format="turtle")) == set(graph)
        assert call(data, b"<urn:a> <urn:p> 5 .", "DELETE", Content_Type="text/turtle")[0] == 200
        assert len(Graph().parse(data=call(data)[2], format="turtle")) == 2
        assert call(data, method="PUT")[0] == 405

    async def body(rig: Rig) -> None:
        await asyncio.to_thread(work, rig.url)

    run_rig(body, http=True)


def test_errors_have_their_status_and_a_hint(run_rig: RunRig) -> None:
    def work(url: str) -> None:
        query = urllib.parse.urlencode({"query": EVERY})
        cases = [
            (f"{url}/home/sparql?query=SELECT", {}, 400),
            (f"{url}/home/sparql", {}, 400),
            (f"{url}/nowhere/sparql?{query}", {}, 404),
            (f"{url}/home/sparql?{query}", {"Accept": "image/png"}, 406),
            (f"{url}/home/sparql?{query}&default-graph-uri=urn:g", {}, 400),
        ]
        for address, headers, expected in cases:
            status, _, data = call(address, **headers)
            assert status == expected
            assert json.loads(data)["error"]
        assert call(f"{url}/home/sparql", b"x", Content_Type="text/html")[0] == 415
        assert call(f"{url}/home/data", b"x", Content_Type="text/html")[0] == 415
        for text in (
            "INSERT DATA { <urn:a> <urn:p> 1 }",
            "PREFIX e: <urn:e#> # x\nDELETE WHERE { ?s e:p ?o }",
        ):
            status, _, data = call(f"{url}/home/sparql?" + urllib.parse.urlencode({"query": text}))
            assert (status, "update=" in json.loads(data)["hint"]) == (400, True)
        assert "update=" not in json.loads(call(f"{url}/home/sparql?query=SELECT")[2])["hint"]
        status, _, data = call(f"{url}/home/data", b"<urn:a>", Content_Type="text/turtle")
        assert (status, json.loads(data)["fault"]) == (400, "malformed")
        endless = "SELECT (COUNT(*) AS ?n) { " + " . ".join(f"?a{i} ?b{i} ?c{i}" for i in range(9)) + " }"
        rows = "".join(f"<urn:s{i}> <urn:p> {i} .\n" for i in range(300)).encode()
        call(f"{url}/home/data", rows, Content_Type="text/turtle")
        status, _, data = call(f"{url}/home/sparql?" + urllib.parse.urlencode({"query": endless}))
        assert (status, json.loads(data)["fault"]) == (504, "timeout")
        assert json.loads(call(url)[2])["spaces"]["home"]["triples"] == 300

    async def body(rig: Rig) -> None:
        await asyncio.to_thread(work, rig.url)

    run_rig(body, http=True, limits=SpaceLimits(query_time=0.4))


def test_tokens_decide_who_may_write(run_rig: RunRig) -> None:
    rights = SpaceRights(
        is_open=False,
        tokens={"anna": digest_of("secret")},
        spaces={"home": {Access.READ: frozenset({"*"}), Access.WRITE: frozenset({"anna"})}},
    )

    def work(url: str) -> None:
        data, turtle = f"{url}/home/data", {"Content_Type": "text/turtle"}
        for token in ({}, {"Authorization": "Bearer wrong"}):
            status, headers, _ = call(data, b"<urn:a> <urn:p> 1 .", **token, **turtle)
            assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "proc=" in headers["Tide-Load"]
        assert call(data, b"<urn:a> <urn:p> 1 .", Authorization="Bearer secret", **turtle)[0] == 200
        assert call(data)[0] == 200
        assert call(f"{url}/lab/data")[0] == 401
        assert call(f"{url}/lab/data", Authorization="Bearer secret")[0] == 403
        status, _, answer = call(f"{url}/lab/sparql", b"query=ASK+{}", Authorization="Bearer secret")
        assert (status, json.loads(answer)["error"]) == (403, "anna may not read space 'lab'")

    async def body(rig: Rig) -> None:
        await asyncio.to_thread(work, rig.url)

    run_rig(body, http=True, rights=rights)


@pytest.mark.parametrize("size", [1, 3])
def test_watching_over_http(run_rig: RunRig, size: int) -> None:
    def work(url: str) -> None:
        watch = json.loads(call(f"{url}/home/watch", b'{"p": "<urn:p>"}', Content_Type="application/json")[2])
        assert (watch["number"], watch["rows"]) == (0, [])
        for number in range(size):
            call(f"{url}/home/data", f"<urn:a> <urn:p> {number} .".encode(), Content_Type="text/turtle")
        body = json.dumps({"watch": watch["watch"], "number": 0}).encode()
        found = json.loads(call(f"{url}/home/check", body)[2])
        assert [change["number"] for change in found["missed"]] == list(range(1, size + 1))

    async def body(rig: Rig) -> None:
        await asyncio.to_thread(work, rig.url)

    run_rig(body, http=True)


def test_who_may_not_read_a_space_does_not_hear_of_it(run_rig: RunRig) -> None:
    rights = SpaceRights(is_open=False, spaces={"home": {Access.READ: frozenset({"*"})}})

    def work(url: str) -> None:
        assert list(json.loads(call(f"{url}/")[2])["spaces"]) == ["home"]
        assert call(f"{url}/", Authorization="Bearer nobody")[0] == 401

    async def body(rig: Rig) -> None:
        await asyncio.to_thread(work, rig.url)

    run_rig(body, http=True, rights=rights)


def test_web_pages_of_other_places_are_refused_where_everybody_may_do_everything(run_rig: RunRig) -> None:
    def work(url: str) -> None:
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
            status, _, answer = call(f"{url}/home/sparql", b"update=CLEAR+ALL", **headers)
            assert (status, json.loads(answer)["fault"]) == (403, "forbidden")
        status, _, _ = call(f"{url}/home/sparql", b"update=CLEAR+ALL", Origin=url)
        assert status == 200

    async def body(rig: Rig) -> None:
        await asyncio.to_thread(work, rig.url)

    run_rig(body, http=True)


def test_a_body_is_not_waited_for_if_its_sender_may_not_send_it(run_rig: RunRig) -> None:
    rights = SpaceRights(is_open=False, spaces={"home": {Access.READ: frozenset({"*"})}})

    async def body(rig: Rig) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.http_port)
        head = "POST /home/data HTTP/1.1\r\nHost: x\r\nContent-Type: text/turtle\r\nContent-Length: 60000000\r\n\r\n"
        writer.write(head.encode())
        assert b" 403 " in await asyncio.wait_for(reader.readline(), 10.0)
        writer.close()

    run_rig(body, http=True, rights=rights)


@pytest.mark.parametrize(("path", "body"), [("watch", b"[]"), ("check", b'{"watch": "x", "number": 1e999}')])
def test_json_of_another_shape_is_malformed(run_rig: RunRig, path: str, body: bytes) -> None:
    async def main(rig: Rig) -> None:
        found = await asyncio.to_thread(call, f"{rig.url}/home/{path}", body, Content_Type="application/json")
        assert (found[0], json.loads(found[2])["fault"]) == (400, "malformed")

    run_rig(main, http=True)


@pytest.mark.parametrize(
    ("path", "body", "headers", "expected"),
    [
        ("data", None, {"Authorization": "Bearer \xff"}, 401),
        ("sparql?query=ASK%7B%7D", None, {"Accept": "text/\xff"}, 406),
        ("sparql", b"query=\xff", {}, 400),
        ("sparql", b"query=ASK{}", {"Content_Type": f"{FORM}; charset=bogus"}, 400),
        ("sparql", b"query=ASK{}", {"Content_Type": f"{FORM}; charset*0*"}, 400),
        ("sparql", b"query=+2AA-", {"Content_Type": f"{FORM}; charset=utf-7"}, 400),
        ("data", b"no gzip", {"Content_Type": "text/turtle", "Content_Encoding": "gzip"}, 400),
        ("data", b"no gzip", {"Authorization": "Bearer x", "Content_Encoding": "gzip"}, 401),
        ("data", None, {"Origin": "http://["}, 403),
        ("data", None, {"Host": "127.0.0.1:x"}, 403),
    ],
)
def test_bytes_that_mean_nothing_are_refused_and_not_logged(
    run_rig: RunRig,
    caplog: pytest.LogCaptureFixture,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    expected: int,
) -> None:
    async def main(rig: Rig) -> None:
        found = await asyncio.to_thread(call, f"{rig.url}/home/{path}", body, **headers)
        assert (found[0], "proc=" in found[1]["Tide-Load"]) == (expected, True)
        assert json.loads(found[2])["error"]

    run_rig(main, http=True)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /home/data HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n<urn",
        b"POST /home/data HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_a_body_that_breaks_off_is_no_fault_of_the_broker(
    run_rig: RunRig, caplog: pytest.LogCaptureFixture, request_: bytes
) -> None:
    async def body(rig: Rig) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.http_port)
        writer.write(request_)
        writer.write_eof()
        assert b" 500 " not in await asyncio.wait_for(reader.read(), 10.0)
        writer.close()

    run_rig(body, http=True)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_all_refusals_tell_the_load(run_rig: RunRig) -> None:
    def work(url: str) -> None:
        cases = [
            (f"{url}/home/data", None, "PUT", {}, 405),
            (f"{url}/home/watch", None, "GET", {}, 405),
            (f"{url}/home/nothing", None, "GET", {}, 404),
            (f"{url}/home/data", None, "GET", {"Expect": "wonders"}, 417),
            (f"{url}/home/data", b"<urn:a> <urn:b> 1 .", "POST", {"Content_Type": "text/turtle"}, 413),
        ]
        for address, data, method, headers, expected in cases:
            status, found, _ = call(address, data, method, **headers)
            assert (status, "proc=" in found.get("Tide-Load", "")) == (expected, True)

    async def body(rig: Rig) -> None:
        await asyncio.to_thread(work, rig.url)

    run_rig(body, http=True, limits=SpaceLimits(request_bytes=10))


def test_a_string_that_turns_round_is_another_one(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        ltr, rtl = (Literal("x", language="en", direction=BaseDirection(each)) for each in ("ltr", "rtl"))
        await home.update(f"INSERT DATA {{ <urn:a> <urn:p> {ltr} }}")
        async with home.watch(p="<urn:p>") as watch:
            assert [row[1] for row in watch.rows] == [ltr]
            await home.update(
                f"DELETE DATA {{ <urn:a> <urn:p> {ltr} }} ; INSERT DATA {{ <urn:a> <urn:p> {rtl} }}"
            )
            change = await anext(watch)
            assert ([row[1] for row in change.removed], [row[1] for row in change.added]) == ([ltr], [rtl])
        assert (await home.query("SELECT ?o { ?s ?p ?o }")).rows == [(rtl,)]
        query = urllib.parse.urlencode({"query": "SELECT ?o { ?s ?p ?o }"})
        found = await asyncio.to_thread(call, f"{rig.url}/home/sparql?{query}")
        assert json.loads(found[2])["results"]["bindings"] == [{"o": term_json(rtl)}]

    run_rig(body, http=True)
