"""Content types, rights, lanes and the runner, each alone."""

import asyncio
import threading
import time
from pathlib import Path
from random import Random
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.client import Client
from tidegate.flow import timeout_policy
from tidegate.flow.timeout import Announcement
from tidegate.space import Fault, SpaceEngine, SpaceError, SpaceLimits
from tidegate.space.answers import Answers
from tidegate.space.durable import DurableSpace
from tidegate.space.formats import RESULTS, negotiate, read_triples
from tidegate.space.knowledge import Space
from tidegate.space.lane import Lane
from tidegate.space.outline import outline
from tidegate.space.requests import Operation, Request, Response
from tidegate.space.rights import Access, SpaceRights, digest_of, load_rights
from tidegate.space.runner import Runner
from tidegate.space.serve import ServeOptions
from tidegate.space.service import SpaceService
from tidegate.space.store import check_query
from tidegate.space.tokens import Unreadable, tokenize
from tidegate.space.watch import Watch
from tidegate.space.watchers import MOST, Watchers


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "application/sparql-results+json"),
        ("", "application/sparql-results+json"),
        ("*/*", "application/sparql-results+json"),
        ("text/*", "text/csv"),
        ("text/csv;q=0.5, application/xml", "application/xml"),
        ("text/csv;q=0.5, text/tab-separated-values;q=0.9", "text/tab-separated-values"),
        ("application/sparql-results+json;q=0, */*;q=0.1", "application/json"),
    ],
)
def test_negotiation(accept: str | None, expected: str) -> None:
    assert negotiate(accept, list(RESULTS)) == expected


@given(st.text(max_size=40))
def test_any_accept_header_gets_a_type_or_an_error(accept: str) -> None:
    found = Fault.CONTENT_TYPE
    try:
        assert negotiate(accept, list(RESULTS)) in RESULTS
    except SpaceError as error:
        found = error.fault
    assert found is Fault.CONTENT_TYPE


@given(st.binary(max_size=60), st.sampled_from(["text/turtle", "application/ld+json", "application/rdf+xml"]))
def test_any_bytes_are_triples_or_an_error(data: bytes, kind: str) -> None:
    found = Fault.MALFORMED
    try:
        read_triples(data, kind)
    except SpaceError as error:
        found = error.fault
    assert found is Fault.MALFORMED


@given(st.text(max_size=60))
def test_any_text_has_an_outline(text: str) -> None:
    found = outline(text)
    assert not (found.is_wild and found.is_plain)
    try:
        tokenize(text)
    except Unreadable:
        assert found.is_wild


def test_json_ld_must_not_be_deep() -> None:
    deep = b'{"@id": "urn:a", "urn:p": ' * 1000 + b"1" + b"}" * 1000
    with pytest.raises(SpaceError) as caught:
        read_triples(deep, "application/ld+json")
    assert caught.value.fault is Fault.MALFORMED
    brackets = b'{"@id": "urn:a", "urn:p": "' + b"[" * 1000 + b'"}'
    assert len(read_triples(brackets, "application/ld+json")) == 1


def test_named_graphs_and_unknown_types_are_refused() -> None:
    with pytest.raises(SpaceError) as caught:
        read_triples(b"{}", "image/png")
    assert caught.value.fault is Fault.CONTENT_TYPE
    with pytest.raises(SpaceError):
        read_triples(b'{"@id": "urn:g", "@graph": [{"@id": "urn:a", "urn:p": 1}]}', "application/ld+json")


def test_rights_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(
        f'[tokens]\nanna = "{digest_of("x")}"\n[spaces.home]\nread = ["*"]\nwrite = ["anna", "mqtt"]\n'
    )
    rights = load_rights(path)
    assert rights.who("x") == "anna"
    assert rights.who(None) == "anonymous"
    rights.check("anonymous", "home", Access.READ)
    rights.check("mqtt", "home", Access.WRITE)
    for who, space, access in (("anonymous", "home", Access.WRITE), ("anna", "lab", Access.READ)):
        with pytest.raises(SpaceError) as caught:
            rights.check(who, space, access)
        assert caught.value.fault is Fault.FORBIDDEN
    with pytest.raises(SpaceError):
        rights.who("y")
    SpaceRights().check("anybody", "anything", Access.WRITE)


