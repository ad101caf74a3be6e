"""Files that are not what was written: reported, kept as they are, and what can be read of them is served."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.process import BrokerProcess, run_command
from tidegate.broker.store.maintenance import TABLES, check
from tidegate.broker.store.salvage import salvage
from tidegate.broker.store.store import FILE_NAME
from tidegate.cli.status import ExitStatus
from tidegate.mqtt import Publish
from tidegate.mqtt.properties import Property
from tidegate.testing.raw import RawClient

FOR_EVER = {Property.SESSION_EXPIRY_INTERVAL: 0xFFFFFFFF}
QUEUED = 300
PAGE = 4_096


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
        assert str(aside[0]) in [line["file"] for line in errors]
        assert "damaged" in errors[0]["message"] and "set aside" in errors[-1]["message"]
        assert "saved: " in errors[-1]["result"]
        with RawClient(broker.port) as client:  # and it serves
            client.connect("new", clean_start=False, properties=FOR_EVER)
            client.subscribe("r", 1)
            client.barrier()
    assert check(data).problems == []


def overwrite_page(path: Path, number: int) -> None:
    with path.open("r+b") as file:
        file.seek((number - 1) * PAGE)
        file.write(b"\xff" * PAGE)


def rows(path: Path, table: str) -> set[tuple[Any, ...]]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return set(db.execute(f"SELECT * FROM {table}"))
    finally:
        db.close()


def test_one_damaged_page_costs_what_was_on_it(data: Path) -> None:
    """For each page of the file in turn. Most of them hold payloads of the queue, some the keys above them."""
    path = data / FILE_NAME
    before = {table: rows(path, table) for table in TABLES}
    pages = path.stat().st_size // PAGE
    whole = 0
    for number in range(2, pages + 1):
        damaged, fresh = data / "damaged.db", data / "fresh.db"
        shutil.copy(path, damaged)
        overwrite_page(damaged, number)
        outcome = salvage(damaged, fresh)
        for table in TABLES:
            saved = rows(fresh, table)
            assert saved <= before[table], "nothing is made up"
            missing = len(before[table]) - len(saved)
            assert missing == 0 or outcome.lost.get(table, 0) > 0, "what is lost is said"
            # A page of messages holds nineteen, one of a queue up to some two hundred; one of keys has others below it.
            most = {"message": 20, "queue": 220}.get(table, 1)
            assert missing <= most or number in keys_of(path), (number, table, missing)
        whole += not outcome.lost
        fresh.unlink()
    assert 0 < whole < pages  # pages that are free, or of an index, cost nothing


def keys_of(path: Path) -> set[int]:
    """Pages of keys alone."""
    data = path.read_bytes()
    return {at // PAGE + 1 for at in range(0, len(data), PAGE) if data[at] in (2, 5)} | set(roots(path))


def roots(path: Path) -> list[int]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return [row[0] for row in db.execute("SELECT rootpage FROM sqlite_master")]
    finally:
        db.close()


def test_what_is_left_of_a_queue_is_delivered_in_order(data: Path) -> None:
    path = data / FILE_NAME
    leaves = [at // PAGE + 1 for at in range(0, path.stat().st_size, PAGE) if path.read_bytes()[at] == 13]
    overwrite_page(path, leaves[len(leaves) // 2])
    with BrokerProcess(data, log=data.with_name("second.log")) as broker, RawClient(broker.port) as client:
        assert client.connect("reader", clean_start=False, properties=FOR_EVER).session_present
        client.subscribe("r", 1)
        found = [client.take(Publish)]
        while found[-1].topic != "r":
            client.acknowledge(found[-1])
            found.append(client.take(Publish))
        assert found.pop().payload == b"retained"
        numbers = [int(each.payload[:4]) for each in found]
        assert QUEUED - 20 <= len(numbers) < QUEUED
        assert numbers == sorted(numbers)


def test_a_start_can_be_told_to_refuse(data: Path) -> None:
    overwrite_pages(data / FILE_NAME)
    content = (data / FILE_NAME).read_bytes()
    broker = BrokerProcess(data, "--set", "store.on_damage=refuse", log=data.with_name("second.log"))
    broker.spawn()
    assert broker.wait_exit() == ExitStatus.STARTUP
    broker.kill()
    assert "is damaged" in broker.logged() and "tidegate store recover" in broker.logged()
    assert (data / FILE_NAME).read_bytes() == content
    assert not [path for path in data.iterdir() if ".damaged-" in path.name]
    done = run_command("store", "recover", data)
    assert done.returncode == 0 and "saved: " in done.stdout
    broker.spawn()
    broker.wait_ready()
    broker.kill()


def test_a_recovery_that_was_killed_goes_on_at_the_next_start(data: Path) -> None:
    """What was saved is complete under its first name; the damaged file may be here, or set aside already."""
    path = data / FILE_NAME
    overwrite_page(path, 5)
    for is_aside in (False, True):
        folder = data.with_name(f"copy-{is_aside}")
        shutil.copytree(data, folder)
        outcome = salvage(folder / FILE_NAME, folder / (FILE_NAME + ".saved"))
        if is_aside:
            (folder / FILE_NAME).rename(folder / (FILE_NAME + ".damaged-x"))
        with BrokerProcess(folder) as broker:
            broker.stop()
        assert check(folder).problems == []
        assert check(folder).counts["queue"] == outcome.saved["queue"]
        damaged = [each for each in folder.iterdir() if ".damaged-" in each.name]
        whole = [each for each in damaged if not each.name.endswith(("-wal", "-shm"))]
        assert [each.read_bytes() for each in whole] == [path.read_bytes()]


def test_a_log_whose_file_is_gone_is_no_part_of_a_new_one(data: Path) -> None:
    """SQLite would take it for the new file's: sessions would come back that somebody removed, or pages of both mix."""
    with BrokerProcess(data) as broker:
        with RawClient(broker.port) as client:
            client.connect("writer")
            client.publish("late", b"1", qos=1, retain=True)
        broker.kill()
    wal = data / f"{FILE_NAME}-wal"
    content = wal.read_bytes()
    assert content, "the control: there is something to be merged"
    (data / FILE_NAME).unlink()
    with BrokerProcess(data, log=data.with_name("second.log")) as broker:
        assert "a log without its store" in broker.logged()
        with RawClient(broker.port) as client:
            client.connect("reader")
            client.subscribe("#", 1)
            assert client.barrier() == []
    kept = [each for each in data.iterdir() if each.name.endswith("-wal") and ".damaged-" in each.name]
    assert [each.read_bytes() for each in kept] == [content]


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
