"""One made-up lake for all tests of the pipeline, and everything that was found in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tidegate.lake.generate import GeneratedLevel, GenerateSettings, generate
from tidegate.schema import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.pipeline.run import Ran
    from tidegate.pipeline.settings import PipelineSettings

Row = dict[str, Any]
HOURS = 40


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Most of two days, both levels by turns."""
    folder = tmp_path_factory.mktemp("lakes") / "lake"
    settings = GenerateSettings(
        rows=170_000,
        hours=HOURS,
        clients=260,
        topics=60,
        devices=100,
        nodes=1,
        anomalies=0.1,
        level=GeneratedLevel.MIXED,
        seed=4,
    )
    generate(folder, settings)
    return folder


@dataclass(slots=True)
class Found:
    """A run over the lake, and its tables as rows."""

    spark: SparkSession
    settings: PipelineSettings
    ran: Ran

    def rows(self, table: Table) -> list[Row]:
        from tidegate.pipeline import io

        return [
            row.asDict(recursive=True)
            for row in io.plain(io.read_finding(self.spark, self.settings, table)).collect()
        ]

    def aggregates(self, name: str) -> list[Row]:
        from tidegate.pipeline import io

        return [
            row.asDict(recursive=True)
            for row in io.plain(io.read_aggregate(self.spark, self.settings, name)).collect()
        ]


@pytest.fixture(scope="session")
def found(spark: SparkSession, lake: Path) -> Found:
    from tidegate.pipeline.run import run
    from tidegate.pipeline.settings import PipelineSettings

    settings = PipelineSettings(lake=str(lake))
    return Found(spark, settings, run(spark, settings))


@pytest.fixture(scope="session")
def raw(lake: Path) -> Callable[[str], list[Row]]:
    """All rows of a table of the lake, read without Spark."""

    @cache
    def read(table: str) -> list[Row]:
        rows: list[Row] = []
        for path in sorted((lake / table).rglob("*.parquet")):
            rows.extend(pq.ParquetFile(path).read().to_pylist())
        return rows

    return read


@pytest.fixture(scope="session")
def labels(lake: Path) -> Callable[[str], list[Row]]:
    return lambda name: pq.read_table(lake / "_labels" / f"{name}.parquet").to_pylist()


@pytest.fixture
def frame(spark: SparkSession) -> Callable[..., DataFrame]:
    """Rows as a frame with the columns of a table, those left out null, and the partition's."""

    def make(rows: list[Row], table: Table, *partition: str) -> DataFrame:
        from pyspark.sql import types as T

        from tidegate.pipeline.types import HOUR_PARTITION, PART_PARTITION, spark_schema

        fields = [each for each in (*HOUR_PARTITION, PART_PARTITION[1]) if each.name in partition]
        schema = spark_schema(table, fields)
        assert isinstance(schema, T.StructType)

        def value(row: Row, name: str) -> Any:
            found = row.get(name)
            return found.replace(tzinfo=UTC) if isinstance(found, datetime) else found

        return spark.createDataFrame(
            [tuple(value(row, name) for name in schema.names) for row in rows], schema
        )

    return make
