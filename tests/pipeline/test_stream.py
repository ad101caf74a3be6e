"""The pipeline as a stream: what it finds is what a run finds, in whatever order and parts the files come."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tidegate import schema
from tidegate.lake.generate import GeneratedLevel, GenerateSettings, generate
from tidegate.pipeline.stream_fold import Route, step_route

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hours: a stream reads every part of them several times over."""
    folder = tmp_path_factory.mktemp("small") / "lake"
    settings = GenerateSettings(
        rows=8_000, hours=4, clients=30, topics=10, devices=12, nodes=1, level=GeneratedLevel.MIXED, seed=5
    )
    generate(folder, settings)
    return folder


@pytest.fixture(scope="module")
def whole(spark: SparkSession, small: Path) -> Any:
    """The settings of a run over the whole of it."""
    from tidegate.pipeline.run import run
    from tidegate.pipeline.settings import PipelineSettings

    settings = PipelineSettings(lake=str(small))
    run(spark, settings, ["hourly", "routes"])
    return settings


@pytest.fixture(scope="module")
def grown(
    spark: SparkSession, small: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, list[str]]:
    """A lake whose files come in two parts, the later hours first, with a stream over what is there after each."""
    from tidegate.pipeline.settings import PipelineSettings
    from tidegate.pipeline.stream import PolicyStream, StreamSettings

    folder = tmp_path_factory.mktemp("stream") / "lake"
    files = [path for table in ("publish", "beacon") for path in sorted((small / table).rglob("*.parquet"))]
    settings = PipelineSettings(lake=str(folder))
    versions: list[str] = []
    for part in (1, 0):
        for path in files[part::2]:
            target = folder / path.relative_to(small)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        stream = PolicyStream(
            spark,
            StreamSettings(pipeline=settings, lateness="1 day"),
            lambda version, _: versions.append(version),
        )
        stream.start(available_now=True)
        stream.wait_all()
    return settings, versions


def rows(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*names).collect())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["clients", "topics", "nodes", "gaps"])
def test_aggregates_are_those_of_a_run_late_files_included(
    spark: SparkSession, grown: tuple[Any, list[str]], whole: Any, name: str
) -> None:
    from tidegate.pipeline import io
    from tidegate.pipeline.tables import AGGREGATES

    # Sums of gaps are of floats, whose last digit depends on the order of adding.
    names = [column.name for column in AGGREGATES[name].columns if not column.name.startswith("gap_s")]
    ours = io.read_aggregate(spark, grown[0], name)
    theirs = io.read_aggregate(spark, whole, name)
    assert rows(ours, "date", *names) == rows(theirs, "date", *names)


def test_each_part_brought_a_policy(grown: tuple[Any, list[str]]) -> None:
    from tidegate.policy import PolicyStore

    settings, versions = grown
    assert len(versions) >= 2
    assert len(set(versions)) == len(versions)
    assert PolicyStore(settings.policy_folder).current() == versions[-1]


def test_a_route_in_python_is_the_route_in_spark(spark: SparkSession, whole: Any, small: Path) -> None:
    from tidegate.pipeline import io

    slots: dict[str, dict[int, dict[str, list[float]]]] = {}
    for row in pq.read_table(small / "beacon").to_pylist():
        slot = int(row["ts"].timestamp()) // 300
        slots.setdefault(row["mac"], {}).setdefault(slot, {}).setdefault(row["gw"], []).append(row["rssi"])
    computed = {}
    for mac, of_device in slots.items():
        route = Route()
        for slot in sorted(of_device):
            heard = {gw: (sum(values) / len(values), len(values)) for gw, values in of_device[slot].items()}
            route = step_route(route, heard, whole.hysteresis_db, whole.route_age_slots)
        computed[mac] = (route.gw, route.second, route.flaps)
    told = {
        row.mac: (row.gw, row.second_gw, row.flaps)
        for row in io.read_finding(spark, whole, schema.ROUTES).collect()
    }
    assert computed == told
