"""`tidegate store check|export|import|compact` on folders that brokers left."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.crash.process import BrokerProcess, run_command
from tidegate.broker.store.errors import StoreError
from tidegate.broker.store.recovery import open_file
from tidegate.broker.store.schema import connect
from tidegate.broker.store.store import FILE_NAME
from tidegate.broker.store.transfer import export_file, import_store
from tidegate.mqtt import Publish, Pubrec, Will
from tidegate.mqtt.properties import Property
from tidegate.testing.raw import RawClient

FOR_EVER = {Property.SESSION_EXPIRY_INTERVAL: 0xFFFFFFFF}


def fill(broker: BrokerProcess) -> None:
    """Something in every table."""
    with RawClient(broker.port) as reader, RawClient(broker.port) as writer:
        reader.connect(
            "Zoë", clean_start=False, properties=FOR_EVER, will=Will(topic="w/ü", payload=b"\xff\x00", qos=1)
        )
        reader.subscribe("t/ü/#", 2)
        reader.subscribe("$share/g/t/#", 1)
        writer.connect("writer", clean_start=False, properties=FOR_EVER)
        writer.publish("r/ü", bytes(range(256)), qos=1, retain=True)
        user = {Property.USER_PROPERTY: [("k", "v")], Property.MESSAGE_EXPIRY_INTERVAL: 3_600}
        for number in range(10):
            writer.publish("t/ü/x", b"%d" % number, qos=2, properties=user)
        first = reader.take(Publish, qos=2)
        assert first.packet_identifier is not None
        reader.send(Pubrec(packet_identifier=first.packet_identifier))
        writer.send(Publish(topic="t/ü/y", payload=b"open", qos=2, packet_identifier=500))
        writer.take(Pubrec, packet_identifier=500)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder left by a kill, with a log that was not brought into the file."""
    folder = tmp_path_factory.mktemp("left") / "data"
    with BrokerProcess(folder) as broker:
        fill(broker)
        broker.kill()
    return folder