def test_names_in_a_rights_file_that_mean_nobody_are_found() -> None:
    allowed = {Access.READ: frozenset({"carl", "anna", "*"}), Access.WRITE: frozenset({"mqtt"})}
    rights = SpaceRights(
        is_open=False, tokens={"anna": digest_of("x")}, spaces={"home": allowed, "nope": {}}
    )
    assert rights.oddities(["home"]) == [
        "[spaces.nope]: no such space is served",
        "[spaces.home] read: there is no token of 'carl'",
    ]
    assert SpaceRights().oddities(["home"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[spaces.home]\nread = 'everybody'",
        "[spaces.home]\nred = ['*']",
        "[tokens]\nanna = 'plain'",
        "[tokenz]\n",
        "spaces = 3",
    ],
)
def test_a_wrong_rights_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(text)
    with pytest.raises(SpaceError) as caught:
        load_rights(path)
    assert str(path) in str(caught.value)


def test_serving_the_world_needs_rights() -> None:
    with pytest.raises(SpaceError) as caught:
        ServeOptions(http_host="0.0.0.0", http_port=0).check()
    assert "--rights" in caught.value.hint
    ServeOptions(http_host="0.0.0.0", http_port=0, rights=SpaceRights(is_open=False)).check()
    for spaces in (["a/b"], ["+"], [""], ["../x"]):
        with pytest.raises(SpaceError):
            ServeOptions(spaces=spaces, http_port=0).check()


