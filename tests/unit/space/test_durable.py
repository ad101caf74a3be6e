"""What is on disk after a crash at any point: every committed update, and the same notifications again."""

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyoxigraph import BlankNode, Literal, NamedNode, Triple

from tidegate.space import Fault, SpaceEngine, SpaceError, SpaceLimits
from tidegate.space.durable import DurableSpace, change_json
from tidegate.space.journal import Journal, encode, read_records

TEXT = "SELECT ?o WHERE { <urn:a> <urn:p> ?o }"
JOIN = "SELECT DISTINCT ?b WHERE { <urn:a> <urn:p> ?b . ?b <urn:q> ?c }"
COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"
AVERAGE = "SELECT (AVG(?o) AS ?n) WHERE { ?s <urn:p> ?o }"
SAMPLE = "SELECT (sample(?o) AS ?n) WHERE { ?s <urn:p> ?o }"
BY_ORDER = {AVERAGE, SAMPLE}


def triple(number: int) -> Triple:
    return Triple(NamedNode("urn:a"), NamedNode("urn:p"), Literal(number))


def opened(folder: Path, **options: Any) -> DurableSpace:
    return DurableSpace("s", SpaceLimits(), folder, sync=False, **options)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """For this process, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_more_files() -> Iterator[None]:
    """What is open stays open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def a_child_with_all_files() -> Iterator[None]:
    """As one that was forked a moment ago: everything that is open here is open there."""
    child = os.fork()
    if child == 0:
        time.sleep(60.0)
        os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0.01)


def crashed(folder: Path) -> Path:
    """What a crash at this moment would leave: nobody closes anything, and no snapshot is ready."""
    copy = Path(tempfile.mkdtemp(dir=folder.parent)) / "copy"
    return Path(shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*snapshot-*")))


def _in_order(fields: dict[str, Any]) -> dict[str, Any]:
    """The order of rows within a change means nothing."""
    rows = {name: sorted(fields[name], key=json.dumps) for name in ("added", "removed")}
    return {**fields, **rows}


def contents(space: DurableSpace) -> dict[str, Any]:
    engine = space.engine
    return {
        "version": engine.version,
        "triples": sorted(str(each) for each in engine.store),
        "watches": {
            watch.text: [
                watch.number,
                watch.version,
                [_in_order(change_json(watch.variables, change)) for change in watch.history],
            ]
            for watch in engine.standing.values()
            if watch.text not in BY_ORDER
        },
    }


def lives_of(space: DurableSpace) -> dict[str, str]:
    return {each.text: space.life(each) for each in space.engine.standing.values()}


async def fill(space: DurableSpace, numbers: range) -> None:
    for text in (TEXT, JOIN, COUNT, AVERAGE, SAMPLE):
        space.watch(text)
    for number in numbers:
        space.apply([triple(number - 3)] if number % 3 == 0 else [], [triple(number)])
        await space.commit()


def test_everything_is_there_again(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path / "s")
        await fill(space, range(40))
        space.end_watch(next(iter(space.engine.standing)))
        await space.commit()
        before = contents(space)
        folder = crashed(tmp_path / "s")
        again = opened(folder)
        assert contents(again) == before
        await fill(again, range(40, 50))
        after = contents(again)
        await again.close()
        assert contents(opened(folder)) == after
        await space.close()

    asyncio.run(body())


def test_snapshots_shorten_the_journal_and_change_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path, snapshot_bytes=2000)
        await fill(space, range(100))
        await wait_until(lambda: space.snapshots >= 1)
        await fill(space, range(100, 200))
        await wait_until(lambda: space.snapshots >= 2)
        await space.close()
        before, lives = contents(space), lives_of(space)
        again = opened(tmp_path)
        assert again.recovered < 200
        assert contents(again) == before
        # A row of these may differ from what it was, and nobody is told: whoever knows it has to ask for all.
        assert {text for text, life in lives_of(again).items() if life != lives[text]} == BY_ORDER
        await again.close()

    asyncio.run(body())
    assert len(list(tmp_path.iterdir())) <= 5


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
    for _ in range(5):  # the watches stay, the first update goes
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


def test_a_snapshot_keeps_blank_nodes_as_they_are(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path, snapshot_bytes=100)
        blank = [Triple(BlankNode(), NamedNode("urn:p"), Literal("x" * 100)) for _ in range(2)]
        space.apply([], blank)
        await space.commit()
        await wait_until(lambda: space.snapshots == 1)
        space.apply(blank[:1], [])
        await space.close()
        before = contents(space)
        again = opened(tmp_path)
        assert contents(again) == before
        await again.close()

    asyncio.run(body())


