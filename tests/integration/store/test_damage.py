"""Files that are not what was written: reported, set aside, never emptied."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.process import BrokerProcess
from tidegate.broker.store.maintenance import check
from tidegate.broker.store.store import FILE_NAME
from tidegate.cli.status import ExitStatus
from tidegate.mqtt import Publish
from tidegate.mqtt.properties import Property
from tidegate.testing.raw import RawClient

FOR_EVER = {Property.SESSION_EXPIRY_INTERVAL: 0xFFFFFFFF}
QUEUED = 300


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a session, a queue and retained messages, left by a broker that was stopped properly."""
    folder = tmp_path_factory.mktemp("left") / "data"
    with BrokerProcess(folder) as broker:
        with RawClient(broker.port) as client:
            client.connect("reader", clean_start=False, properties=FOR_EVER)
            client.subscribe("t", 1)
            client.disconnect()
        with RawClient(broker.port) as client:
            client.connect("writer")
            client.publish("r", b"retained", qos=1, retain=True)
            for number in range(QUEUED):
                client.publish("t", b"%04d" % number * 50, qos=1)
        assert broker.stop() == 0
    return folder


@pytest.fixture
def data(left: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    shutil.copytree(left, tmp_path / "data")
    return tmp_path / "data"


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def overwrite_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(os.urandom(100))


def overwrite_pages(path: Path) -> None:
    """All pages behind the first two, which hold the schema."""
    with path.open("r+b") as file:
        file.seek(2 * 4_096)
        file.write(os.urandom(path.stat().st_size - 2 * 4_096))


def write_text(path: Path) -> None:
    path.write_text("this is no database\n" * 1_000)


DAMAGES = [truncate, empty, overwrite_header, overwrite_pages, write_text]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_set_aside_as_it_is_and_reported(
    data: Path, damage: Callable[[Path], None]
) -> None:
    damage(data / FILE_NAME)
    content = (data / FILE_NAME).read_bytes()
    with BrokerProcess(data, log=data.with_name("second.log")) as broker:
        names = [path for path in data.iterdir() if path.name.startswith(FILE_NAME + ".damaged-")]
        aside = [path for path in names if not path.name.endswith(("-wal", "-shm"))]
        assert [path.read_bytes() for path in aside] == [content]
        lines = [json.loads(line) for line in broker.logged().splitlines()]
        errors = [line for line in lines if line["level"] == "error"]
        assert [line["file"] for line in errors] == [str(aside[0])]
        assert "set aside" in errors[0]["message"]
        with RawClient(broker.port) as client:  # and it serves, with nothing
            assert not client.connect("reader", clean_start=False, properties=FOR_EVER).session_present
            client.subscribe("r", 1)
            assert client.barrier() == []


@pytest.mark.parametrize("damage", [truncate, empty, overwrite_header, overwrite_pages, write_text])
def test_check_names_damage_and_changes_nothing(data: Path, damage: Callable[[Path], None]) -> None:
    assert check(data).problems == []
    damage(data / FILE_NAME)
    content = (data / FILE_NAME).read_bytes()
    assert check(data).problems != []
    assert (data / FILE_NAME).read_bytes() == content


@pytest.mark.parametrize("name", [FILE_NAME, "other.db"])
def test_a_database_of_another_program_is_left_alone(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    db = sqlite3.connect(folder / name)
    db.execute("CREATE TABLE precious (value)")
    db.commit()
    db.close()
    content = (folder / name).read_bytes()
    broker = BrokerProcess(folder)
    broker.spawn()
    if name == FILE_NAME:
        assert broker.wait_exit() == ExitStatus.STARTUP
        assert "another program" in broker.logged()
    else:
        broker.wait_ready()
    broker.kill()
    assert (folder / name).read_bytes() == content


def test_a_file_of_a_newer_version_is_left_alone(data: Path) -> None:
    db = sqlite3.connect(data / FILE_NAME)
    db.execute("PRAGMA user_version = 99")
    db.close()
    broker = BrokerProcess(data, log=data.with_name("second.log"))
    broker.spawn()
    assert broker.wait_exit() == ExitStatus.STARTUP
    assert "newer Tidegate" in broker.logged()
    broker.kill()


def test_a_first_start_that_was_killed_leaves_nothing_that_looks_like_damage(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / (FILE_NAME + ".new")).write_bytes(b"half a file")
    with BrokerProcess(folder) as broker:
        assert "set aside" not in broker.logged()
        with RawClient(broker.port) as client:
            client.connect("reader", clean_start=False, properties=FOR_EVER)
            client.subscribe("t", 1)
            broker.restart()
    assert check(folder).counts["subscription"] == 1


def test_two_brokers_do_not_share_a_folder(data: Path) -> None:
    with BrokerProcess(data) as first:
        second = BrokerProcess(data, log=data.with_name("second.log"))
        second.spawn()
        assert second.wait_exit() == ExitStatus.STARTUP
        assert "in use by another process" in second.logged()
        second.kill()
        with RawClient(first.port) as client:
            client.connect("reader", clean_start=False, properties=FOR_EVER)
            assert client.take(Publish).payload == b"0000" * 50
