"""What is on disk after a crash at any point: every committed update, and the same notifications again."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyoxigraph import Literal, NamedNode, Triple

from tidegate.space import SpaceError, SpaceLimits
from tidegate.space.durable import DurableSpace, change_json
from tidegate.space.journal import Journal, read_records

TEXT = "SELECT ?o WHERE { <urn:a> <urn:p> ?o }"
JOIN = "SELECT DISTINCT ?b WHERE { <urn:a> <urn:p> ?b . ?b <urn:q> ?c }"
COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"


def triple(number: int) -> Triple:
    return Triple(NamedNode("urn:a"), NamedNode("urn:p"), Literal(number))


def opened(folder: Path, **options: Any) -> DurableSpace:
    return DurableSpace("s", SpaceLimits(), folder, sync=False, **options)


def contents(space: DurableSpace) -> dict[str, Any]:
    engine = space.engine
    return {
        "version": engine.version,
        "triples": sorted(str(each) for each in engine.store),
        "watches": {
            watch.text: [
                watch.number,
                watch.version,
                json.dumps([change_json(watch.variables, change) for change in watch.history]),
            ]
            for watch in engine.standing.values()
        },
    }


async def fill(space: DurableSpace, numbers: range) -> None:
    for text in (TEXT, JOIN, COUNT):
        space.watch(text)
    for number in numbers:
        space.apply([triple(number - 3)] if number % 3 == 0 else [], [triple(number)])
        await space.commit()


def test_everything_is_there_again(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path)
        await fill(space, range(40))
        space.end_watch(next(iter(space.engine.standing)))
        await space.commit()
        before = contents(space)
        # A crash: nobody closes anything.
        again = opened(tmp_path)
        assert contents(again) == before
        await fill(again, range(40, 50))
        after = contents(again)
        await again.close()
        assert contents(opened(tmp_path)) == after
        await space.close()

    asyncio.run(body())


def test_snapshots_shorten_the_journal_and_change_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path, snapshot_bytes=2000)
        await fill(space, range(200))
        await space.close()
        assert space.snapshots >= 2
        before = contents(space)
        again = opened(tmp_path)
        assert again.recovered < 200
        assert contents(again) == before
        await again.close()

    asyncio.run(body())
    assert len(list(tmp_path.iterdir())) <= 4


def test_a_torn_record_is_as_if_it_had_never_been_sent(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path / "whole")
        await fill(space, range(6))
        await space.close()
        journal = tmp_path / "whole" / "journal-0.log"
        records = list(read_records(journal))
        data = journal.read_bytes()
        last = len(data)
        for cut in range(last - 20, last):
            folder = tmp_path / f"cut-{cut}"
            shutil.copytree(tmp_path / "whole", folder)
            (folder / "journal-0.log").write_bytes(data[:cut])
            torn = opened(folder)
            assert torn.recovered == len(records) - 1
            torn.apply([], [triple(99)])
            await torn.commit()
            await torn.close()
            assert opened(folder).engine.version == torn.engine.version

    asyncio.run(body())


def test_damage_in_the_midst_is_refused_and_left_alone(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path)
        await fill(space, range(6))
        await space.close()

    asyncio.run(body())
    journal = tmp_path / "journal-0.log"
    data = bytearray(journal.read_bytes())
    data[40] ^= 0xFF
    journal.write_bytes(data)
    with pytest.raises(SpaceError) as caught:
        opened(tmp_path)
    assert "damaged" in str(caught.value)
    assert journal.read_bytes() == bytes(data)


def test_a_missing_journal_is_noticed(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path)
        await fill(space, range(6))
        await space.close()

    asyncio.run(body())
    (tmp_path / "journal-0.log").rename(tmp_path / "journal-5.log")
    data = (tmp_path / "journal-5.log").read_bytes()
    first = 8 + int.from_bytes(data[:4], "little")
    for _ in range(3):  # the watches stay, the first update goes
        first += 8 + int.from_bytes(data[first : first + 4], "little")
    (tmp_path / "journal-5.log").write_bytes(data[first:])
    with pytest.raises(SpaceError) as caught:
        opened(tmp_path)
    assert "missing" in caught.value.hint


def test_a_disk_that_takes_nothing_is_told_to_everybody_who_waits() -> None:
    async def body() -> None:
        journal = Journal(Path("/dev/full"))
        told: list[SpaceError | None] = []
        journal.on_commit(told.append)
        assert told == [None]  # nothing to wait for
        journal.add({"v": 1})
        for _ in range(3):
            journal.on_commit(told.append)
        with pytest.raises(SpaceError) as caught:
            await journal.commit()
        assert "cannot be written" in str(caught.value)
        assert len(told) == 4
        assert all(isinstance(error, SpaceError) for error in told[1:])
        with pytest.raises(SpaceError):
            await journal.commit()
        await journal.close()

    asyncio.run(body())


def test_those_who_wait_for_the_disk_are_told_in_order_and_many_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        journal = Journal(tmp_path / "journal-0.log")
        told: list[int] = []
        for number in range(100):
            journal.add({"v": number})
            journal.on_commit(lambda error, number=number: told.append(number if error is None else -1))
        await journal.commit()
        assert told == list(range(100))
        assert journal.commits == 1
        await journal.close()
        assert [record["v"] for record in read_records(tmp_path / "journal-0.log")] == told

    asyncio.run(body())


def test_one_who_fails_when_told_keeps_nothing_from_the_others(tmp_path: Path) -> None:
    async def body() -> None:
        journal = Journal(tmp_path / "journal-0.log")
        told: list[SpaceError | None] = []

        def fail(_error: SpaceError | None) -> None:
            raise ZeroDivisionError

        journal.add({"v": 1})
        for done in (told.append, fail, told.append):
            journal.on_commit(done)
        await journal.commit()
        assert told == [None, None]
        await journal.close()

    asyncio.run(body())