def test_no_update_is_on_disk_before_an_older_one(tmp_path: Path) -> None:
    """A disk that is slow where the old journal is, and quick where the new one is."""

    async def body() -> None:
        pipe = tmp_path / "journal-0.log"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        old = Journal(pipe, sync=False)
        told: list[int] = []
        for number in range(2):
            old.add({"v": number, "+": "x" * 1_000_000})  # more than a pipe holds
            old.on_commit(lambda error, number=number: told.append(number))
        new = Journal(tmp_path / "journal-1.log", sync=False, after=old)
        new.on_commit(lambda error: told.append(2))
        new.add({"v": 2})
        new.on_commit(lambda error: told.append(3))
        await asyncio.sleep(0.05)
        assert told == []
        assert new.path.stat().st_size == 0
        os.set_blocking(reader, True)
        await asyncio.to_thread(_drain, reader, 2_000_000)
        await new.commit()
        assert told == [0, 1, 2, 3]
        await new.close()
        os.close(reader)

    asyncio.run(body())


def _drain(descriptor: int, size: int) -> None:
    while size > 0:
        size -= len(os.read(descriptor, 1 << 16))


def test_updates_that_come_while_it_rotates_are_all_there(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path / "s", snapshot_bytes=300)
        for number in range(50):
            space.apply([], [triple(number)])
            space.on_commit(lambda error: None)
            if number % 7 == 0:
                await asyncio.sleep(0)
            copy = crashed(tmp_path / "s")
            if (copy / "journal-0.log").exists():
                assert opened(copy).engine.version <= number + 1
        await space.close()
        again = opened(tmp_path / "s")
        assert again.engine.version == 50
        await again.close()

    asyncio.run(body())


def test_closing_begins_no_snapshot_and_frees_the_folder(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path, snapshot_bytes=300)
        for number in range(10):
            space.apply([], [triple(number)])
            space.on_commit(lambda error: None)
        with a_child_with_all_files():
            await space.close()
            again = opened(tmp_path)
            assert (again.engine.version, space.snapshots) == (10, 0)
            await again.close()

    asyncio.run(body())


def test_a_watch_that_cannot_be_rebuilt_is_left_out(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path, snapshot_bytes=1500)
        await fill(space, range(40))
        await space.close()
        assert space.snapshots >= 1
        limits = SpaceLimits(watch_rows=5)
        again = DurableSpace("s", limits, tmp_path, sync=False)
        texts = [watch.text for watch in again.engine.standing.values()]
        assert TEXT not in texts
        assert COUNT in texts
        assert again.engine.version == 40
        assert again.engine.lives == space.engine.lives
        await again.close()

    asyncio.run(body())


def test_solutions_that_make_one_row_are_counted_as_they_are_when_it_is_rebuilt() -> None:
    engine = SpaceEngine("s", SpaceLimits(watch_rows=5))
    watch = engine.watch("SELECT DISTINCT ?s WHERE { ?s <urn:p> ?o }")
    for number in range(5):
        assert engine.insert([triple(number)]).failed == []
    assert [standing for standing, _ in engine.insert([triple(5)]).failed] == [watch]


async def _journal_of(folder: Path, updates: int) -> Path:
    space = opened(folder)
    for number in range(updates):
        space.apply([], [triple(number)])
    await space.close()
    return folder / "journal-0.log"


def test_zeros_that_a_power_loss_leaves_are_cut_off_and_kept(tmp_path: Path) -> None:
    journal = asyncio.run(_journal_of(tmp_path, 3))
    whole = journal.read_bytes()
    journal.write_bytes(whole + bytes(5000))
    again = opened(tmp_path)
    assert again.engine.version == 3
    assert journal.read_bytes() == whole
    [kept] = tmp_path.glob("torn-*")
    assert kept.read_bytes() == bytes(5000)
    asyncio.run(again.close())


@pytest.mark.parametrize("byte", [2, 3, 5])
def test_a_damaged_head_does_not_cost_the_records_after_it(tmp_path: Path, byte: int) -> None:
    journal = asyncio.run(_journal_of(tmp_path, 3))
    data = bytearray(journal.read_bytes())
    data[byte] ^= 0x7F
    journal.write_bytes(data)
    with pytest.raises(SpaceError) as caught:
        opened(tmp_path)
    assert "damaged at byte 0" in str(caught.value)
    assert journal.read_bytes() == bytes(data)


def test_only_the_last_journal_may_be_torn(tmp_path: Path) -> None:
    journal = asyncio.run(_journal_of(tmp_path, 3))
    data = journal.read_bytes()
    journal.write_bytes(data[:-3])
    later = tmp_path / "journal-3.log"
    later.write_bytes(data)
    with pytest.raises(SpaceError):
        opened(tmp_path)
    assert journal.read_bytes() == data[:-3]
    later.write_bytes(b"")
    again = opened(tmp_path)
    assert again.engine.version == 2
    asyncio.run(again.close())


