"""The whole pipeline: what was planted is found, twice is once, and bad input is named and bends nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.conftest import HOURS, Found, Row
from tidegate import schema
from tidegate.lake.generate import GenerateSettings, generate
from tidegate.pipeline import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.pipeline.settings import PipelineSettings

pytestmark = pytest.mark.timeout(900)
Labels = Callable[[str], list[Row]]


def test_who_changed_is_found_and_nobody_else(found: Found, labels: Labels) -> None:
    wrong = {each["client_id"] for each in labels("clients") if each["kind"] != "normal"}
    told = {row["client_id"] for row in found.rows(tables.CHANGES)}
    assert len(wrong) >= 15
    assert len(told & wrong) / len(told) >= 0.95
    assert len(told & wrong) / len(wrong) >= 0.95


def test_a_change_is_told_within_an_hour_of_its_onset(found: Found, labels: Labels) -> None:
    onset = {each["client_id"]: each["onset"] for each in labels("clients") if each["onset"] is not None}
    told = {row["client_id"]: row["changed_at"].replace(tzinfo=UTC) for row in found.rows(tables.CHANGES)}
    off = [abs((told[name] - onset[name]).total_seconds()) for name in told.keys() & onset.keys()]
    assert sorted(off)[int(0.9 * len(off))] <= 3_600


def test_forecasts_are_better_than_as_yesterday(found: Found) -> None:
    rows = found.rows(tables.FORECASTS)
    assert sum(row["error"] for row in rows) < sum(row["naive_error"] for row in rows)


def test_all_planted_groups_are_found_and_none_else(found: Found, labels: Labels) -> None:
    group = {each["topic"]: each["burst_group"] for each in labels("topics") if each["burst_group"] >= 0}
    planted = {(a, b) for a in group for b in group if a < b and group[a] == group[b]}
    assert {(row["topic_a"], row["topic_b"]) for row in found.rows(schema.CORRELATIONS)} == planted
    numbers = {row["topic"]: row["burst_group"] for row in found.rows(schema.TOPICS)}
    assert all((numbers[a] == numbers[b]) == (group[a] == group[b]) for a in group for b in group)
    assert all(number is None for topic, number in numbers.items() if topic not in group)


def test_routes_are_right(found: Found, labels: Labels) -> None:
    right = {each["mac"]: each["acceptable"] for each in labels("routes")}
    rows = found.rows(schema.ROUTES)
    assert len(rows) == len(right)
    assert sum(row["gw"] in right[row["mac"]] for row in rows) / len(rows) >= 0.99


def test_the_slow_member_and_the_lossy_client_are_measured(found: Found, labels: Labels) -> None:
    service = {
        row["client_id"]: row["service"]
        for row in found.rows(schema.POLICY_MEMBERS)
        if row["group"] == "workers-0"
    }
    assert service["worker-0-2"] == pytest.approx(0.050, rel=0.05)
    assert service["worker-0-0"] == pytest.approx(0.025, rel=0.05)
    true = {each["client_id"]: each["loss_rate"] for each in labels("control")}
    for row in found.rows(schema.CONTROL):
        if row["client_id"]:
            assert row["loss_rate"] == pytest.approx(true[row["client_id"]], rel=0.25)


def test_the_bottleneck_of_the_evening_is_the_way_back(found: Found) -> None:
    slow = {row["at"].hour: row["hop"] for row in found.rows(tables.RPC_LATENCY) if row["is_bottleneck"]}
    assert {slow[18], slow[19]} == {"return"}
    assert {hop for hour, hop in slow.items() if hour not in (18, 19)} == {"gateway"}


def test_the_snapshot_is_current_and_holds_what_was_found(found: Found) -> None:
    from tidegate.policy import PolicyStore

    store = PolicyStore(found.settings.policy_folder)
    assert store.current() == found.ran.version
    manifest = store.verify(found.ran.version)
    assert manifest.input_from == "2026-01-05T00:00:00+00:00"
    assert manifest.input_to == "2026-01-06T16:00:00+00:00"
    baselines = store.read(found.ran.version, "baselines")
    assert baselines.num_rows == len(found.rows(schema.BASELINES))
    assert set(manifest.tables) == set(schema.POLICY_TABLES)


def test_healthy_input_has_no_issue(found: Found) -> None:
    assert found.ran.issues == []
    assert found.rows(tables.QUALITY) == []


def test_a_second_run_reads_nothing_again_and_finds_the_same(found: Found) -> None:
    from tidegate.pipeline.run import run

    def stamps() -> dict[Path, int]:
        hours = Path(found.settings.out_folder, "hourly").rglob("*.parquet")
        return {path: path.stat().st_mtime_ns for path in hours}

    def findings() -> list[list[str]]:
        return [sorted(map(str, found.rows(each))) for each in (schema.POLICY_MEMBERS, schema.CONTROL)]

    before, found_before = stamps(), findings()
    run(found.spark, found.settings, ["hourly", "members", "control"])
    assert stamps() == before
    assert findings() == found_before


def test_a_page_and_a_summary_are_written_that_load_nothing(found: Found, tmp_path: Path) -> None:
    from tidegate.pipeline.jobs import report

    page, summary = report.main(found.spark, found.settings, tmp_path)
    html = page.read_text(encoding="utf-8")
    body = html[html.index("</script></head>") :]
    assert "Plotly.newPlot" in body
    assert 'src="' not in body
    assert "src='" not in body
    assert "<link" not in body
    text = summary.read_text(encoding="utf-8")
    for title in (
        "Traffic",
        "Clients whose behaviour changed",
        "Members of shared groups",
        "Gateways",
        "Data quality",
    ):
        assert f"## {title}" in text
    assert f"{HOURS} hours" in text


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoilt(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SparkSession, PipelineSettings, int]:
    """A lake with everything wrong that can be; the number is that of messages which are right."""
    from tidegate.pipeline.settings import PipelineSettings

    lake = tmp_path_factory.mktemp("lakes") / "spoilt"
    generate(lake, GenerateSettings(rows=6_000, hours=6, clients=200, devices=20, nodes=1))
    hours = sorted((lake / "publish").rglob("*.parquet"))
    right = sum(pq.read_metadata(path).num_rows for path in hours)
    right -= pq.read_metadata(hours[0]).num_rows
    hours[0].write_bytes(hours[0].read_bytes()[:-9])  # truncated
    pq.write_table(pa.table({"a": [1]}), hours[1].with_name("stray.parquet"))  # foreign
    shutil.copy(hours[1], hours[1].with_name("copy.parquet"))  # duplicate
    wider = pq.ParquetFile(hours[2]).read()
    wider = wider.append_column("colour", pa.array(["red"] * wider.num_rows)).drop_columns(["label"])
    pq.write_table(wider.replace_schema_metadata(None), hours[2])  # unknown and missing columns
    right -= pq.read_metadata(hours[3]).num_rows
    shutil.rmtree(hours[3].parent)  # an empty hour
    late = pq.ParquetFile(hours[4]).read()
    gaps = late["gap_us"].to_pylist()
    gaps[5] = -1_000_000
    late = late.set_column(late.schema.get_field_index("gap_us"), "gap_us", pa.array(gaps, pa.int64()))
    stamps = late["ts"].cast(pa.int64()).to_pylist()
    stamps[7] -= 90 * 86_400_000_000
    late = late.set_column(
        late.schema.get_field_index("ts"), "ts", pa.array(stamps).cast(pa.timestamp("us", tz="UTC"))
    )
    pq.write_table(late, hours[4])  # a negative gap and a clock that jumped
    right -= 1
    hours[5].with_name("_half.parquet.tmp").write_bytes(b"PAR1")  # being written
    return spark, PipelineSettings(lake=str(lake)), right


def test_bad_input_is_named_and_counts_nothing_twice(
    spoilt: tuple[SparkSession, PipelineSettings, int],
) -> None:
    from tidegate.pipeline import io
    from tidegate.pipeline.run import run

    spark, settings, right = spoilt
    run(spark, settings, ["hourly", "quality"])
    kinds = {row["kind"] for row in io.read_finding(spark, settings, tables.QUALITY).collect()}
    assert kinds == {
        "truncated",
        "foreign",
        "duplicate",
        "unknown-columns",
        "older",
        "empty-hour",
        "clock",
        "negative-gap",
    }
    messages = io.read_aggregate(spark, settings, "nodes").groupBy().sum("messages").first()
    assert messages is not None
    assert messages[0] == right
    negative = io.read_aggregate(spark, settings, "clients").groupBy().sum("negative_gaps").first()
    assert negative is not None
    assert negative[0] == 1


def test_a_late_file_is_counted_and_named(spoilt: tuple[SparkSession, PipelineSettings, int]) -> None:
    from tidegate.pipeline import io
    from tidegate.pipeline.run import run

    spark, settings, _ = spoilt
    run(spark, settings, ["hourly"])

    def total() -> int:
        row = io.read_aggregate(spark, settings, "nodes").groupBy().sum("messages").first()
        assert row is not None
        return int(row[0])

    before = total()
    last = max((Path(settings.lake) / "publish").rglob("node*.parquet"))
    pq.write_table(pq.ParquetFile(last).read().slice(0, 10), last.with_name("late.parquet"))
    done = run(spark, settings, ["hourly"])
    assert total() == before + 10
    assert [issue.subject for issue in done.again] == ["2026-01-05T05"]
    assert "late" not in {issue.kind for issue in done.issues}


def test_what_is_said_of_a_run_tells_faults_from_what_was_computed_again() -> None:
    from tidegate.pipeline.inventory import Issue
    from tidegate.pipeline.run import Ran
    from tidegate.pipeline.settings import PipelineSettings

    def issues(kind: str, *tables: str) -> list[Issue]:
        return [Issue(kind=kind, table=each, subject="2026-01-05T05", count=1, detail="") for each in tables]

    settings = PipelineSettings(lake="lake")
    assert Ran().remarks(settings) == []
    assert Ran(again=issues("late", "publish", "load", "deliver")).remarks(settings) == [
        "3 tables of 1 hour were computed again: files came or went"
    ]
    assert Ran(again=issues("late", "load"), issues=issues("truncated", "load")).remarks(settings) == [
        "1 table of 1 hour was computed again: files came or went",
        "1 thing is wrong with the input: tidegate pipeline report --lake lake shows the data quality",
    ]
    (line,) = Ran(issues=issues("foreign", "a", "b")).remarks(PipelineSettings(lake="lake", out="out"))
    assert line.startswith("2 things are wrong with the input: tidegate pipeline report --lake lake --out out ")


def test_clocks_that_jump_are_noticed(frame: Callable[..., object]) -> None:
    from tidegate.pipeline.jobs.quality import jumps

    seconds = [0, 10, 20, 200, 210, 214, 224]
    rows = [
        {
            "node": "n",
            "run": "r",
            "ts": datetime.fromtimestamp(1_767_571_200 + at, UTC).replace(tzinfo=None),
            "window_us": 10_000_000,
        }
        for at in seconds
    ]
    found = jumps(frame(rows, schema.LOAD)).orderBy("subject").collect()  # type: ignore[arg-type]
    assert [(row.kind, row.detail.split(" s ")[0]) for row in found] == [
        ("hole", "170.0"),
        ("clock-back", "6.0"),
    ]


def test_an_empty_lake_is_one_clear_line(spark: SparkSession, tmp_path: Path) -> None:
    from tidegate.pipeline.errors import NothingToRead, PipelineError, UnknownJob
    from tidegate.pipeline.run import run
    from tidegate.pipeline.settings import PipelineSettings

    with pytest.raises(NothingToRead) as caught:
        run(spark, PipelineSettings(lake=str(tmp_path)))
    assert caught.value.hint
    with pytest.raises(PipelineError):
        run(spark, PipelineSettings(lake=str(tmp_path / "nowhere")))
    with pytest.raises(UnknownJob):
        run(spark, PipelineSettings(lake=str(tmp_path)), ["hourli"])
