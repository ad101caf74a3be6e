"""No text makes the broker ask another endpoint, however it is written."""

import asyncio
import socket
import time
from typing import BinaryIO

import pytest

from tidegate.space import Fault, SpaceEngine, SpaceError
from tidegate.space.outline import outline
from tidegate.space.reach import has_service
from tidegate.space.runner import Runner
from tidegate.space.store import check_query
from tidegate.space.update import read_update

AT = "<http://127.0.0.1/x>"
PREFIX = "PREFIX e: <http://127.0.0.1/> "
# Each of them is a SERVICE to the store's parser.
HIDDEN = [
    f'?s ?p ?o FILTER(1<2#>"""\n) SERVICE {AT} {{?s ?p ?o}} #""")\n',
    f"?s ?p ?o FILTER(1<'x>') SERVICE {AT} {{?s ?p ?o}} #')\n",
    f"SERVICESILENT{AT}{{?s ?p ?o}}",
    "SERVICEe:x{?s ?p ?o}",
    "SERVICEsilent e:x#y z\n{?s ?p ?o}",
    f"?a ?b 1SERVICE {AT} {{?s ?p ?o}}",
    f"?a ?b 1.5e3SERVICE {AT} {{?s ?p ?o}}",
    f"?a ?b trueSERVICE {AT} {{?s ?p ?o}}",
    f"BIND(1 AS ?x)service#\n#\n{AT}#{{\n{{?s ?p ?o}}",
    f"BIND({AT} AS ?x) SERVICE ?x {{?s ?p ?o}}",
    '?s ?p ?o FILTER(1<2#>"""\n) ?k ?l ?x\u203f FILTER EXISTS { SERVICE ?x\u203f {?a ?b ?c} } #""")\n',
    '?s ?p ?o FILTER(1<2#>"""\n) ?k ?l ?x\u00b7 LATERAL { SERVICE $x\u00b7 {?a ?b ?c} } #""")\n',
    '?s ?p ?o FILTER(1<2#>"""\n) SERVICE e\u203fe:x {?a ?b ?c} #""")\n',
]
HARMLESS = [
    "?s e:service ?x { ?x ?y ?z }",
    "?s e:hasService ?x { ?x ?y ?z }",
    "?service ?x ?y { ?x ?y ?z }",
    '?s ?p "service of {the} house"',
    "?s ?p <http://e/service#x> { ?x ?y ?z }",
    "VALUES (?s ?o) { (<http://e/service#a> <http://e/service#b>) } { ?s ?p ?o }",
    "?s e:p ?o # service\n",
]


@pytest.mark.parametrize("group", HIDDEN)
def test_a_service_is_found_wherever_it_hides(group: str) -> None:
    for refused in (
        lambda: check_query(f"{PREFIX}SELECT * {{ {group} }}"),
        lambda: SpaceEngine("s").watch(f"{PREFIX}SELECT * {{ {group} }}"),
        lambda: read_update(f"{PREFIX}INSERT {{ ?s ?p ?o }} WHERE {{ {group} }}"),
    ):
        with pytest.raises(SpaceError) as caught:
            refused()
        assert caught.value.fault is Fault.UNSUPPORTED


@pytest.mark.parametrize("name", ["?x\u203f", "?x\u00b7", "$x\u0301", "e\u203fe:x", "e:x\u203f", "<http://e/>"])
def test_a_service_is_found_whatever_its_name(name: str) -> None:
    assert has_service(f"SERVICE {name} {{?s ?p ?o}}")
    assert has_service(f"SERVICE SILENT {name}#\n{{?s ?p ?o}}")


@pytest.mark.parametrize("group", HARMLESS)
def test_the_word_alone_is_harmless(group: str) -> None:
    text = f"{PREFIX}SELECT * {{ {group} }}"
    check_query(text)
    SpaceEngine("s").watch(text)


@pytest.mark.parametrize(
    "part", ["SERVICE#", "SERVICE:", "SERVICE1", "trueSERVICE", "SERVICE <", "1SERVICE #\n", "SERVICE:#", "SERVICE?1"]
)
def test_looking_takes_time_in_proportion(part: str) -> None:
    began = time.process_time()
    assert not has_service(part * 50_000)
    assert time.process_time() - began < 5.0


def test_brackets_cannot_hide_behind_a_comparison() -> None:
    hidden = "ASK { FILTER(1<2#>'''\n" + " || (1" * 200 + ")" * 200 + ") #''')\n}"
    with pytest.raises(SpaceError) as caught:
        check_query(hidden)
    assert "deep" in str(caught.value)


def test_what_comes_after_the_group_is_not_taken_for_one_pattern() -> None:
    hidden = "SELECT * { ?s ?p ?o } ORDER BY (1<2#>'''\n) LIMIT 2 #''')\n"
    assert not outline(hidden).is_one_pattern
    assert not outline("SELECT * { ?s ?p ?o } ORDER BY ?s").is_one_pattern
    assert outline("SELECT * { ?s ?p ?o }").is_one_pattern


def test_a_child_opens_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def job(output: BinaryIO) -> None:
            socket.create_connection(("127.0.0.1", port), 1.0).close()

        async def body() -> None:
            with pytest.raises(SpaceError):
                await Runner(seconds=5.0, max_bytes=1000).run("", 1, job)

        asyncio.run(body())
        server.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            server.accept()