def test_a_folder_has_one_process_at_a_time(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path)
        with pytest.raises(SpaceError) as caught:
            opened(tmp_path)
        assert "in use" in str(caught.value)
        await space.close()
        await opened(tmp_path).close()

    asyncio.run(body())


def test_what_the_disk_does_not_take_changes_nothing_any_more(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path)
        space.apply([], [triple(0)])
        with files_of_at_most(10), pytest.raises(SpaceError):
            await space.commit()
        for refused in (lambda: space.apply([], [triple(1)]), lambda: space.watch(TEXT)):
            with pytest.raises(SpaceError) as caught:
                refused()
            assert "cannot be written" in str(caught.value)
        assert (space.engine.version, space.engine.standing) == (1, {})
        await space.close()

    asyncio.run(body())


def test_two_different_updates_of_one_version_are_noticed(tmp_path: Path) -> None:
    journal = asyncio.run(_journal_of(tmp_path, 2))
    data = journal.read_bytes()
    first = data[: 8 + int.from_bytes(data[:4], "little")]
    journal.write_bytes(data + first)  # the same once more is harmless
    again = opened(tmp_path)
    assert again.engine.version == 2
    asyncio.run(again.close())
    journal.write_bytes(data + _record({"v": 2, "+": str(triple(7)) + " ."}))
    with pytest.raises(SpaceError) as caught:
        opened(tmp_path)
    assert "two different" in str(caught.value)


def _record(fields: dict[str, Any]) -> bytes:
    data = json.dumps(fields).encode()
    return len(data).to_bytes(4, "little") + zlib.crc32(data).to_bytes(4, "little") + data


def _newest(folder: Path) -> Path:
    return max(folder.glob("snapshot-*"), key=lambda path: path.stat().st_mtime_ns)


async def _snapshot_of(folder: Path) -> Path:
    space = opened(folder, snapshot_bytes=300)
    await fill(space, range(20))
    await wait_until(lambda: space.snapshots >= 1)
    await space.close()
    return _newest(folder)


def _without_last_line(data: bytes) -> bytes:
    return data[: data[:-1].rindex(b"\n") + 1]


def _with_another_version(data: bytes) -> bytes:
    return data.replace(b'"version":1', b'"version":2', 1)


@pytest.mark.parametrize(
    "damage",
    [
        _without_last_line,
        lambda data: data[:-20],
        _with_another_version,
        lambda data: data.replace(b'{"crc"', b'{"crx"'),
        lambda data: b"",
    ],
)
def test_a_damaged_snapshot_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = asyncio.run(_snapshot_of(tmp_path))
    data = path.read_bytes()
    assert damage(data) != data
    path.write_bytes(damage(data))
    with pytest.raises(SpaceError) as caught:
        opened(tmp_path)
    assert "damaged" in str(caught.value)
    assert path.read_bytes() == damage(data)


@pytest.mark.parametrize("cut", [0, 20])
def test_snapshots_of_before_there_were_checksums_are_read(tmp_path: Path, cut: int) -> None:
    path = asyncio.run(_snapshot_of(tmp_path))
    whole = opened(tmp_path)
    before = contents(whole)
    asyncio.run(whole.close())
    data = path.read_bytes()
    old = b"{" + data[data.index(b'"version"') :]
    path.write_bytes(old[: len(old) - cut])
    if cut:
        with pytest.raises(SpaceError) as caught:
            opened(tmp_path)
        assert "damaged" in str(caught.value)
    else:
        again = opened(tmp_path)
        assert contents(again) == before
        asyncio.run(again.close())


def test_watches_that_come_and_go_do_not_fill_the_disk(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path / "s", snapshot_bytes=2000)
        space.apply([], [triple(0)])
        space.watch(TEXT)
        for number in range(200):
            watch = space.watch(f"SELECT ?o WHERE {{ <urn:{number}> <urn:p> ?o }}")
            await space.commit()
            space.end_watch(watch.id)
            if number % 20 == 0:
                expected = space.snapshots
                await wait_until(lambda then=expected: space._snapshot is None or space.snapshots > then)
        await space.commit()
        await wait_until(lambda: space._snapshot is None)
        assert space.snapshots >= 3
        assert sum(path.stat().st_size for path in (tmp_path / "s").iterdir()) < 10_000
        space.apply([], [triple(1)])
        await space.commit()
        before = contents(space)
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "s", copy)
        again = opened(copy)
        assert contents(again) == before
        assert lives_of(again) == lives_of(space)
        await again.close()
        await space.close()

    asyncio.run(body())


