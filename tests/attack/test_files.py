"""What holds users' data is for its owner: another user of the machine finds nothing to read."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.pipeline.test_report import facts
from tests.unit.policy.test_policy import baselines
from tests.unit.space.test_durable import triple
from tidegate.client import Client
from tidegate.pipeline.report.page import write as write_report
from tidegate.policy import PolicyStore
from tidegate.private import make_folder, opener
from tidegate.rpc.recording import RowFiles
from tidegate.rpc.trace import TraceFile
from tidegate.settings import load_settings
from tidegate.space import SpaceLimits
from tidegate.space.durable import DurableSpace
from tidegate.spark.segments import SCHEMA, SegmentWriter, Spool
from tidegate.testing import BrokerThread, NodeThread
from tidegate.testing.raw import RawClient


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """That of a careless user."""
    before = os.umask(0)
    yield
    os.umask(before)


def found(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


def open_to_others(folder: Path) -> list[str]:
    """What is there with rights for group or others."""
    return [str(each) for each in found(folder) if stat.S_IMODE(each.lstat().st_mode) & 0o077]


def node(folder: Path) -> None:
    settings = {"listeners.0.port": 0, "data": str(folder / "data"), "lake.path": str(folder / "lake")}
    with NodeThread(load_settings(None, (), {}, settings)) as running, RawClient(running.port) as client:
        client.connect("c")
        client.publish("t", b"1", qos=1, retain=True)


def space(folder: Path) -> None:
    async def work() -> None:
        made = DurableSpace("s", SpaceLimits(), folder / "s", sync=False, snapshot_bytes=300)
        for number in range(20):
            made.apply([], [triple(number)])
            await made.commit()
        await made.close()
        assert made.snapshots

    asyncio.run(work())


def policy(folder: Path) -> None:
    now = datetime.now(UTC)
    store = PolicyStore(folder / "policy")
    store.write({"baselines": baselines(a=1.0)}, input_from=now, input_to=now, version="v1")
    store.activate("v1")


def rpc(folder: Path) -> None:
    with RowFiles(folder / "rows") as rows:
        assert rows.record("request", [{"key": "k"}])
    trace = TraceFile(folder / "trace", "gateway")
    trace.close()


def spool(folder: Path) -> None:
    made = Spool(folder / "spool")
    made.create()
    made.write_whole("source.json", "{}")
    writer = SegmentWriter(made, 0)
    writer.append(pa.RecordBatch.from_pylist([], schema=SCHEMA))
    writer.finish()


def report(folder: Path) -> None:
    write_report(facts(), folder / "report")


def outbox(folder: Path) -> None:
    async def work(port: int) -> None:
        async with Client(f"127.0.0.1:{port}", outbox=folder / "box", client_id="c", clean_start=False,
                          session_expiry_interval=60) as client:  # fmt: skip
            await client.publish("t", b"1", qos=1)

    folder.chmod(0o700)  # the user names a file, in a folder of its own
    with BrokerThread() as broker:
        asyncio.run(work(broker.port))


@pytest.mark.parametrize("make", [node, space, policy, rpc, spool, report, outbox])
def test_what_is_made_is_for_its_owner(make: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    make(folder)
    folder.chmod(0o700)
    assert len(found(folder)) > 1
    assert open_to_others(folder) == []


@pytest.mark.parametrize("make", [node, space, spool, outbox])
def test_what_an_older_version_left_open_is_closed(make: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    make(folder)
    for each in found(folder):
        each.chmod(0o777 if each.is_dir() else 0o666)
    folder.chmod(0o700)
    assert open_to_others(folder)
    make(folder)
    folder.chmod(0o700)
    assert not [each for each in open_to_others(folder) if not _is_harmless(Path(each), folder)]


def _is_harmless(path: Path, root: Path) -> bool:
    """A folder that was named by its user, or what lies in one that is closed."""
    between = [each for each in path.parents if root in each.parents]
    return (path.parent == root and path.is_dir()) or any(not each.stat().st_mode & 0o077 for each in between)


def test_a_folder_that_is_shared_on_purpose_stays_shared(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    make_folder(shared / "a" / "b")
    with open(shared / "a" / "b" / "file", "w", opener=opener) as file:
        file.write("1")
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in found(shared)}
    assert modes == {"shared": 0o2770, "a": 0o2770, "b": 0o2770, "file": 0o640}


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    """It may be the user's home."""
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(0o755)
    make_folder(folder)
    make_folder(folder / "new")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "new").stat().st_mode) == 0o700
