"""A lake that others put files into: what counts, what is set aside, what is merged and what goes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tidegate.cli.main import build_app
from tidegate.lake.arrow import arrow_schema, file_metadata
from tidegate.lake.catalog import LakeFile, State, mark_duplicates, scan
from tidegate.lake.errors import LakeError
from tidegate.lake.target import Target
from tidegate.lake.upkeep import compact, mark_replaced, prune
from tidegate.pipeline.inventory import take_inventory
from tidegate.schema import BEACON, META_LEVEL, META_REPLACES, META_SCHEMA, partition

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def beacons(count: int, at: datetime = NOON, node: str = "n") -> pa.Table:
    columns: dict[str, list[Any]] = {
        "run": ["r"] * count,
        "node": [node] * count,
        "ts": [at + timedelta(seconds=n) for n in range(count)],
        "mac": [f"m{n}" for n in range(count)],
        "gw": ["g"] * count,
        "rssi": [-50.0] * count,
    }
    schema = arrow_schema(BEACON)
    return pa.table(
        [pa.array(columns.get(field.name, [None] * count), field.type) for field in schema], schema=schema
    )


def put(
    lake: Path,
    name: str,
    data: pa.Table,
    at: datetime = NOON,
    schema: str = "1",
    more: Mapping[bytes, bytes] | None = None,
) -> Path:
    path = lake / "beacon" / partition(at) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, data.schema, store_schema=False) as writer:
        writer.write_table(data)
        writer.add_key_value_metadata(
            file_metadata(BEACON) | {META_SCHEMA: schema.encode()} | dict(more or {})
        )
    return path


def states(lake: Path) -> dict[str, str]:
    target = Target.open(lake)
    files = list(scan(target))
    mark_replaced(target, files)
    mark_duplicates(target, files)
    return {each.path.rpartition("/")[2]: str(each.state) for each in files}


def rows(lake: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    target = Target.open(lake)
    for each in scan(target):
        if each.state.is_data:
            found.update(pq.ParquetFile(lake / each.path).read()["mac"].to_pylist())
    return found


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    """A lake with one file of each kind."""
    lake = tmp_path / "lake"
    good = put(lake, "good.parquet", beacons(3))
    folder = good.parent
    put(lake, "more.parquet", beacons(2).append_column("colour", pa.array(["red", "blue"])))
    put(lake, "old.parquet", beacons(2).drop_columns(["label", "lost"]), schema="0")
    put(lake, "newer.parquet", beacons(2), schema="99")
    (folder / "twin.parquet").write_bytes(good.read_bytes())
    (folder / "cut.parquet").write_bytes(good.read_bytes()[:-20])
    (folder / "short.parquet").write_bytes(b"PAR1")
    (folder / "empty.parquet").write_bytes(b"")
    (folder / "text.parquet").write_text("hello " * 10)
    (folder / "_being.parquet.tmp").write_bytes(b"PAR1")
    (folder / "notes.txt").write_text("notes")
    pq.write_table(pa.table({"x": [1]}), folder / "stranger.parquet")
    put(lake, "type.parquet", beacons(1).set_column(3, "lost", pa.array(["no"])))
    put(lake, "hour.parquet", beacons(1, NOON + timedelta(hours=2)))
    (lake / "unknown").mkdir()
    (lake / "unknown" / "x.parquet").write_bytes(good.read_bytes())
    (lake / "publish").mkdir()
    (lake / "publish" / "nowhere.parquet").write_bytes(good.read_bytes())
    return lake


def test_every_kind_of_file_is_recognised(spoilt: Path) -> None:
    assert states(spoilt) == {
        "good.parquet": "good",
        "more.parquet": "good",
        "old.parquet": "good",
        "newer.parquet": "newer",
        "twin.parquet": "duplicate",
        "cut.parquet": "truncated",
        "short.parquet": "truncated",
        "empty.parquet": "foreign",
        "text.parquet": "foreign",
        "_being.parquet.tmp": "temporary",
        "notes.txt": "foreign",
        "stranger.parquet": "foreign",
        "type.parquet": "foreign",
        "hour.parquet": "misplaced",
        "x.parquet": "foreign",
        "nowhere.parquet": "foreign",
    }


def test_compaction_keeps_every_row_once_and_leaves_the_rest_alone(spoilt: Path) -> None:
    before = set(states(spoilt))
    target = Target.open(spoilt)
    done = compact(target, now=NOON + timedelta(days=1))
    # good, more and old are one file now; the twin is gone.
    assert (done.into, done.rows, done.files) == (1, 7, 4)
    after = states(spoilt)
    assert before - set(after) == {"good.parquet", "more.parquet", "old.parquet", "twin.parquet"}
    assert Counter(after.values())["good"] == 1
    assert rows(spoilt) == Counter({"m0": 4, "m1": 4, "m2": 1})
    assert compact(target, now=NOON + timedelta(days=1)).into == 0


def test_an_hour_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, f"f{number}.parquet", beacons(number + 1))
    target = Target.open(tmp_path)
    assert compact(target, now=NOON + timedelta(minutes=62)).into == 0
    assert compact(target, now=NOON + timedelta(minutes=62), include_current=True).into == 1
    assert sum(rows(tmp_path).values()) == 6


def test_files_of_nodes_stay_apart(tmp_path: Path) -> None:
    from tidegate.schema import META_NODE

    for number in range(4):
        path = tmp_path / "beacon" / partition(NOON) / f"f{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = beacons(number + 1)
        with pq.ParquetWriter(path, data.schema, store_schema=False) as writer:
            writer.write_table(data)
            writer.add_key_value_metadata(
                file_metadata(BEACON) | {META_NODE: b"ab"[number % 2 : number % 2 + 1]}
            )
    assert compact(Target.open(tmp_path), now=NOON + timedelta(days=1)).into == 2


def test_an_interrupted_compaction_counts_no_row_twice_and_is_finished_by_the_next(tmp_path: Path) -> None:
    kept = []
    for number in range(3):
        path = put(tmp_path, f"f{number}.parquet", beacons(number + 1))
        kept.append((path, path.read_bytes()))
    target = Target.open(tmp_path)
    compact(target, now=NOON + timedelta(days=1))
    for path, data in kept[1:]:  # as if it had been killed before it deleted these
        path.write_bytes(data)
    assert Counter(states(tmp_path).values()) == {"good": 1, "duplicate": 2}
    code, out, err = run("lake", "ls", str(tmp_path))
    assert (code, out.splitlines()[1].split("\t")[:3]) == (0, ["beacon", "1", "6"])
    assert "2 files do not count" in err
    inventory = take_inventory(str(tmp_path), BEACON)
    assert (inventory.rows, [each.kind for each in inventory.issues]) == (6, ["duplicate"] * 2)
    compact(target, now=NOON + timedelta(days=1))
    assert Counter(states(tmp_path).values()) == {"good": 1}
    assert sum(rows(tmp_path).values()) == 6


@pytest.mark.parametrize(
    ("levels", "expected"),
    [(("full", "full"), "full"), (("summary", "full"), ""), (("full", "summary"), ""), (("full", ""), "")],
)
def test_a_merged_file_has_a_level_only_if_all_were_of_it(
    tmp_path: Path, levels: Sequence[str], expected: str
) -> None:
    for number, level in enumerate(levels):
        put(tmp_path, f"f{number}.parquet", beacons(number + 1), more={META_LEVEL: level.encode()})
    target = Target.open(tmp_path)
    compact(target, now=NOON + timedelta(days=1))
    assert [each.level for each in scan(target)] == [expected]


@pytest.mark.parametrize("told", [b"nonsense", b"7", b"\xff"])
def test_a_list_of_replaced_files_that_makes_no_sense_replaces_nothing(tmp_path: Path, told: bytes) -> None:
    put(tmp_path, "a.all.parquet", beacons(1), more={META_REPLACES: told})
    assert states(tmp_path) == {"a.all.parquet": "good"}


def test_two_compactions_at_once_do_not_write_to_one_file(tmp_path: Path) -> None:
    target = Target.open(tmp_path)
    one, two = (target.create("beacon/a.all.parquet") for _ in range(2))
    one.stream.write(b"x" * 100)
    names = [path.name for path in (tmp_path / "beacon").iterdir()]
    assert len(names) == 2
    assert all(name.startswith("_") for name in names)
    assert {each.state for each in scan(target)} == {State.TEMPORARY}
    two.abort()
    one.commit()
    assert (tmp_path / "beacon" / "a.all.parquet").read_bytes() == b"x" * 100


def test_a_file_that_another_compaction_removed_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [put(tmp_path, f"f{number}.parquet", beacons(number + 1)) for number in range(2)]
    move = Target.move

    def slow(self: Target, old: str, new: str) -> None:
        paths[1].unlink(missing_ok=True)
        move(self, old, new)

    monkeypatch.setattr(Target, "move", slow)
    assert compact(Target.open(tmp_path), now=NOON + timedelta(days=1)).into == 1
    assert sum(rows(tmp_path).values()) == 3


def test_old_hours_and_stale_temporary_files_are_pruned_and_nothing_else(spoilt: Path) -> None:
    put(spoilt, "young.parquet", beacons(1, NOON + timedelta(days=9)), NOON + timedelta(days=9))
    now = NOON + timedelta(days=10)
    target = Target.open(spoilt)
    lines: list[str] = []
    dry = prune(target, older_than=timedelta(days=2), now=now, is_dry=True, say=lines.append)
    assert len(lines) == dry.files
    assert "good.parquet" in states(spoilt)
    assert prune(target, older_than=timedelta(days=2), now=now).files == dry.files
    # What is in no hour is nobody's to delete; the temporary file is young (its time is that of the disk).
    assert set(states(spoilt)) == {"young.parquet", "x.parquet", "nowhere.parquet", "_being.parquet.tmp"}
    assert prune(target, now=datetime.now(UTC) + timedelta(hours=2)).files == 1
    assert "_being.parquet.tmp" not in states(spoilt)


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(build_app(arguments), list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_the_commands_show_check_compact_and_prune(spoilt: Path) -> None:
    code, out, err = run("lake", "ls", str(spoilt))
    assert code == 0
    lines = [line.split("\t") for line in out.splitlines()]
    assert lines[1][:4] == ["beacon", "5", "12", lines[1][3]]  # the twin is found by check and compact only
    assert "tidegate lake check" in err
    code, out, err = run("lake", "check", str(spoilt))
    assert code == 1
    assert "truncated\t" in out
    assert "unknown and ignored: colour" in out
    assert "hint:" in err
    code, out, _ = run("lake", "compact", str(spoilt))
    assert (code, out.split()[:4]) == (0, ["files", "4", "into", "1,"])
    code, out, _ = run("lake", "prune", str(spoilt), "--older-than", "1d", "--table", "beacon")
    assert code == 0
    assert rows(spoilt) == {}


@pytest.mark.parametrize("age", ["", "d", "1", "-1d", "1y", "0h", "1.5d", "99999999d"])
def test_an_age_that_makes_no_sense_deletes_nothing(spoilt: Path, age: str) -> None:
    before = states(spoilt)
    code, _, err = run("lake", "prune", str(spoilt), "--older-than", age)
    assert code == 2
    assert "is no age" in err
    assert states(spoilt) == before


@pytest.mark.parametrize(
    "arguments", [("ls", "/no/such/lake"), ("check", "nonsense://x"), ("ls", ".", "--table", "x")]
)
def test_a_lake_that_is_not_there_is_said_in_one_line(arguments: Sequence[str]) -> None:
    with pytest.raises(LakeError) as caught:
        run("lake", *arguments)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_file_that_vanishes_while_it_is_looked_at_is_no_fault(tmp_path: Path) -> None:
    path = put(tmp_path, "a.parquet", beacons(1))
    target = Target.open(tmp_path)
    infos = list(target.files())
    path.unlink()
    from tidegate.lake.catalog import look

    found: LakeFile = look(target, infos[0])
    assert found.state is State.FOREIGN
