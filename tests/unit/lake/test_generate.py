"""Made-up lakes: the same seed gives the same rows, rows are consistent, and the labels tell the truth."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tidegate.cli.main import build_app
from tidegate.lake.errors import LakeError
from tidegate.lake.generate import GeneratedLevel, GenerateSettings, generate
from tidegate.schema import TABLES, bin_of, partition_start

ROWS = 20_000


def rows_of(lake: Path, table: str) -> pa.Table:
    """All rows of a table, in the order of file names."""
    parts = []
    for path in sorted((lake / table).rglob("*.parquet")):
        parts.append(pq.ParquetFile(path).read())
    return pa.concat_tables(parts)


def make(folder: Path, **changes: object) -> Path:
    settings = {"rows": ROWS, "hours": 6, "clients": 200, "devices": 60, "anomalies": 0.1} | changes
    generate(folder, GenerateSettings(**settings))  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("lakes") / "full")


def test_the_same_seed_gives_the_same_rows_and_another_does_not(lake: Path, tmp_path: Path) -> None:
    again, other = make(tmp_path / "again"), make(tmp_path / "other", seed=2)
    for table in ("publish", "beacon", "rpc", "member", "check", "load", "deliver"):
        assert rows_of(lake, table).equals(rows_of(again, table)), table
    assert not rows_of(lake, "publish").equals(rows_of(other, "publish"))


def test_there_are_about_as_many_rows_as_asked_for(lake: Path) -> None:
    assert abs(rows_of(lake, "publish").num_rows / ROWS - 1.0) < 0.1


def test_every_row_lies_in_the_hour_of_its_folder(lake: Path) -> None:
    for path in lake.rglob("*.parquet"):
        hour = partition_start(str(path))
        if hour is None:
            assert "_labels" in str(path)
            continue
        stamps = pq.ParquetFile(path).read(["ts"])["ts"].to_pylist()
        assert all(each.replace(minute=0, second=0, microsecond=0) == hour for each in stamps), path


def test_files_have_the_columns_of_their_table(lake: Path) -> None:
    for name in ("publish", "beacon", "rpc", "member", "check", "load", "deliver"):
        assert rows_of(lake, name).schema.names == list(TABLES[name].names)


def test_a_gap_is_the_time_since_the_clients_message_before(lake: Path) -> None:
    rows = (
        rows_of(lake, "publish")
        .select(["client_id", "ts", "gap_us"])
        .sort_by([("client_id", "ascending"), ("ts", "ascending")])
    )
    clients = rows["client_id"].to_pylist()
    stamps = rows["ts"].cast(pa.int64()).to_pylist()
    gaps = rows["gap_us"].to_pylist()
    for at, gap in enumerate(gaps):
        is_first = at == 0 or clients[at] != clients[at - 1]
        assert gap == (None if is_first else stamps[at] - stamps[at - 1])


def test_summaries_are_the_sums_of_the_messages(lake: Path, tmp_path: Path) -> None:
    short = make(tmp_path / "summary", level=GeneratedLevel.SUMMARY)
    expected: dict[tuple[str, str, int], list[int]] = {}
    bins: dict[tuple[str, str, int], dict[int, int]] = {}
    full = rows_of(lake, "publish")
    for client, topic, ts, size, gap in zip(
        *(full[name].to_pylist() for name in ("client_id", "topic")),
        full["ts"].cast(pa.int64()).to_pylist(),
        full["bytes"].to_pylist(),
        full["gap_us"].to_pylist(),
        strict=True,
    ):
        key = (client, topic, ts // 10_000_000)
        sums = expected.setdefault(key, [0, 0])
        sums[0] += 1
        sums[1] += size
        counts = bins.setdefault(key, {})
        if gap is not None:
            counts[bin_of(gap)] = counts.get(bin_of(gap), 0) + 1
    rows = rows_of(short, "publish")
    assert rows.num_rows == len(expected)
    for row in rows.to_pylist():
        key = (row["client_id"], row["topic"], int(row["ts"].timestamp()) // 10)
        assert [row["count"], row["bytes"]] == expected[key]
        assert dict(zip(row["gap_bins"], row["gap_counts"], strict=True)) == bins[key]
        assert row["gap_bins"] == sorted(row["gap_bins"])


def test_labels_tell_who_goes_wrong_and_when(lake: Path) -> None:
    labels = pq.read_table(lake / "_labels" / "clients.parquet").to_pylist()
    wrong = [each for each in labels if each["kind"] != "normal"]
    assert wrong
    assert all(each["onset"] is not None for each in wrong)
    sent = rows_of(lake, "publish")
    for each in wrong:
        if each["kind"] != "silence":
            continue
        mine = sent.filter(pa.compute.equal(sent["client_id"], each["client_id"]))
        assert max(mine["ts"].to_pylist()) < each["onset"]


def test_labels_of_routes_name_a_gateway_that_lives(lake: Path) -> None:
    labels = pq.read_table(lake / "_labels" / "routes.parquet").to_pylist()
    heard = rows_of(lake, "beacon")
    last = np.max(heard["ts"].cast(pa.int64()).to_numpy())
    recent = heard.filter(pa.compute.greater(heard["ts"].cast(pa.int64()), int(last - 1_800_000_000)))
    alive = set(recent["gw"].to_pylist())
    assert all(each["gw"] in each["acceptable"] for each in labels)
    assert {each["gw"] for each in labels} <= alive


@pytest.mark.parametrize("changes", [{"rows": 10}, {"hours": 0}, {"anomalies": 0.9}])
def test_settings_that_make_no_sense_are_refused_with_a_hint(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    with pytest.raises(LakeError) as caught:
        make(tmp_path / "none", **changes)
    assert caught.value.hint


def test_a_start_is_a_whole_hour_in_utc_and_is_that_without_a_zone(tmp_path: Path) -> None:
    hour = datetime(2026, 1, 5, 3, tzinfo=UTC)
    for start in (
        "2026-01-05T03:00",
        "2026-01-05T03:00Z",
        "2026-01-05T08:30+05:30",
        "2026-01-05T05:00+02:00",
    ):
        settings = GenerateSettings(rows=ROWS, start=datetime.fromisoformat(start))
        assert (settings.start, settings.start.utcoffset()) == (hour, timedelta())
    for start in ("2026-01-05T00:00+05:30", "2026-01-05T00:30", "0001-01-01T00:00+02:00"):
        command = ["lake", "generate", str(tmp_path / "none"), "--start", start]
        with pytest.raises(LakeError) as caught:
            CliRunner().invoke(build_app(command), command, catch_exceptions=False)
        assert caught.value.hint
    assert not (tmp_path / "none").exists()


def test_a_lake_that_exists_is_not_touched(lake: Path) -> None:
    with pytest.raises(LakeError):
        make(lake)
