"""The pipeline as a stream: what it finds is what a run finds, in whatever order and parts the files come."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidegate import schema
from tidegate.pipeline.stream_fold import Route, step_route

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


@pytest.fixture(scope="module")
def grown(spark: SparkSession, lake: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[str]]:
    """A lake whose files come in three parts, streamed after each; the second part comes before the first."""
    from tidegate.pipeline.settings import PipelineSettings
    from tidegate.pipeline.stream import PolicyStream, StreamSettings

    folder = tmp_path_factory.mktemp("stream") / "lake"
    tables = ("publish", "beacon")
    files = [path for table in tables for path in sorted((lake / table).rglob("*.parquet"))]
    settings = PipelineSettings(lake=str(folder))
    versions: list[str] = []
    for part in (1, 0, 2):
        for path in files[part::3]:
            target = folder / path.relative_to(lake)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        stream = PolicyStream(
            spark,
            StreamSettings(pipeline=settings, lateness="100 days"),
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
    spark: SparkSession, grown: tuple[Any, list[str]], found: Any, name: str
) -> None:
    from tidegate.pipeline import io
    from tidegate.pipeline.tables import AGGREGATES

    whole = [column.name for column in AGGREGATES[name].columns if not column.name.startswith("gap_s")]
    ours = io.read_aggregate(spark, grown[0], name)
    theirs = io.read_aggregate(spark, found.settings, name)
    assert rows(ours, "date", *whole) == rows(theirs, "date", *whole)


def test_each_part_brought_a_policy(grown: tuple[Any, list[str]]) -> None:
    from tidegate.policy import PolicyStore

    settings, versions = grown
    assert len(versions) >= 3
    assert len(set(versions)) == len(versions)
    assert PolicyStore(settings.policy_folder).current() == versions[-1]


def test_a_route_in_python_is_the_route_in_spark(
    spark: SparkSession, found: Any, raw: Callable[[str], list[Row]]
) -> None:
    slots: dict[str, dict[int, dict[str, list[float]]]] = {}
    for row in raw("beacon"):
        slot = int(row["ts"].timestamp()) // 300
        slots.setdefault(row["mac"], {}).setdefault(slot, {}).setdefault(row["gw"], []).append(row["rssi"])
    computed = {}
    for mac, of_device in slots.items():
        route = Route()
        for slot in sorted(of_device):
            heard = {gw: (sum(values) / len(values), len(values)) for gw, values in of_device[slot].items()}
            route = step_route(route, heard, found.settings.hysteresis_db, found.settings.route_age_slots)
        computed[mac] = (route.gw, route.second, route.flaps)
    told = {row["mac"]: (row["gw"], row["second_gw"], row["flaps"]) for row in found.rows(schema.ROUTES)}
    assert computed == told