@pytest.fixture
def data(left: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    shutil.copytree(left, tmp_path / "data")
    return tmp_path / "data"


def test_check_counts_rows_and_says_ok(data: Path) -> None:
    done = run_command("store", "check", data)
    assert (done.returncode, done.stderr) == (0, "")
    counts = dict(line.split() for line in done.stdout.splitlines() if " " in line)
    for table in ("session", "subscription", "queue", "message", "inbound", "retained", "will"):
        assert int(counts[table]) > 0, table
    assert done.stdout.endswith("ok\n")


@pytest.mark.parametrize(
    "statement, problem",
    [
        ("DELETE FROM message", "queue entry whose message does not exist"),
        ("DELETE FROM session", "subscription of a session that does not exist"),
        ("UPDATE message SET topic = 'other'", "retained topic with the message of another"),
        ("UPDATE queue SET qos = 5", "queue entry with impossible values"),
        ("UPDATE inbound SET packet_identifier = 70000", "impossible packet identifier"),
    ],
)
def test_check_names_rows_that_do_not_fit_and_fails(data: Path, statement: str, problem: str) -> None:
    db = connect(data / FILE_NAME)
    db.execute(statement)
    db.close()
    done = run_command("store", "check", data)
    assert done.returncode == 1
    assert f"problem: {problem}" in done.stderr
    assert "hint:" in done.stderr


def test_an_export_can_be_imported_and_is_the_same_again(data: Path, tmp_path: Path) -> None:
    first, second, copy = tmp_path / "first.jsonl", tmp_path / "second.jsonl", tmp_path / "copy"
    assert run_command("store", "export", data, first).returncode == 0
    assert run_command("store", "import", first, copy).returncode == 0
    assert run_command("store", "export", copy, second).returncode == 0
    assert first.read_bytes() == second.read_bytes()
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    assert lines[0] == {"format": "tidegate-store", "schema": 3}
    assert sum(lines[-1]["end"].values()) == len(lines) - 2
    assert {line["topic_filter"] for line in lines if line.get("table") == "subscription"} == {
        "t/ü/#",
        "$share/g/t/#",
    }
    with BrokerProcess(copy) as broker, RawClient(broker.port) as reader:
        assert reader.connect("Zoë", clean_start=False, properties=FOR_EVER).session_present
        numbers = [reader.take(Publish, topic="t/ü/x", qos=2).payload for _ in range(9)]
        assert numbers == [b"%d" % number for number in range(1, 10)]  # the first one is released already
        assert run_command("store", "check", copy).returncode == 1  # in use


def test_export_to_standard_output_feeds_import(data: Path, tmp_path: Path) -> None:
    done = run_command("store", "export", data, "-")
    assert done.stdout.startswith('{"format":"tidegate-store"')
    file = tmp_path / "out.jsonl"
    file.write_text(done.stdout)
    assert run_command("store", "import", file, tmp_path / "copy").returncode == 0


def without_groups(file: Path) -> str:
    """An export in which no entry says which group it came by, and nothing who left it, as in the first schema."""
    text, count = re.subn(r',"share":"[^"]*"', ',"share":null', file.read_text())
    assert count
    text, count = re.subn(r',"author":"(?:[^"\\]|\\.)*"', ',"author":null', text)
    assert count
    return text


def test_an_export_of_the_first_schema_can_be_imported(data: Path, tmp_path: Path) -> None:
    file, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    export_file(data, file)
    lines = without_groups(file).splitlines()
    old = [line.replace('"schema":3', '"schema":1').replace(',"share":null', "") for line in lines]
    old = [line.replace(',"author":null', "") for line in old]
    assert old != lines
    import_store(old, tmp_path / "copy")
    export_file(tmp_path / "copy", again)
    assert again.read_text().splitlines() == lines


def test_a_file_of_the_first_schema_is_brought_up_to_date_with_all_it_holds(
    data: Path, tmp_path: Path
) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    export_file(data, before)
    db = connect(data / FILE_NAME)
    db.execute("ALTER TABLE queue DROP COLUMN share")
    for table in ("retained", "will"):
        db.execute(f"ALTER TABLE {table} DROP COLUMN author")
    seen = db.execute("SELECT * FROM clock").fetchone()
    db.execute("DROP TABLE clock")
    db.execute("PRAGMA user_version = 1")
    db.close()
    assert "start a broker on it once" in run_command("store", "check", data).stderr
    lock, reader = open_file(data / FILE_NAME)
    reader.close()
    lock.release()
    assert run_command("store", "check", data).returncode == 0
    db = connect(data / FILE_NAME)
    db.execute("INSERT INTO clock VALUES (?, ?, ?)", seen)
    db.close()
    export_file(data, after)
    assert after.read_text() == without_groups(before)


def test_import_refuses_a_folder_that_is_not_empty(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    run_command("store", "export", data, file)
    before = (data / FILE_NAME).read_bytes()
    done = run_command("store", "import", file, data)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert (data / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda lines: lines[:-1], "it was cut"),
        (lambda lines: lines[:5] + lines[6:], "has not the rows its end counts"),
        (lambda lines: lines[1:], "is no export of schema 1"),
        (lambda lines: [*lines[:3], "{", *lines[3:]], "line 4 is not JSON"),
        (lambda lines: [*lines[:3], '{"table":"sqlite_master"}', *lines[3:]], "unknown table"),
        (lambda lines: [*lines[:3], '{"table":"inbound","session_id":1}', *lines[3:]], "packet_identifier"),
        (lambda lines: lines[:2] + lines[1:], "UNIQUE constraint"),
        (lambda lines: [*lines, lines[1]], "nothing may follow the end"),
        (lambda lines: [line.replace('"payload":"', '"payload":"*') for line in lines], "line"),
    ],
)
def test_import_refuses_what_is_not_a_whole_export_and_leaves_no_store(
    data: Path, tmp_path: Path, change: object, problem: str
) -> None:
    file = tmp_path / "out.jsonl"
    export_file(data, file)
    assert callable(change)
    with pytest.raises(StoreError, match=problem):
        import_store(change(file.read_text().splitlines()), tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == [FILE_NAME + ".lock"]


def test_compact_deletes_messages_without_owner_and_gives_space_back(data: Path) -> None:
    db = connect(data / FILE_NAME)
    db.executemany(
        "INSERT INTO message VALUES (?, x'6F', ?, 1, x'', NULL, '')",
        ((1_000 + n, b"x" * 5_000) for n in range(500)),
    )
    db.close()
    assert "500 messages have no owner" in run_command("store", "check", data).stderr
    exported = run_command("store", "export", data, "-").stdout.splitlines()
    done = run_command("store", "compact", data)
    assert done.returncode == 0
    before, after = map(int, done.stdout.split()[1:])
    assert before > 2_000_000 > 500_000 > after == (data / FILE_NAME).stat().st_size
    again = run_command("store", "export", data, "-").stdout.splitlines()
    assert again[:-1] == [line for line in exported[:-1] if '"topic":"o"' not in line]
    assert run_command("store", "check", data).returncode == 0


@pytest.mark.parametrize("name", ["check", "compact", "export"])
def test_commands_refuse_a_folder_in_use(data: Path, tmp_path: Path, name: str) -> None:
    with BrokerProcess(data):
        extra = [tmp_path / "out.jsonl"] if name == "export" else []
        done = run_command("store", name, data, *extra)
    assert done.returncode == 1
    assert "is in use by another process" in done.stderr
    assert "hint: stop the broker" in done.stderr


@pytest.mark.parametrize("name", ["check", "compact", "export"])
def test_commands_refuse_a_folder_without_store(tmp_path: Path, name: str) -> None:
    done = run_command("store", name, tmp_path, *(["-"] if name == "export" else []))
    assert done.returncode == 1
    assert "does not exist" in done.stderr
    assert list(tmp_path.iterdir()) == []