def test_a_watch_that_does_not_fit_leaves_no_trace(tmp_path: Path) -> None:
    def refuse(_watch: object) -> None:
        raise SpaceError(Fault.TOO_LARGE, "no room")

    async def body() -> None:
        space = opened(tmp_path)
        with pytest.raises(SpaceError):
            space.watch(TEXT, refuse)
        assert space.engine.standing == {}
        space.watch(COUNT)
        with pytest.raises(SpaceError):
            space.watch(COUNT, refuse)
        await space.close()
        assert list(read_records(tmp_path / "journal-0.log")) == [{"watch": COUNT}]
        again = opened(tmp_path)
        assert lives_of(again) == lives_of(space)
        await again.close()

    asyncio.run(body())


def test_removing_everything_is_a_short_record(tmp_path: Path) -> None:
    async def body() -> None:
        space = opened(tmp_path)
        space.watch(TEXT)
        space.apply([], [triple(number) for number in range(1000)])
        space.apply([triple(number) for number in range(1000)], [triple(7000)])
        space.apply([], [triple(8000)])
        before = contents(space)
        await space.close()
        assert [sorted(record) for record in read_records(tmp_path / "journal-0.log")] == [
            ["watch"],
            ["+", "v"],
            ["+", "clear", "v"],
            ["+", "v"],
        ]
        again = opened(tmp_path)
        assert contents(again) == before
        await again.close()

    asyncio.run(body())


def test_what_no_record_can_hold_is_refused() -> None:
    assert encode({"v": 1}, most=7) == b'{"v":1}'
    with pytest.raises(SpaceError) as caught:
        encode({"v": 10}, most=7)
    assert caught.value.fault is Fault.TOO_LARGE


def test_the_log_says_which_watch_could_not_follow_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        space = opened(tmp_path)
        space.watch(TEXT)
        await fill(space, range(20))
        await space.close()
        again = DurableSpace("s", SpaceLimits(watch_rows=5), tmp_path, sync=False)
        assert TEXT not in [watch.text for watch in again.engine.standing.values()]
        await again.close()

    asyncio.run(body())
    assert [record.watch for record in caplog.records if record.message == "a watch is left out"] == [TEXT]  # type: ignore[attr-defined]


def test_a_snapshot_that_cannot_be_begun_fails_no_update(tmp_path: Path) -> None:
    async def scenario() -> None:
        space = opened(tmp_path / "s", snapshot_bytes=300)
        space.apply([], [triple(0)])
        await space.commit()
        told: list[SpaceError | None] = []
        with no_more_files():
            for number in range(1, 20):
                space.apply([], [triple(number)])
                await space.commit()
                space.on_commit(told.append)
        assert told == [None] * 19
        assert space.snapshots == 0
        for number in range(20, 30):
            space.apply([], [triple(number)])
            await space.commit()
        await wait_until(lambda: space.snapshots > 0)
        await space.close()

    asyncio.run(scenario())
    again = opened(tmp_path / "s")
    assert (again.engine.version, len(again.engine.store)) == (30, 30)
    asyncio.run(again.close())


FORKLESS = """
import asyncio, os, resource, sys
from tidegate.space import Fault, SpaceError, SpaceLimits
from tidegate.space.durable import DurableSpace
from tidegate.space.runner import Runner
from pyoxigraph import Literal, NamedNode, Triple

async def main():
    runner = Runner(seconds=5.0, max_bytes=100)
    space = DurableSpace("s", SpaceLimits(), __import__("pathlib").Path(sys.argv[1]), snapshot_bytes=200)
    space.apply([], [Triple(NamedNode("urn:a"), NamedNode("urn:p"), Literal(-1))])
    await space.commit()  # its thread has begun
    if os.getuid() == 0:
        os.setresuid(65534, 65534, 65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        try:
            await runner.run("", 0, lambda output: output.write(b"x"))
        except SpaceError as error:
            assert error.fault is Fault.BUSY and error.retry_after > 0, error
        else:
            raise AssertionError("it was forked")
    assert len(os.listdir("/proc/self/fd")) == files
    for number in range(20):
        space.apply([], [Triple(NamedNode("urn:a"), NamedNode("urn:p"), Literal(number))])
        await space.commit()
    assert space.snapshots == 0
    runner.close()
    print("done", flush=True)
    os._exit(0)

asyncio.run(main())
"""


def test_where_no_process_can_be_started_queries_are_refused_and_leave_nothing_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", FORKLESS, str(tmp_path / "s")], capture_output=True, text=True, timeout=60.0
    )
    assert done.stdout == "done\n", done.stderr
