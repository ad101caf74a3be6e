"""Threads, forks and what keeps them apart; which queries may be asked in a thread, and what their answers say."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import BinaryIO

import pytest

from tidegate.space import Fault, SpaceEngine, SpaceError, SpaceLimits
from tidegate.space.answers import Answers
from tidegate.space.durable import DurableSpace
from tidegate.space.formats import read_triples
from tidegate.space.lane import Lane
from tidegate.space.outline import outline
from tidegate.space.runner import Runner
from tidegate.space.trial import try_out
from tidegate.space.trust import is_bounded

LARGE = 10**8  # triples, as we say: the time of a fork does not matter then


def quick(output: BinaryIO) -> None:
    output.write(b"x")


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def reading(runner: Runner, of: object) -> AsyncIterator[threading.Event]:
    """A query in a thread, until the event is set."""
    release = threading.Event()
    while runner.in_thread == 0:
        await runner.run("slow", LARGE, quick, of=of)
    task = asyncio.create_task(runner.run("slow", LARGE, lambda output: release.wait() and None, of=of))
    await wait_until(lambda: runner.in_thread == 2)
    try:
        yield release
    finally:
        release.set()
        await asyncio.gather(task, return_exceptions=True)
        runner.close()


def test_a_child_that_writes_is_forked_when_no_thread_reads_its_store() -> None:
    async def body() -> None:
        runner, store, other = Runner(seconds=20.0, max_bytes=1000), object(), object()
        async with reading(runner, store) as release:
            while not await runner.run("quick", LARGE, quick, of=other) or runner.in_thread == 2:
                pass
            forked, threads = runner.forked, runner.in_thread
            writing = asyncio.create_task(runner.run("", 1, quick, of=store, is_writing=True))
            await asyncio.sleep(0)
            difference = asyncio.create_task(runner.beside(store, lambda: "read"))
            await asyncio.sleep(0.05)
            assert (runner.forked, difference.done()) == (forked, False)
            # What only reads is forked meanwhile: no thread begins.
            assert await runner.run("quick", LARGE, quick, of=store) == b"x"
            assert await runner.run("", 1, quick, of=other, is_writing=True) == b"x"
            assert (runner.forked, runner.in_thread, writing.done()) == (forked + 2, threads, False)
            release.set()
            assert await writing == b"x"
            assert await difference == "read"

    asyncio.run(body())


def test_a_thread_whose_caller_gave_up_still_counts() -> None:
    async def body() -> None:
        runner, store, release = Runner(seconds=0.3, max_bytes=1000), object(), threading.Event()
        begun = threading.Event()
        difference = asyncio.create_task(
            runner.beside(store, lambda: begun.set() or release.wait(20.0))  # type: ignore[func-returns-value]
        )
        await wait_until(begun.is_set)
        difference.cancel()
        await asyncio.gather(difference, return_exceptions=True)
        with pytest.raises(SpaceError) as caught:
            await runner.run("", 1, quick, of=store, is_writing=True)
        assert caught.value.fault is Fault.BUSY
        release.set()
        await wait_until(lambda: not runner._gate(store)._reading)
        assert await runner.run("", 1, quick, of=store, is_writing=True) == b"x"
        runner.close()

    asyncio.run(body())


def test_no_watch_ends_because_a_thread_is_late() -> None:
    async def body() -> None:
        engine = SpaceEngine("s", SpaceLimits())
        watch = engine.watch("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }")
        plan = engine.plan([], read_triples(b"<urn:a> <urn:p> 1 .", "text/turtle"))
        runner = Runner(seconds=0.2, max_bytes=1000)
        async with reading(runner, engine.store) as release:
            await wait_until(lambda: runner.has_late_threads)
            with pytest.raises(SpaceError) as caught:
                await try_out(runner, engine, plan, [watch])
            assert caught.value.fault is Fault.BUSY
            assert caught.value.retry_after > 0.0
            release.set()
            await wait_until(lambda: not runner.has_late_threads)
            assert await try_out(runner, engine, plan, [watch]) == ({watch.id}, {})

    asyncio.run(body())


def test_half_an_answer_is_none() -> None:
    def job(output: BinaryIO) -> None:
        output.write(b"half")
        raise SpaceError(Fault.INTERNAL, "no more")

    async def body() -> None:
        runner = Runner(seconds=5.0, max_bytes=1000)
        with pytest.raises(SpaceError):
            await runner.run("", 1, job)
        runner.close()

    asyncio.run(body())


TWO = "SELECT * { ?s <urn:absent> ?o . ?s <urn:p> ?q }"


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("SELECT ?o { <urn:a> <urn:p> ?o }", 10**9, True),
        ("SELECT (COUNT(*) AS ?n) { ?s ?p ?o FILTER (?o > 3) } GROUP BY ?p", 10**9, True),
        ("CONSTRUCT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o } LIMIT 5", 10**9, True),
        (TWO, 4000, True),
        (TWO, 10_000, False),
        ("SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g <urn:absent> ?i }", 1000, False),
        ("SELECT * { ?s <urn:p>+ ?o }", 10, False),
        ("SELECT * { ?s <urn:p> ?o VALUES ?a { 1 2 } VALUES ?b { 1 2 } }", 10, False),
        ("SELECT * { ?s <urn:p> ?o { {} UNION {} } { {} UNION {} } }", 10, False),
        ("SELECT * { ?s <urn:p> ?o BIND (CONCAT(?o, ?o) AS ?a) BIND (CONCAT(?a, ?a) AS ?b) }", 10, False),
        ("DESCRIBE <urn:a>", 10, False),
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BYREPLACE(?o, 'a', 'bbb')", 10, False),
        ("SELECT ?o { ?s <urn:p> ?o } GROUP BYCONCAT(?o, ?o)", 10, False),
        ("SELECT ?o { ?s <urn:p> ?o } GROUP BY ?o HAVINGREPLACE(?o, 'a', 'bbb')", 10, False),
    ],
)
def test_what_may_be_asked_in_a_thread(text: str, size: int, expected: bool) -> None:
    assert is_bounded(outline(text), size) is expected


class Asking:
    """A space with queries to it, in memory."""

    def __init__(self) -> None:
        self.space = DurableSpace("s", SpaceLimits())
        # A fork of the process that runs the tests takes long by itself.
        self.runner = Runner(seconds=5.0, max_bytes=100_000, workers=1, quick=5.0)
        self._answers = Answers(self.runner, Lane("query", workers=4, capacity=4))
        self._count = 0

    def change(self) -> None:
        self._count += 1
        self.space.apply([], read_triples(f"<urn:a> <urn:p> {self._count} .".encode(), "text/turtle"))

    async def ask(self, text: str) -> tuple[list[str], int]:
        body, _, version = await self._answers.ask(self.space, text, "text/csv")
        return body.decode().split()[1:], version

    @property
    def shared(self) -> int:
        return self._answers.shared


def test_joins_that_may_become_endless_are_forked_each_time() -> None:
    async def body() -> None:
        asking = Asking()
        asking.space.engine.store.bulk_load(
            "".join(f"<urn:{number}> <urn:p> <urn:o> .\n" for number in range(20_000)).encode()
        )
        for _ in range(5):
            asking.change()
            assert (await asking.ask(TWO))[0] == []
        assert (asking.runner.forked, asking.runner.in_thread) == (5, 0)
        while asking.runner.in_thread == 0:
            asking.change()
            await asking.ask("SELECT ?s { ?s <urn:absent> ?o }")
        asking.runner.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    "text", ["SELECT (RAND() AS ?n) {}", "SELECT (uuid() AS ?n) {}", "SELECT (NOW() AS ?n) {}"]
)
def test_what_is_new_each_time_is_asked_each_time(text: str) -> None:
    async def body() -> None:
        asking = Asking()
        list(asking.space.engine.store.ask(text))  # children inherit where this thread's random numbers are
        together = await asyncio.gather(*(asking.ask(text) for _ in range(3)))
        answers = [*together, await asking.ask(text)]
        assert len({tuple(rows) for rows, _ in answers}) == 4
        assert asking.shared == 0
        for _ in range(3):  # this only looks like it
            await asking.ask("SELECT ?brand { ?brand <urn:known> ?o }")
        assert asking.shared == 2
        asking.runner.close()

    asyncio.run(body())


def test_the_answer_of_a_thread_names_the_version_that_it_saw() -> None:
    text = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"

    async def body() -> None:
        asking = Asking()
        for _ in range(100):
            asking.change()
        while asking.runner.in_thread == 0:
            asking.change()
            await asking.ask(text)
        release = threading.Event()
        asking.runner._threads.submit(release.wait)  # the only thread is at work when it is asked
        asking.change()
        asked = asyncio.create_task(asking.ask(text))
        forked, in_thread = asking.runner.forked, asking.runner.in_thread
        await wait_until(lambda: asking.runner.in_thread == in_thread + 1)
        asking.change()
        release.set()
        rows, version = await asked
        assert (rows, asking.runner.forked) == ([str(version)], forked)
        assert version == asking.space.engine.version
        asked_before = asking.shared
        assert await asking.ask(text) == (rows, version)
        assert asking.shared == asked_before + 1
        asking.runner.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT ?x WHERE { ?x ?p ?y }", True),
        ("SELECT ?x WHERE { ?x ?p ?x }", False),  # may pass over every triple before the first row
        ("SELECT ?x WHERE { ?x ?p $x }", False),
        ("SELECT ?x WHERE { ?x ?p ?y FILTER (?y > 3) }", False),
    ],
)
def test_one_pattern_whose_rows_come_one_by_one(text: str, expected: bool) -> None:
    assert outline(text).is_one_pattern is expected