def test_a_lane_serves_waits_and_refuses() -> None:
    async def body() -> None:
        lane = Lane("test", workers=2, capacity=3)
        release = asyncio.Event()
        order: list[int] = []

        async def work(number: int) -> None:
            async with lane.turn():
                order.append(number)
                await release.wait()

        tasks = [asyncio.create_task(work(number)) for number in range(6)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == [0, 1]
        assert isinstance(tasks[5].exception(), SpaceError)
        assert lane.queueing > 0.0
        tasks[2].cancel()
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == [0, 1, 3, 4]
        assert lane.statistics()["running"] == 0
        assert (lane.served, lane.refused) == (4, 1)
        assert lane.queueing == 0.0

    asyncio.run(body())


def test_the_runner_answers_reports_and_stops() -> None:
    async def body() -> None:
        runner = Runner(seconds=0.5, max_bytes=1000)

        def fine(output: BinaryIO) -> None:
            output.write(b"answer")

        def wrong(output: BinaryIO) -> None:
            raise SpaceError(Fault.MALFORMED, "no", hint="yes")

        def endless(output: BinaryIO) -> None:
            while True:
                pass

        def huge(output: BinaryIO) -> None:
            while True:
                output.write(bytes(1000))

        def broken(output: BinaryIO) -> None:
            raise ZeroDivisionError

        def hungry(output: BinaryIO) -> None:
            bytearray(8 * 1024**3)

        assert await runner.run("fine", 1, fine) == b"answer"
        for job, fault in (
            (wrong, Fault.MALFORMED),
            (endless, Fault.TIMEOUT),
            (huge, Fault.TOO_LARGE),
            (broken, Fault.TOO_LARGE),
            (hungry, Fault.TOO_LARGE),
        ):
            with pytest.raises(SpaceError) as caught:
                await runner.run(job.__name__, 1, job)
            assert caught.value.fault is fault, job
        assert runner.statistics()["killed"] == 1

    asyncio.run(body())


def test_the_runner_trusts_what_was_quick_until_the_store_has_grown() -> None:
    async def body() -> None:
        runner = Runner(seconds=5.0, max_bytes=1000)
        for _ in range(40):
            assert await runner.run("same", 10_000_000, lambda output: output.write(b"x") and None) == b"x"
        assert runner.in_thread > 0
        forked = runner.forked
        await runner.run("same", 100_000_000, lambda output: output.write(b"x") and None)
        assert runner.forked == forked + 1
        for _ in range(5):
            await runner.run("", 10_000_000, lambda output: output.write(b"x") and None)
        assert runner.forked == forked + 6

    asyncio.run(body())


def test_what_was_quick_with_a_small_store_is_not_trusted_with_a_larger_one() -> None:
    async def body() -> None:
        # Large, so that the time of a fork, which grows with the process that runs this, does not matter.
        runner, small = Runner(seconds=5.0, max_bytes=1000), 10**8
        while runner.in_thread == 0:
            await runner.run("same", small, lambda output: None)
        forked = runner.forked
        await runner.run("same", 2 * small, lambda output: None)
        assert runner.forked == forked + 1

    asyncio.run(body())


def test_while_a_thread_is_late_everything_is_forked() -> None:
    async def body() -> None:
        runner = Runner(seconds=0.5, max_bytes=1000, workers=1)
        release = threading.Event()
        while runner.in_thread == 0:
            await runner.run("late", 10**8, lambda output: None)
        with pytest.raises(SpaceError) as caught:
            await runner.run("late", 10**8, lambda output: release.wait() and None)
        assert caught.value.fault is Fault.TIMEOUT
        assert runner.has_late_threads
        before = runner.in_thread
        for _ in range(5):
            await runner.run("quick", 10**8, lambda output: None)
        assert runner.in_thread == before
        release.set()
        async with asyncio.timeout(10.0):
            while runner.in_thread == before:
                await runner.run("quick", 10**8, lambda output: None)
        runner.close()

    asyncio.run(body())


def test_a_long_query_is_read_while_others_are_served() -> None:
    text = "SELECT ?s { ?s ?p ?o VALUES ?o { " + "1 " * 200_000 + "} }"
    began = time.monotonic()
    check_query(text)
    seconds = time.monotonic() - began

    async def body() -> None:
        runner = Runner(seconds=30.0, max_bytes=1000)
        answers = Answers(runner, Lane("query", workers=1, capacity=1))
        began = time.monotonic()
        asked = asyncio.create_task(answers.ask(DurableSpace("s", SpaceLimits()), text, "text/csv"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert time.monotonic() - began < seconds / 2
        assert await asked == (b"s\r\n", "text/csv", 0)
        runner.close()

    asyncio.run(body())


def test_a_place_is_given_back_once() -> None:
    async def body() -> None:
        lane = Lane("test", workers=1, capacity=3)

        async def work() -> None:
            async with lane.turn():
                pass

        assert lane.enter_nowait()
        waiting = asyncio.create_task(work())
        await asyncio.sleep(0)
        waiting.cancel()
        lane.leave()  # before the one who waited knows that it was cancelled
        await asyncio.gather(waiting, return_exceptions=True)
        assert lane.statistics()["running"] == 0

    asyncio.run(body())


def test_clients_that_claim_to_be_many_are_counted_up_to_a_bound() -> None:
    watchers = Watchers([], 600.0)
    for number in range(MOST + 10):
        watchers.note("home", "w", f"reply/{number}")
        watchers.note("home", "w", "steady")
    assert watchers.of_watch("home", "w") == MOST
    assert "steady" in watchers.seen["home", "w"]


def test_an_answer_is_of_the_version_it_saw() -> None:
    async def body() -> None:
        lane = Lane("query", workers=1, capacity=1)
        runner = Runner(seconds=5.0, max_bytes=1000)
        space = DurableSpace("s", SpaceLimits())
        assert lane.enter_nowait()
        asked = asyncio.create_task(Answers(runner, lane).ask(space, "SELECT ?o { ?s ?p ?o }", "text/csv"))
        await asyncio.sleep(0.01)
        space.apply([], read_triples(b"<urn:a> <urn:p> 1 .", "text/turtle"))
        lane.leave()
        assert await asked == (b"o\r\n1\r\n", "text/csv", 1)
        runner.close()

    asyncio.run(body())


def test_updates_of_a_space_wait_for_no_other_space() -> None:
    async def body() -> None:
        service = SpaceService(["home", "lab"])
        slow = Request(space="home", operation=Operation.UPDATE, body=b"INSERT { ?s ?p 1 } WHERE { ?s ?p ?o }")
        first = asyncio.create_task(service.handle(slow))
        await asyncio.sleep(0)
        responses: list[Response] = []
        quick = Request(space="lab", operation=Operation.UPDATE, body=b"INSERT DATA { <urn:a> <urn:p> 1 }")
        assert service.handle_nowait(quick, responses.append)
        assert [response.version for response in responses] == [1]
        assert not first.done()
        assert (await first).error is None
        await service.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("body", "is_at_once"),
    [
        (b"<urn:a> <urn:b> 1 .", True),
        (b"<urn:a> <urn:b> " + b"(" * 3000 + b")" * 3000 + b" .", False),  # few bytes, many triples
        (b"<urn:a> <urn:b> 1 ." + b"#" * 20_000, False),
    ],
)
def test_only_what_takes_a_moment_is_done_in_the_turn_in_which_it_comes(body: bytes, is_at_once: bool) -> None:
    async def scenario() -> None:
        service = SpaceService(["home"])
        request = Request(space="home", operation=Operation.INSERT, body=body, content_type="text/turtle")
        done: list[Response] = []
        assert service.handle_nowait(request, done.append) is is_at_once
        response = done[0] if done else await service.handle(request)
        assert response.error is None
        assert response.version == 1
        await service.close()

    asyncio.run(scenario())


def test_a_watch_reacts_by_what_checks_cost_and_not_queries() -> None:
    watch = Watch(
        Space(Client("mqtt://127.0.0.1:1"), "home"), "", None, timeout_policy("active")(),
        patience=1.0, qos=1, random=Random(1), queue=10,
    )  # fmt: skip
    told = Announcement(watchers=100.0, capacity=1.0, limit=0.5)  # of queries, as a notification has it
    assert watch.of_checks(told) is told
    watch.load = Announcement(watchers=300.0, capacity=1000.0, limit=0.1, queueing=3.0, rate=0.2)
    assert watch.of_checks(told) == Announcement(watchers=100.0, capacity=1000.0, limit=0.1)


def test_a_watch_that_was_not_begun_says_how_to() -> None:
    watch = Space(Client("mqtt://127.0.0.1:1"), "home").watch("ASK {}")
    with pytest.raises(RuntimeError, match="async with"):
        aiter(watch)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("INSERT DATA { foo:a foo:b 1 }", "declare the prefix: PREFIX foo: <…>"),
        ("PREFIX f: <urn:f:> INSERT DATA { f:a <b> 1 }", "<b> is relative: write the whole IRI, or BASE <…> before it"),
        ("BASE <urn:foo:> PREFIX foo: <urn:foo:> INSERT DATA { foo:a <b> 1 2 }", "check the update"),
    ],
)  # fmt: skip
def test_the_commonest_mistakes_in_an_update_are_named(text: str, hint: str) -> None:
    with pytest.raises(SpaceError) as caught:
        SpaceEngine("s").update(text)
    assert (caught.value.fault, caught.value.hint) == (Fault.MALFORMED, hint)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT * { ?s foo:b 1 }", "declare the prefix: PREFIX foo: <…>"),
        ("SELECT * { ?s <b> 1 }", "<b> is relative: write the whole IRI, or BASE <…> before it"),
        ("SELEC ?x", "it begins with SELEC, which is no word of SPARQL"),
        ("INSERT DATA { <urn:a> <urn:b> 1 }", "that is an update: send it as one"),
        ("SELECT * { ?s ?p }", "check the query"),
    ],
)
def test_the_commonest_mistakes_in_a_query_are_named(text: str, hint: str) -> None:
    with pytest.raises(SpaceError) as caught:
        SpaceEngine("s").store.ask(text)
    assert (caught.value.fault, caught.value.hint) == (Fault.MALFORMED, hint)


def test_a_space_that_no_section_opens_is_told_of() -> None:
    rights = SpaceRights(is_open=False, spaces={"home": {Access.READ: frozenset({"*"})}})
    assert rights.oddities(["home", "shed"]) == ["space 'shed' has no section: nobody may use it"]
