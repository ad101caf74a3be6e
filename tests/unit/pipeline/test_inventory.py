"""What is wrong with files is named, and what is fit to be read is found."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.lake.generate import GenerateSettings, generate
from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.inventory import Inventory, take_inventory
from tidegate.schema import META_TABLE, PUBLISH

HOURS = 3


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    generate(tmp_path / "lake", GenerateSettings(rows=2_000, hours=HOURS, clients=200, devices=20, nodes=1))
    return tmp_path / "lake"


def files(lake: Path) -> list[Path]:
    return sorted((lake / "publish").rglob("*.parquet"))


def take(lake: Path, **bounds: datetime) -> Inventory:
    return take_inventory(str(lake), PUBLISH, **bounds)


def kinds(inventory: Inventory) -> list[str]:
    return sorted(issue.kind for issue in inventory.issues)


def rewrite(path: Path, change: object) -> None:
    data = pq.ParquetFile(path).read()
    pq.write_table(change(data), path)  # type: ignore[operator]


def test_a_healthy_lake_has_no_issue_and_all_its_rows(lake: Path) -> None:
    found = take(lake)
    assert kinds(found) == []
    assert found.rows == sum(pq.read_metadata(path).num_rows for path in files(lake))
    assert len(found.hours) == HOURS
    assert {each.level for each in found.files} == {"full"}


def test_a_truncated_file_is_named_and_passed_over(lake: Path) -> None:
    broken = files(lake)[0]
    broken.write_bytes(broken.read_bytes()[:-20])
    found = take(lake)
    assert kinds(found) == ["truncated"]
    assert len(found.files) == HOURS - 1


def test_an_empty_file_is_named_and_passed_over(lake: Path) -> None:
    files(lake)[0].write_bytes(b"")
    assert kinds(take(lake)) == ["truncated"]


def test_rows_of_another_table_are_foreign(lake: Path) -> None:
    load = next((lake / "load").rglob("*.parquet"))
    shutil.copy(load, files(lake)[0].with_name("stray.parquet"))
    found = take(lake)
    assert kinds(found) == ["foreign"]
    assert "load" in found.issues[0].detail
    assert len(found.files) == HOURS


def test_a_file_without_a_column_of_the_first_version_is_foreign(lake: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), files(lake)[0].with_name("stray.parquet"))
    found = take(lake)
    assert kinds(found) == ["foreign"]
    assert "no column" in found.issues[0].detail


def test_a_column_of_another_type_is_foreign(lake: Path) -> None:
    rewrite(
        files(lake)[0],
        lambda data: data.set_column(
            data.schema.get_field_index("bytes"), "bytes", data["bytes"].cast(pa.string())
        ),
    )
    assert kinds(take(lake)) == ["foreign"]


def test_unknown_columns_are_ignored_and_named(lake: Path) -> None:
    rewrite(files(lake)[0], lambda data: data.append_column("colour", pa.array(["red"] * data.num_rows)))
    found = take(lake)
    assert kinds(found) == ["unknown-columns"]
    assert len(found.files) == HOURS


def test_a_file_may_leave_out_what_is_null_and_an_older_one_is_named(lake: Path) -> None:
    rewrite(files(lake)[0], lambda data: data.drop_columns(["label"]))
    assert kinds(take(lake)) == []
    rewrite(files(lake)[0], lambda data: data.replace_schema_metadata(None))
    found = take(lake)
    assert kinds(found) == ["older"]
    assert len(found.files) == HOURS


def test_a_copy_counts_once(lake: Path) -> None:
    original = files(lake)[0]
    shutil.copy(original, original.with_name("copy.parquet"))
    found = take(lake)
    assert kinds(found) == ["duplicate"]
    assert len(found.files) == HOURS


def test_files_being_written_are_not_looked_at(lake: Path) -> None:
    shutil.copy(files(lake)[0], files(lake)[0].with_name("_half.parquet.tmp"))
    (files(lake)[0].with_name("_half.parquet")).write_bytes(b"PAR1")
    assert kinds(take(lake)) == []


def test_other_files_are_named(lake: Path) -> None:
    (lake / "publish" / "notes.txt").write_text("mine")
    assert kinds(take(lake)) == ["foreign"]


def test_rows_outside_of_their_hour_are_noticed(lake: Path) -> None:
    first, last = files(lake)[0], files(lake)[-1]
    shutil.move(first, last.with_name("moved.parquet"))
    found = take(lake)
    assert kinds(found) == ["clock"]
    assert [each.is_displaced for each in found.files if each.path.endswith("moved.parquet")] == [True]


def test_only_hours_within_the_time_are_looked_at(lake: Path) -> None:
    found = take(lake, since=datetime(2026, 1, 5, 1, tzinfo=UTC), until=datetime(2026, 1, 5, 2, tzinfo=UTC))
    assert [hour.hour for hour in found.hours] == [1]


def test_a_fingerprint_changes_with_the_files_of_its_hour_only(lake: Path) -> None:
    before = take(lake).fingerprints()
    rewrite(files(lake)[0], lambda data: data.slice(1))
    after = take(lake).fingerprints()
    assert [hour for hour in before if before[hour] != after[hour]] == ["2026-01-05T00"]


def test_a_newer_version_is_read_and_named(lake: Path) -> None:
    def newer(data: pa.Table) -> pa.Table:
        return data.replace_schema_metadata({META_TABLE: b"publish", b"tidegate.schema": b"99"})

    rewrite(files(lake)[0], newer)
    assert kinds(take(lake)) == ["newer"]


def test_a_lake_that_is_not_there_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(PipelineError) as caught:
        take(tmp_path / "nowhere")
    assert caught.value.hint
